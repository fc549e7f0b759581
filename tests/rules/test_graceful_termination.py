from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests import strategies
from tests.rules.conftest import owned_by, patched, request_for, shipped_provider, subject_of, with_fields
from webhook.capacity.providers.pool import Taint
from webhook.capacity.view import ClusterView, Needs
from webhook.kube.pod_decoding import decode_pod
from webhook.model.decision import Outcome, Trace, Violation
from webhook.model.review import GroupVersionResource
from webhook.policy.errors import SpecError
from webhook.policy.match import PODS_CREATE
from webhook.rules.context import Context, Phase
from webhook.rules.graceful_termination.rule import KIND, GracefulTermination
from webhook.rules.protocol import Facts, Mutator
from webhook.rules.spot_placement import rule as spot_placement

if TYPE_CHECKING:
    from tests.rules.conftest import FakeSubject
    from webhook.capacity.providers.pool import Pool
    from webhook.kube.edit import PodEditor

JSON = dict[str, Any]

CKS = shipped_provider("cks")
ONLY_CKS = {"cks": CKS}
GRACE = "terminationGracePeriodSeconds"
SPOT = {"spotgate.dev/capacity": "spot"}
GPU = {"limits": {"nvidia.com/gpu": "8"}}
ON_DEMAND = "label the Pod `spotgate.dev/capacity: on-demand`"
NATIVE = {"preStop": {"sleep": {"seconds": 5}}}
EXEC = {"preStop": {"exec": {"command": ["/bin/sh", "-c", "sleep 5"]}}}
OLD = (1, 29)


def node_pool(name: str, instance_type: str, compute_class: str = "spot") -> Pool:
    return CKS.readers[0].read(
        {
            "metadata": {"name": name},
            "spec": {"computeClass": compute_class, "instanceType": instance_type, "targetNodes": 2},
        }
    )


POOLS = (
    node_pool("spot-cpu", "turin-gp"),
    node_pool("spot-gpu", "gd-8xh100ib-i128"),
    node_pool("cpu-control-plane", "cd-gp-a192-genoa", "default"),
)
VIEW = ClusterView(pools=POOLS, providers=frozenset({"cks"}))


def rule(*, budget: int | None = None, **spec: Any) -> GracefulTermination:
    """Return the rule compiled from such a spec; with a budget, on a CKS that has that one instead, without a margin."""
    providers = ONLY_CKS
    if budget is not None:
        grace = with_fields(CKS.grace_period, budget_seconds=budget, safety_margin_seconds=0)
        providers = {"cks": with_fields(CKS, grace_period=grace)}
    compiled = KIND.compile(KIND.spec.model_validate(spec), Facts(providers))
    assert isinstance(compiled, GracefulTermination)
    return compiled


def context(phase: Phase = Phase.MUTATE, **changes: Any) -> Context:
    return Context(phase=phase, now=datetime(2026, 11, 21, tzinfo=UTC), **{"view": VIEW, **changes})


def pod(
    *,
    grace: int | None = 30,
    labels: JSON | None = None,
    keep: str | None = None,
    owner: tuple[str, str] | None = None,
    app: JSON | None = None,
    **spec: Any,
) -> JSON:
    """Return a Pod that targets spot."""
    metadata: JSON = {"name": "web", "namespace": "team-a", "labels": {**SPOT, **(labels or {})}}
    if keep is not None:
        metadata["annotations"] = {"spotgate.dev/keep": keep}
    if owner is not None:
        metadata["ownerReferences"] = owned_by(*owner)
    containers = [{"name": "app", "image": "example.com/app", **(app or {})}]
    value: JSON = {"metadata": metadata, "spec": {"containers": containers, **spec}}
    if grace is not None:
        value["spec"][GRACE] = grace
    return value


def mutate(value: JSON, policy: GracefulTermination, where: Context | None = None) -> tuple[JSON, list[JSON]]:
    """Return the Pod after the patch, and the patch."""

    def change(subject: FakeSubject, editor: PodEditor) -> None:
        policy.mutate(subject, editor, where or context())

    return patched(value, subject_of(value), change)


def grace_after(value: JSON, policy: GracefulTermination, where: Context | None = None) -> int | None:
    result, _ = mutate(value, policy, where)
    grace: int | None = result["spec"].get(GRACE)
    return grace


def judge(value: JSON, policy: GracefulTermination, **changes: Any) -> list[Violation]:
    """Return what is said about the Pod as it is."""
    return list(policy.validate(subject_of(value), context(Phase.VALIDATE, **changes)))


def judge_after(value: JSON, policy: GracefulTermination, **changes: Any) -> list[Violation]:
    """Return what is said about the Pod after it was changed."""
    result, _ = mutate(value, policy, context(**changes))
    return judge(result, policy, **changes)


def test_it_asks_for_pools_and_namespaces_when_pods_are_created() -> None:
    assert KIND.needs == Needs(namespaces=True, pools=True)
    assert KIND.rules(Facts({})) == (PODS_CREATE,)


# Grace period --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grace", [30, None])
@pytest.mark.parametrize(
    ("workload_class", "budget", "expected"),
    [
        ("stateless", None, 60),
        ("queue-worker", None, 120),
        ("checkpointing", None, 270),
        ("batch", None, 30),
        ("stateless", 105, 60),
        ("queue-worker", 105, 105),
        ("checkpointing", 105, 105),
        ("stateless", 25, 25),
        ("batch", 15, 15),
    ],
)
def test_an_untuned_pod_gets_the_grace_period_of_its_class_at_most_the_budget(
    grace: int | None, workload_class: str, budget: int | None, expected: int
) -> None:
    value = pod(grace=grace, labels={"spotgate.dev/workload-class": workload_class})

    assert (grace_after(value, rule(budget=budget)) or 30) == expected


def test_raise_only_never_goes_below_the_default() -> None:
    classes = {"short": {"graceSeconds": 20, "preStopSeconds": 0}}

    assert grace_after(pod(), rule(budget=15, untuned="raise-only")) == 30
    assert grace_after(pod(), rule(untuned="raise-only")) == 60
    short = pod(labels={"spotgate.dev/workload-class": "short"})
    assert grace_after(short, rule(untuned="raise-only", classes=classes)) == 30
    assert grace_after(short, rule(classes=classes)) == 20


@pytest.mark.parametrize("grace", [-1, 0, 1, 29, 31, 60, 269, 270, 271, 300, 3600])
@pytest.mark.parametrize("over_budget", ["warn", "deny"])
def test_every_other_grace_period_is_the_users(grace: int, over_budget: str) -> None:
    assert grace_after(pod(grace=grace), rule(overBudget=over_budget)) == grace


@pytest.mark.parametrize(("grace", "expected"), [(0, 0), (-1, -1), (45, 45), (270, 270), (271, 270), (3600, 270)])
def test_clamp_lowers_to_the_budget_and_never_raises(grace: int, expected: int) -> None:
    assert grace_after(pod(grace=grace), rule(overBudget="clamp")) == expected


def sleeping(seconds: int) -> list[JSON]:
    """Where in a Pod a hook may sleep, as parts of its spec."""
    native = {"sleep": {"seconds": seconds}}
    shell = {"exec": {"command": ["/bin/sh", "-c", f"echo bye; exec sleep {seconds}"]}}
    app = {"name": "app"}
    return [
        {"containers": [{**app, "lifecycle": {"preStop": native}}]},
        {"containers": [{**app, "lifecycle": {"postStart": native}}]},
        {"containers": [{**app, "lifecycle": {"preStop": shell}}]},
        {"containers": [app, {"name": "log", "lifecycle": {"preStop": native}}]},
        {
            "containers": [app],
            "initContainers": [{"name": "proxy", "restartPolicy": "Always", "lifecycle": {"preStop": native}}],
        },
    ]


@pytest.mark.parametrize("spec", sleeping(280))
def test_clamp_does_not_touch_a_pod_that_sleeps_the_budget_away(spec: JSON) -> None:
    value = pod(grace=400, **spec)

    assert grace_after(value, rule(overBudget="clamp")) == 400
    assert "A lifecycle hook alone sleeps 280 s." in judge_after(value, rule(overBudget="clamp"))[0].detail


@pytest.mark.parametrize("spec", sleeping(269))
def test_clamp_leaves_at_least_a_second_after_a_sleep(spec: JSON) -> None:
    assert grace_after(pod(grace=400, **spec), rule(overBudget="clamp")) == 270


@pytest.mark.parametrize("seconds", [15, 20, 29])
@pytest.mark.parametrize("where", range(5))
def test_an_untuned_grace_period_is_not_lowered_to_where_a_sleep_uses_it_up(seconds: int, where: int) -> None:
    assert grace_after(pod(**sleeping(seconds)[where]), rule(budget=15)) == 30


@pytest.mark.parametrize(("budget", "grace"), [(15, 30), (270, 60)])
def test_the_grace_period_of_a_pod_that_only_prefers_spot_is_only_raised(budget: int, grace: int) -> None:
    on_spot = {"key": "compute.coreweave.com/node-pool", "operator": "In", "values": ["spot-cpu"]}
    preference = {"weight": 1, "preference": {"matchExpressions": [on_spot]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    value = pod(affinity=affinity, tolerations=[{"key": "spot", "operator": "Exists"}])
    value["metadata"]["labels"] = {}
    policy = rule(budget=budget, overBudget="clamp")

    result, _ = mutate(value, policy)
    assert result["spec"][GRACE] == grace
    assert result["spec"]["containers"][0]["lifecycle"] == NATIVE
    assert judge_after(value, policy) == []
    tuned = {**value, "spec": {**value["spec"], GRACE: 400}}
    assert grace_after(tuned, policy) == 400
    assert [each.id for each in judge_after(tuned, policy)] == ["over-budget"]


@pytest.mark.parametrize(
    "hook",
    [
        {"exec": {"command": ["sh", "-c", "nginx -s quit; sleep 5"]}},
        {"exec": {"command": ["/app/drain"]}},
        {"httpGet": {"path": "/shutdown", "port": 8090}},
    ],
)
def test_no_grace_period_is_lowered_under_a_hook_of_unknown_length(hook: JSON) -> None:
    value, policy = pod(app={"lifecycle": {"preStop": hook}}), rule(budget=15, overBudget="clamp")

    assert grace_after(value, policy) == 30
    (warned,) = judge_after(value, policy)
    assert (warned.id, warned.outcome) == ("over-budget", Outcome.WARN)
    assert "The preStop hook of `app` may take the whole of it" in warned.detail
    assert grace_after(value, rule()) == 60  # raised all the same
    assert grace_after(pod(app={"lifecycle": {"postStart": hook}}), policy) == 15


def test_if_the_class_leaves_no_room_for_a_sleep_the_budget_may() -> None:
    policy = rule(budget=25, classes={"stateless": {"graceSeconds": 10, "preStopSeconds": 0}})

    assert grace_after(pod(**sleeping(9)[0]), policy) == 10
    assert grace_after(pod(**sleeping(10)[0]), policy) == 25
    assert grace_after(pod(**sleeping(25)[0]), policy) == 30


# preStop sleep -------------------------------------------------------------------------------------------------------


def test_every_ordinary_container_without_pre_stop_gets_the_sleep() -> None:
    drain = {"exec": {"command": ["/app/drain"]}}
    value = pod(
        containers=[
            {"name": "app"},
            {"name": "own", "lifecycle": {"preStop": drain}},
            {"name": "started", "lifecycle": {"postStart": drain}},
        ],
        initContainers=[{"name": "migrate"}, {"name": "proxy", "restartPolicy": "Always"}],
        ephemeralContainers=[{"name": "debug"}],
    )

    result, patch = mutate(value, rule())

    assert result["spec"] == {
        **value["spec"],
        GRACE: 60,
        "containers": [
            {"name": "app", "lifecycle": NATIVE},
            {"name": "own", "lifecycle": {"preStop": drain}},
            {"name": "started", "lifecycle": {"postStart": drain, **NATIVE}},
        ],
    }
    assert [operation["path"] for operation in patch] == [
        "/spec/terminationGracePeriodSeconds",
        "/spec/containers/0/lifecycle",
        "/spec/containers/2/lifecycle/preStop",
    ]


@pytest.mark.parametrize(
    ("grace", "sleeps"), [(-1, False), (0, False), (1, False), (4, False), (5, False), (6, True), (300, True)]
)
def test_the_sleep_is_injected_only_if_it_is_shorter_than_the_grace_period(grace: int, *, sleeps: bool) -> None:
    result, _ = mutate(pod(grace=grace), rule())

    assert result["spec"]["containers"][0].get("lifecycle") == (NATIVE if sleeps else None)


WINDOWS: list[JSON] = [{"os": {"name": "windows"}}, {"nodeSelector": {"kubernetes.io/os": "windows"}}]


@pytest.mark.parametrize("spec", [{}, *WINDOWS])
@pytest.mark.parametrize(
    ("method", "api_server", "kubelet", "linux", "windows"),
    [
        ("auto", (1, 34), (1, 34), NATIVE, NATIVE),
        ("auto", (1, 30), (1, 30), NATIVE, NATIVE),
        ("auto", (2, 0), (1, 30), NATIVE, NATIVE),
        ("auto", OLD, (1, 30), EXEC, None),
        ("auto", (1, 30), OLD, EXEC, None),
        ("auto", (1, 9), (1, 9), EXEC, None),
        ("sleep", (1, 30), (1, 30), NATIVE, NATIVE),
        ("sleep", (1, 30), OLD, None, None),
        ("exec", (1, 34), (1, 34), EXEC, None),
        ("exec", OLD, OLD, EXEC, None),
    ],
)
def test_how_a_container_sleeps_depends_on_method_versions_and_operating_system(
    spec: JSON,
    method: str,
    api_server: tuple[int, int],
    kubelet: tuple[int, int],
    linux: JSON | None,
    windows: JSON | None,
) -> None:
    versions = context(api_server=api_server, oldest_kubelet=kubelet)
    expected = windows if spec else linux

    result, _ = mutate(pod(**spec), rule(method=method), versions)

    assert result["spec"]["containers"][0].get("lifecycle") == expected
    assert result["spec"][GRACE] == 60
    found = judge(result, rule(method=method), api_server=api_server, oldest_kubelet=kubelet)
    assert [each.field for each in found] == ([] if expected else ["spec.containers[0].lifecycle"])


def test_no_way_to_sleep_is_a_finding_that_says_why() -> None:
    windows = judge_after(pod(**WINDOWS[0]), rule(), oldest_kubelet=OLD)
    old = judge_after(pod(), rule(method="sleep"), oldest_kubelet=(1, 28))

    assert [each.reason for each in windows] == [
        "no preStop sleep of 5 s can be injected: a Windows Pod has no /bin/sh"
    ]
    assert [each.reason for each in old] == [
        "no preStop sleep of 5 s can be injected: Kubernetes 1.28 has no `sleep` hook (1.30 has)"
    ]
    assert {each.outcome for each in (*windows, *old)} == {Outcome.WARN}
    assert old[0].fix.startswith("give it a preStop hook of its own that waits 5 s")


# Workload class ------------------------------------------------------------------------------------------------------

PORT = {"ports": [{"containerPort": 8080}]}


@pytest.mark.parametrize(
    ("owner", "app", "grace", "sleeps"),
    [
        (("Job", "batch/v1"), {"resources": GPU}, 270, False),
        (("Job", "batch/v1"), {}, 30, False),
        (("Job", "batch/v1"), {"resources": {"limits": {"nvidia.com/gpu": "0"}}}, 30, False),
        (("Job", "batch.volcano.sh/v1alpha1"), {"resources": GPU}, 270, False),
        (("PyTorchJob", "kubeflow.org/v1"), {"resources": GPU}, 270, False),
        (("MPIJob", "kubeflow.org/v2beta1"), {"resources": GPU}, 270, False),
        (("TFJob", "kubeflow.org/v1"), {"resources": GPU}, 270, False),
        (("PyTorchJob", "kubeflow.org/v1"), {}, 60, True),
        (("PyTorchJob", "example.com/v1"), {"resources": GPU}, 60, True),
        (("RayCluster", "ray.io/v1"), {"resources": GPU}, 60, True),
        (("StatefulSet", "apps/v1"), {"resources": GPU}, 60, True),
        (("ReplicaSet", "apps/v1"), {}, 120, True),
        (("ReplicaSet", "apps/v1"), {"ports": []}, 120, True),
        (("ReplicaSet", "apps/v1"), PORT, 60, True),
        (("ReplicaSet", "apps/v1"), {"resources": GPU, **PORT}, 60, True),
        (None, {"resources": GPU}, 60, True),
        (None, {}, 60, True),
    ],
)
def test_the_class_of_a_pod_that_names_none_comes_from_owner_gpus_and_ports(
    owner: tuple[str, str] | None, app: JSON, grace: int, *, sleeps: bool
) -> None:
    result, _ = mutate(pod(owner=owner, app=app), rule())

    assert result["spec"][GRACE] == grace
    assert ("lifecycle" in result["spec"]["containers"][0]) is sleeps


def test_an_owner_that_does_not_control_the_pod_says_nothing_about_its_class() -> None:
    value = pod(owner=("Job", "batch/v1"))
    del value["metadata"]["ownerReferences"][0]["controller"]

    assert grace_after(value, rule()) == 60


def test_the_label_wins_over_the_owner() -> None:
    value = pod(labels={"spotgate.dev/workload-class": "queue-worker"}, owner=("Job", "batch/v1"))

    assert grace_after(value, rule()) == 120


def test_a_team_adds_classes_and_replaces_shipped_ones() -> None:
    policy = rule(
        classes={
            "inference": {"graceSeconds": 90, "preStopSeconds": 10},
            "stateless": {"graceSeconds": "budget", "preStopSeconds": 0},
        }
    )
    inference, _ = mutate(pod(labels={"spotgate.dev/workload-class": "inference"}), policy)

    assert inference["spec"][GRACE] == 90
    assert inference["spec"]["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 10}}}
    assert grace_after(pod(), policy) == 270
    assert grace_after(pod(labels={"spotgate.dev/workload-class": "queue-worker"}), policy) == 120


def test_a_team_names_its_own_training_operators() -> None:
    policy = rule(trainingOperators=["Train*.example.com"])

    assert grace_after(pod(owner=("TrainRun", "example.com/v1"), app={"resources": GPU}), policy) == 270
    assert grace_after(pod(owner=("PyTorchJob", "kubeflow.org/v1"), app={"resources": GPU}), policy) == 60


def test_a_class_that_the_policy_does_not_have_is_a_finding_and_the_pod_is_treated_as_if_it_named_none() -> None:
    value = pod(labels={"spotgate.dev/workload-class": "chekpointing"}, owner=("Job", "batch/v1"))

    assert grace_after(value, rule()) == 30
    assert [(each.id, each.field, each.outcome) for each in judge(value, rule())] == [
        ("unknown-class", 'metadata.labels["spotgate.dev/workload-class"]', Outcome.WARN)
    ]


# Opting out ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep", "grace", "sleeps"),
    [
        ("grace-period", 30, True),
        ("pre-stop", 60, False),
        ("grace-period,pre-stop", 30, False),
        (" pre-stop , node-selector,, grace-period ", 30, False),
        ("tolerations,node-selector", 60, True),
        ("", 60, True),
        ("Grace-Period", 60, True),
    ],
)
def test_what_the_annotation_keeps_is_not_changed(keep: str, grace: int, *, sleeps: bool) -> None:
    result, _ = mutate(pod(keep=keep), rule())

    assert result["spec"][GRACE] == grace
    assert ("lifecycle" in result["spec"]["containers"][0]) is sleeps


def test_a_kept_grace_period_is_not_clamped_but_still_reported() -> None:
    value = pod(grace=600, keep="grace-period")

    assert grace_after(value, rule(overBudget="clamp")) == 600
    assert [each.field for each in judge_after(value, rule(overBudget="clamp"))] == [f"spec.{GRACE}"]


def test_an_unknown_word_in_the_annotation_is_a_finding() -> None:
    value = pod(grace=60, keep="grace-perod, pre-stop")

    assert [(each.id, each.field, each.outcome) for each in judge(value, rule())] == [
        ("unknown-keep-word", 'metadata.annotations["spotgate.dev/keep"]', Outcome.WARN)
    ]


def test_an_annotation_full_of_rubbish_makes_one_short_finding() -> None:
    found = judge(pod(grace=60, keep=",".join(f"{n}{'x' * 1000}" for n in range(100)) + ",pre-stop"), rule())

    assert len(found) == 1
    assert len(found[0].reason) < 100


# Findings ------------------------------------------------------------------------------------------------------------


def test_a_grace_period_over_the_budget_is_reported_with_what_is_lost() -> None:
    assert [(each.id, each.field, each.outcome) for each in judge_after(pod(grace=600), rule())] == [
        ("over-budget", "spec.terminationGracePeriodSeconds", Outcome.WARN)
    ]


@pytest.mark.parametrize("grace", [-1, 29, 60, 270])
def test_a_grace_period_within_the_budget_is_no_finding(grace: int) -> None:
    assert judge_after(pod(grace=grace), rule(overBudget="deny")) == []


def test_a_grace_period_of_zero_is_a_finding_unless_the_pod_keeps_it() -> None:
    (warned,) = judge_after(pod(grace=0), rule(overBudget="deny"))

    assert (warned.id, warned.field, warned.outcome) == (
        "no-grace-period",
        "spec.terminationGracePeriodSeconds",
        Outcome.WARN,
    )
    assert judge_after(pod(grace=0, keep="grace-period"), rule()) == []


@pytest.mark.parametrize(
    ("metadata", "spec", "fix"),
    [
        ({"labels": SPOT}, {}, ON_DEMAND),
        (
            {"labels": SPOT},
            {"nodeSelector": {"compute.coreweave.com/node-pool": "spot-cpu"}},
            ON_DEMAND,
        ),
        (
            {"annotations": {"spotgate.dev/node-pool": "spot-cpu"}},
            {},
            'remove its choice of spot, `metadata.annotations["spotgate.dev/node-pool"]`',
        ),
        (
            {},
            {"nodeSelector": {"compute.coreweave.com/node-pool": "spot-cpu"}},
            "remove its choice of spot, `spec.nodeSelector`",
        ),
    ],
)
def test_the_way_to_run_on_demand_is_to_undo_what_chooses_spot(metadata: JSON, spec: JSON, fix: str) -> None:
    value = {"metadata": metadata, "spec": {"containers": [{"name": "app"}], GRACE: 600, **spec}}

    (warned,) = (each for each in judge_after(value, rule()) if each.id == "over-budget")
    assert warned.fix.endswith(f"or run it on-demand: {fix}")


@pytest.mark.parametrize(("over_budget", "outcome"), [("warn", Outcome.WARN), ("deny", Outcome.DENY)])
def test_over_budget_decides_whether_it_is_refused(over_budget: str, outcome: Outcome) -> None:
    assert [each.outcome for each in judge_after(pod(grace=600), rule(overBudget=over_budget))] == [outcome]


def test_the_default_that_nobody_wrote_is_never_refused() -> None:
    found = judge_after(pod(), rule(budget=15, untuned="raise-only", overBudget="deny"))

    assert [(each.outcome, each.field) for each in found] == [(Outcome.WARN, f"spec.{GRACE}")]


def test_what_clamp_has_mended_is_no_finding() -> None:
    assert judge_after(pod(grace=600), rule(overBudget="clamp")) == []


@pytest.mark.parametrize("where", [0, 2, 3, 4])
@pytest.mark.parametrize(("grace", "found"), [(61, 0), (60, 1), (59, 1)])
def test_a_pre_stop_sleep_that_takes_the_whole_grace_period_is_a_finding(where: int, grace: int, found: int) -> None:
    value = pod(grace=grace, keep="pre-stop", **sleeping(60)[where])

    assert len(judge(value, rule())) == found


def test_it_says_that_the_sleep_leaves_no_time() -> None:
    value = pod(grace=60, **sleeping(60)[0])

    assert [(each.id, each.field, each.outcome) for each in judge(value, rule())] == [
        ("sleep-too-long", "spec.containers[0].lifecycle.preStop", Outcome.WARN)
    ]


@pytest.mark.parametrize(("seconds", "fix"), [(269, "to more than 269 (at most 270)"), (270, "sleep less than 60 s")])
def test_a_longer_grace_period_is_proposed_only_where_there_is_one(seconds: int, fix: str) -> None:
    (found,) = judge(pod(grace=60, **sleeping(seconds)[0]), rule())

    assert found.fix.endswith(fix)


def test_a_sleep_that_the_api_server_will_refuse_is_said_to_be() -> None:
    (pre_stop,) = judge(pod(grace=60, **sleeping(61)[0]), rule())
    (post_start,) = judge(pod(grace=60, keep="pre-stop", **sleeping(61)[1]), rule())

    assert pre_stop.detail.endswith("The API server refuses a `sleep` that is longer than the grace period.")
    assert post_start.detail.endswith("The API server refuses a `sleep` that is longer than the grace period.")
    assert judge(pod(grace=60, keep="pre-stop", **sleeping(60)[1]), rule()) == []


def test_a_sleep_is_held_against_the_grace_period_that_the_class_gives() -> None:
    assert judge_after(pod(**sleeping(40)[2]), rule()) == []


def test_a_pod_that_the_mutating_webhook_has_not_seen_is_reported() -> None:
    found = judge(pod(containers=[{"name": "app"}, {"name": "log"}]), rule())

    assert [(each.reason, each.field, each.outcome) for each in found] == [
        ("a grace period of 30 s should be 60 s on this capacity", f"spec.{GRACE}", Outcome.WARN),
        ("the preStop sleep of 5 s is missing", "spec.containers[0].lifecycle", Outcome.WARN),
    ]
    assert [each.fix for each in found] == [
        "set `terminationGracePeriodSeconds: 60`, or annotate the Pod `spotgate.dev/keep: grace-period`",
        "give them `lifecycle: {preStop: {sleep: {seconds: 5}}}`, or annotate the Pod `spotgate.dev/keep: pre-stop`",
    ]
    assert "`app`, `log`" in found[1].detail


@pytest.mark.parametrize(
    ("value", "remedies"),
    [
        (pod(grace=600, keep="pre-stop"), ["label the pod template `spotgate.dev/capacity: on-demand`"]),
        (
            pod(),
            [
                "annotate the pod template `spotgate.dev/keep: grace-period`",
                "annotate the pod template `spotgate.dev/keep: pre-stop`",
            ],
        ),
    ],
)
def test_in_a_workload_the_pod_template_is_what_is_to_be_labelled(value: JSON, remedies: list[str]) -> None:
    found = rule().validate(subject_of(value, template=True), context(Phase.VALIDATE))
    assert [remedy in each.fix for each, remedy in zip(found, remedies, strict=True)] == [True] * len(remedies)


def test_what_it_asks_for_is_what_it_would_have_injected() -> None:
    (found,) = judge(pod(grace=60), rule(), oldest_kubelet=OLD)

    assert found.fix.startswith("give it `lifecycle: {preStop: {exec: {command: [/bin/sh, -c, sleep 5]}}}`")


# Left alone ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
def test_only_a_new_pod_is_looked_at(operation: str) -> None:
    subject = subject_of(pod(grace=600), operation=operation, request=request_for(operation=operation))

    assert list(rule().validate(subject, context(Phase.VALIDATE))) == []


@pytest.mark.parametrize(
    "changes", [{"resource": GroupVersionResource("apps", "v1", "deployments")}, {"sub_resource": "eviction"}]
)
def test_only_pods_and_templates_are_looked_at(changes: JSON) -> None:
    other = subject_of(pod(grace=600), request=request_for(**changes))
    template = subject_of(pod(grace=600), request=request_for(**changes), template=True)

    assert list(rule().validate(other, context(Phase.VALIDATE))) == []
    assert len(list(rule().validate(template, context(Phase.VALIDATE)))) == 2


@pytest.mark.parametrize("capacity", ["spot", "spot-preferred"])
@pytest.mark.parametrize("app", [{}, {"resources": GPU}])
def test_it_does_not_matter_whether_the_pod_is_placed_before_or_after(capacity: str, app: JSON) -> None:
    pools = tuple(replace(each, taints=(Taint("spot", "true", "NoSchedule"),)) for each in POOLS[:2])
    where = context(view=replace(VIEW, pools=(*pools, POOLS[2])))
    placement = spot_placement.KIND.compile(spot_placement.KIND.spec(), Facts(ONLY_CKS))
    assert isinstance(placement, Mutator)
    value = pod(labels={"spotgate.dev/capacity": capacity}, owner=("Job", "batch/v1"), app=app)

    def in_order(*rules: Mutator) -> JSON:
        def change(subject: FakeSubject, editor: PodEditor) -> None:
            for each in rules:
                each.mutate(subject, editor, where)

        return patched(value, subject_of(value), change)[0]

    first, last = in_order(placement, rule()), in_order(rule(), placement)

    assert first == last
    assert first["spec"]["tolerations"]
    assert first["spec"][GRACE] == (270 if app else 30)
    assert mutate(first, rule(), where) == (first, [])


def test_tolerating_spot_is_targeting_it_only_where_the_policy_says_so() -> None:
    tainted = replace(POOLS[0], taints=(Taint("spot", "true", "NoSchedule"),))
    view = replace(VIEW, pools=(tainted, *POOLS[1:]))
    value = pod(tolerations=[{"key": "spot", "operator": "Exists"}])
    del value["metadata"]["labels"]

    assert grace_after(value, rule(toleratingIsTargeting=True), context(view=view)) == 60
    assert grace_after(value, rule(), context(view=view)) == 30


def test_where_the_pools_are_unknown_the_provider_in_play_gives_the_budget() -> None:
    value = pod(labels={"spotgate.dev/workload-class": "checkpointing"})
    view = ClusterView(pools=None, providers=frozenset({"cks"}))

    assert grace_after(value, rule(), context(view=view)) == 270


@pytest.mark.parametrize(
    ("value", "pools"),
    [
        (pod(grace=600), (node_pool("cpu", "turin-gp", "default"),)),
        (pod(grace=600), (node_pool("gpu-spot", "gd-8xh100ib-i128"),)),
        (pod(grace=600, nodeSelector={CKS.pool_name_label: "cpu-control-plane"}), POOLS),
        (pod(grace=600, app={"resources": GPU}, nodeSelector={CKS.pool_name_label: "spot-cpu"}), POOLS),
    ],
)
def test_a_pod_that_can_land_on_no_spot_pool_is_left_alone(value: JSON, pools: tuple[Pool, ...]) -> None:
    view, policy = replace(VIEW, pools=pools), rule(overBudget="clamp")

    assert mutate(value, policy, context(view=view)) == (value, [])
    assert judge(value, policy, view=view) == []


def test_where_no_provider_is_in_play_nothing_is_changed_or_said() -> None:
    value, nowhere = pod(grace=600), ClusterView()

    assert mutate(value, rule(overBudget="clamp"), context(view=nowhere)) == (value, [])
    assert judge(value, rule(), view=nowhere) == []


def test_a_policy_can_name_the_provider_of_a_cluster_that_shows_none() -> None:
    assert grace_after(pod(), rule(provider="cks"), context(view=ClusterView())) == 60


def test_the_strictest_of_the_pools_that_the_pod_can_land_on_counts() -> None:
    pools = (replace(POOLS[0], grace_seconds=90, safety_margin_seconds=0), *POOLS[1:])
    view = replace(VIEW, pools=pools)
    queue = pod(labels={"spotgate.dev/workload-class": "queue-worker"})
    training = pod(labels={"spotgate.dev/workload-class": "queue-worker"}, app={"resources": GPU})

    assert grace_after(queue, rule(), context(view=view)) == 90
    assert grace_after(training, rule(), context(view=view)) == 120


def test_the_trace_says_why() -> None:
    recording = Trace()
    rule().plan(subject_of(pod(owner=("Job", "batch/v1")), trace=recording), context())

    assert [text for _, _, text in recording.steps][1:] == [
        (
            "the budget is 270 s: On CoreWeave CKS a node is drained 120 s after the notice and removed after 420 s: "
            "a Pod has 300 s, less a safety margin of 30 s"
        ),
        "class batch: a Job owns it, and it requests no GPUs",
        "grace period: 30 s, should be 30 s",
        "preStop sleep of 0 s: no container needs it",
    ]


# The policy file -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "path", "problem"),
    [
        (
            {"classes": {"web": {"graceSeconds": 5, "preStopSeconds": 5}}},
            ("classes", "web", "preStopSeconds"),
            "a sleep of 5 s leaves nothing of 5 s to shut down in; it must be less than graceSeconds",
        ),
    ],
)
def test_what_can_not_work_is_refused_when_the_policy_is_loaded(
    spec: JSON, path: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(SpecError) as caught:
        rule(**spec)

    assert (caught.value.path, caught.value.problem) == (path, problem)


@pytest.mark.parametrize(
    ("spec", "location", "problem"),
    [
        ({"overBudget": "refuse"}, ("overBudget",), "Input should be 'warn', 'clamp' or 'deny'"),
        ({"untunned": "raise-only"}, ("untunned",), "Extra inputs are not permitted"),
        ({"classes": {"web": {"graceSeconds": 60}}}, ("classes", "web", "preStopSeconds"), "Field required"),
    ],
)
def test_mistakes_in_the_spec_are_found_at_their_field(spec: JSON, location: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ValueError, match="validation error") as caught:
        KIND.spec.model_validate(spec)

    errors = caught.value.errors()  # type: ignore[attr-defined]
    assert [(error["loc"], error["msg"]) for error in errors] == [(location, problem)]


# Invariants ----------------------------------------------------------------------------------------------------------

spot_pods = strategies.pods(
    labels={
        "spotgate.dev/capacity": st.sampled_from(("spot", "spot-preferred")),
        "spotgate.dev/workload-class": st.sampled_from(("stateless", "queue-worker", "checkpointing", "batch", "typo")),
    },
    annotations={"spotgate.dev/keep": st.sampled_from(("grace-period", "pre-stop", "grace-period,pre-stop", "typo"))},
)
policies = st.builds(
    rule,
    budget=st.one_of(st.none(), st.integers(0, 400)),
    untuned=st.sampled_from(("fit-budget", "raise-only")),
    overBudget=st.sampled_from(("warn", "clamp", "deny")),
    method=st.sampled_from(("auto", "sleep", "exec")),
)
versions = st.sampled_from((OLD, (1, 30), (1, 34)))


@given(spot_pods, policies, versions)
def test_a_grace_period_ends_within_the_budget_or_where_the_user_put_it(
    value: JSON, policy: GracefulTermination, version: tuple[int, int]
) -> None:
    budget = policy.budgets._by_provider["cks"].seconds
    before = decode_pod(msgspec.json.encode(value)).grace_seconds

    result, _ = mutate(value, policy, context(oldest_kubelet=version))

    after = decode_pod(msgspec.json.encode(result)).grace_seconds
    assert after <= max(before, budget)
    assert before in {after, 30} or after == budget


@given(spot_pods, policies, versions)
def test_what_was_changed_is_never_asked_for_again(
    value: JSON, policy: GracefulTermination, version: tuple[int, int]
) -> None:
    found = judge_after(value, policy, oldest_kubelet=version)

    assert not [each for each in found if "should be" in each.reason or "is missing" in each.reason]
    assert all(each.reason and each.field and each.fix and len(each.reason) <= 110 for each in found)

"""The fixes that a rehearsal proposes, and the cluster with them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from msgspec import structs

from webhook.engine.bundle import Bundle, load_bundle
from webhook.inputs.objects import read_manifests
from webhook.rehearse.compare import try_fixes
from webhook.rehearse.fixes import _nodes_for, fixes_of, growth_of, with_fixes
from webhook.rehearse.inputs.resources import manifest_of
from webhook.rehearse.inputs.snapshot import ClusterSnapshot, snapshot_of
from webhook.rehearse.inputs.source import ClusterSource
from webhook.rehearse.reasons import Cause, HarmReason
from webhook.rehearse.result import Figure, Fix, ReclaimWindow, Rehearsal, RehearsalSummary, WorkloadResult

if TYPE_CHECKING:
    from collections.abc import Sequence

ALLOCATABLE = {"big": {"cpu": "4", "memory": "16Gi"}}
POOLS = """
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {name: spot}
spec: {computeClass: spot, instanceType: big, autoscaling: false, targetNodes: 2, minNodes: 0, maxNodes: 0}
---
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {name: on-demand}
spec: {computeClass: default, instanceType: big, autoscaling: false, targetNodes: 1, minNodes: 0, maxNodes: 0}
---
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, spotgate.dev/capacity: %s}}
    spec:
      terminationGracePeriodSeconds: %d
      containers: [{name: main, image: acme/web, resources: {requests: {cpu: "1"}}}]
"""
BUDGET = """
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: shop}
spec: {minAvailable: 100%, selector: {matchLabels: {app: web}}}
"""
WEB = ("Deployment", "shop", "web")


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return load_bundle()


def snapshot(bundle: Bundle, tmp_path: Any, text: str) -> ClusterSnapshot:
    (tmp_path / "cluster.yaml").write_text(POOLS + text)
    return snapshot_of(ClusterSource(manifests=read_manifests([tmp_path]).objects), bundle, ALLOCATABLE)


def rehearsed(*, replicas: Any = 6, **figures: Any) -> Rehearsal:
    kind, namespace, name = WEB
    none = {
        "moved": Figure(0, 0),
        "pending": Figure(0, 0),
        "missing": Figure(0, 0),
        "killed_early": Figure(0, 0),
        "lowest_ready": Figure(replicas, replicas),
        "seconds_below_budget": Figure(0, 0),
        "work_lost_gpu_hours": Figure(0, 0),
        "reasons": (),
        "budget": "",
        "grace_seconds": 60,
        "startup_seconds": 30,
    }
    workload = WorkloadResult(
        api_version="apps/v1",
        kind=kind,
        namespace=namespace,
        name=name,
        replicas=replicas,
        lost=replicas,
        lost_on=("spot-0",),
        **{**none, **figures},
    )
    zero = Figure(0, 0)
    return Rehearsal(
        lost=("NodePool/spot",),
        runs=1,
        scheduler="1.37.2",
        not_simulated=(),
        summary=RehearsalSummary(zero, zero, zero, zero, zero),
        workloads=(workload,),
        windows=(ReclaimWindow("CoreWeave", ("spot-0", "spot-1"), 0, 120, 420, 420),),
    )


def noticed(**figures: Any) -> Rehearsal:
    """Return a result on nodes that show the notice 120 s before the drain."""
    result = rehearsed(**figures)
    windows = tuple(structs.replace(window, notice=0, margin=30) for window in result.windows)
    return structs.replace(result, windows=windows)


@pytest.mark.parametrize(
    ("text", "result", "proposed"),
    [
        pytest.param(DEPLOYMENT % ("spot-preferred", 30), rehearsed(), [], id="no problem"),
        pytest.param(
            DEPLOYMENT % ("spot", 30),
            rehearsed(pending=Figure(5, 6)),
            [
                {"spec": {"template": {"metadata": {"labels": {"spotgate.dev/capacity": "spot-preferred"}}}}},
                {"kind": "NodePool", "spec": {"computeClass": "default", "maxNodes": 2}},
            ],
            id="pending: may run on demand, and an on-demand pool of the size that six Pods need",
        ),
        pytest.param(
            DEPLOYMENT % ("spot-preferred", 600),
            rehearsed(killed_early=Figure(6, 6), grace_seconds=600),
            [{"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 300}}}}],
            id="a grace period over the window",
        ),
        pytest.param(
            DEPLOYMENT % ("spot-preferred", 350),
            noticed(killed_early=Figure(6, 6), grace_seconds=350),
            [{"spec": {"template": {"metadata": {"labels": {"spotgate.dev/on-reclaim": "evict"}}}}}],
            id="a grace period that fits from the notice",
        ),
        pytest.param(
            DEPLOYMENT % ("spot-preferred", 390),
            noticed(killed_early=Figure(6, 6), grace_seconds=390),
            [{"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 300}}}}],
            id="a grace period that is as long as the time from the notice",
        ),
        pytest.param(
            DEPLOYMENT % ("spot-preferred, spotgate.dev/on-reclaim: evict", 350),
            noticed(killed_early=Figure(6, 6), grace_seconds=350),
            [{"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 300}}}}],
            id="a Pod that has the label, and is killed early nevertheless",
        ),
        pytest.param(
            DEPLOYMENT % ("spot-preferred", 380) + BUDGET,
            noticed(killed_early=Figure(6, 6), grace_seconds=380, budget="web"),
            [{"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 270}}}}],
            id="a grace period that fits only without the budget",
        ),
        pytest.param(
            DEPLOYMENT % ("spot-preferred", 60) + BUDGET,
            rehearsed(
                killed_early=Figure(6, 6), budget="web", reasons=(HarmReason(Cause.BUDGET_BLOCKS, budget="web"),)
            ),
            # 240 s for evictions, 30 s to move a Pod: nine rounds of one Pod each.
            [{"kind": "PodDisruptionBudget", "spec": {"minAvailable": None, "maxUnavailable": 1}}],
            id="a budget that delays the drain",
        ),
        pytest.param(
            DEPLOYMENT % ("spot-preferred", 60) + BUDGET,
            rehearsed(
                killed_early=Figure(6, 6),
                budget="web",
                seconds_below_budget=Figure(),
                reasons=(HarmReason(Cause.BUDGET_UNCOUNTABLE, "no scale", "web"),),
            ),
            [{"kind": "PodDisruptionBudget", "spec": {"minAvailable": 5, "maxUnavailable": None}}],
            id="a budget that can't be counted",
        ),
        pytest.param(
            DEPLOYMENT % ("spot-preferred", 300),
            rehearsed(lowest_ready=Figure(0, 0), grace_seconds=300),
            [],
            id="no budget helps if the grace period leaves time for only one round",
        ),
        pytest.param(
            DEPLOYMENT % ("spot-preferred", 240),
            rehearsed(lowest_ready=Figure(0, 0), grace_seconds=240),
            [{"kind": "PodDisruptionBudget", "spec": {"maxUnavailable": 2}}],
            id="a budget that leaves no Pod ready at times: three rounds",
        ),
        pytest.param(
            DEPLOYMENT % ("spot-preferred", 60) + BUDGET,
            rehearsed(
                replicas=1,
                killed_early=Figure(1, 1),
                budget="web",
                reasons=(HarmReason(Cause.BUDGET_BLOCKS, budget="web"),),
            ),
            [{"kind": "Deployment", "spec": {"replicas": 2}}, {"spec": {"minAvailable": None, "maxUnavailable": 1}}],
            id="a budget that requires the only Pod, and with two replicas both",
        ),
        pytest.param(
            DEPLOYMENT % ("spot-preferred", 60) + BUDGET.replace("100%", "1"),
            rehearsed(
                replicas=1,
                killed_early=Figure(1, 1),
                budget="web",
                reasons=(HarmReason(Cause.BUDGET_BLOCKS, budget="web"),),
            ),
            [{"kind": "Deployment", "spec": {"replicas": 2}}],
            id="a budget that requires one Pod",
        ),
    ],
)
def test_proposed_fixes(
    bundle: Bundle, tmp_path: Any, text: str, result: Rehearsal, proposed: list[dict[str, Any]]
) -> None:
    fixes = fixes_of(result, snapshot(bundle, tmp_path, text))
    assert len(fixes) == len(proposed)
    for fix, part in zip(fixes, proposed, strict=True):
        manifest = yaml.safe_load(fix.yaml)
        assert _has(manifest, part), manifest
        assert fix.why


def _has(value: Any, part: Any) -> bool:
    """Return whether a value contains a part."""
    if isinstance(part, dict):
        return isinstance(value, dict) and all(key in value and _has(value[key], item) for key, item in part.items())
    return bool(value == part)


def test_the_fixed_cluster_has_the_fixes(bundle: Bundle, tmp_path: Any) -> None:
    before = snapshot(bundle, tmp_path, DEPLOYMENT % ("spot", 600) + BUDGET)
    result = rehearsed(
        pending=Figure(2, 2),
        killed_early=Figure(6, 6),
        budget="web",
        reasons=(HarmReason(Cause.BUDGET_BLOCKS, budget="web"),),
        grace_seconds=600,
    )
    after = with_fixes(before, fixes_of(result, before))
    objects = {(item["kind"], item["metadata"]["name"]): item for item in after.objects}
    template = objects["Deployment", "web"]["spec"]["template"]
    assert template["metadata"]["labels"] == {"app": "web", "spotgate.dev/capacity": "spot-preferred"}
    assert template["spec"]["terminationGracePeriodSeconds"] == 270
    assert template["spec"]["containers"][0]["image"] == "acme/web"
    assert objects["PodDisruptionBudget", "web"]["spec"] == {
        "maxUnavailable": 3,  # 270 s of 300 leave time for two rounds
        "selector": {"matchLabels": {"app": "web"}},
    }
    assert [pool.name for pool in after.pools if not pool.spot] == ["on-demand", "spot-fallback"]
    assert len(after.created) == len(before.created)


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: web, namespace: shop}
spec: {backoffLimit: 2, template: {spec: {restartPolicy: %s, containers: [{name: main, image: acme/web}]}}}
"""


@pytest.mark.parametrize(
    ("restart", "proposed"),
    [
        (
            "Never",
            {
                "podFailurePolicy": {
                    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
                }
            },
        ),
        ("OnFailure", {"backoffLimit": 8}),
    ],
)
def test_a_failing_job_gets_a_fix(bundle: Bundle, tmp_path: Any, restart: str, proposed: dict[str, Any]) -> None:
    result = rehearsed(reasons=(HarmReason(Cause.JOB_FAILED, "BackoffLimitExceeded: too many"),))
    job = structs.replace(result.workloads[0], api_version="batch/v1", kind="Job")
    failed = structs.replace(result, workloads=(job,))
    (fix,) = fixes_of(failed, snapshot(bundle, tmp_path, JOB % restart))
    assert fix.manifest["spec"] == proposed


def test_a_template_fix_of_a_job_says_to_create_it_again(bundle: Bundle, tmp_path: Any) -> None:
    result = rehearsed(killed_early=Figure(2, 2), grace_seconds=600)
    job = structs.replace(result.workloads[0], api_version="batch/v1", kind="Job")
    slow = (JOB % "Never").replace("restartPolicy", "terminationGracePeriodSeconds: 600, restartPolicy")
    (fix,) = fixes_of(structs.replace(result, workloads=(job,)), snapshot(bundle, tmp_path, slow))
    assert fix.manifest["spec"]["template"]["spec"] == {"terminationGracePeriodSeconds": 300}
    assert fix.why.endswith("; create the Job again to change it")


def test_a_changed_object_keeps_its_uid_and_status(bundle: Bundle, tmp_path: Any) -> None:
    live = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: default, uid: 22222222-0000-0000-0000-000000000001}
spec:
  replicas: 2
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: main, image: acme/db}]}}
status: {replicas: 2}
"""
    before = snapshot(bundle, tmp_path, live)
    change = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {"template": {"spec": {"terminationGracePeriodSeconds": 5}}},
    }
    added = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db"}, "spec": {}}
    changes = [manifest_of("here", change), manifest_of("here", added)]
    after = snapshot_of(before.source.with_changes(changes), bundle, ALLOCATABLE)
    (database,) = (item for item in after.existing if item["kind"] == "StatefulSet")
    assert database["metadata"]["uid"] == "22222222-0000-0000-0000-000000000001"
    assert (database["spec"]["replicas"], database["status"]) == (2, {"replicas": 2})
    assert database["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 5
    assert database["spec"]["updateStrategy"] == {"type": "RollingUpdate"}  # otherwise its Pods wouldn't change
    assert [item.metadata for item in after.created] == [{"name": "db", "namespace": "default"}]


@pytest.mark.parametrize(
    ("cpus", "nodes"),
    [([5, 5, 5], 3), ([5, 3, 5, 3], 2), ([3, 3, 5, 5], 2), ([9], 0), ([], 0)],
    ids=["no two fit together", "pairs", "largest first", "no node is large enough", "nothing"],
)
def test_capacity_is_computed_by_packing(cpus: list[int], nodes: int) -> None:
    assert _nodes_for([Counter(cpu=cpu) for cpu in cpus], Counter(cpu=8)) == nodes


LABELLED_POOL = """
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {name: spot}
spec:
  computeClass: spot
  instanceType: big
  autoscaling: false
  targetNodes: 2
  minNodes: 0
  maxNodes: 0
  nodeLabels: {team: ml, capacity: spot}
  nodeTaints: [{key: dedicated, value: ml, effect: NoSchedule}, {key: acme.example/spot, effect: NoSchedule}]
"""


def test_a_proposed_pool_has_labels_and_taints_and_grows_when_its_provider_provisions(
    bundle: Bundle, tmp_path: Any
) -> None:
    (tmp_path / "cluster.yaml").write_text(f"{LABELLED_POOL}---{DEPLOYMENT % ('spot-preferred', 30)}")
    before = snapshot_of(ClusterSource(manifests=read_manifests([tmp_path]).objects), bundle, ALLOCATABLE)
    lost = rehearsed(pending=Figure(6, 6))
    (fix,) = fixes_of(lost, before)
    assert fix.manifest["spec"] == {
        "computeClass": "default",
        "instanceType": "big",
        "autoscaling": True,
        "targetNodes": 0,
        "maxNodes": 2,
        "nodeLabels": {"team": "ml"},
        "nodeTaints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}],
    }
    after = with_fixes(before, [fix])
    assert [node.name for node in after.nodes] == ["spot-0", "spot-1"]
    assert growth_of(after, None) == [("spot-fallback", 2, 1800)]
    assert growth_of(after, 90) == [("spot-fallback", 2, 90)]


def blocked(**figures: Any) -> Rehearsal:
    """Return a rehearsal in which the budget kept six Pods from being evicted."""
    why = (HarmReason(Cause.BUDGET_BLOCKS, budget="web"),)
    return rehearsed(killed_early=Figure(6, 6), budget="web", reasons=why, **figures)


# The drain takes 300 s, and a Pod 60 s to stop and 30 s to start.
@pytest.mark.parametrize(
    ("figures", "allowed", "assumed"),
    [
        pytest.param({}, 1, "Pods stop in 60 s, and replacements are ready after 30 s", id="nine rounds"),
        pytest.param({"startup_seconds": 61}, 2, "ready after 61 s", id="the drain retries after 65 s: four rounds"),
        pytest.param({"grace_seconds": 250}, 3, "stop in 250 s", id="two rounds"),
        pytest.param({"pending": Figure(3, 4)}, 4, ", except 4 without room", id="Pods without room stay unavailable"),
        pytest.param(
            {"pending_before": 3}, 4, " in addition to 3 that were pending before", id="Pods that were pending count"
        ),
        pytest.param({"kind": "StatefulSet"}, 4, "ready after 90 s", id="three rounds, one Pod after another"),
    ],
)
def test_a_budget_permits_the_evictions_that_the_window_needs(
    bundle: Bundle, tmp_path: Any, figures: dict[str, Any], allowed: int, assumed: str
) -> None:
    kind = figures.pop("kind", "Deployment")
    text = (DEPLOYMENT % ("spot-preferred", 60) + BUDGET).replace("kind: Deployment", f"kind: {kind}")
    result = blocked(**figures)
    result = structs.replace(result, workloads=(structs.replace(result.workloads[0], kind=kind),))
    (fix,) = (fix for fix in fixes_of(result, snapshot(bundle, tmp_path, text)) if " blocks the drain " in fix.why)
    assert fix.manifest["spec"] == {"minAvailable": None, "maxUnavailable": allowed}
    assert assumed in fix.why


def test_no_blocking_existing_or_contradictory_budget_is_proposed(bundle: Bundle, tmp_path: Any) -> None:
    text = DEPLOYMENT % ("spot-preferred", 60) + BUDGET
    cluster, result = snapshot(bundle, tmp_path, text), blocked()
    assert not fixes_of(blocked(missing=Figure(6, 6)), cluster)  # it would allow all six
    shared = structs.replace(result, workloads=(*result.workloads, structs.replace(result.workloads[0], name="other")))
    assert not fixes_of(shared, cluster)
    enough = snapshot(bundle, tmp_path, text.replace("minAvailable: 100%", "maxUnavailable: 1"))
    assert not fixes_of(result, enough)
    none_lost = structs.replace(result.workloads[0], lost=0, lost_on=(), budget="", lowest_ready=Figure(0, 0))
    no_room = structs.replace(none_lost, lost=6, pending=Figure(1, 1))
    for workload in (none_lost, no_room):
        harmless = structs.replace(result, workloads=(workload,))
        assert not fixes_of(harmless, snapshot(bundle, tmp_path, text.partition("---")[0]))


def test_a_budget_that_blocks_only_with_the_other_fixes_is_tried_too() -> None:
    """`pool` makes room for replacements, for which the budget then waits."""
    base = structs.replace(rehearsed(pending=Figure(6, 6)), fixes=(Fix("pool", {}),))
    budget = Fix("budget", {"kind": "PodDisruptionBudget"})

    def rehearse(fixes: Sequence[Fix], _: int | None) -> Rehearsal:
        left = Figure(0, 0) if budget in fixes else Figure(6, 6)
        return structs.replace(rehearsed(pending=left, killed_early=left), fixes=() if budget in fixes else (budget,))

    result = try_fixes(base, rehearse, 180)
    assert [(fix.why, fix.tried) for fix in result.fixes] == [("budget", "helps"), ("pool", "does not help")]
    assert result.fixed is not None
    assert result.fixed.workloads[0].killed_early == Figure(0, 0)


def test_each_fix_is_tried_alone_until_the_time_is_up() -> None:
    """Without `pool`, six Pods stay pending; without `budget`, nothing changes."""
    base = structs.replace(rehearsed(pending=Figure(6, 6)), fixes=(Fix("budget", {}), Fix("pool", {})))
    tried: list[tuple[list[str], int | None]] = []

    def rehearse(fixes: Sequence[Fix], runs: int | None) -> Rehearsal:
        tried.append(([fix.why for fix in fixes], runs))
        return rehearsed(pending=Figure(0, 0) if Fix("pool", {}) in fixes else Figure(6, 6))

    result = try_fixes(base, rehearse, 180)
    assert tried == [(["budget", "pool"], None), (["pool"], 1), (["budget"], 1)]
    assert [(fix.why, fix.tried) for fix in result.fixes] == [("pool", "helps"), ("budget", "does not help")]
    assert result.fixed is not None
    assert [change.figure for change in result.comparison.better] == ["pending"] if result.comparison else False
    assert [fix.tried for fix in try_fixes(base, rehearse, -1).fixes] == [None, None]


def test_a_fix_that_gets_pods_killed_does_not_help() -> None:
    base = structs.replace(rehearsed(lowest_ready=Figure(0, 0)), fixes=(Fix("budget", {}), Fix("other", {})))

    def rehearse(fixes: Sequence[Fix], _: int | None) -> Rehearsal:
        killed, ready = (Figure(1, 1), Figure(3, 3)) if Fix("budget", {}) in fixes else (Figure(0, 0), Figure(0, 0))
        result = rehearsed(killed_early=killed, lowest_ready=ready)
        return structs.replace(result, summary=structs.replace(result.summary, killed_early=killed))

    assert [fix.tried for fix in try_fixes(base, rehearse, 180).fixes] == ["does not help", "does not help"]

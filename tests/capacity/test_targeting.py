"""Which Pods target spot, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALL, KARPENTER, ONLY_CKS, POOL_LABEL, cks_pool, expression, other_pool, pod_of, view_of
from tests.capacity.targets import (
    AMD64,
    CLUSTER,
    CPU,
    CPU_SPOT,
    DEVICE,
    GPU,
    GPU_SPOT,
    ON_DEMAND,
    PREFERRED,
    SPOT,
    landing,
    target,
    why_not,
)
from tests.rules.conftest import owned_by
from webhook.capacity.placement import target as targeting
from webhook.capacity.placement.supply import supply_of
from webhook.capacity.placement.target import NotTargeting, Target, kept_fields, target_of
from webhook.capacity.providers.pool import CapacityType
from webhook.capacity.view import ClusterView
from webhook.kube.pod_decoding import decode_pod

if TYPE_CHECKING:
    from webhook.kube.pod import Pod


@pytest.mark.parametrize(
    ("pod", "namespace", "because", "preferred"),
    [
        (pod_of(labels=SPOT), {}, "label `spotgate.dev/capacity` is `spot`", False),
        (pod_of(labels=PREFERRED), {}, "label `spotgate.dev/capacity` is `spot-preferred`", True),
        (pod_of(), SPOT, "label `spotgate.dev/capacity` of its namespace is `spot`", False),
        (pod_of(), PREFERRED, "label `spotgate.dev/capacity` of its namespace is `spot-preferred`", True),
        (pod_of(labels=SPOT), PREFERRED, "label `spotgate.dev/capacity` is `spot`", False),
        (pod_of(labels=PREFERRED), ON_DEMAND, "label `spotgate.dev/capacity` is `spot-preferred`", True),
        (pod_of(named="gpu-spot"), {}, "annotation `spotgate.dev/node-pool` names `gpu-spot`", False),
        (pod_of(named="gpu-spot"), ON_DEMAND, "annotation `spotgate.dev/node-pool` names `gpu-spot`", False),
    ],
)
def test_a_pod_targets_spot_by_label_namespace_or_annotation(
    pod: Pod,
    namespace: dict[str, str],
    because: str,
    preferred: bool,  # noqa: FBT001
) -> None:
    answer = target(pod, namespace_labels=namespace)

    assert isinstance(answer, Target)
    assert (answer.because, answer.preferred) == (because, preferred)


@pytest.mark.parametrize(
    ("pod", "namespace", "because"),
    [
        (pod_of(), {}, "the Pod doesn't ask for spot"),
        (pod_of(), ON_DEMAND, "the Pod doesn't ask for spot"),
        (pod_of(), {"spotgate.dev/capacity": "sopt"}, "the Pod doesn't ask for spot"),
        (pod_of(labels=ON_DEMAND), SPOT, "label `spotgate.dev/capacity` is `on-demand`"),
        (pod_of(labels=ON_DEMAND, named="gpu-spot"), {}, "label `spotgate.dev/capacity` is `on-demand`"),
        (
            pod_of(labels=ON_DEMAND, selector={POOL_LABEL: "gpu-spot"}),
            {},
            "label `spotgate.dev/capacity` is `on-demand`",
        ),
        (pod_of(labels={"spotgate.dev/capacity": "Spot"}), SPOT, "label `spotgate.dev/capacity` has an unknown value"),
        (pod_of(labels={"spotgate.dev/capacity": ""}), SPOT, "label `spotgate.dev/capacity` has an unknown value"),
        (pod_of(named="gpu"), {}, "annotation `spotgate.dev/node-pool` names no spot pool"),
        (pod_of(named="nowhere"), {}, "annotation `spotgate.dev/node-pool` names no spot pool"),
    ],
)
def test_a_pod_that_requests_no_spot_or_requests_on_demand_does_not_target_spot(
    pod: Pod, namespace: dict[str, str], because: str
) -> None:
    assert why_not(pod, namespace_labels=namespace) == because


@pytest.mark.parametrize(
    ("pod", "because"),
    [
        ({"metadata": {"labels": SPOT}, "spec": {"nodeName": "n"}}, "it is already bound to a node"),
        ({"metadata": {"labels": SPOT, "ownerReferences": owned_by("DaemonSet", "apps/v1")}}, "a DaemonSet places it"),
        (
            {"metadata": {"labels": SPOT}, "spec": {"schedulerName": "tenant-slurm-slurm-scheduler"}},
            "scheduler tenant-slurm-slurm-scheduler has its own rules to place and stop it",
        ),
    ],
)
def test_bound_daemonset_and_slurm_pods_are_never_changed(pod: dict[str, Any], because: str) -> None:
    answer = target(decode_pod(msgspec.json.encode(pod)))

    assert answer == NotTargeting(because, untouchable=True)


def test_only_the_owner_that_is_the_controller_counts() -> None:
    pod = pod_of(labels=SPOT, owner="DaemonSet")
    pod.metadata.ownerReferences = [msgspec.structs.replace(pod.metadata.ownerReferences[0], controller=None)]  # type: ignore[index]

    assert landing(pod) == ["cpu-spot"]


ONLY = "its own nodeSelector or affinity admits only spot"
IN_SPOT = expression(POOL_LABEL, "In", "gpu-spot")
IN_ANY = expression(POOL_LABEL, "In", "gpu-spot", "gpu")


@pytest.mark.parametrize(
    "pod",
    [
        pod_of(selector={POOL_LABEL: "gpu-spot"}),
        pod_of(selector={POOL_LABEL: "gpu-spot", "kubernetes.io/arch": "amd64"}),
        pod_of(selector={"example.com/tier": "spot"}),
        pod_of(terms=[[IN_SPOT]]),
        pod_of(terms=[[expression(POOL_LABEL, "In", "gpu-spot", "cpu-spot")]]),
        pod_of(terms=[[IN_SPOT, AMD64], [expression("example.com/tier", "In", "spot")]]),
        pod_of(terms=[[IN_ANY, expression(POOL_LABEL, "NotIn", "gpu")]]),
        pod_of(terms=[[IN_ANY, expression("example.com/tier", "NotIn", "paid")]]),
        pod_of(selector={"example.com/tier": "spot"}, terms=[[AMD64]]),
        pod_of(terms=[[expression(POOL_LABEL, "In", "gpu-spot", "long-gone")]]),
    ],
)
def test_a_selector_on_a_label_of_spot_pools_that_admits_only_spot_targets_spot(pod: Pod) -> None:
    view = view_of(*CLUSTER)
    answer = target(pod, view=view)

    assert isinstance(answer, Target)
    assert answer.because == ONLY
    assert answer.pinned
    assert not answer.preferred


@pytest.mark.parametrize(
    "pod",
    [
        pod_of(selector={"kubernetes.io/arch": "amd64"}),
        pod_of(selector={"node.kubernetes.io/instance-type": "gd-8xh100ib-i128"}),
        pod_of(selector={"example.com/team": "a"}),
        pod_of(selector={POOL_LABEL: "gpu"}),
        pod_of(selector={POOL_LABEL: "long-gone"}),
        pod_of(selector={"example.com/tier": "paid"}),
        pod_of(terms=[[IN_ANY]]),
        pod_of(terms=[[IN_SPOT], [AMD64]]),
        pod_of(terms=[[expression(POOL_LABEL, "Exists")]]),
        pod_of(terms=[[expression(POOL_LABEL, "NotIn", "gpu", "cpu")]]),
        pod_of(terms=[[expression("example.com/tier", "NotIn", "paid")]]),
        pod_of(terms=[[expression("example.com/tier", "DoesNotExist")]]),
        pod_of(terms=[]),
    ],
)
def test_a_selector_that_admits_or_only_excludes_other_capacity_does_not_target_spot(pod: Pod) -> None:
    assert why_not(pod) == "the Pod doesn't ask for spot"


@pytest.mark.parametrize(
    "pod",
    [
        pod_of(),
        pod_of(gpu=True),
        pod_of(selector={"kubernetes.io/arch": "amd64"}),
        pod_of(selector={"node.kubernetes.io/instance-type": "gd-8xh100ib-i128"}),
        pod_of(terms=[[expression(POOL_LABEL, "NotIn", "gone")]]),
    ],
)
def test_a_pod_without_a_spot_selector_does_not_target_spot_even_if_every_pool_is_spot(pod: Pod) -> None:
    assert why_not(pod, GPU_SPOT, CPU_SPOT) == "the Pod doesn't ask for spot"


def test_selecting_a_label_that_on_demand_pools_also_have_does_not_target_spot() -> None:
    pod = pod_of(selector={"example.com/team": "a"})
    ours = {"example.com/team": "a"}

    assert landing(pod, cks_pool("s", labels=ours, gpu=False), CPU) == ["s"]
    assert why_not(pod, cks_pool("s", labels=ours), cks_pool("o", spot=False, labels=ours))
    assert why_not(
        pod,
        cks_pool("s", labels=ours),
        other_pool(KARPENTER, "b", capacity=CapacityType.BOTH, labels=ours),
        providers=ALL,
    )


TOLERATING = [{"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("tolerations", "targets"),
    [
        (TOLERATING, True),
        ([{"key": "spot", "operator": "Exists"}], True),
        ([{"key": "spot", "value": "false"}], False),
        ([{"operator": "Exists"}], False),
        ([{"key": "is_gpu", "operator": "Exists"}], False),
        ([{"key": "shared", "operator": "Exists"}], False),
        ([{"key": "node.coreweave.cloud/evict", "operator": "Exists"}], False),
    ],
)
def test_tolerating_a_spot_taint_by_name_targets_spot_only_if_the_policy_enables_it(
    tolerations: list[Any],
    targets: bool,  # noqa: FBT001
) -> None:
    taints = ("spot=true:NoSchedule", "is_gpu:NoSchedule", "shared:NoSchedule", "node.coreweave.cloud/evict:NoSchedule")
    pools = (cks_pool("s", taints=taints), cks_pool("o", spot=False, taints=("shared:NoSchedule",)))
    pod = pod_of(gpu=True, tolerations=tolerations)

    assert isinstance(target(pod, *pools, tolerating=True), Target) is targets
    assert isinstance(target(pod, *pools), NotTargeting)


def test_tolerating_a_providers_spot_taint_targets_spot_without_pools() -> None:
    pod = pod_of(tolerations=[{"key": "cloud.google.com/gke-spot", "operator": "Exists"}])

    answer = target(pod, providers=ALL, view=view_of(shown=("gke",)), tolerating=True)
    assert isinstance(answer, Target)
    assert answer.because == "it tolerates the spot taint cloud.google.com/gke-spot=true:NoSchedule"
    assert isinstance(target(pod, providers=ALL, view=view_of(shown=("eks",)), tolerating=True), NotTargeting)
    assert isinstance(target(pod_of(), providers=ALL, view=view_of(shown=("gke",)), tolerating=True), NotTargeting)


def test_a_toleration_does_not_override_an_annotation_that_names_no_spot_pool() -> None:
    pod = pod_of(named="gone", tolerations=TOLERATING)
    assert why_not(pod, tolerating=True) == "annotation `spotgate.dev/node-pool` names no spot pool"


GKE_SPOT = expression("cloud.google.com/gke-spot", "In", "true")
ON_KARPENTER = expression("karpenter.sh/capacity-type", "In", "spot")


def preferring(*requirements: dict[str, Any], tolerations: list[Any], **more: Any) -> Pod:
    terms = [{"weight": 1, "preference": {"matchExpressions": [requirement]}} for requirement in requirements]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    return pod_of(affinity=affinity, tolerations=tolerations, **more)


@pytest.mark.parametrize(
    ("pod", "providers"),
    [
        (preferring(IN_SPOT, tolerations=TOLERATING, gpu=True), ["cks"]),
        (preferring(AMD64, IN_SPOT, tolerations=TOLERATING, gpu=True), ["cks"]),
        (preferring(GKE_SPOT, tolerations=[{"key": "cloud.google.com/gke-spot", "operator": "Exists"}]), ["gke"]),
        (preferring(ON_KARPENTER, tolerations=[{"key": "dedicated", "value": "spot"}]), ["karpenter"]),
    ],
)
@pytest.mark.parametrize("tolerating", [False, True])
def test_a_pod_that_prefers_spot_and_tolerates_its_taint_is_spot_preferred(
    pod: Pod,
    providers: list[str],
    tolerating: bool,  # noqa: FBT001
) -> None:
    answer = target(pod, *((GPU_SPOT, GPU) if providers == ["cks"] else ()), providers=ALL, tolerating=tolerating)

    assert isinstance(answer, Target)
    assert answer.by_preference
    assert answer.preferred
    field = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    assert (answer.field, answer.own) == (field, field)
    assert [provider.name for provider in answer.providers] == providers


@pytest.mark.parametrize(
    "pod",
    [
        preferring(IN_SPOT, tolerations=[]),
        preferring(IN_SPOT, tolerations=[{"operator": "Exists"}]),
        preferring(IN_SPOT, tolerations=[{"key": "team", "value": "not-spot"}]),
        preferring(IN_ANY, tolerations=TOLERATING),
        preferring(AMD64, tolerations=TOLERATING),
        preferring(expression(POOL_LABEL, "NotIn", "gpu-spot"), tolerations=TOLERATING),
        preferring(IN_SPOT, tolerations=TOLERATING, labels=ON_DEMAND),
    ],
)
def test_other_preferences_or_a_missing_spot_toleration_do_not_target_spot(pod: Pod) -> None:
    assert why_not(pod)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (pod_of(labels=SPOT), True),
        (pod_of(named="gpu-spot"), True),
        (pod_of(selector={POOL_LABEL: "gpu-spot"}), None),
        (pod_of(terms=[[IN_SPOT], [IN_ANY]]), None),
        (pod_of(terms=[[IN_SPOT], [AMD64]]), False),
        (pod_of(selector={"example.com/tier": "spot"}), False),
        (pod_of(), False),
    ],
)
def test_without_pools_a_requested_target_stays_and_a_selected_pool_is_unknown(pod: Pod, expected: bool | None) -> None:  # noqa: FBT001
    answer = target(pod, view=ClusterView())

    if isinstance(answer, Target):
        assert expected is True
        assert (answer.pools, answer.nodes) == (None, ())
    else:
        assert answer.unknown is (expected is None)
        assert expected is not True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node-selector, tolerations", {"node-selector", "tolerations"}),
        (" pre-stop ,,grace-perod", {"pre-stop", "grace-perod"}),
        ("", set()),
    ],
)
def test_the_keep_annotation_is_a_list_of_words(text: str, expected: set[str]) -> None:
    pod = pod_of()
    assert kept_fields(pod) == set()
    pod.metadata.annotations = {"spotgate.dev/keep": text}
    assert kept_fields(pod) == expected


VIEWS = (view_of(*CLUSTER), view_of(GPU_SPOT, CPU), view_of(), view_of(shown=("gke",)), ClusterView())
QUESTIONS = st.tuples(
    st.builds(
        pod_of,
        labels=st.sampled_from(({}, SPOT, PREFERRED)),
        named=st.sampled_from((None, "gpu-spot", "cpu-spot")),
        gpu=st.booleans(),
        selector=st.sampled_from((None, {POOL_LABEL: "gpu-spot"}, {"cloud.google.com/gke-spot": "true"})),
        terms=st.sampled_from((None, [[IN_SPOT]], [[IN_SPOT], [AMD64]])),
        tolerations=st.sampled_from((None, [{"key": "spot", "operator": "Exists"}])),
        resourceClaims=st.sampled_from((None, [{"name": "gpu"}])),
        resources=st.sampled_from((None, {"limits": DEVICE}, {"limits": {"nvidia.com/gpu": "1"}})),
    ),
    st.sampled_from(({}, SPOT, PREFERRED)),
    st.sampled_from(VIEWS),
    st.sampled_from(((), ("gke",))),
    st.booleans(),
)


def ask(question: tuple[Pod, dict[str, str], ClusterView, tuple[str, ...], bool]) -> Target | NotTargeting:
    pod, namespace_labels, view, provider, tolerating = question
    return target_of(pod, namespace_labels, view, ALL, provider=provider, tolerating=tolerating)


@given(st.lists(QUESTIONS, min_size=2, max_size=6))
def test_a_cached_answer_equals_a_computed_one(questions: list[Any]) -> None:
    cached = [ask(question) for question in questions + questions][len(questions) :]
    for question, answer in zip(questions, cached, strict=True):
        targeting._remembered.cache_clear()
        assert ask(question) == answer


def test_the_cache_is_bounded() -> None:
    view = view_of(GPU_SPOT)
    memory = targeting._remembered(supply_of(view, ONLY_CKS))
    long = pod_of(labels=SPOT, selector={"example.com/x": "x" * targeting._KIND_LENGTH})
    assert target(long, view=view) == target(long, view=view)
    assert not memory
    for number in range(2 * targeting._KINDS):
        target(pod_of(labels=SPOT, selector={"example.com/x": str(number)}), view=view)
        assert 1 <= len(memory) <= targeting._KINDS

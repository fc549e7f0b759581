"""Which Pods target spot, by what, and where they can land."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import (
    ALL,
    CKS,
    EKS,
    GKE,
    KARPENTER,
    ONLY_CKS,
    POOL_LABEL,
    cks_pool,
    expression,
    other_pool,
    pod_of,
    view_of,
)
from tests.rules.conftest import owned_by, with_fields
from webhook.capacity.placement import target as targeting
from webhook.capacity.placement.supply import supply_of
from webhook.capacity.placement.target import NotTargeting, Target, is_pinned, kept_fields, target_of
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool
from webhook.capacity.providers.query import Query
from webhook.capacity.view import ClusterView
from webhook.kube.pod_decoding import decode_pod

if TYPE_CHECKING:
    from webhook.kube.pod import Pod

SPOT = {"spotgate.dev/capacity": "spot"}
DEVICE = {"deviceclass.resource.kubernetes.io/gpu": "1"}
PREFERRED = {"spotgate.dev/capacity": "spot-preferred"}
ON_DEMAND = {"spotgate.dev/capacity": "on-demand"}

GPU_SPOT = cks_pool("gpu-spot", labels={"example.com/tier": "spot"}, taints=("spot=true:NoSchedule",))
GPU_SPOT_2 = cks_pool("gpu-spot-2", labels={"example.com/tier": "spot"})
CPU_SPOT = cks_pool("cpu-spot", gpu=False)
GPU = cks_pool("gpu", spot=False, labels={"example.com/tier": "paid"})
CPU = cks_pool("cpu", spot=False, gpu=False)
CLUSTER = (CPU, CPU_SPOT, GPU, GPU_SPOT)


def target(pod: Pod, *pools: Pool, **changes: Any) -> Target | NotTargeting:
    arguments: dict[str, Any] = {"view": view_of(*(pools or CLUSTER)), "providers": ONLY_CKS, **changes}
    namespace_labels = arguments.pop("namespace_labels", {})
    return target_of(pod, namespace_labels, **arguments)


def landing(pod: Pod, *pools: Pool, **changes: Any) -> list[str] | None:
    """Names of the pools; None: unknown, or stand-ins."""
    found = target(pod, *pools, **changes)
    assert isinstance(found, Target), found
    return None if found.pools is None else [pool.name for pool in found.pools]


def why_not(pod: Pod, *pools: Pool, **changes: Any) -> str:
    found = target(pod, *pools, **changes)
    assert isinstance(found, NotTargeting), found
    return found.because


@pytest.mark.parametrize(
    ("pod", "namespace", "because", "preferred"),
    [
        (pod_of(labels=SPOT), {}, "label spotgate.dev/capacity: spot", False),
        (pod_of(labels=PREFERRED), {}, "label spotgate.dev/capacity: spot-preferred", True),
        (pod_of(), SPOT, "label spotgate.dev/capacity: spot of its namespace", False),
        (pod_of(), PREFERRED, "label spotgate.dev/capacity: spot-preferred of its namespace", True),
        (pod_of(labels=SPOT), PREFERRED, "label spotgate.dev/capacity: spot", False),
        (pod_of(labels=PREFERRED), ON_DEMAND, "label spotgate.dev/capacity: spot-preferred", True),
        (pod_of(named="gpu-spot"), {}, "annotation spotgate.dev/node-pool: gpu-spot", False),
        (pod_of(named="gpu-spot"), ON_DEMAND, "annotation spotgate.dev/node-pool: gpu-spot", False),
    ],
)
def test_a_pod_targets_spot_by_label_namespace_or_annotation(
    pod: Pod,
    namespace: dict[str, str],
    because: str,
    preferred: bool,  # noqa: FBT001
) -> None:
    found = target(pod, namespace_labels=namespace)

    assert isinstance(found, Target)
    assert (found.because, found.preferred) == (because, preferred)


@pytest.mark.parametrize(
    ("pod", "namespace", "because"),
    [
        (pod_of(), {}, "it doesn't ask for spot"),
        (pod_of(), ON_DEMAND, "it doesn't ask for spot"),
        (pod_of(), {"spotgate.dev/capacity": "sopt"}, "it doesn't ask for spot"),
        (pod_of(labels=ON_DEMAND), SPOT, "label spotgate.dev/capacity: on-demand"),
        (pod_of(labels=ON_DEMAND, named="gpu-spot"), {}, "label spotgate.dev/capacity: on-demand"),
        (pod_of(labels=ON_DEMAND, selector={POOL_LABEL: "gpu-spot"}), {}, "label spotgate.dev/capacity: on-demand"),
        (
            pod_of(labels={"spotgate.dev/capacity": "Spot"}),
            SPOT,
            "label spotgate.dev/capacity has an unknown value",
        ),
        (
            pod_of(labels={"spotgate.dev/capacity": ""}),
            SPOT,
            "label spotgate.dev/capacity has an unknown value",
        ),
        (pod_of(named="gpu"), {}, "annotation spotgate.dev/node-pool names no spot pool"),
        (pod_of(named="nowhere"), {}, "annotation spotgate.dev/node-pool names no spot pool"),
    ],
)
def test_a_pod_that_does_not_say_so_does_not_and_on_demand_wins(
    pod: Pod, namespace: dict[str, str], because: str
) -> None:
    assert why_not(pod, namespace_labels=namespace) == because


@pytest.mark.parametrize(
    ("pod", "because"),
    [
        ({"metadata": {"labels": SPOT}, "spec": {"nodeName": "n"}}, "it is already bound to a node"),
        (
            {"metadata": {"labels": SPOT, "ownerReferences": owned_by("DaemonSet", "apps/v1")}},
            "a DaemonSet places it",
        ),
        (
            {"metadata": {"labels": SPOT}, "spec": {"schedulerName": "tenant-slurm-slurm-scheduler"}},
            "scheduler tenant-slurm-slurm-scheduler has its own rules to place and stop it",
        ),
    ],
)
def test_some_pods_are_never_touched_whatever_they_say(pod: dict[str, Any], because: str) -> None:
    found = target(decode_pod(msgspec.json.encode(pod)))

    assert found == NotTargeting(because, untouchable=True)


def test_an_owner_that_is_not_the_controller_does_not_count() -> None:
    pod = pod_of(labels=SPOT, owner="DaemonSet")
    pod.metadata.ownerReferences = [msgspec.structs.replace(pod.metadata.ownerReferences[0], controller=None)]  # type: ignore[index]

    assert landing(pod) == ["cpu-spot"]


ONLY = "its own nodeSelector or affinity admits only spot"
IN_SPOT = expression(POOL_LABEL, "In", "gpu-spot")
IN_ANY = expression(POOL_LABEL, "In", "gpu-spot", "gpu")
AMD64 = expression("kubernetes.io/arch", "In", "amd64")


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
def test_a_selector_that_names_what_tells_spot_and_admits_only_spot_is_targeting(pod: Pod) -> None:
    view = view_of(*CLUSTER)
    found = target(pod, view=view)

    assert isinstance(found, Target)
    assert found.because == ONLY
    assert is_pinned(pod, found, supply_of(view, ONLY_CKS), ONLY_CKS)
    assert not found.preferred


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
def test_a_selector_that_admits_other_capacity_or_only_shuns_it_is_not(pod: Pod) -> None:
    assert why_not(pod) == "it doesn't ask for spot"


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
def test_without_such_a_selector_a_pod_does_not_target_spot_where_every_pool_is_spot(pod: Pod) -> None:
    assert why_not(pod, GPU_SPOT, CPU_SPOT) == "it doesn't ask for spot"


def test_a_label_that_on_demand_pools_give_too_tells_nothing() -> None:
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
def test_tolerating_a_spot_taint_by_name_is_targeting_only_where_the_policy_says_so(
    tolerations: list[Any],
    targets: bool,  # noqa: FBT001
) -> None:
    taints = ("spot=true:NoSchedule", "is_gpu:NoSchedule", "shared:NoSchedule", "node.coreweave.cloud/evict:NoSchedule")
    pools = (cks_pool("s", taints=taints), cks_pool("o", spot=False, taints=("shared:NoSchedule",)))
    pod = pod_of(gpu=True, tolerations=tolerations)

    assert isinstance(target(pod, *pools, tolerating=True), Target) is targets
    assert isinstance(target(pod, *pools), NotTargeting)


def test_tolerating_a_providers_own_spot_taint_is_targeting_without_any_pool() -> None:
    pod = pod_of(tolerations=[{"key": "cloud.google.com/gke-spot", "operator": "Exists"}])

    found = target(pod, providers=ALL, view=view_of(shown=("gke",)), tolerating=True)
    assert isinstance(found, Target)
    assert found.because == "it tolerates the spot taint cloud.google.com/gke-spot=true:NoSchedule"
    assert isinstance(target(pod, providers=ALL, view=view_of(shown=("eks",)), tolerating=True), NotTargeting)
    assert isinstance(target(pod_of(), providers=ALL, view=view_of(shown=("gke",)), tolerating=True), NotTargeting)


def test_an_annotation_that_names_no_spot_pool_is_not_outdone_by_a_toleration() -> None:
    pod = pod_of(named="gone", tolerations=TOLERATING)
    assert why_not(pod, tolerating=True) == "annotation spotgate.dev/node-pool names no spot pool"


GKE_SPOT = expression("cloud.google.com/gke-spot", "In", "true")
ON_KARPENTER = expression("karpenter.sh/capacity-type", "In", "spot")


def preferring(*requirements: dict[str, Any], tolerations: list[Any], **more: Any) -> Pod:
    terms = [{"weight": 1, "preference": {"matchExpressions": [each]}} for each in requirements]
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
def test_a_pod_that_prefers_spot_and_tolerates_its_taint_is_spot_preferred_by_its_own_choice(
    pod: Pod,
    providers: list[str],
    tolerating: bool,  # noqa: FBT001
) -> None:
    found = target(pod, *((GPU_SPOT, GPU) if providers == ["cks"] else ()), providers=ALL, tolerating=tolerating)

    assert isinstance(found, Target)
    assert found.by_preference
    assert found.preferred
    assert [each.name for each in found.providers] == providers


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
def test_a_preference_for_other_nodes_or_without_a_toleration_of_a_spot_taint_is_not(pod: Pod) -> None:
    assert why_not(pod)


@pytest.mark.parametrize(
    ("pod", "pools", "expected"),
    [
        (pod_of(labels=SPOT, gpu=True), CLUSTER, ["gpu-spot"]),
        (pod_of(labels=SPOT), CLUSTER, ["cpu-spot"]),
        (pod_of(labels=SPOT, gpu=True), (CPU, CPU_SPOT), []),
        (pod_of(labels=SPOT), (GPU_SPOT,), []),
        (pod_of(labels=SPOT, gpu=True), (GPU_SPOT_2, GPU_SPOT), ["gpu-spot", "gpu-spot-2"]),
        (pod_of(labels=SPOT), (cks_pool("odd", instance_type="brand-new"),), ["odd"]),
        (pod_of(labels=SPOT, gpu=True), (cks_pool("odd", instance_type="brand-new"),), ["odd"]),
        (pod_of(labels=SPOT, resourceClaims=[{"name": "gpu"}]), CLUSTER, ["cpu-spot", "gpu-spot"]),
        (pod_of(labels=SPOT, containers=[{"resources": {"limits": DEVICE}}]), CLUSTER, ["cpu-spot", "gpu-spot"]),
        (pod_of(labels=SPOT, resources={"limits": {"nvidia.com/gpu": "1"}}), CLUSTER, ["gpu-spot"]),
        (pod_of(labels=SPOT, named="gpu-spot"), CLUSTER, ["gpu-spot"]),
        (pod_of(labels=SPOT, selector={POOL_LABEL: "gpu-spot"}), CLUSTER, ["gpu-spot"]),
        (pod_of(named="cpu-spot", gpu=True), CLUSTER, []),
        (pod_of(selector={POOL_LABEL: "cpu-spot"}, gpu=True), CLUSTER, []),
        (pod_of(terms=[[expression(POOL_LABEL, "In", "cpu-spot", "gpu-spot")]], gpu=True), CLUSTER, ["gpu-spot"]),
        (pod_of(labels=SPOT, gpu=True, named="gone"), CLUSTER, []),
        (pod_of(labels=SPOT, gpu=True, selector={"example.com/tier": "spot"}), CLUSTER, ["gpu-spot"]),
        (pod_of(labels=SPOT, gpu=True, selector={"example.com/tier": "paid"}), CLUSTER, []),
        (pod_of(labels=SPOT, gpu=True, selector={"example.com/unheard-of": "x"}), CLUSTER, ["gpu-spot"]),
        (pod_of(labels=SPOT, gpu=True, terms=[[expression("example.com/tier", "NotIn", "spot")]]), CLUSTER, []),
        (pod_of(labels=SPOT, gpu=True, terms=[[expression("example.com/tier", "DoesNotExist")]]), CLUSTER, []),
        (pod_of(labels=SPOT, gpu=True, selector={POOL_LABEL: "gpu"}), CLUSTER, []),
    ],
)
def test_a_pod_lands_on_spot_pools_that_it_admits_and_whose_gpus_fit(
    pod: Pod, pools: tuple[Pool, ...], expected: list[str]
) -> None:
    assert landing(pod, *pools) == expected


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (cks_pool("p", taints=("node.coreweave.cloud/reserved=x:NoSchedule",)), "its taint node.coreweave.cloud/reserved=x:NoSchedule must never be tolerated"),
        (cks_pool("p", taints=("node.coreweave.cloud/evict=true:NoExecute",)), "its taint node.coreweave.cloud/evict=true:NoExecute must never be tolerated"),
        (cks_pool("p", taints=("sunk.coreweave.com/lock:PreferNoSchedule",)), ""),
        (cks_pool("p", deletionTimestamp="2026-01-01T00:00:00Z"), "it is being deleted"),
        (cks_pool("p", gpu=False), "it has no GPUs, and the Pod requests GPUs"),
        (cks_pool("p", labels={"example.com/tier": "other"}), "the Pod's own nodeSelector or affinity excludes it"),
    ],
)  # fmt: skip
def test_a_pool_is_refused_for_a_reason_also_when_it_is_named(pool: Pool, expected: str) -> None:
    pod = pod_of(labels=SPOT, gpu=True, selector={"example.com/tier": "spot"})
    found = target(pod, pool)

    assert isinstance(found, Target)
    assert [each.because for each in found.rejected] == ([expected] if expected else [])
    assert bool(found.pools) is not bool(expected)


GUARDED = cks_pool("guarded", instance_type="brand-new", taints=("nvidia.com/gpu=present:NoSchedule",))


@pytest.mark.parametrize(
    ("pod", "lands"),
    [
        (pod_of(labels=SPOT, gpu=True), True),
        (pod_of(labels=SPOT), False),
        (pod_of(labels=SPOT, resourceClaims=[{"name": "gpu"}]), False),
        (pod_of(labels=SPOT, tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]), True),
        (pod_of(labels=SPOT, named="guarded"), False),
        (pod_of(labels=SPOT, selector={POOL_LABEL: "guarded"}), False),
        (pod_of(labels=SPOT, terms=[[expression(POOL_LABEL, "NotIn", "other")]]), False),
    ],
)
def test_a_taint_for_gpu_pods_keeps_others_off_unless_they_tolerate_it_even_where_they_name_the_pool(
    pod: Pod,
    lands: bool,  # noqa: FBT001
) -> None:
    assert bool(landing(pod, GUARDED)) is lands


def test_a_pool_is_said_to_be_excluded_only_if_it_would_take_the_pod_otherwise() -> None:
    pools = (
        cks_pool("fit", labels={"example.com/tier": "a"}),
        cks_pool("closed", labels={"example.com/tier": "a"}, deletionTimestamp="2026-01-01T00:00:00Z"),
        cks_pool("cpu", gpu=False, labels={"example.com/tier": "a"}),
    )
    found = target(pod_of(labels=SPOT, gpu=True, selector={"example.com/tier": "b"}), *pools)
    assert isinstance(found, Target)
    assert {str(each.nodes.pool).rpartition(" ")[2]: each.because for each in found.rejected} == {
        "fit": "the Pod's own nodeSelector or affinity excludes it",
        "closed": "it is being deleted",
        "cpu": "it has no GPUs, and the Pod requests GPUs",
    }


ON_ALL = {"example.com/capacity": "spot"}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (pod_of(selector=ON_ALL), ["c"]),
        (pod_of(selector=ON_ALL, gpu=True), ["a"]),
        (pod_of(selector={"example.com/gpus": "yes"}), ["a", "c"]),
        (pod_of(labels=SPOT, selector={"example.com/gpus": "yes"}), ["a", "c"]),
        (pod_of(labels=SPOT, terms=[[expression(POOL_LABEL, "In", "a", "c")]]), ["a", "c"]),
    ],
)
def test_a_label_names_pools_that_do_not_fit_only_where_no_pool_with_it_fits(pod: Pod, expected: list[str]) -> None:
    """Pool c does not say whether it has the second label: unknown is not absent."""
    pools = (cks_pool("a", labels={**ON_ALL, "example.com/gpus": "yes"}), cks_pool("c", labels=ON_ALL, gpu=False), CPU)

    assert landing(pod, *pools) == expected


def test_what_a_reader_tells_of_the_machine_does_not_tell_spot_from_other_capacity() -> None:
    (reader,) = CKS.readers
    described = with_fields(
        CKS, readers=(with_fields(reader, known_labels={"example.com/model": Query("spec.model")}),)
    )
    pool = cks_pool("p", labels={"example.com/model": "h100"})
    pod = pod_of(gpu=True, selector={"example.com/model": "h100"})

    assert landing(pod, pool) == ["p"]
    assert why_not(pod, pool, providers={"cks": described})


def test_pools_of_another_cluster_place_no_pods_here() -> None:
    there = other_pool(GKE, "there", cluster="west")

    assert landing(pod_of(labels=SPOT), there, CPU_SPOT, providers=ALL) == ["cpu-spot"]
    assert why_not(pod_of(named="there"), there, CPU_SPOT, providers=ALL)
    assert why_not(pod_of(selector={GKE.pool_name_label: "there"}), there, CPU_SPOT, providers=ALL)


def names(found: Target | NotTargeting) -> list[str]:
    assert isinstance(found, Target)
    return [provider.name for provider in found.providers]


KARPENTER_SPOT = other_pool(KARPENTER, "k-spot")
KARPENTER_BOTH = other_pool(KARPENTER, "k-both", capacity=CapacityType.BOTH)


@pytest.mark.parametrize(
    ("view", "named", "providers", "pools"),
    [
        (view_of(*CLUSTER), "", ["cks"], ["cpu-spot"]),
        (view_of(*CLUSTER), "gke", ["cks"], ["cpu-spot"]),
        (view_of(shown=("gke",)), "", ["gke"], None),
        (view_of(shown=("cks",)), "", ["cks"], []),
        (view_of(), "gke", ["gke"], None),
        (view_of(), "cks", ["cks"], []),
        (view_of(), "", [], []),
        (ClusterView(), "", [], None),
        (ClusterView(), "cks", ["cks"], None),
        (ClusterView(), "gke", ["gke"], None),
        (view_of(KARPENTER_SPOT, shown=("eks",)), "", ["karpenter"], ["k-spot"]),
        (view_of(other_pool(KARPENTER, "k", gpu=Gpu.YES), shown=("eks",)), "", ["eks"], None),
        (view_of(KARPENTER_SPOT, KARPENTER_BOTH), "", ["karpenter"], ["k-both", "k-spot"]),
    ],
)
def test_the_providers_in_play_are_those_that_the_cluster_shows_or_else_the_named_one(
    view: ClusterView, named: str, providers: list[str], pools: list[str] | None
) -> None:
    found = target(pod_of(labels=SPOT), providers=ALL, view=view, provider=(named,) if named else ())

    assert names(found) == providers
    assert isinstance(found, Target)
    assert (None if found.pools is None else [pool.name for pool in found.pools]) == pools


def test_either_spot_label_in_every_term_speaks_for_both_providers() -> None:
    gke = expression("cloud.google.com/gke-provisioning", "In", "spot")
    karpenter = expression("karpenter.sh/capacity-type", "In", "spot")
    either = target(pod_of(terms=[[gke], [karpenter]]), providers=ALL, view=view_of())

    assert sorted(names(either)) == ["gke", "karpenter"]
    assert why_not(pod_of(terms=[[gke], [AMD64]]), providers=ALL, view=view_of())
    assert why_not(
        pod_of(terms=[[expression("karpenter.sh/capacity-type", "In", "spot", "on-demand")]]),
        providers=ALL,
        view=view_of(),
    )
    assert why_not(pod_of(terms=[[expression("karpenter.sh/capacity-type", "Exists")]]), providers=ALL, view=view_of())


def test_a_pool_of_both_capacities_counts_as_spot_only_where_the_spot_label_is_demanded() -> None:
    view = view_of(KARPENTER_BOTH)

    assert why_not(pod_of(selector={KARPENTER.pool_name_label: "k-both"}), providers=ALL, view=view)
    pinned = pod_of(selector={KARPENTER.pool_name_label: "k-both", "karpenter.sh/capacity-type": "spot"})
    found = target(pinned, providers=ALL, view=view)
    assert isinstance(found, Target)
    assert is_pinned(pinned, found, supply_of(view, ALL), ALL)
    assert landing(pod_of(named="k-both"), providers=ALL, view=view) == ["k-both"]
    cks = other_pool(CKS, "c-both", capacity=CapacityType.BOTH)
    assert landing(pod_of(labels=SPOT), cks) == []


def test_nodes_of_one_provider_do_not_have_the_marks_of_another() -> None:
    """Karpenter's nodes are in no managed node group: a Pod that demands one can't land there."""
    pod = pod_of(labels=SPOT, selector={EKS.pool_name_label: "system"})

    assert landing(pod, KARPENTER_SPOT, providers=ALL) == []
    assert landing(pod, providers=ALL, view=view_of(shown=("eks",))) is None


def test_nothing_stands_in_for_a_pool_that_is_named() -> None:
    assert landing(pod_of(labels=SPOT, named="a"), providers=ALL, view=view_of(shown=("gke",))) == []
    assert why_not(pod_of(named="a"), providers=ALL, view=view_of(shown=("gke",)))


def test_a_stand_in_must_be_admitted_too() -> None:
    pod = pod_of(labels=SPOT, selector={"cloud.google.com/gke-spot": "false"})

    assert landing(pod, providers=ALL, view=view_of(shown=("gke",))) == []


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
def test_without_pools_a_wish_stays_a_wish_and_a_selected_pool_is_unknown(pod: Pod, expected: bool | None) -> None:  # noqa: FBT001
    found = target(pod, view=ClusterView())

    if isinstance(found, Target):
        assert expected is True
        assert (found.pools, found.nodes) == (None, ())
    else:
        assert found.unknown is (expected is None)
        assert expected is not True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node-selector, tolerations", {"node-selector", "tolerations"}),
        (" pre-stop ,,grace-perod", {"pre-stop", "grace-perod"}),
        ("", set()),
    ],
)
def test_what_a_pod_keeps_is_a_list_of_words(text: str, expected: set[str]) -> None:
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
def test_what_is_remembered_is_what_would_be_worked_out_anew(questions: list[Any]) -> None:
    remembered = [ask(question) for question in questions + questions][len(questions) :]
    for question, answer in zip(questions, remembered, strict=True):
        targeting._remembered.cache_clear()
        assert ask(question) == answer


def test_only_so_much_is_remembered() -> None:
    view = view_of(GPU_SPOT)
    memory = targeting._remembered(supply_of(view, ONLY_CKS))
    long = pod_of(labels=SPOT, selector={"example.com/x": "x" * targeting._KIND_LENGTH})
    assert target(long, view=view) == target(long, view=view)
    assert not memory
    for number in range(2 * targeting._KINDS):
        target(pod_of(labels=SPOT, selector={"example.com/x": str(number)}), view=view)
        assert 1 <= len(memory) <= targeting._KINDS

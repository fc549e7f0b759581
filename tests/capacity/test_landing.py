"""Which pools admit Pods that target spot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.builders import ALL, CKS, EKS, GKE, KARPENTER, POOL_LABEL, cks_pool, expression, other_pool, pod_of, view_of
from tests.capacity.targets import AMD64, CLUSTER, CPU, CPU_SPOT, GPU_SPOT, SPOT, landing, target, why_not
from tests.rules.conftest import with_fields
from webhook.capacity.placement.target import NotTargeting, Target
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool
from webhook.capacity.providers.query import Query
from webhook.capacity.view import ClusterView

if TYPE_CHECKING:
    from webhook.kube.pod import Pod


GPU_SPOT_2 = cks_pool("gpu-spot-2", labels={"example.com/tier": "spot"})


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
def test_a_pod_lands_on_spot_pools_that_match_its_selector_and_gpus(
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
def test_a_rejected_pool_has_a_reason_even_if_the_pod_selects_it(pool: Pool, expected: str) -> None:
    pod = pod_of(labels=SPOT, gpu=True, selector={"example.com/tier": "spot"})
    targeting = target(pod, pool)

    assert isinstance(targeting, Target)
    assert [rejection.because for rejection in targeting.rejected] == ([expected] if expected else [])
    assert bool(targeting.pools) is not bool(expected)


GUARDED = cks_pool("guarded", instance_type="brand-new", taints=("nvidia.com/gpu=present:NoSchedule",))


@pytest.mark.parametrize(
    ("pod", "lands"),
    [
        (pod_of(labels=SPOT, gpu=True), True),
        (pod_of(labels=SPOT), False),
        (pod_of(labels=SPOT, resourceClaims=[{"name": "unknown"}]), True),
        (pod_of(labels=SPOT, tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}]), True),
        (pod_of(labels=SPOT, named="guarded"), True),
        (pod_of(labels=SPOT, selector={POOL_LABEL: "guarded"}), True),
        (pod_of(labels=SPOT, terms=[[expression(POOL_LABEL, "NotIn", "other")]]), False),
    ],
)
def test_a_gpu_taint_excludes_pods_without_gpus_that_neither_tolerate_it_nor_name_the_pool(
    pod: Pod,
    lands: bool,  # noqa: FBT001
) -> None:
    assert bool(landing(pod, GUARDED)) is lands


def test_the_reason_is_the_pods_selector_only_if_the_pool_is_otherwise_suitable() -> None:
    pools = (
        cks_pool("fit", labels={"example.com/tier": "a"}),
        cks_pool("closed", labels={"example.com/tier": "a"}, deletionTimestamp="2026-01-01T00:00:00Z"),
        cks_pool("cpu", gpu=False, labels={"example.com/tier": "a"}),
    )
    targeting = target(pod_of(labels=SPOT, gpu=True, selector={"example.com/tier": "b"}), *pools)
    assert isinstance(targeting, Target)
    assert {str(rejection.nodes.pool).rpartition(" ")[2]: rejection.because for rejection in targeting.rejected} == {
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
def test_a_pool_without_gpus_is_dropped_only_if_another_pool_with_the_label_fits(pod: Pod, expected: list[str]) -> None:
    """Pool c doesn't declare the second label: unknown is not absent."""
    pools = (cks_pool("a", labels={**ON_ALL, "example.com/gpus": "yes"}), cks_pool("c", labels=ON_ALL, gpu=False), CPU)

    assert landing(pod, *pools) == expected


def test_selecting_a_label_that_describes_the_machine_does_not_target_spot() -> None:
    (reader,) = CKS.readers
    described = with_fields(
        CKS, readers=(with_fields(reader, known_labels={"example.com/model": Query("spec.model")}),)
    )
    pool = cks_pool("p", labels={"example.com/model": "h100"})
    pod = pod_of(gpu=True, selector={"example.com/model": "h100"})

    assert landing(pod, pool) == ["p"]
    assert why_not(pod, pool, providers={"cks": described})


def test_pools_of_another_cluster_admit_no_pods() -> None:
    there = other_pool(GKE, "there", cluster="west")

    assert landing(pod_of(labels=SPOT), there, CPU_SPOT, providers=ALL) == ["cpu-spot"]
    assert why_not(pod_of(named="there"), there, CPU_SPOT, providers=ALL)
    assert why_not(pod_of(selector={GKE.pool_name_label: "there"}), there, CPU_SPOT, providers=ALL)


def names(targeting: Target | NotTargeting) -> list[str]:
    assert isinstance(targeting, Target)
    return [provider.name for provider in targeting.providers]


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
        (view_of(other_pool(KARPENTER, "k", gpu=Gpu.YES), shown=("eks",)), "", ["eks", "karpenter"], []),
        (view_of(other_pool(KARPENTER, "k", capacity=CapacityType.ON_DEMAND), shown=("eks",)), "", ["eks"], None),
        (view_of(KARPENTER_SPOT, KARPENTER_BOTH), "", ["karpenter"], ["k-both", "k-spot"]),
    ],
)
def test_providers_come_from_the_cluster_or_else_from_the_policy(
    view: ClusterView, named: str, providers: list[str], pools: list[str] | None
) -> None:
    targeting = target(pod_of(labels=SPOT), providers=ALL, view=view, provider=(named,) if named else ())

    assert names(targeting) == providers
    assert isinstance(targeting, Target)
    assert (None if targeting.pools is None else [pool.name for pool in targeting.pools]) == pools


def test_terms_with_spot_labels_of_two_providers_target_both() -> None:
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


def test_a_pool_with_both_capacities_is_spot_only_together_with_the_spot_label() -> None:
    view = view_of(KARPENTER_BOTH)

    assert why_not(pod_of(selector={KARPENTER.pool_name_label: "k-both"}), providers=ALL, view=view)
    pinned = pod_of(selector={KARPENTER.pool_name_label: "k-both", "karpenter.sh/capacity-type": "spot"})
    targeting = target(pinned, providers=ALL, view=view)
    assert isinstance(targeting, Target)
    assert targeting.pinned
    assert landing(pod_of(named="k-both"), providers=ALL, view=view) == ["k-both"]
    cks = other_pool(CKS, "c-both", capacity=CapacityType.BOTH)
    assert landing(pod_of(labels=SPOT), cks) == []


def test_nodes_of_one_provider_do_not_have_the_labels_of_another() -> None:
    """Karpenter's nodes are in no managed node group, so a Pod that selects one can't run on them."""
    pod = pod_of(labels=SPOT, selector={EKS.pool_name_label: "system"})

    assert landing(pod, KARPENTER_SPOT, providers=ALL) == []
    assert landing(pod, providers=ALL, view=view_of(shown=("eks",))) is None


def test_a_named_pool_must_be_visible() -> None:
    assert landing(pod_of(labels=SPOT, named="a"), providers=ALL, view=view_of(shown=("gke",))) == []
    assert why_not(pod_of(named="a"), providers=ALL, view=view_of(shown=("gke",)))


def test_a_selector_can_exclude_a_provider_without_visible_pools() -> None:
    pod = pod_of(labels=SPOT, selector={"cloud.google.com/gke-spot": "false"})

    assert landing(pod, providers=ALL, view=view_of(shown=("gke",))) == []

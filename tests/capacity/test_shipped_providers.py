"""Targeting, placement, and budgets with all shipped providers: several in one cluster, and GKE's special cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import BUNDLE, expression, pod_of
from tests.capacity.requiring import karpenter
from webhook.capacity.placement.budget import GraceBudgets
from webhook.capacity.placement.target import CAPACITY_LABEL, NotTargeting, Target, target_of
from webhook.capacity.providers.pool import CapacityType, Pool
from webhook.capacity.providers.provider import readers_by_resource
from webhook.capacity.view import ClusterView

if TYPE_CHECKING:
    from webhook.kube.pod import Pod

PROVIDERS = BUNDLE.providers
READERS = readers_by_resource(PROVIDERS.values())
BUDGETS = GraceBudgets(PROVIDERS)

SPOT = {"spotgate.dev/capacity": "spot"}
COMPUTE_CLASS = "cloud.google.com/compute-class"


def gke(name: str, **node_config: Any) -> Pool:
    value = {
        "metadata": {"name": name, "namespace": "infra"},
        "spec": {"nodeCount": 1, "nodeConfig": {"spot": True, **node_config}},
    }
    return READERS["container.cnrm.cloud.google.com", "containernodepools"].read(value)


def target(pod: Pod, *pools: Pool, shown: tuple[str, ...] = (), known: bool = True) -> Target | NotTargeting:
    names = {*shown, *(pool.provider for pool in pools if not pool.cluster)}
    view = ClusterView(pools=pools if known else None, providers=frozenset(names))
    return target_of(pod, {}, view, PROVIDERS)


def seconds(targeting: Target | NotTargeting) -> int:
    assert isinstance(targeting, Target)
    budget = BUDGETS.of(targeting)
    assert budget is not None
    return budget.seconds


def test_CKS_lists_the_resources_that_nodes_report() -> None:
    types = PROVIDERS["cks"].instance_types
    assert types.allocatable["turin-gp"]["memory"] == "1583297960Ki"
    assert types.allocatable["gd-8xh100ib-i128"]["ephemeral-storage"] == "30003181568Ki"
    assert all(types.gpu.match(name) is ("nvidia.com/gpu" in offered) for name, offered in types.allocatable.items())


@pytest.mark.parametrize(
    "pod",
    [
        pod_of(labels=SPOT, selector={COMPUTE_CLASS: "spot-first"}),
        pod_of(labels=SPOT, terms=[[expression(COMPUTE_CLASS, "In", "spot-first")]]),
        pod_of(selector={COMPUTE_CLASS: "spot-first", "cloud.google.com/gke-spot": "true"}),
    ],
)
def test_a_Pod_of_a_compute_class_is_not_changed(pod: Pod) -> None:
    targeting = target(pod, shown=("gke",))
    assert isinstance(targeting, NotTargeting)
    assert targeting.untouchable
    assert targeting.because == f"it selects nodes by {COMPUTE_CLASS}, which has its own rules for spot"


@pytest.mark.parametrize(
    ("labels", "capacity", "chooses"),
    [
        ({CAPACITY_LABEL: "spot"}, CapacityType.BOTH, True),
        ({CAPACITY_LABEL: "spot-preferred"}, CapacityType.SPOT, True),
        ({}, CapacityType.SPOT, True),
        ({}, CapacityType.BOTH, True),
        # A label does not change the nodes of the class.
        ({CAPACITY_LABEL: "on-demand"}, CapacityType.SPOT, True),
        ({CAPACITY_LABEL: "on-demand"}, CapacityType.BOTH, True),
        ({CAPACITY_LABEL: "spot"}, CapacityType.ON_DEMAND, False),
    ],
)
def test_the_class_of_a_Pod_is_chosen_if_it_may_be_spot(
    labels: dict[str, str], capacity: CapacityType, *, chooses: bool
) -> None:
    its, another = (
        Pool(
            provider="gke",
            kind="ComputeClass",
            name=name,
            capacity=capacity,
            chosen_by=COMPUTE_CLASS,
            labels={COMPUTE_CLASS: name},
        )
        for name in ("spot-first", "another")
    )
    targeting = target(pod_of(labels=labels, selector={COMPUTE_CLASS: "spot-first"}), its, another)
    assert isinstance(targeting, NotTargeting)
    assert targeting.chosen == ((its,) if chooses else ())


@pytest.mark.parametrize(
    ("provider", "counts"), [("karpenter", False), ("cks", False), ("gke", True), ("eks", True), ("aks", True)]
)
def test_a_provider_without_visible_pools_counts_only_if_its_pools_are_outside_the_cluster(
    provider: str, *, counts: bool
) -> None:
    targeting = target(pod_of(labels=SPOT), shown=(provider,), known=False)
    assert isinstance(targeting, Target)
    assert (targeting.pools, bool(targeting.nodes)) == (None, counts)


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        ({"cloud.google.com/gke-spot": "true"}, 15),
        ({"cloud.google.com/gke-provisioning": "spot"}, 15),
        ({"karpenter.sh/capacity-type": "spot"}, 105),
        ({"eks.amazonaws.com/capacityType": "SPOT"}, 105),
        ({"kubernetes.azure.com/scalesetpriority": "spot"}, 25),
        ({"kubernetes.azure.com/priority": "spot"}, 25),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_selecting_a_providers_spot_label_targets_spot_without_pools(
    selector: dict[str, str], left: int, *, known: bool
) -> None:
    assert seconds(target(pod_of(selector=selector), known=known)) == left


@pytest.mark.parametrize(("behavior", "tolerated"), [(None, True), ("ARM", True), ("NONE", False)])
def test_a_GKE_arm_pool_is_tainted_unless_it_opts_out(behavior: str | None, *, tolerated: bool) -> None:
    own = {} if behavior is None else {"taintConfig": {"architectureTaintBehavior": behavior}}
    targeting = target(
        pod_of(labels=SPOT, selector={"kubernetes.io/arch": "arm64"}), gke("arm", machineType="c4a-standard-4", **own)
    )
    assert isinstance(targeting, Target)
    assert any(toleration.key == "kubernetes.io/arch" for toleration in targeting.tolerations) is tolerated


@pytest.mark.parametrize("values", [(), ("spot", "regular")])
def test_AKS_priority_label_does_not_pin_a_Pod_because_on_demand_nodes_also_have_it(values: tuple[str, ...]) -> None:
    term = expression("kubernetes.azure.com/scalesetpriority", "In" if values else "Exists", *values)
    azure = {"group": "karpenter.azure.com"}
    pools = [karpenter(name, capacity=(name,), nodeClassRef=azure) for name in ("spot", "on-demand")]
    pod = pod_of(labels=SPOT, terms=[[term]])
    targeting = target(pod, *pools)
    assert isinstance(targeting, Target)
    assert [pool.name for pool in targeting.pools or ()] == ["spot"]
    assert not targeting.pinned

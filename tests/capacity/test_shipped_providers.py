"""Targeting, landing and budgets with the shipped providers together: several in one cluster, pools of others, GKE's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import BUNDLE, expression, pod_of
from tests.capacity.requiring import karpenter
from webhook.capacity.placement.budget import GraceBudgets
from webhook.capacity.placement.supply import supply_of
from webhook.capacity.placement.target import CAPACITY_LABEL, NotTargeting, Target, is_pinned, target_of
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


def seconds(found: Target | NotTargeting) -> int:
    assert isinstance(found, Target)
    budget = BUDGETS.of(found)
    assert budget is not None
    return budget.seconds


@pytest.mark.parametrize(
    "pod",
    [
        pod_of(labels=SPOT, selector={COMPUTE_CLASS: "spot-first"}),
        pod_of(labels=SPOT, terms=[[expression(COMPUTE_CLASS, "In", "spot-first")]]),
        pod_of(selector={COMPUTE_CLASS: "spot-first", "cloud.google.com/gke-spot": "true"}),
    ],
)
def test_a_Pod_of_a_compute_class_is_left_alone(pod: Pod) -> None:
    found = target(pod, shown=("gke",))
    assert isinstance(found, NotTargeting)
    assert found.untouchable
    assert found.because == f"it selects nodes by {COMPUTE_CLASS}, which has its own rules for spot"


@pytest.mark.parametrize(
    ("labels", "capacity", "chooses"),
    [
        ({CAPACITY_LABEL: "spot"}, CapacityType.BOTH, True),
        ({CAPACITY_LABEL: "spot-preferred"}, CapacityType.SPOT, True),
        ({}, CapacityType.SPOT, True),
        ({}, CapacityType.BOTH, True),
        # A label does not change which nodes the class makes.
        ({CAPACITY_LABEL: "on-demand"}, CapacityType.SPOT, True),
        ({CAPACITY_LABEL: "on-demand"}, CapacityType.BOTH, True),
        ({CAPACITY_LABEL: "spot"}, CapacityType.ON_DEMAND, False),
    ],
)
def test_a_Pod_of_a_compute_class_has_its_time_to_stop_where_it_may_be_spot(
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
    found = target(pod_of(labels=labels, selector={COMPUTE_CLASS: "spot-first"}), its, another)
    assert isinstance(found, NotTargeting)
    assert found.chosen == ((its,) if chooses else ())


@pytest.mark.parametrize(
    ("provider", "stands_in"), [("karpenter", False), ("cks", False), ("gke", True), ("eks", True), ("aks", True)]
)
def test_nothing_stands_in_for_unknown_pools_of_a_provider_whose_pools_are_in_its_own_cluster(
    provider: str, *, stands_in: bool
) -> None:
    found = target(pod_of(labels=SPOT), shown=(provider,), known=False)
    assert isinstance(found, Target)
    assert (found.pools, bool(found.nodes)) == (None, stands_in)


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
def test_a_providers_spot_label_in_a_selector_speaks_for_itself(
    selector: dict[str, str], left: int, *, known: bool
) -> None:
    assert seconds(target(pod_of(selector=selector), known=known)) == left


@pytest.mark.parametrize(("behavior", "tolerated"), [(None, True), ("ARM", True), ("NONE", False)])
def test_an_arm_pool_of_GKE_is_tainted_unless_it_opts_out(behavior: str | None, *, tolerated: bool) -> None:
    own = {} if behavior is None else {"taintConfig": {"architectureTaintBehavior": behavior}}
    found = target(
        pod_of(labels=SPOT, selector={"kubernetes.io/arch": "arm64"}), gke("arm", machineType="c4a-standard-4", **own)
    )
    assert isinstance(found, Target)
    assert any(each.key == "kubernetes.io/arch" for each in found.tolerations) is tolerated


@pytest.mark.parametrize("values", [(), ("spot", "regular")])
def test_AKS_priority_label_alone_keeps_no_Pod_to_spot_as_other_nodes_have_it_too(values: tuple[str, ...]) -> None:
    term = expression("kubernetes.azure.com/scalesetpriority", "In" if values else "Exists", *values)
    azure = {"group": "karpenter.azure.com"}
    pools = [karpenter(name, capacity=(name,), nodeClassRef=azure) for name in ("spot", "on-demand")]
    pod = pod_of(labels=SPOT, terms=[[term]])
    found = target(pod, *pools)
    assert isinstance(found, Target)
    assert [each.name for each in found.pools or ()] == ["spot"]
    view = ClusterView(pools=tuple(pools), providers=frozenset({"karpenter"}))
    assert not is_pinned(pod, found, supply_of(view, PROVIDERS), PROVIDERS)

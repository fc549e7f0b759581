"""Which pools with requirements on labels admit a Pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.builders import cks_pool, expression, other_pool, pod_of, view_of
from tests.capacity.requiring import (
    ALL,
    ARCH,
    CAPACITY,
    CPUS,
    FAMILY,
    KARPENTER,
    POOL,
    READER,
    TEAM,
    ZONE,
    asking,
    gke_pool,
    karpenter,
    landing,
    target,
)
from tests.rules.conftest import subject_of
from tests.rules.placement import SPOT, placed, rule
from webhook.capacity.placement.budget import GraceBudgets
from webhook.capacity.placement.target import NotTargeting, Target
from webhook.capacity.providers.nodes import Node
from webhook.capacity.view import ClusterView
from webhook.cluster.view import node_facts, with_nodes
from webhook.kube.affinity import describe, terms_of
from webhook.kube.pod_decoding import decode_pod

if TYPE_CHECKING:
    from webhook.capacity.providers.pool import Pool
    from webhook.kube.pod import Pod


AMD64 = karpenter("amd64", expression(ARCH, "In", "amd64"))
ARM64 = karpenter("arm64", expression(ARCH, "In", "arm64"), expression(ZONE, "NotIn", "a"))
BOTH = karpenter("both", expression(ARCH, "In", "amd64", "arm64"), expression(FAMILY, "In", "m7g", "m7i"))
BARE = karpenter("bare", expression(ARCH, "DoesNotExist"), expression(CPUS, "Gt", "7"))
POOLS = (AMD64, ARM64, BARE, BOTH)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (asking(), ["amd64", "bare", "both"]),
        (asking(selector={ARCH: "arm64"}), ["arm64", "both"]),
        (asking(selector={"beta.kubernetes.io/arch": "arm64"}), ["arm64", "both"]),
        (asking(selector={ARCH: "s390x"}), []),
        (asking(selector={ZONE: "a"}), ["amd64", "bare", "both"]),
        (asking(selector={FAMILY: "c7g"}), ["amd64", "bare"]),
        (asking(selector={TEAM: "unheard-of"}), []),
        (asking([expression(ARCH, "In", "s390x", "amd64")]), ["amd64", "both"]),
        (asking([expression(ARCH, "NotIn", "arm64")]), ["amd64", "bare", "both"]),
        (asking([expression(ARCH, "Exists")]), ["amd64", "both"]),
        (asking([expression(ARCH, "DoesNotExist")]), ["bare"]),
        (asking([expression(CPUS, "Lt", "8")]), ["amd64", "both"]),
        (asking([expression(CPUS, "Lt", "9")]), ["amd64", "bare", "both"]),
        (asking([expression(CPUS, "Gt", "64")]), ["amd64", "bare", "both"]),
        (asking([expression(CPUS, "Gt", "many")]), ["amd64", "bare", "both"]),
        # Some nodes of a pool meet each expression, and none meets both.
        (asking([expression(ARCH, "In", "amd64", "s390x"), expression(ARCH, "NotIn", "amd64")]), []),
        (asking([expression(ARCH, "In", "amd64")], selector={ARCH: "arm64"}), []),
        (asking([expression(ARCH, "In", "amd64")], [expression(FAMILY, "In", "m7g")]), ["amd64", "bare", "both"]),
        (asking([expression(ARCH, "In", "amd64")], [expression(ARCH, "In", "s390x")]), ["amd64", "both"]),
    ],
)  # fmt: skip
def test_a_pool_admits_a_pod_only_if_a_node_can_meet_the_requirements_of_both(pod: Pod, expected: list[str]) -> None:
    assert landing(pod, *POOLS) == expected


def test_a_pool_that_excludes_the_pod_affects_neither_its_grace_period_nor_its_tolerations() -> None:
    taints = [{"key": "example.com/arm", "value": "true", "effect": "NoSchedule"}]
    strict = karpenter("strict", expression(ARCH, "In", "arm64"), terminationGracePeriod="20s", taints=taints)
    pod = {"metadata": {"name": "a", "labels": SPOT}, "spec": {"containers": [], "nodeSelector": {ARCH: "amd64"}}}
    view = view_of(AMD64, strict)

    targeting = target(subject_of(pod).pod, view=view)
    assert isinstance(targeting, Target)
    budget = GraceBudgets(ALL).of(targeting)
    assert budget is not None
    assert budget.seconds == 105
    result, _, violations = placed(pod, view, rule(ALL))
    assert violations == []
    assert "tolerations" not in result["spec"]
    assert result["spec"]["nodeSelector"] == {ARCH: "amd64", CAPACITY: "spot"}


def test_the_finding_names_the_requirement_if_no_pool_admits_the_pod() -> None:
    pod = {"metadata": {"name": "a", "labels": SPOT}, "spec": {"containers": [], "nodeSelector": {ARCH: "s390x"}}}
    result, patch, (violation,) = placed(pod, view_of(*POOLS), rule(ALL))
    assert (result, patch) == (pod, [])
    assert violation.reason == "the Pod targets spot, and its own nodeSelector or affinity excludes every spot pool"
    assert violation.field == 'spec.nodeSelector["kubernetes.io/arch"]'
    assert "requires `kubernetes.io/arch: s390x`" in violation.detail


PAID = karpenter("paid", capacity=("on-demand",))
MIXED = karpenter("mixed", capacity=("spot", "on-demand"))
EITHER = karpenter("either", capacity=())


@pytest.mark.parametrize(
    ("pod", "pools", "expected"),
    [
        (pod_of(selector={CAPACITY: "spot"}), (AMD64, PAID, MIXED, EITHER), True),
        (pod_of(selector={CAPACITY: "on-demand"}), (AMD64, PAID, MIXED, EITHER), False),
        (pod_of(terms=[[expression(CAPACITY, "In", "spot", "on-demand")]]), (AMD64, PAID), False),
        (pod_of(terms=[[expression(CAPACITY, "In", "spot", "reserved")]]), (AMD64, PAID), True),
        (pod_of(terms=[[expression(CAPACITY, "In", "spot", "reserved")]]), (AMD64, EITHER), False),
        (pod_of(terms=[[expression(CAPACITY, "Exists")]]), (AMD64, PAID), False),
        (pod_of(terms=[[expression(POOL, "In", "amd64", "paid"), expression(ARCH, "In", "amd64")]]), (AMD64, PAID), False),
        (
            pod_of(terms=[[expression(POOL, "In", "amd64", "paid"), expression(ARCH, "In", "amd64")]]),
            (AMD64, karpenter("paid", expression(ARCH, "In", "arm64"), capacity=("on-demand",))),
            True,
        ),
    ],
)  # fmt: skip
def test_a_selector_targets_spot_if_only_spot_nodes_can_meet_it(
    pod: Pod, pools: tuple[Pool, ...], *, expected: bool
) -> None:
    assert isinstance(target(pod, *pools), Target) is expected


GKE_SPOT = "cloud.google.com/gke-spot"
PROVISIONING = "cloud.google.com/gke-provisioning"


@pytest.mark.parametrize("view", [ClusterView(), view_of(), view_of(shown=("gke",))])
@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (expression(GKE_SPOT, "In", "true"), True),
        (expression(GKE_SPOT, "Exists"), True),
        (expression(GKE_SPOT, "In", "true", "yes"), True),
        (expression(GKE_SPOT, "In", "false"), False),
        (expression(GKE_SPOT, "NotIn", "false"), False),
        (expression(GKE_SPOT, "DoesNotExist"), False),
        # On-demand nodes have a different value.
        (expression(PROVISIONING, "Exists"), False),
        (expression(PROVISIONING, "In", "spot", "standard"), False),
        (expression(CAPACITY, "Exists"), False),
    ],
)
def test_selecting_a_label_that_only_spot_nodes_have_targets_spot(
    view: ClusterView, term: dict[str, Any], *, expected: bool
) -> None:
    pod = pod_of(terms=[[term]])
    targeting = target(pod, view=view)
    assert isinstance(targeting, Target) is expected
    if isinstance(targeting, Target):
        assert targeting.because == "its own nodeSelector or affinity requires a spot label"
        assert [nodes.provider.name for nodes in targeting.nodes] == ["gke"]
        assert targeting.pinned


def test_selecting_a_spot_only_label_also_targets_spot_with_visible_pools() -> None:
    pools = (gke_pool({"nodeCount": 1}), gke_pool({"nodeCount": 1, "spot": False}, "paid"))
    assert landing(pod_of(terms=[[expression(GKE_SPOT, "Exists")]]), *pools) == ["pool"]
    assert isinstance(target(pod_of(terms=[[expression(PROVISIONING, "Exists")]]), *pools), NotTargeting)


def cks_with(**spec: Any) -> Pool:
    (reader,) = ALL["cks"].readers
    status = spec.pop("status", {})
    whole = {"computeClass": "spot", "instanceType": "turin-gp", "targetNodes": 1, **spec}
    return reader.read({"metadata": {"name": "pool"}, "spec": whole, "status": status})


NO_CAPACITY: dict[str, Any] = {"currentNodes": 0, "conditions": [{"type": "Capacity", "reason": "NoneAvailable"}]}
INVALID: dict[str, Any] = {"currentNodes": 0, "conditions": [{"type": "Validated", "reason": "Invalid"}]}


@pytest.mark.parametrize(
    ("pool", "because"),
    [
        (cks_with(targetNodes=0), "it has 0 nodes and no autoscaling"),
        (cks_with(autoscaling=True, targetNodes=0, maxNodes=0), "it is autoscaled to at most 0 nodes"),
        (cks_with(status=INVALID), "its Validated condition says Invalid"),
        (cks_with(status={"conditions": [*NO_CAPACITY["conditions"], *INVALID["conditions"]]}), "its Validated condition says Invalid"),
        (cks_with(instanceType="gb200-4x"), "its instance type, gb200-4x, is never spot"),
        (gke_pool({"nodeCount": 0}), "it has 0 nodes and no autoscaling"),
        (karpenter("pool", expression(ARCH, "In", "a"), expression(ARCH, "In", "b")), "no node can meet its requirements on kubernetes.io/arch"),
        (READER.read({"metadata": {"name": "pool"}, "spec": {"limits": {"cpu": "0"}, "template": {"spec": {"requirements": [expression(CAPACITY, "In", "spot")]}}}}), "its limits allow 0 of cpu"),
        (READER.read({"metadata": {"name": "pool"}, "spec": {"replicas": 0, "template": {"spec": {"requirements": [expression(CAPACITY, "In", "spot")]}}}}), "it has 0 nodes and no autoscaling"),
    ],
)  # fmt: skip
def test_a_pool_that_gets_no_nodes_is_rejected(pool: Pool, because: str) -> None:
    gpu = pool.instance_type == "gb200-4x"
    targeting = target(pod_of(labels=SPOT, gpu=gpu), pool)
    assert isinstance(targeting, Target)
    assert targeting.pools == ()
    assert [(rejection.nodes.pool, rejection.because) for rejection in targeting.rejected] == [(pool, because)]

    resources = {"limits": {"nvidia.com/gpu": "1"}} if gpu else {}
    pod = {"metadata": {"name": "a", "labels": SPOT}, "spec": {"containers": [{"name": "a", "resources": resources}]}}
    result, patch, (violation,) = placed(pod, view_of(pool), rule(ALL))
    assert (result, patch) == (pod, [])
    assert violation.reason == "the Pod targets spot, and no spot pool can run it"
    assert f"{pool}: {because}." in violation.detail


@pytest.mark.parametrize(
    "pool",
    [
        cks_with(autoscaling=True, targetNodes=0, maxNodes=3),
        cks_with(status=NO_CAPACITY),
        cks_with(targetNodes=None),
        gke_pool({}),
        gke_pool({"nodeCount": 0, "autoscaling": {"maxNodeCount": 3}}),
    ],
)
def test_a_pool_that_may_get_nodes_later_admits_the_pod(pool: Pool) -> None:
    """A pool refills after all of its nodes are reclaimed, and a Pod can't be placed again then."""
    assert landing(asking(), pool) == ["pool"]


@pytest.mark.parametrize("named", ["resource", "own-name"])
@pytest.mark.parametrize(
    ("provider", "kind", "spec"),
    [
        ("eks", "Nodegroup", {"name": "own-name", "capacityType": "SPOT", "instanceTypes": ["m5.large"]}),
        ("gke", "ContainerNodePool", {"resourceID": "own-name", "nodeConfig": {"spot": True}}),
        ("gke", "GCPManagedMachinePool", {"nodePoolName": "own-name", "spot": True}),
        ("aks", "ManagedClustersAgentPool", {"azureName": "own-name", "scaleSetPriority": "Spot"}),
        ("aks", "AzureManagedMachinePool", {"name": "own-name", "scaleSetPriority": "Spot", "sku": "Standard_D4s_v5"}),
        ("eks", "AWSManagedMachinePool", {"eksNodegroupName": "own-name", "capacityType": "spot"}),
    ],
)
def test_an_annotation_names_a_pool_by_its_resource_name_or_provider_name(
    provider: str, kind: str, spec: dict[str, Any], named: str
) -> None:
    reader = next(candidate for candidate in ALL[provider].readers if candidate.kind == kind)
    pool = reader.read({"metadata": {"name": "resource", "namespace": "infra"}, "spec": spec})
    other = other_pool(KARPENTER, "other")
    assert landing(pod_of(named=named), pool, other) == ["resource"]
    assert isinstance(target(pod_of(named="own-nam"), pool, other), NotTargeting)

    pod = {"metadata": {"name": "a", "annotations": {"spotgate.dev/node-pool": "own-nam"}}, "spec": {"containers": []}}
    _, _, (violation,) = placed(pod, view_of(pool, other), rule(ALL))
    assert violation.reason == "there is no node pool `own-nam`, did you mean `own-name`?"


def test_an_empty_annotation_names_no_pool() -> None:
    unnamed = msgspec.structs.replace(cks_pool("a", gpu=False), pool_name="")
    assert isinstance(target(pod_of(named=""), unnamed), NotTargeting)


EKS_SPOT = "eks.amazonaws.com/capacityType"


@pytest.mark.parametrize(
    ("pod", "spot_shown", "expected"),
    [
        (asking(), ("eks",), ["amd64", "eks"]),
        (asking(), ("aks", "eks"), ["amd64", "aks", "eks"]),
        (asking(), (), ["amd64"]),
        (asking(selector={CAPACITY: "spot"}), ("eks",), ["amd64"]),
        (asking(selector={EKS_SPOT: "SPOT"}), ("eks",), ["eks"]),
        (asking(selector={EKS_SPOT: "SPOT"}), (), ["eks"]),
        (asking(selector={POOL: "amd64"}), ("eks",), ["amd64"]),
        (asking(selector={ARCH: "arm64"}), ("eks",), ["eks"]),
        (pod_of(named="amd64"), ("eks",), ["amd64"]),
    ],
)
def test_unseen_spot_nodes_count_next_to_declared_spot_pools_if_a_spot_node_of_their_provider_is_shown(
    pod: Pod, spot_shown: tuple[str, ...], expected: list[str]
) -> None:
    assert landing(pod, view=view_of(AMD64, shown=("eks",), spot_shown=spot_shown)) == expected


def test_only_a_spot_label_makes_a_node_count_as_spot() -> None:
    system = {"eks.amazonaws.com/nodegroup": "system", EKS_SPOT: "ON_DEMAND"}
    spot = {GKE_SPOT: "true"}
    nodes = (node_facts(labels, Node(), ALL.values()) for labels in (system, spot, {}))
    view = with_nodes(ClusterView(pools=(AMD64,)), nodes)
    assert view.providers == {"eks", "gke", "karpenter"}
    assert view.spot_providers == {"gke"}
    assert landing(asking(), view=view) == ["", "amd64", "gke"]  # the first is GKE's Node, without a pool's name


def test_a_visible_pools_label_selects_only_visible_pools() -> None:
    labelled = cks_pool("ours", gpu=False, labels={TEAM: "a"})
    view = view_of(labelled, spot_shown=("eks",))
    assert landing(asking(selector={TEAM: "a"}), view=view) == ["ours"]
    assert landing(asking(), view=view) == ["ours", "eks"]


def test_a_pod_for_two_providers_gets_a_term_for_each_without_foreign_machines_and_the_stricter_budget() -> None:
    view = view_of(AMD64, spot_shown=("aks",))
    pod = {"metadata": {"name": "a", "labels": SPOT}, "spec": {"containers": [{"name": "a"}]}}
    result, _, violations = placed(pod, view, rule(ALL))
    assert violations == []
    spec = decode_pod(msgspec.json.encode(result)).spec
    unseen = [
        "kubernetes.azure.com/accelerator DoesNotExist",
        "kubernetes.io/arch NotIn [arm64]",
        "kubernetes.io/os NotIn [windows]",
    ]
    assert [list(map(describe, term.requirements)) for term in terms_of(spec)] == [
        [f"{CAPACITY} In [spot]"],
        ["kubernetes.azure.com/scalesetpriority In [spot]", *unseen],
    ]
    assert [toleration.key for toleration in spec.tolerations or ()] == ["kubernetes.azure.com/scalesetpriority"]
    targeting = target(subject_of(result).pod, view=view)
    assert isinstance(targeting, Target)
    assert targeting.pinned
    budget = GraceBudgets(ALL).of(targeting)
    assert budget is not None
    assert budget.seconds == 25


def test_a_selector_that_may_admit_unseen_on_demand_nodes_does_not_pin_the_pod() -> None:
    terms = [[expression(POOL, "In", "amd64")], [expression("eks.amazonaws.com/nodegroup", "In", "workers")]]
    view = view_of(AMD64, spot_shown=("eks",))
    targeting = target(asking(*terms), view=view)
    assert isinstance(targeting, Target)
    assert len(targeting.nodes) == 2
    assert not targeting.pinned

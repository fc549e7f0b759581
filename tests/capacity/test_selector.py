"""The selector of a set of spot nodes, and the exclusions of spot nodes that can't run a Pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from tests.builders import ALL, EKS, KARPENTER, POOL_LABEL, cks_pool, other_pool, pod_of, view_of
from tests.capacity import requiring
from tests.rules.placement import SPOT
from webhook.capacity.placement.selector import excluding, select
from webhook.capacity.placement.supply import supply_of
from webhook.capacity.placement.target import Target
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool
from webhook.capacity.providers.requirements import LabelValues, Requirements
from webhook.capacity.providers.schema import LabelSpec
from webhook.kube.affinity import describe

if TYPE_CHECKING:
    from webhook.kube.pod import Requirement

TIER = LabelSpec(key="example.com/tier", value="spot")


def selected(
    chosen: tuple[str, ...],
    *pools: Pool,
    labels: tuple[LabelSpec, ...] = (),
    by_name: bool = False,
    shown: tuple[str, ...] = (),
) -> str:
    """Return the requirements as text: ``key=value, key=a|b or key=c``. A provider's name stands for unseen nodes."""
    supply = supply_of(view_of(*pools, shown=shown), ALL)
    nodes = (nodes for nodes in supply.spot if nodes.pool is not None and nodes.pool.name in chosen)
    unseen = supply.unseen(chosen)
    alternatives = select((*nodes, *unseen), supply, labels, by_name=by_name)
    return " or ".join(", ".join(map(_text, alternative)) for alternative in alternatives)


def _text(requirement: Requirement) -> str:
    assert requirement.operator == "In"
    return f"{requirement.key}={'|'.join(requirement.values or ())}"


A = cks_pool("a", labels={"example.com/tier": "spot", "example.com/team": "x"})
B = cks_pool("b", labels={"example.com/tier": "spot"})
C = cks_pool("c")
OTHER_VALUE = cks_pool("o", spot=False, labels={"example.com/tier": "paid", "example.com/team": "x"})
SAME_VALUE = cks_pool("o", spot=False, labels={"example.com/tier": "spot"})
MAYBE = replace(SAME_VALUE, labels={}, requirements=Requirements({"example.com/tier": LabelValues(present=True)}))
ZONED = cks_pool("z", labels={"topology.kubernetes.io/zone": "a", "kubernetes.io/arch": "amd64"})
LONG = cks_pool("x" * 64)


@pytest.mark.parametrize(
    ("chosen", "pools", "expected"),
    [
        (("a", "b"), (A, B, OTHER_VALUE), "example.com/tier=spot"),
        (("a",), (A, B), "example.com/team=x"),
        (("a", "b"), (A, B, SAME_VALUE), f"{POOL_LABEL}=a|b"),
        (("b",), (B, MAYBE), f"{POOL_LABEL}=b"),
        (("a", "c"), (A, B, C), f"{POOL_LABEL}=a|c"),
        (("z",), (ZONED, OTHER_VALUE), f"{POOL_LABEL}=z"),  # labels of the machine don't count
        (("x" * 64,), (LONG,), ""),
    ],
)
def test_without_a_spot_label_a_label_that_only_the_chosen_pools_have_precedes_their_names(
    chosen: tuple[str, ...], pools: tuple[Pool, ...], expected: str
) -> None:
    assert selected(chosen, *pools) == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ((), "example.com/team=x"),
        ((TIER,), "example.com/tier=spot"),
        ((LabelSpec(key="example.com/none", value="x"), TIER), "example.com/tier=spot"),
        ((LabelSpec(key="example.com/tier", value="paid"),), "example.com/team=x"),
        ((LabelSpec(key="node.kubernetes.io/instance-type", value="gd-8xh100ib-i128"),), "node.kubernetes.io/instance-type=gd-8xh100ib-i128"),
        ((LabelSpec(key="example.com/cluster", value="x"),), "example.com/team=x"),
    ],
)  # fmt: skip
def test_a_label_in_the_policy_comes_first_if_it_selects_only_the_chosen_pools(
    labels: tuple[LabelSpec, ...], expected: str
) -> None:
    everywhere = {"example.com/cluster": "x"}
    spot = cks_pool("a", labels={**A.labels, **everywhere})
    other = cks_pool("o", spot=False, gpu=False, labels=everywhere)

    assert selected(("a",), spot, other, labels=labels) == expected


@pytest.mark.parametrize(
    "labels", [{"example.com/tier": "two words"}, {"-bad": "spot"}, {"example.com/tier": "x" * 64}]
)
def test_an_invalid_label_is_never_chosen(labels: dict[str, str]) -> None:
    assert selected(("a",), cks_pool("a", labels=labels)) == f"{POOL_LABEL}=a"


K1, K2 = (other_pool(KARPENTER, name, labels={"example.com/tier": "spot"}) for name in ("k1", "k2"))
BOTH, BOTH_2 = (other_pool(KARPENTER, name, capacity=CapacityType.BOTH) for name in ("both", "both-2"))
PAID = other_pool(KARPENTER, "paid", capacity=CapacityType.ON_DEMAND)
TWIN = other_pool(KARPENTER, "k1", capacity=CapacityType.ON_DEMAND)
CLAIMS = other_pool(KARPENTER, "claims", capacity=CapacityType.ON_DEMAND, labels={"karpenter.sh/capacity-type": "spot"})
E = other_pool(EKS, "e", labels={"example.com/tier": "spot"})
KARPENTER_SPOT, EKS_SPOT = "karpenter.sh/capacity-type=spot", "eks.amazonaws.com/capacityType=SPOT"


@pytest.mark.parametrize(
    ("chosen", "pools", "expected"),
    [
        (("k1", "k2"), (K1, K2, PAID), KARPENTER_SPOT),
        (("k1",), (K1, K2, PAID), KARPENTER_SPOT),
        (("k1",), (K1, TWIN), KARPENTER_SPOT),
        (("both", "k1"), (BOTH, BOTH_2, K1), KARPENTER_SPOT),
        (("k1",), (K1, CLAIMS), "example.com/tier=spot"),  # an on-demand pool declares the spot label
        (("k1", "e"), (K1, K2, E, PAID), f"{EKS_SPOT} or {KARPENTER_SPOT}"),
        (("a", "c", "e"), (A, B, C, E), f"{POOL_LABEL}=a|c or {EKS_SPOT}"),
        (("gke", "e"), (E,), f"{EKS_SPOT} or cloud.google.com/gke-spot=true"),
    ],
)
def test_a_label_that_marks_spot_nodes_selects_them_whatever_their_pools_are(
    chosen: tuple[str, ...], pools: tuple[Pool, ...], expected: str
) -> None:
    assert selected(chosen, *pools, shown=("gke",)) == expected


@pytest.mark.parametrize(
    ("chosen", "pools", "expected"),
    [
        (("a",), (A, OTHER_VALUE), f"{POOL_LABEL}=a"),
        (("k1",), (K1, K2, PAID), "karpenter.sh/nodepool=k1"),
        (("both",), (BOTH, PAID), f"{KARPENTER_SPOT}, karpenter.sh/nodepool=both"),
        (("k1",), (K1, TWIN), "example.com/tier=spot"),
        (("k1",), (K1, K2, TWIN), ""),
    ],
)
def test_the_name_of_a_pool_that_the_pod_names_comes_first(
    chosen: tuple[str, ...], pools: tuple[Pool, ...], expected: str
) -> None:
    assert selected(chosen, *pools, by_name=True) == expected


AKS = requiring.ALL["aks"]
ACCELERATOR, AGENT_POOL = "kubernetes.azure.com/accelerator", "kubernetes.azure.com/agentpool"
CPU = other_pool(AKS, "cpu", gpu=Gpu.NO)


def stray(name: str, *taints: str, gpu: Gpu = Gpu.YES, **labels: str) -> Pool:
    keys = {"arch": "kubernetes.io/arch", "os": "kubernetes.io/os", "accelerator": ACCELERATOR}
    return other_pool(AKS, name, gpu=gpu, labels={keys[key]: value for key, value in labels.items()}, taints=taints)


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ((stray("a", "nvidia.com/gpu=present:NoSchedule", accelerator="nvidia"),), ""),
        ((stray("a", "sku=gpu:NoSchedule"), stray("b", "team=x:NoExecute", gpu=Gpu.NO, arch="arm64")), ""),
        ((stray("a", "team=x:PreferNoSchedule"),), f"{AGENT_POOL} NotIn [a]"),
        ((stray("a", "ebs.csi.aws.com/agent-not-ready:NoExecute"),), f"{AGENT_POOL} NotIn [a]"),  # it is temporary
        ((stray("a", arch="arm64", accelerator="nvidia"),), "kubernetes.io/arch NotIn [arm64]"),
        ((stray("a", gpu=Gpu.NO, os="windows"),), "kubernetes.io/os NotIn [windows]"),
        ((stray("a", accelerator="nvidia"),), f"{ACCELERATOR} DoesNotExist"),
        # A pool that can run the Pod has the label.
        ((stray("a", accelerator="nvidia"), stray("b", gpu=Gpu.ANY, accelerator="none")), f"{AGENT_POOL} NotIn [a]"),
        ((stray("a"), stray("b", accelerator="nvidia"), stray("c")), f"{ACCELERATOR} DoesNotExist, {AGENT_POOL} NotIn [a, c]"),
        ((replace(stray("a"), labels={}),), None),
        ((stray("cpu"),), None),  # a pool that can run the Pod has the same name
    ],
)  # fmt: skip
def test_a_taint_precedes_the_platform_an_accelerator_label_and_the_pool_name_to_exclude_nodes(
    pools: tuple[Pool, ...], expected: str | None
) -> None:
    target = requiring.target(pod_of(labels=SPOT), CPU, *pools)
    assert isinstance(target, Target)
    excluded = excluding(target.strays, target.nodes)
    assert (None if excluded is None else ", ".join(map(describe, excluded))) == expected


def test_a_toleration_for_pools_of_one_provider_opens_no_dedicated_pool_of_another() -> None:
    """CKS has this taint on nodes with GPUs. For Karpenter, it may have any meaning."""
    of_cks = cks_pool("c", taints=("is_gpu=true:NoSchedule",))
    of_karpenter = other_pool(requiring.KARPENTER, "k", gpu=Gpu.YES, taints=("is_gpu=true:NoSchedule",))
    target = requiring.target(pod_of(labels=SPOT, gpu=True), of_cks, of_karpenter, cks_pool("cpu", gpu=False))
    assert isinstance(target, Target)
    assert target.pools == (of_cks,)
    assert list(map(describe, excluding(target.strays, target.nodes) or ())) == ["karpenter.sh/nodepool NotIn [k]"]

"""The selector of a set of spot pools: the first label that selects these pools' nodes and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.builders import ALL, EKS, KARPENTER, POOL_LABEL, cks_pool, other_pool, view_of
from webhook.capacity.placement.selector import select
from webhook.capacity.placement.supply import supply_of
from webhook.capacity.providers.pool import CapacityType, Pool
from webhook.capacity.providers.schema import LabelSpec

if TYPE_CHECKING:
    from webhook.kube.pod import Requirement

TIER = LabelSpec(key="example.com/tier", value="spot")


def selected(
    chosen: tuple[str, ...], *pools: Pool, named: tuple[LabelSpec, ...] = (), shown: tuple[str, ...] = ()
) -> str:
    """Return the requirements as text: ``key=value, key=a|b or key=c``."""
    supply = supply_of(view_of(*pools, shown=shown), ALL)
    nodes = tuple(node for node in supply.spot if node.pool is not None and node.pool.name in chosen)
    unseen = tuple(unseen_node for unseen_node in supply.unseen if unseen_node.provider.name in chosen)
    return " or ".join(", ".join(map(_text, conjunction)) for conjunction in select(nodes or unseen, supply, named))


def _text(requirement: Requirement) -> str:
    assert requirement.operator == "In"
    return f"{requirement.key}={'|'.join(requirement.values or ())}"


A = cks_pool("a", labels={"example.com/tier": "spot", "example.com/team": "x"})
B = cks_pool("b", labels={"example.com/tier": "spot"})
C = cks_pool("c")
OTHER_VALUE = cks_pool("o", spot=False, labels={"example.com/tier": "paid", "example.com/team": "x"})
SAME_VALUE = cks_pool("o", spot=False, labels={"example.com/tier": "spot"})


@pytest.mark.parametrize(
    ("chosen", "pools", "expected"),
    [
        (("a",), (A, OTHER_VALUE), "example.com/tier=spot"),
        (("a", "b"), (A, B, OTHER_VALUE), "example.com/tier=spot"),
        (("a",), (A, B), "example.com/team=x"),
        (("b",), (A, B), f"{POOL_LABEL}=b"),
        (("a",), (A, SAME_VALUE), "example.com/team=x"),
        (("b",), (B, SAME_VALUE), f"{POOL_LABEL}=b"),
        (("a", "b"), (A, B, SAME_VALUE), f"{POOL_LABEL}=a|b"),
        (("a", "c"), (A, B, C), f"{POOL_LABEL}=a|c"),
        (("c",), (C,), f"{POOL_LABEL}=c"),
        (("c",), (C, cks_pool("o", spot=False, gpu=False)), f"{POOL_LABEL}=c"),
    ],
)
def test_a_label_that_only_the_chosen_pools_have_precedes_pool_names(
    chosen: tuple[str, ...], pools: tuple[Pool, ...], expected: str
) -> None:
    assert selected(chosen, *pools) == expected


def test_a_label_that_describes_the_machine_is_never_chosen() -> None:
    zoned = cks_pool("z", labels={"topology.kubernetes.io/zone": "a", "kubernetes.io/arch": "amd64"})
    assert selected(("z",), zoned, cks_pool("o", spot=False, gpu=False)) == f"{POOL_LABEL}=z"


@pytest.mark.parametrize(
    ("named", "expected"),
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
    named: tuple[LabelSpec, ...], expected: str
) -> None:
    everywhere = {"example.com/cluster": "x"}
    spot = cks_pool("a", labels={**A.labels, **everywhere})
    other = cks_pool("o", spot=False, gpu=False, labels=everywhere)

    assert selected(("a",), spot, other, named=named) == expected


@pytest.mark.parametrize(
    "labels", [{"example.com/tier": "two words"}, {"-bad": "spot"}, {"example.com/tier": "x" * 64}]
)
def test_an_invalid_label_is_never_chosen(labels: dict[str, str]) -> None:
    assert selected(("a",), cks_pool("a", labels=labels)) == f"{POOL_LABEL}=a"
    assert not selected(("x" * 64,), cks_pool("x" * 64, labels=labels))


K1, K2 = (other_pool(KARPENTER, name, labels={"example.com/tier": "spot"}) for name in ("k1", "k2"))
BOTH = other_pool(KARPENTER, "both", capacity=CapacityType.BOTH)
BOTH_2 = other_pool(KARPENTER, "both-2", capacity=CapacityType.BOTH)
MIXED = other_pool(KARPENTER, "mixed", capacity=CapacityType.BOTH, labels={"example.com/tier": "spot"})
PAID = other_pool(KARPENTER, "paid", capacity=CapacityType.ON_DEMAND)
KARPENTER_SPOT = "karpenter.sh/capacity-type=spot"


@pytest.mark.parametrize(
    ("chosen", "pools", "expected"),
    [
        (("k1", "k2"), (K1, K2, PAID), KARPENTER_SPOT),
        (("k1",), (K1, K2, PAID), "karpenter.sh/nodepool=k1"),
        (("k1", "k2"), (K1, K2, BOTH), "example.com/tier=spot"),
        (("both",), (BOTH, PAID), KARPENTER_SPOT),
        (("both",), (BOTH, BOTH_2), f"{KARPENTER_SPOT}, karpenter.sh/nodepool=both"),
        (("both", "k1"), (BOTH, BOTH_2, K1), f"{KARPENTER_SPOT}, karpenter.sh/nodepool=both|k1"),
        (("both", "both-2"), (BOTH, BOTH_2, PAID), KARPENTER_SPOT),
    ],
)
def test_the_providers_spot_label_comes_first_and_selects_the_spot_nodes_of_mixed_pools(
    chosen: tuple[str, ...], pools: tuple[Pool, ...], expected: str
) -> None:
    assert selected(chosen, *pools) == expected


E = other_pool(EKS, "e")
E_TIER = other_pool(EKS, "e", labels={"example.com/tier": "spot"})
E_PAID = other_pool(EKS, "e-paid", capacity=CapacityType.ON_DEMAND, labels={"example.com/tier": "spot"})
EKS_SPOT = "eks.amazonaws.com/capacityType=SPOT"


@pytest.mark.parametrize(
    ("chosen", "pools", "expected"),
    [
        (("k1", "e"), (K1, E_TIER), "example.com/tier=spot"),
        (("k1", "e"), (K1, E), f"{EKS_SPOT} or {KARPENTER_SPOT}"),
        (("k1", "e"), (K1, E_TIER, E_PAID), f"{EKS_SPOT} or {KARPENTER_SPOT}"),
        (("k1", "e"), (K1, K2, E), f"{EKS_SPOT} or karpenter.sh/nodepool=k1"),
        (("k1", "e"), (K1, BOTH, E, PAID), f"{EKS_SPOT} or example.com/tier=spot"),
        (("both", "e"), (BOTH, E), f"{EKS_SPOT} or {KARPENTER_SPOT}"),
        (("both", "e"), (BOTH, BOTH_2, E), f"{EKS_SPOT} or {KARPENTER_SPOT}, karpenter.sh/nodepool=both"),
        (("mixed", "e"), (MIXED, BOTH, E_TIER), f"{EKS_SPOT} or {KARPENTER_SPOT}, example.com/tier=spot"),
        (("a", "b", "k1"), (A, B, K1, PAID), "example.com/tier=spot"),
        (("a", "c", "e"), (A, B, C, E), f"{POOL_LABEL}=a|c or {EKS_SPOT}"),
    ],
)
def test_providers_without_a_common_label_have_one_selector_each(
    chosen: tuple[str, ...], pools: tuple[Pool, ...], expected: str
) -> None:
    assert selected(chosen, *pools) == expected


TWIN = (other_pool(KARPENTER, "twin"), other_pool(KARPENTER, "twin", capacity=CapacityType.ON_DEMAND), K1)


@pytest.mark.parametrize(("chosen", "pools"), [(("twin",), TWIN), (("twin", "e"), (*TWIN, E))])
def test_no_selector_is_chosen_if_none_is_exact(chosen: tuple[str, ...], pools: tuple[Pool, ...]) -> None:
    assert selected(chosen, *pools) == ""


def test_unseen_pools_are_selected_by_the_spot_labels_of_their_providers() -> None:
    assert selected(("gke",), shown=("gke",)) == "cloud.google.com/gke-spot=true"
    assert selected(("gke", "eks"), shown=("gke", "eks")) == f"{EKS_SPOT} or cloud.google.com/gke-spot=true"
    assert selected(("eks",), K1, PAID, shown=("eks",)) == "eks.amazonaws.com/capacityType=SPOT"

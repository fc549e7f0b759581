from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rules.conftest import shipped_provider, with_fields
from webhook.capacity.placement.budget import GraceBudgets
from webhook.capacity.placement.target import Target
from webhook.capacity.providers.pool import CapacityType, Pool

if TYPE_CHECKING:
    from webhook.capacity.providers.provider import Provider

CKS = shipped_provider("cks")
NO_MARGIN = with_fields(CKS.grace_period, budget_seconds=15, safety_margin_seconds=0)
GKE = with_fields(CKS, name="gke", title="GKE", grace_period=NO_MARGIN)
PROVIDERS = {"cks": CKS, "gke": GKE}


def pool(name: str, provider: str = "cks", grace: int | None = None, margin: int | None = None) -> Pool:
    return Pool(
        provider=provider,
        kind="NodePool",
        name=name,
        capacity=CapacityType.SPOT,
        grace_seconds=grace,
        safety_margin_seconds=margin,
    )


def target(pools: tuple[Pool, ...] | None, *providers: Provider) -> Target:
    return Target(preferred=False, because="a test", providers=providers, pools=pools)


@pytest.mark.parametrize(
    ("pools", "seconds"),
    [
        ((pool("plain"),), 270),
        ((pool("plain"), pool("same")), 270),
        ((pool("own", grace=100),), 70),
        ((pool("own", grace=100, margin=0),), 100),
        ((pool("longer", grace=600, margin=10),), 590),
        ((pool("plain"), pool("own", grace=100, margin=0)), 100),
        ((pool("longer", grace=600), pool("plain")), 270),
        ((pool("plain"), pool("elsewhere", provider="gke")), 15),
        ((pool("none at all", grace=0),), 1),
        ((pool("less than the margin", grace=20),), 1),
    ],
)
def test_the_budget_is_that_of_the_strictest_pool_less_the_margin(pools: tuple[Pool, ...], seconds: int) -> None:
    budget = GraceBudgets(PROVIDERS).of(
        target(pools, *(PROVIDERS[name] for name in sorted({each.provider for each in pools})))
    )

    assert budget is not None
    assert budget.seconds == seconds


def test_beside_pools_the_budget_of_a_provider_whose_pools_nobody_sees_counts() -> None:
    mixed = target((pool("longer", grace=600), pool("plain")), CKS, GKE)
    assert str(GraceBudgets(PROVIDERS).of(mixed)).startswith("On GKE")
    own = target((pool("own", grace=10, margin=0),), CKS, GKE)
    assert str(GraceBudgets(PROVIDERS).of(own)) == "NodePool own gives a Pod 10 s to stop"


@pytest.mark.parametrize("pools", [None, ()])
@pytest.mark.parametrize(("providers", "seconds"), [((CKS,), 270), ((GKE,), 15), ((CKS, GKE), 15), ((GKE, CKS), 15)])
def test_without_pools_it_is_that_of_the_strictest_provider_in_play(
    pools: tuple[Pool, ...] | None, providers: tuple[Provider, ...], seconds: int
) -> None:
    budget = GraceBudgets(PROVIDERS).of(target(pools, *providers))

    assert budget is not None
    assert budget.seconds == seconds


@pytest.mark.parametrize("pools", [None, ()])
def test_without_pools_and_providers_there_is_none(pools: tuple[Pool, ...] | None) -> None:
    assert GraceBudgets(PROVIDERS).of(target(pools)) is None


@pytest.mark.parametrize(
    ("pools", "text"),
    [
        (
            None,
            (
                "On CoreWeave CKS a node is drained 120 s after the notice and removed after 420 s: a Pod has 300 s, "
                "less a safety margin of 30 s"
            ),
        ),
        (
            (pool("slow", grace=100),),
            "NodePool slow gives a Pod 100 s to stop, less a safety margin of 30 s",
        ),
        ((pool("slow", grace=100, margin=0),), "NodePool slow gives a Pod 100 s to stop"),
    ],
)
def test_a_budget_says_where_it_comes_from(pools: tuple[Pool, ...] | None, text: str) -> None:
    assert str(GraceBudgets(PROVIDERS).of(target(pools, CKS))) == text

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.builders import pool_of
from tests.rules.conftest import shipped_provider, with_fields
from webhook.capacity.placement.budget import GraceBudgets
from webhook.capacity.placement.target import Target

if TYPE_CHECKING:
    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider

CKS = shipped_provider("cks")
NO_MARGIN = with_fields(CKS.grace_period, budget_seconds=15, safety_margin_seconds=0)
GKE = with_fields(CKS, name="gke", title="GKE", grace_period=NO_MARGIN)
PROVIDERS = {"cks": CKS, "gke": GKE}


def target(pools: tuple[Pool, ...] | None, *providers: Provider) -> Target:
    return Target(preferred=False, because="a test", providers=providers, pools=pools)


@pytest.mark.parametrize(
    ("pools", "seconds"),
    [
        ((pool_of("plain"),), 270),
        ((pool_of("plain"), pool_of("same")), 270),
        ((pool_of("own", grace_seconds=100),), 70),
        ((pool_of("own", grace_seconds=100, safety_margin_seconds=0),), 100),
        ((pool_of("longer", grace_seconds=600, safety_margin_seconds=10),), 590),
        ((pool_of("plain"), pool_of("own", grace_seconds=100, safety_margin_seconds=0)), 100),
        ((pool_of("longer", grace_seconds=600), pool_of("plain")), 270),
        ((pool_of("plain"), pool_of("elsewhere", provider="gke")), 15),
        ((pool_of("none at all", grace_seconds=0),), 1),
        ((pool_of("less than the margin", grace_seconds=20),), 1),
    ],
)
def test_the_budget_is_the_strictest_pools_minus_the_margin(pools: tuple[Pool, ...], seconds: int) -> None:
    budget = GraceBudgets(PROVIDERS).of(
        target(pools, *(PROVIDERS[name] for name in sorted({pool.provider for pool in pools})))
    )

    assert budget is not None
    assert budget.seconds == seconds


def test_a_provider_without_visible_pools_also_limits_the_budget() -> None:
    mixed = target((pool_of("longer", grace_seconds=600), pool_of("plain")), CKS, GKE)
    assert str(GraceBudgets(PROVIDERS).of(mixed)).startswith("GKE drains")
    own = target((pool_of("own", grace_seconds=10, safety_margin_seconds=0),), CKS, GKE)
    assert str(GraceBudgets(PROVIDERS).of(own)) == "NodePool own gives a Pod 10 s to stop"


@pytest.mark.parametrize("pools", [None, ()])
@pytest.mark.parametrize(("providers", "seconds"), [((CKS,), 270), ((GKE,), 15), ((CKS, GKE), 15), ((GKE, CKS), 15)])
def test_without_pools_the_strictest_provider_sets_the_budget(
    pools: tuple[Pool, ...] | None, providers: tuple[Provider, ...], seconds: int
) -> None:
    budget = GraceBudgets(PROVIDERS).of(target(pools, *providers))

    assert budget is not None
    assert budget.seconds == seconds


@pytest.mark.parametrize("pools", [None, ()])
def test_without_pools_and_providers_there_is_no_budget(pools: tuple[Pool, ...] | None) -> None:
    assert GraceBudgets(PROVIDERS).of(target(pools)) is None


@pytest.mark.parametrize(
    ("pools", "text"),
    [
        (
            None,
            (
                "CoreWeave CKS drains a node 120 s after the notice and removes it at 420 s: a Pod has 300 s to stop, "
                "less a safety margin of 30 s"
            ),
        ),
        (
            (pool_of("slow", grace_seconds=100),),
            "NodePool slow gives a Pod 100 s to stop, less a safety margin of 30 s",
        ),
        ((pool_of("slow", grace_seconds=100, safety_margin_seconds=0),), "NodePool slow gives a Pod 100 s to stop"),
    ],
)
def test_a_budget_explains_its_source(pools: tuple[Pool, ...] | None, text: str) -> None:
    assert str(GraceBudgets(PROVIDERS).of(target(pools, CKS))) == text

"""PodDisruptionBudgets: their selectors, and the evictions that they allow. See also tests/rules/test_spot_suitability.py."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.disruption import DisruptionBudget, budget_from, decode_budget
from webhook.model.review import MalformedObjectError

LABELS = {"app": "web", "tier": "front"}


def budget(**spec: Any) -> DisruptionBudget:
    value = {"metadata": {"name": "b", "namespace": "shop"}, "spec": spec}
    parsed = budget_from(value)
    assert decode_budget(msgspec.Raw(msgspec.json.encode(value))) == parsed
    return parsed


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        ({}, True),
        (None, False),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "back"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["api", "web"]}]}, True),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_an_empty_selector_covers_all_pods_and_no_selector_none(selector: Any, *, covers: bool) -> None:
    assert budget(selector=selector).covers(LABELS) is covers


def test_a_budget_without_a_bound_blocks_nothing() -> None:
    assert not budget(selector={}).blocks(1)
    assert not budget(selector={}).blocks(None)


@pytest.mark.parametrize(
    ("spec", "blocks"),
    [({"maxUnavailable": 0}, True), ({"minAvailable": "100%"}, True), ({"minAvailable": 1}, False), ({"minAvailable": "99%"}, False)],
)  # fmt: skip
def test_without_a_pod_count_only_zero_and_all_are_decisive(spec: Any, *, blocks: bool) -> None:
    assert budget(selector={}, **spec).blocks(None) is blocks


@given(st.integers(1, 1000), st.integers(0, 100))
def test_percentages_are_rounded_up(replicas: int, percent: int) -> None:
    kept = -(-replicas * percent // 100)
    assert budget(minAvailable=f"{percent}%").blocks(replicas) is (kept >= replicas)
    assert budget(maxUnavailable=f"{percent}%").blocks(replicas) is (percent == 0)


@pytest.mark.parametrize("value", [{}, {"metadata": {"name": "b"}, "spec": {"selector": []}}, {"metadata": {"name": "b"}, "spec": {"minAvailable": 0.5}}])  # fmt: skip
def test_wrong_types_are_rejected(value: Any) -> None:
    with pytest.raises(MalformedObjectError):
        budget_from(value)

"""Which label keys the selectors in an object name."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.kube.selectors import selected_keys


@pytest.mark.parametrize(
    ("value", "keys"),
    [
        ({"spec": {"selector": {"matchLabels": {"app": "web"}}}}, {"app"}),
        ({"spec": {"selector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}}}, {"tier"}),
        ({"spec": {"selector": {"app": "web"}}}, {"app"}),
        ({"spec": {"constraints": [{"labelSelector": {"matchLabels": {"app": "web"}}}]}}, {"app"}),
        ({"metadata": {"labels": {"app": "web"}}}, set()),
        (None, set()),
    ],
)
def test_a_key_in_a_selector_is_found_and_one_among_labels_is_not(value: Any, keys: set[str]) -> None:
    words = {"app", "tier"}
    assert selected_keys(value) & words == keys


def test_nesting_is_no_limit() -> None:
    value: Any = {"app": "web"}
    for _ in range(50_000):
        value = {"selector": value}
    assert "app" in selected_keys(value)

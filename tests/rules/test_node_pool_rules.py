"""NodePoolRules: no node pool breaks a check."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.nodepools import (
    CKS,
    JSON,
    KARPENTER,
    judge,
    pool,
    shipped,
)
from webhook.model.decision import Trace
from webhook.rules.node_pool_rules.checks import FieldRule

# What nobody meant to write.

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
anything = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


def named_fields() -> list[str]:
    """Return the fields that the shipped policy names, of all resources."""
    return sorted({field.spec.path.text for checks in shipped().checks.values() for field in checks.fields})


@st.composite
def odd_pools(draw: st.DrawFn) -> Any:
    """Objects with anything at any of the fields that the policy names, or above one."""
    value: Any = draw(st.fixed_dictionaries({}, optional={"metadata": anything, "status": anything, "spec": anything}))
    for path in draw(st.lists(st.sampled_from(named_fields()), max_size=6)):
        place = value
        *parents, last = path.split(".")
        for parent in parents[: draw(st.integers(0, len(parents)))]:
            if not isinstance(place.get(parent), dict):
                place[parent] = {}
            place = place[parent]
        place[last] = draw(anything)
    return value


@given(new=odd_pools(), old=st.none() | odd_pools(), resource=st.sampled_from([CKS, KARPENTER]))
def test_no_pool_breaks_a_rule(new: Any, old: Any, resource: tuple[str, str]) -> None:
    for each in judge(resource, new, old):
        assert each.reason
        assert each.field
        assert each.fix
        assert "\n" not in each.reason
        assert len(each.reason) < 300


ODD = [
    None,
    True,
    5,
    "spot",
    "system",
    [5, {"args": [5], "image": 5, "spec": {"mode": 5, "scaleSetPriority": "spot"}}],
    {"a": 5},
]


@pytest.mark.parametrize("policy", ["node-pool-rules", "karpenter-controller"])
def test_no_type_makes_a_shipped_check_fail(policy: str) -> None:
    for resource, check in ((each, check) for each in shipped(policy).checks.values() for check in each.checks):
        for values in itertools.product(ODD, repeat=len(check.spec.fields)):
            thing: JSON = {}
            for field, value in zip(check.spec.fields, values, strict=True):
                *parents, last = field.text.split(".")
                place = thing
                for parent in parents:
                    place = place.setdefault(parent, {})
                place[last] = value
            found = {each.id for each in resource.judge(thing, None, Trace())}
            assert "check-failed" not in found, (check.part, thing)


@given(value=odd_pools(), resource=st.sampled_from([CKS, KARPENTER]))
def test_what_is_left_as_it_was_is_not_judged(value: Any, resource: tuple[str, str]) -> None:
    assert judge(resource, value, value) == []


@given(least=st.integers(0, 9), target=st.integers(0, 9), most=st.integers(0, 9), autoscaling=st.booleans())
def test_sizes_are_ordered_while_autoscaling(least: int, target: int, most: int, *, autoscaling: bool) -> None:
    found = judge(CKS, pool(autoscaling=autoscaling, minNodes=least, targetNodes=target, maxNodes=most))
    assert bool(found) == (autoscaling and not least <= target <= most)
    assert len(found) <= 1


def test_every_example_of_a_field_is_right() -> None:
    rules = [field for checks in shipped().checks.values() for field in checks.fields]
    assert rules
    for rule in rules:
        if rule.spec.example is not None:
            value: Any = rule.spec.example
            for name in reversed(rule.spec.path.text.split(".")):
                value = {name: value}
            assert list(FieldRule.judge(rule, value, None)) == []

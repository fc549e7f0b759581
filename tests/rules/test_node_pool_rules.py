"""NodePoolRules: no node pool breaks a check, the page, and what Karpenter's requirements and budgets add up to."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.docs.pages import blocks
from tests.rules.nodepools import CKS, JSON, KARPENTER, healthy_pool, judge, shipped, told
from webhook.capacity.providers.requirements import read_requirements
from webhook.engine.bundle import load_bundle
from webhook.model.decision import Finding, Outcome, Trace
from webhook.rules.node_pool_rules.checks import FieldRule
from webhook.rules.node_pool_rules.karpenter import Diversity, diversity_of
from webhook.rules.node_pool_rules.message import MessageTemplate, on_one_line
from webhook.rules.node_pool_rules.rule import NodePoolRules

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
    found = judge(CKS, healthy_pool(autoscaling=autoscaling, minNodes=least, targetNodes=target, maxNodes=most))
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


# The page, and how messages show values

PAGE = Path(__file__).parents[2] / "docs" / "policies" / "node-pool-rules.md"
DENY, WARN = Outcome.DENY, Outcome.WARN


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not set"),
        (True, "true"),
        ("a\nb", "a b"),
        ({"b": [1], "a": 2}, '{"a": 2, "b": [1]}'),
        ("x" * 99, "x" * 60 + "..."),
    ],
)
def test_values_are_shown_on_one_short_line(value: object, text: str) -> None:
    assert on_one_line(value) == text
    assert MessageTemplate("it is ${a}!")({"a": value}) == f"it is {text}!"


def test_the_pages_own_policy_does_what_the_page_says(tmp_path: Path) -> None:
    (text,) = blocks(PAGE, "yaml")
    (tmp_path / "page.yaml").write_text(text)
    (policy,) = load_bundle([tmp_path]).policies
    assert isinstance(policy.validator, NodePoolRules)
    assert told(judge(CKS, healthy_pool(targetNodes=17), rule=policy.validator)) == [
        (WARN, "spec.targetNodes", "17 nodes in one pool")
    ]
    (finding,) = judge(CKS, healthy_pool(computeClass="spot"), rule=policy.validator)
    assert finding.outcome is DENY


def test_the_page_shows_what_is_said() -> None:
    wrong = healthy_pool(autoscaling=True, minNodes=0, targetNodes=9, maxNodes=4)
    (violation,) = judge(CKS, wrong)
    assert violation.part.startswith("resources[0].checks[")
    finding = Finding(
        policy="node-pool-rules",
        id=f"node-pool-rules/{violation.id}",
        outcome=DENY,
        reason=violation.reason,
        field=violation.field,
        detail=violation.detail,
        fix=violation.fix,
    )
    assert f"```\n{finding.message()}\n```" in PAGE.read_text()


# Karpenter: what requirements and budgets add up to

AWS = "karpenter.k8s.aws"
TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
CAPACITY = "karpenter.sh/capacity-type"
ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]


def requires(key: str, *values: str, operator: str = "In") -> JSON:
    return {"key": key, "operator": operator, "values": list(values)}


def spot_general(*requirements: JSON, budgets: Any = None, **template: Any) -> JSON:
    """Return a NodePool with a taint and a node class; its requirements and budgets are given."""
    spec: JSON = {
        "requirements": list(requirements),
        "nodeClassRef": {"group": AWS, "kind": "EC2NodeClass", "name": "general"},
        "taints": [{"key": "example.com/spot", "value": "true", "effect": "NoSchedule"}],
        **template,
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "spot-general"},
        "spec": {"template": {"spec": spec}, **({} if budgets is None else {"disruption": {"budgets": budgets}})},
    }


# Budgets.


def with_budgets(*budgets: Any) -> JSON:
    return spot_general(requires(CAPACITY, "on-demand"), budgets=list(budgets))


@given(
    budgets=st.lists(
        st.dictionaries(
            st.sampled_from(("nodes", "schedule", "duration", "reasons")),
            st.one_of(st.text(max_size=12), st.integers(), st.none(), st.booleans(), st.lists(st.text(max_size=4))),
        ),
        max_size=3,
    )
)
def test_no_budget_is_passed_over(budgets: list[JSON]) -> None:
    found = judge(KARPENTER, with_budgets(*budgets))
    for index, budget in enumerate(budgets):
        schedule, duration = budget.get("schedule"), budget.get("duration")
        if bool(schedule) != bool(duration) or isinstance(budget.get("nodes"), int):
            assert found
        elif any(isinstance(value, bool | int) for value in budget.values()):
            assert [each for each in found if each.field.startswith(f"spec.disruption.budgets[{index}]")]


# Counting, against a list of all machines that there are.

FAMILIES = ["m5", "m6i", "c5", "c6g", "r7a", "g5"]
SIZES = ["large", "xlarge", "2xlarge"]
MACHINES = [
    {
        TYPE: f"{family}.{size}",
        f"{AWS}/instance-family": family,
        f"{AWS}/instance-category": family[0],
        f"{AWS}/instance-generation": family[1],
        f"{AWS}/instance-size": size,
        ZONE: zone,
    }
    for family in FAMILIES
    for size in SIZES
    for zone in ZONES
]


@st.composite
def requirement(draw: st.DrawFn) -> JSON:
    key = draw(st.sampled_from(sorted(MACHINES[0])))
    if key.endswith("generation") and draw(st.booleans()):
        return requires(key, str(draw(st.integers(4, 8))), operator=draw(st.sampled_from(["Gt", "Lt"])))
    known = sorted({machine[key] for machine in MACHINES})
    values = draw(st.lists(st.sampled_from(known), min_size=1, unique=True))
    return requires(key, *values, operator=draw(st.sampled_from(["In", "NotIn"])))


def meets(machine: dict[str, str], item: JSON) -> bool:
    value = machine[item["key"]]
    match item["operator"]:
        case "In":
            return value in item["values"]
        case "NotIn":
            return value not in item["values"]
        case "Gt":
            return int(value) > int(item["values"][0])
        case _:
            return int(value) < int(item["values"][0])


@given(items=st.lists(requirement(), max_size=4))
def test_no_pool_is_said_to_be_narrower_than_it_is(items: list[JSON]) -> None:
    left = [machine for machine in MACHINES if all(meets(machine, item) for item in items)]
    found = diversity_of(read_requirements(items, "spec", {}), AWS)
    for count, key in ((found.types, TYPE), (found.generations, f"{AWS}/instance-generation"), (found.zones, ZONE)):
        assert count is None or count >= len({machine[key] for machine in left})


@given(types=st.lists(st.sampled_from(sorted({each[TYPE] for each in MACHINES})), min_size=1, unique=True))
def test_listed_types_are_counted_exactly(types: list[str]) -> None:
    found = diversity_of(read_requirements([requires(TYPE, *types)], "spec", {}), AWS)
    assert found == Diversity(len(types), len({each[1] for each in types}), None)

"""NodePoolRules: invariants, the page, and Karpenter's requirements and budgets."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.docs.pages import blocks
from tests.rules.nodepools import CKS, JSON, KARPENTER, healthy_pool, judge, shipped, summaries
from webhook.capacity.providers.requirements import read_requirements
from webhook.engine.bundle import load_bundle
from webhook.model.decision import Finding, Outcome, Trace
from webhook.rules.node_pool_rules.checks import FieldRule
from webhook.rules.node_pool_rules.karpenter import Diversity, diversity_of
from webhook.rules.node_pool_rules.message import MessageTemplate, on_one_line
from webhook.rules.node_pool_rules.rule import NodePoolRules

# Hostile objects

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
anything = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


def named_fields() -> list[str]:
    """Return the fields that the shipped policy names, for all resources."""
    return sorted({field.spec.path.text for checks in shipped().checks.values() for field in checks.fields})


@st.composite
def odd_pools(draw: st.DrawFn) -> Any:
    """Generate objects with arbitrary values in the policy's fields or their parents."""
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
def test_every_violation_of_any_pool_is_complete(new: Any, old: Any, resource: tuple[str, str]) -> None:
    for violation in judge(resource, new, old):
        assert violation.reason
        assert violation.field
        assert violation.fix
        assert "\n" not in violation.reason
        assert len(violation.reason) < 300


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
def test_shipped_checks_never_fail_on_wrong_types(policy: str) -> None:
    for resource, check in ((group, check) for group in shipped(policy).checks.values() for check in group.checks):
        for values in itertools.product(ODD, repeat=len(check.spec.fields)):
            manifest: JSON = {}
            for field, value in zip(check.spec.fields, values, strict=True):
                *parents, last = field.text.split(".")
                place = manifest
                for parent in parents:
                    place = place.setdefault(parent, {})
                place[last] = value
            ids = {violation.id for violation in resource.judge(manifest, None, Trace())}
            assert "check-failed" not in ids, (check.part, manifest)


@given(value=odd_pools(), resource=st.sampled_from([CKS, KARPENTER]))
def test_an_update_without_changes_is_not_judged(value: Any, resource: tuple[str, str]) -> None:
    assert judge(resource, value, value) == []


@given(least=st.integers(0, 9), target=st.integers(0, 9), most=st.integers(0, 9), autoscaling=st.booleans())
def test_sizes_must_be_ordered_only_with_autoscaling(least: int, target: int, most: int, *, autoscaling: bool) -> None:
    violations = judge(CKS, healthy_pool(autoscaling=autoscaling, minNodes=least, targetNodes=target, maxNodes=most))
    assert bool(violations) == (autoscaling and not least <= target <= most)
    assert len(violations) <= 1


def test_every_example_of_a_field_is_valid() -> None:
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
def test_messages_show_values_on_one_short_line(value: object, text: str) -> None:
    assert on_one_line(value) == text
    assert MessageTemplate("it is ${a}!")({"a": value}) == f"it is {text}!"


def test_the_pages_policy_has_the_documented_effect(tmp_path: Path) -> None:
    (text,) = blocks(PAGE, "yaml")
    (tmp_path / "page.yaml").write_text(text)
    (policy,) = load_bundle([tmp_path]).policies
    assert isinstance(policy.validator, NodePoolRules)
    assert summaries(judge(CKS, healthy_pool(targetNodes=17), rule=policy.validator)) == [
        (WARN, "spec.targetNodes", "17 nodes in one pool")
    ]
    (finding,) = judge(CKS, healthy_pool(computeClass="spot"), rule=policy.validator)
    assert finding.outcome is DENY


def test_the_page_shows_the_webhooks_message() -> None:
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


# Requirements and budgets of Karpenter

AWS = "karpenter.k8s.aws"
TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
CAPACITY = "karpenter.sh/capacity-type"
ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]


def requires(key: str, *values: str, operator: str = "In") -> JSON:
    return {"key": key, "operator": operator, "values": list(values)}


def spot_general(*requirements: JSON, budgets: Any = None, **template: Any) -> JSON:
    """Return a NodePool with a taint, a node class, and these requirements and budgets."""
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
def test_every_invalid_budget_has_a_violation(budgets: list[JSON]) -> None:
    violations = judge(KARPENTER, with_budgets(*budgets))
    for index, budget in enumerate(budgets):
        schedule, duration = budget.get("schedule"), budget.get("duration")
        if bool(schedule) != bool(duration) or isinstance(budget.get("nodes"), int):
            assert violations
        elif any(isinstance(value, bool | int) for value in budget.values()):
            assert [item for item in violations if item.field.startswith(f"spec.disruption.budgets[{index}]")]


# Counting, compared with a list of all machines

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
def test_the_diversity_of_a_pool_is_never_underestimated(items: list[JSON]) -> None:
    fitting = [machine for machine in MACHINES if all(meets(machine, item) for item in items)]
    spread = diversity_of(read_requirements(items, "spec", {}), AWS)
    for count, key in ((spread.types, TYPE), (spread.generations, f"{AWS}/instance-generation"), (spread.zones, ZONE)):
        assert count is None or count >= len({machine[key] for machine in fitting})


@given(types=st.lists(st.sampled_from(sorted({machine[TYPE] for machine in MACHINES})), min_size=1, unique=True))
def test_listed_types_are_counted_exactly(types: list[str]) -> None:
    spread = diversity_of(read_requirements([requires(TYPE, *types)], "spec", {}), AWS)
    assert spread == Diversity(len(types), len({instance_type[1] for instance_type in types}), None)

"""NodePoolRules against Karpenter's NodePools and Deployment: what requirements and budgets add up to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.nodepools import JSON, KARPENTER, judge
from webhook.capacity.providers.requirements import read_requirements
from webhook.rules.node_pool_rules.budgets import judge_pool_budgets
from webhook.rules.node_pool_rules.karpenter import Diversity, diversity_of

AWS = "karpenter.k8s.aws"
TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
CAPACITY = "karpenter.sh/capacity-type"
ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]


def requires(key: str, *values: str, operator: str = "In") -> JSON:
    return {"key": key, "operator": operator, "values": list(values)}


def node_pool(*requirements: JSON, budgets: Any = None, **template: Any) -> JSON:
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
    return node_pool(requires(CAPACITY, "on-demand"), budgets=list(budgets))


ALWAYS = "a budget of 0 nodes without a schedule always blocks voluntary disruption"
DAILY = {"schedule": "0 0 * * *", "duration": "8h"}


@pytest.mark.parametrize(
    ("budgets", "reasons"),
    [
        pytest.param([], [], id="none"),
        pytest.param([{"nodes": "10%"}], [], id="one"),
        pytest.param([{"nodes": "0"}], [ALWAYS], id="zero"),
        pytest.param([{"nodes": "0%"}], [ALWAYS], id="zero percent"),
        pytest.param([{"nodes": "0", **DAILY}], [], id="zero by a schedule"),
        pytest.param([{"nodes": "0", "reasons": ["Drifted"]}], [], id="zero for a reason"),
        pytest.param([{"nodes": "0", "reasons": ["Drifted", "Empty"]}], [], id="zero for two reasons"),
        pytest.param(
            [{"nodes": "0", "reasons": ["Drifted", "Empty", "Underutilized"]}], [ALWAYS], id="for all reasons"
        ),
        pytest.param([{"nodes": "10%"}, {"nodes": "0", **DAILY}], [], id="less by a schedule"),
        pytest.param(
            [{"nodes": "10%"}, {"nodes": "50%", **DAILY}],
            ["the budget of 50% (schedule 0 0 * * *) never has effect"],
            id="more by a schedule",
        ),
        pytest.param([{"nodes": "10%"}, {"nodes": "5", **DAILY}], [], id="a number and a share"),
        pytest.param(
            [{"nodes": "1", "reasons": ["Drifted"]}, {"nodes": "5", **DAILY}], [], id="the stricter one for a reason"
        ),
        pytest.param(
            [{"nodes": "1", "reasons": ["Drifted", "Empty"]}, {"nodes": "5", "reasons": ["Empty"], **DAILY}],
            ["the budget of 5 (schedule 0 0 * * *) never has effect"],
            id="the stricter one for its reasons too",
        ),
        pytest.param("10%", [], id="no list"),
        pytest.param([None, "0", {"nodes": []}, {"nodes": "many"}, {"nodes": "0", "schedule": 3}], [], id="unreadable"),
    ],
)
def test_the_most_restrictive_active_budget_wins(budgets: Any, reasons: list[str]) -> None:
    assert [each.reason for each in judge_pool_budgets(budgets)] == reasons


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


def test_a_budget_without_nodes_is_one_of_ten_percent() -> None:
    (found,) = judge_pool_budgets([{"reasons": ["Empty"]}, {"nodes": "20%", "reasons": ["Empty"], **DAILY}])
    assert found.id == "budget-no-effect"


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
    for count, key in (
        (found.types, TYPE),
        (found.generations, f"{AWS}/instance-generation"),
        (found.zones, ZONE),
    ):
        assert count is None or count >= len({machine[key] for machine in left})


@given(types=st.lists(st.sampled_from(sorted({each[TYPE] for each in MACHINES})), min_size=1, unique=True))
def test_listed_types_are_counted_exactly(types: list[str]) -> None:
    found = diversity_of(read_requirements([requires(TYPE, *types)], "spec", {}), AWS)
    assert found == Diversity(len(types), len({each[1] for each in types}), None)

"""NodePoolRules on Karpenter: what requirements and budgets add up to."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.rules.nodepools import JSON, KARPENTER, judge
from webhook.capacity.providers.requirements import read_requirements
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

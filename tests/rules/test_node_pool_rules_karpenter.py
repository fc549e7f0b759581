"""NodePoolRules against Karpenter's NodePools and Deployment: what requirements and budgets add up to."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.nodepools import JSON, KARPENTER, judge, told
from webhook.capacity.providers.requirements import read_requirements
from webhook.model.decision import Outcome
from webhook.rules.node_pool_rules.budgets import judge_pool_budgets
from webhook.rules.node_pool_rules.karpenter import Diversity, diversity_of

DENY, WARN = Outcome.DENY, Outcome.WARN
AWS = "karpenter.k8s.aws"
TYPE, ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
CAPACITY = "karpenter.sh/capacity-type"
TYPES = ["m5.xlarge", "m5a.xlarge", "m5n.xlarge", "m6i.xlarge", "m6a.xlarge", "m7i.xlarge", "c5.2xlarge", "c6i.2xlarge"]
ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]


def requires(key: str, *values: str, operator: str = "In") -> JSON:
    return {"key": key, "operator": operator, "values": list(values)}


SPOT = requires(CAPACITY, "spot")


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


GOOD = node_pool(SPOT, requires(TYPE, *TYPES), requires(ZONE, *ZONES))


def test_a_diversified_pool_has_no_finding() -> None:
    assert judge(KARPENTER, GOOD) == []


@pytest.mark.parametrize(
    ("group", "known"),
    [
        (AWS, True),
        ("eks.amazonaws.com", True),
        ("karpenter.azure.com", True),
        ("karpenter.k8s.gcp", False),
        ("karpenter.k8s.awss", False),
    ],
)
def test_a_node_class_of_which_nobody_knows_how_long_a_reclaim_takes_is_said(group: str, *, known: bool) -> None:
    value = node_pool(requires(CAPACITY, "on-demand"), nodeClassRef={"group": group, "kind": "X", "name": "a"})
    reason = f"nobody knows how long Pods on {group} have when a node is reclaimed"
    where = "spec.template.spec.nodeClassRef.group"
    assert told(judge(KARPENTER, value)) == ([] if known else [(WARN, where, reason)])


@pytest.mark.parametrize("field", ["terminationGracePeriod", "expireAfter"])
def test_a_time_is_a_duration_and_no_number(field: str) -> None:
    path = f"spec.template.spec.{field}"
    (found,) = judge(KARPENTER, node_pool(requires(CAPACITY, "on-demand"), **{field: 300}))
    assert told([found]) == [(DENY, path, f"{path} is an integer, not a string")]
    assert found.detail.startswith("It is 300. It is a duration")
    copied = yaml.safe_load(found.fix.partition(":\n")[2])["spec"]["template"]["spec"]
    assert judge(KARPENTER, node_pool(requires(CAPACITY, "on-demand"), **copied)) == []


@pytest.mark.parametrize(
    ("requirements", "short"),
    [
        pytest.param(
            [SPOT, requires(TYPE, "m5.xlarge"), requires(ZONE, "us-east-1a")],
            "1 instance type (of at least 6), 1 generation (of at least 2), 1 zone (of at least 3)",
            id="one of each",
        ),
        pytest.param([SPOT, requires(TYPE, *TYPES[:5])], "5 instance types (of at least 6)", id="too few types"),
        pytest.param(
            [SPOT, requires(TYPE, "m5.large", "m5.xlarge", "m5.2xlarge", "c5.large", "r5.large", "r5.xlarge")],
            "1 generation (of at least 2)",
            id="one generation",
        ),
        pytest.param(
            [SPOT, requires(TYPE, *TYPES), requires(TYPE, *TYPES[:3], operator="NotIn")],
            "5 instance types (of at least 6)",
            id="some are excluded",
        ),
        pytest.param(
            [SPOT, requires(TYPE, *TYPES), requires(f"{AWS}/instance-generation", "5", operator="Gt")],
            "4 instance types (of at least 6)",
            id="some are of an older generation",
        ),
        pytest.param(
            [
                SPOT,
                requires(f"{AWS}/instance-family", "m5", "m5a"),
                requires(f"{AWS}/instance-size", "xlarge", "large"),
            ],
            "4 instance types (of at least 6), 1 generation (of at least 2)",
            id="families and sizes",
        ),
        pytest.param(
            [SPOT, requires(f"{AWS}/instance-generation", "7")], "1 generation (of at least 2)", id="a generation"
        ),
        pytest.param([SPOT, requires(ZONE, *ZONES[:2])], "2 zones (of at least 3)", id="too few zones"),
        pytest.param(
            [SPOT, requires(ZONE, *ZONES), requires("topology.k8s.aws/zone-id", "use1-az1")],
            "1 zone (of at least 3)",
            id="a zone by its id",
        ),
    ],
)
def test_a_narrow_spot_pool_is_warned_of(requirements: list[JSON], short: str) -> None:
    (finding,) = judge(KARPENTER, node_pool(*requirements))
    assert told([finding]) == [
        (
            WARN,
            "spec.template.spec.requirements",
            f"a spot pool that is too narrow can be reclaimed all at once: {short}",
        )
    ]


@pytest.mark.parametrize(
    "requirements",
    [
        pytest.param([SPOT], id="nothing but spot"),
        pytest.param([SPOT, requires(f"{AWS}/instance-category", "c", "m", "r")], id="categories"),
        pytest.param([SPOT, requires(f"{AWS}/instance-family", "m5", "m6i")], id="two families of any size"),
        pytest.param([SPOT, requires(f"{AWS}/instance-generation", "4", operator="Gt")], id="generations"),
        pytest.param([SPOT, requires(ZONE, "us-east-1a", operator="NotIn")], id="all zones but one"),
        pytest.param([requires(CAPACITY, "spot", "on-demand"), requires(TYPE, "m5.large")], id="on-demand as well"),
        pytest.param([requires(TYPE, "m5.large"), requires(ZONE, "a")], id="any capacity"),
        pytest.param([requires(CAPACITY, "on-demand"), requires(TYPE, "m5.large")], id="on-demand"),
    ],
)
def test_what_is_wide_or_not_only_spot_is_not_warned_of(requirements: list[JSON]) -> None:
    assert judge(KARPENTER, node_pool(*requirements)) == []


def test_the_fix_of_a_narrow_pool_can_be_copied() -> None:
    (finding,) = judge(KARPENTER, node_pool(SPOT, requires(TYPE, "g5.xlarge"), requires(ZONE, "us-east-1a")))
    assert finding.detail == (
        "Spot capacity is reclaimed by instance type and zone. Admitted are instance type g5.xlarge; zone us-east-1a."
    )
    assert finding.fix.startswith("leave the requirement on zones out, or list 3; admit more, for example by category")
    copied = yaml.safe_load(finding.fix.partition(":\n")[2])["spec"]["template"]["spec"]["requirements"]
    assert copied[0]["values"] == ["g"]
    assert judge(KARPENTER, node_pool(SPOT, *copied)) == []


def test_azures_machines_have_no_generation_in_their_name() -> None:
    azure = {"group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "general"}
    (finding,) = judge(
        KARPENTER, node_pool(SPOT, requires(TYPE, "Standard_D4s_v5", "Standard_D8s_v5"), nodeClassRef=azure)
    )
    assert finding.reason.endswith(": 2 instance types (of at least 6)")
    assert finding.fix == "admit more instance types and zones: list more values, or leave the requirement out"


def test_an_update_is_judged_by_what_it_changes() -> None:
    narrow = node_pool(SPOT, requires(TYPE, "m5.xlarge"), budgets=[{"nodes": "0"}])
    weighted: JSON = deepcopy(narrow)
    weighted["spec"]["weight"] = 10
    assert judge(KARPENTER, weighted, narrow) == []
    assert [each.field for each in judge(KARPENTER, narrow, node_pool(SPOT, budgets=[{"nodes": "0"}]))] == [
        "spec.template.spec.requirements"
    ]
    assert [each.field for each in judge(KARPENTER, narrow, node_pool(SPOT, requires(TYPE, "m5.xlarge")))] == [
        "spec.disruption.budgets[0]"
    ]


def test_a_requirement_that_nobody_can_read_is_said_and_accuses_of_nothing_else() -> None:
    odd = [SPOT, requires(TYPE, "m5.xlarge", operator="Is"), requires(ZONE, *ZONES)]
    (finding,) = judge(KARPENTER, node_pool(*odd))
    assert told([finding]) == [
        (WARN, "spec.template.spec.requirements[1]", "NodePool spot-general can't be read in full")
    ]
    assert "spec.template.spec.requirements[1] has operator 'Is', not one of" in finding.detail


def test_only_the_instance_types_that_nobody_knows_are_named() -> None:
    on_demand = requires(CAPACITY, "on-demand")
    (finding,) = judge(KARPENTER, node_pool(on_demand, requires(TYPE, "zz9.large", "m5.large", "foo")))
    assert told([finding]) == [
        (
            WARN,
            "spec.template.spec.requirements",
            "nobody knows instance types foo, zz9.large: they are in no list",
        )
    ]
    assert finding.fix.endswith("If they are right, add them to the instanceTypes of CapacityProvider karpenter")
    before = node_pool(on_demand, requires(TYPE, "zz9.large"))
    (finding,) = judge(KARPENTER, node_pool(on_demand, requires(TYPE, "zz9.large", "foo")), before)
    assert finding.reason == "nobody knows instance type foo: it is in no list"


CATEGORY = "karpenter.k8s.aws/instance-category"


def test_a_category_that_nobody_knows_is_said() -> None:
    on_demand = requires(CAPACITY, "on-demand")
    value = node_pool(on_demand, requires(CATEGORY, "m", "zz"))
    (finding,) = judge(KARPENTER, value)
    assert finding.reason == f"nobody knows {CATEGORY} zz: it is in no list"
    assert finding.fix == "If it is right, add it to the machineLabels of CapacityProvider karpenter"
    assert judge(KARPENTER, value, node_pool(requires(CAPACITY, "spot"), requires(CATEGORY, "zz"))) == []


@pytest.mark.parametrize("key", ["karpenter.k8s.aws/instance-categroy", "karpenter.azure.com/zone"])
def test_a_label_of_the_providers_own_that_nobody_knows_is_said(key: str) -> None:
    value = node_pool(requires(CAPACITY, "on-demand"), requires(key, "p"))
    (finding,) = judge(KARPENTER, value)
    assert told([finding]) == [(WARN, "spec.template.spec.requirements", f"nobody knows label {key}: it is in no list")]
    assert finding.fix == "If it is right, add it to the otherMachineLabels of CapacityProvider karpenter"
    assert judge(KARPENTER, value, value) == []


@pytest.mark.parametrize(
    "key",
    [
        "example.com/instance-categroy",
        "karpenter.k8s.aws/instance-gpu-name",
        "karpenter.k8s.aws/instance-local-nvme",
        "eks.amazonaws.com/instance-size",
        "karpenter.azure.com/sku-version",
    ],
)
def test_a_label_that_is_listed_or_anybodys_is_right(key: str) -> None:
    assert judge(KARPENTER, node_pool(requires(CAPACITY, "on-demand"), requires(key, "3"))) == []


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


@pytest.mark.parametrize(
    ("budget", "field", "said"),
    [
        ({"nodes": "abc"}, "nodes", "is 'abc', not a number of nodes, or a percentage up to 100%"),
        ({"nodes": "-1"}, "nodes", "is '-1', not a number of nodes, or a percentage up to 100%"),
        ({"nodes": "150%"}, "nodes", "is '150%', not a number of nodes, or a percentage up to 100%"),
        ({"nodes": "1.5"}, "nodes", "is '1.5', not a number of nodes, or a percentage up to 100%"),
        ({"nodes": ""}, "nodes", "is '', not a number of nodes, or a percentage up to 100%"),
        ({"schedule": "daily"}, "schedule", "is 'daily', not a cron schedule: minute, hour, day, month, weekday (0-6)"),
        (
            {"schedule": "0 9 * *"},
            "schedule",
            "is '0 9 * *', not a cron schedule: minute, hour, day, month, weekday (0-6)",
        ),
        ({"duration": "8"}, "duration", "is '8', not a duration of hours and minutes"),
        ({"duration": "90s"}, "duration", "is '90s', not a duration of hours and minutes"),
        ({"duration": 8}, "duration", "is 8, not a duration of hours and minutes"),
        ({"reasons": ["Spot"]}, "reasons", 'is ["Spot"], not a list of Underutilized, Empty, Drifted'),
        ({"reasons": "Empty"}, "reasons", "is 'Empty', not a list of Underutilized, Empty, Drifted"),
        ({"reasons": [{}]}, "reasons", "is [{}], not a list of Underutilized, Empty, Drifted"),
    ],
)
def test_a_budget_that_karpenters_schema_refuses_is_denied(budget: JSON, field: str, said: str) -> None:
    found = judge(KARPENTER, with_budgets({"nodes": "1", **DAILY, **budget}))
    assert told(found) == [(DENY, f"spec.disruption.budgets[0].{field}", f"disruption.budgets[0].{field} {said}")]
    copied = yaml.safe_load(found[0].fix.partition(":\n")[2])["spec"]["disruption"]["budgets"]
    assert judge(KARPENTER, with_budgets(*copied)) == []


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


@pytest.mark.parametrize("odd", ["preemptible", "Spot"])
def test_a_capacity_type_that_there_is_not_is_said(odd: str) -> None:
    found = told(judge(KARPENTER, node_pool(requires(CAPACITY, odd), requires(TYPE, *TYPES))))
    assert found == [(WARN, "spec.template.spec.requirements", "NodePool spot-general can't be read in full")]


@pytest.mark.parametrize(
    "spot",
    [requires(CAPACITY, "spot"), requires(CAPACITY, "on-demand", "reserved", operator="NotIn")],
)
def test_a_pool_is_only_spot_however_it_says_so(spot: JSON) -> None:
    (finding,) = judge(KARPENTER, node_pool(spot, requires(TYPE, "m5.xlarge")))
    assert "too narrow" in finding.reason

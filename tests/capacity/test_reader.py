"""Reading node pools: CKS's own example, every field that can be missing or wrong, and arbitrary JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import strategies as st

from webhook.capacity.providers.manifest import on_demand_manifest
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, Taint
from webhook.capacity.providers.provider import Provider
from webhook.capacity.providers.query import Query
from webhook.capacity.providers.schema import CapacityProviderSpec

if TYPE_CHECKING:
    from webhook.capacity.providers.reader import PoolReader

CKS = Path(__file__).parents[2] / "policies" / "providers" / "cks.yaml"

HEALTHY = """
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata:
  creationTimestamp: "2025-06-09T14:48:54Z"
  generation: 1
  name: example-nodepool
  resourceVersion: "857370"
spec:
  autoscaling: false
  instanceType: gd-8xa100-i128
  lifecycle: {disableUnhealthyNodeEviction: true, scaleDownStrategy: IdleOnly}
  maxNodes: 0
  minNodes: 0
  targetNodes: 1
status:
  conditions:
    - {type: Validated, status: "True", reason: Valid, message: NodePool configuration is valid.}
    - {type: Capacity, status: "True", reason: Sufficient}
    - {type: Quota, status: "True", reason: Under}
    - {type: AtTarget, status: "True", reason: TargetMet}
    - {type: NodeReconfigurationRequired, status: "False", reason: AllNodesUpToDate}
  currentNodes: 1
  inProgress: 0
  queuedNodes: 0
"""


GPU_TYPES = (
    "b200-8x",
    "b300-8x",
    "gd-8xa100-i128",
    "gd-8xh100ib-i128",
    "gd-8xh200ib-i128",
    "gd-8xl40-i128",
    "gd-8xl40s-i128",
    "rtxp6000-8x",
    "rtxp6000-8x-v2",
)
SUPERCHIPS = ("gd-1xgh200", "gb200-4x", "gb300-4x", "gb300-4x-e", "verarubin-4x-e")
CPU_TYPES = (
    "cd-gp-a192-genoa",
    "cd-gp-l-a192-genoa",
    "cd-gp-i64-erapids",
    "cd-gp-l-i64-erapids",
    "cd-gp-i64-erapids-v2",
    "cd-gp-i96-icelake",
    "cd-hc-a384-genoa",
    "cd-hc-a384ib-genoa",
    "cd-hp-a96-genoa",
    "turin-gp",
    "turin-gp-l",
    "turin-gp-v2",
)


def reader_of(document: dict[str, Any]) -> PoolReader:
    (reader,) = Provider.of("cks", CapacityProviderSpec.model_validate(document["spec"])).readers
    return reader


READER = reader_of(yaml.safe_load(CKS.read_text()))


def read(spec: object = None, status: object = None, **metadata: object) -> Pool:
    spec = {"instanceType": "gd-8xh100ib-i128", "targetNodes": 2} if spec is None else spec
    value = {"metadata": {"name": "a", **metadata}, "spec": spec, "status": status}
    return READER.read(value)


def test_the_healthy_pool_of_the_schema_page_is_a_usable_on_demand_gpu_pool() -> None:
    assert READER.read(yaml.safe_load(HEALTHY)) == Pool(
        provider="cks",
        kind="NodePool",
        name="example-nodepool",
        pool_name="example-nodepool",
        capacity=CapacityType.ON_DEMAND,
        gpu=Gpu.YES,
        instance_type="gd-8xa100-i128",
        desired=1,
        maximum=0,
        labels={
            "compute.coreweave.com/node-pool": "example-nodepool",
            "node.kubernetes.io/instance-type": "gd-8xa100-i128",
        },
    )
    assert READER.read(yaml.safe_load(HEALTHY)).unusable == ""


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("spot", CapacityType.SPOT),
        ("Spot", CapacityType.SPOT),
        ("SPOT", CapacityType.SPOT),
        ("default", CapacityType.ON_DEMAND),
        ("Default", CapacityType.ON_DEMAND),
        ("", CapacityType.ON_DEMAND),
        (None, CapacityType.ON_DEMAND),
        ("sopt", CapacityType.UNKNOWN),
        (" spot", CapacityType.UNKNOWN),
        (True, CapacityType.UNKNOWN),
        (["spot"], CapacityType.UNKNOWN),
        ({}, CapacityType.UNKNOWN),
    ],
)
def test_compute_class_in_any_letter_case(written: object, meant: CapacityType) -> None:
    pool = read({"instanceType": "turin-gp", "targetNodes": 1, "computeClass": written})
    assert pool.capacity is meant
    assert bool(pool.problems) is (meant is CapacityType.UNKNOWN)


def test_an_absent_compute_class_is_on_demand() -> None:
    assert read().capacity is CapacityType.ON_DEMAND


@pytest.mark.parametrize(
    ("instance_type", "gpu", "superchip"),
    [
        *((each, Gpu.YES, False) for each in GPU_TYPES),
        *((each, Gpu.YES, True) for each in SUPERCHIPS),
        *((each, Gpu.NO, False) for each in CPU_TYPES),
        ("mi400", Gpu.UNKNOWN, False),
        ("", Gpu.UNKNOWN, False),
    ],
)
def test_every_instance_type_is_told_apart(instance_type: str, gpu: Gpu, superchip: bool) -> None:  # noqa: FBT001
    pool = read({"instanceType": instance_type, "targetNodes": 1})
    assert (pool.gpu, pool.superchip) == (gpu, superchip)


@pytest.mark.parametrize(
    ("size", "unusable"),
    [
        ({"targetNodes": 1}, ""),
        ({"targetNodes": 1, "maxNodes": 0}, ""),
        ({"targetNodes": 0}, "it has 0 nodes and no autoscaling"),
        ({"targetNodes": 0, "autoscaling": False, "maxNodes": 9}, "it has 0 nodes and no autoscaling"),
        ({"targetNodes": 0, "autoscaling": True, "maxNodes": 1}, ""),
        ({"targetNodes": 3, "autoscaling": True, "maxNodes": 0}, "it is autoscaled to at most 0 nodes"),
        ({"targetNodes": 3, "autoscaling": True}, "it is autoscaled and does not say its maximum size"),
        ({}, "it does not say how many nodes it has"),
        ({"targetNodes": None}, "it does not say how many nodes it has"),
        ({"targetNodes": -1}, "it has 0 nodes and no autoscaling"),
    ],
)
def test_a_pool_is_usable_when_it_can_have_nodes(size: dict[str, Any], unusable: str) -> None:
    assert read({"instanceType": "turin-gp", **size}).unusable == unusable


def conditions(nodes: int | None, **reasons: str) -> dict[str, Any]:
    listed = [{"type": name, "reason": reason} for name, reason in reasons.items()]
    return {"conditions": listed} if nodes is None else {"conditions": listed, "currentNodes": nodes}


NO_CAPACITY = "it has no nodes, and its Capacity condition says that none are available"
OVER_QUOTA = "it has no nodes, and its Quota condition says Over"


@pytest.mark.parametrize(
    ("status", "blocked"),
    [
        (None, ""),
        ({}, ""),
        (conditions(0), ""),
        (conditions(2, Validated="Valid", Capacity="Sufficient", Quota="Under"), ""),
        (conditions(2, Validated="Invalid"), "its Validated condition says Invalid"),
        (conditions(0, Validated="InternalError"), ""),
        (conditions(0, Capacity="NoneAvailable"), NO_CAPACITY),
        (conditions(None, Capacity="NoneAvailable"), NO_CAPACITY),
        (conditions(0, Capacity="NoneAvailableNodeAffinity"), NO_CAPACITY),
        (conditions(0, Capacity="QueuedAwaitingCapacity"), NO_CAPACITY),
        (conditions(1, Capacity="NoneAvailable"), ""),
        (conditions(0, Capacity="Partial"), ""),
        (conditions(0, Quota="Over"), OVER_QUOTA),
        (conditions(0, Quota="NotSet"), ""),
        (conditions(1, Quota="Over"), ""),
        ({"currentNodes": 0, "conditions": [{"type": "Capacity"}]}, ""),
        ({"currentNodes": "many", "conditions": "bad"}, ""),
    ],
)
def test_conditions_block_a_pool_that_gets_no_nodes(status: object, blocked: str) -> None:
    assert read(status=status).blocked == blocked


def test_a_pool_with_a_deletion_timestamp_is_being_deleted() -> None:
    assert read(deletionTimestamp="2026-01-01T00:00:00Z").unusable == "it is being deleted"


def test_taints_labels_and_the_labels_that_nodes_get_anyway() -> None:
    pool = read(
        {
            "instanceType": "b200-8x",
            "targetNodes": 1,
            "nodeTaints": [
                {"key": "spot", "value": "true", "effect": "NoSchedule"},
                {"key": "x", "effect": "NoExecute"},
            ],
            "nodeLabels": {"example.com/capacity": "spot"},
        }
    )
    assert pool.taints == (Taint("spot", "true", "NoSchedule"), Taint("x", "", "NoExecute"))
    assert pool.labels == {
        "example.com/capacity": "spot",
        "compute.coreweave.com/node-pool": "a",
        "node.kubernetes.io/instance-type": "b200-8x",
    }
    assert pool.problems == ()


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("instanceType", None, "spec.instanceType is missing"),
        ("instanceType", "", "spec.instanceType names no instance type"),
        ("instanceType", 8, "spec.instanceType is not text"),
        ("computeClass", "sopt", "spec.computeClass is 'sopt', not one of spot, default"),
        ("computeClass", ["spot"], "spec.computeClass is a list or map, not one of spot, default"),
        ("targetNodes", "1", "spec.targetNodes is not an integer"),
        ("targetNodes", True, "spec.targetNodes is not an integer"),
        ("targetNodes", 1.5, "spec.targetNodes is not an integer"),
        ("maxNodes", [], "spec.maxNodes is not an integer"),
        ("autoscaling", "true", "spec.autoscaling is neither true nor false"),
        ("autoscaling", 1, "spec.autoscaling is neither true nor false"),
        ("nodeTaints", {"key": "a"}, "spec.nodeTaints is not a list"),
        ("nodeTaints", [{"key": "a"}], "spec.nodeTaints[0] has no key and effect"),
        ("nodeTaints", ["a=b:NoSchedule"], "spec.nodeTaints[0] has no key and effect"),
        ("nodeLabels", ["a"], "spec.nodeLabels is not a map"),
        ("nodeLabels", {"a": 1}, "spec.nodeLabels['a'] is not text"),
    ],
)
def test_a_field_that_cannot_be_read_is_a_problem_and_the_rest_is_read(field: str, value: object, problem: str) -> None:
    spec = {"instanceType": "b200-8x", "targetNodes": 1, "nodeTaints": [], field: value}
    pool = read(spec)
    assert pool.problems == (problem,)
    assert pool.name == "a"


def test_a_problem_repeats_no_more_than_the_beginning_of_a_long_value() -> None:
    (problem,) = read({"instanceType": "b200-8x", "targetNodes": 1, "computeClass": "x" * 5000}).problems
    assert len(problem) < 200


def test_a_string_autoscaling_flag_does_not_make_a_pool_autoscaled() -> None:
    pool = read({"instanceType": "b200-8x", "targetNodes": 0, "maxNodes": 4, "autoscaling": "true"})
    assert pool.unusable == "it has 0 nodes and no autoscaling"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
condition = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(("Validated", "Capacity", "Quota")) | json_values,
        "reason": st.sampled_from(("Invalid", "NoneAvailable", "Over")) | json_values,
    },
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a[?b > `1`]", {"a": [{"b": "x"}]}),
        ("contains(a, b)", {"a": "xyz", "b": 1}),
        ("contains(a, b)", {"a": None, "b": 1}),
        ("a[::0]", {"a": [1]}),
        ("sum(a)", {"a": ["x"]}),
    ],
)
def test_an_expression_that_fails_on_a_value_finds_nothing(text: str, value: dict[str, Any]) -> None:
    assert Query(text)(value) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("maximum([a, b])", "there is no function `maximum`, did you mean `max`?"),
        ("a[?length(b) > `1`] && nope(c)", "there is no function `nope`"),
        ("not_null(a, b, c)", ""),
        ("sort_by(a, &b)", ""),
        ("lower(a) || max(b)", ""),
        ("a[1::2][0]", ""),
    ],
)
def test_a_wrong_call_of_a_function_is_found_before_it_is_made(text: str, said: str) -> None:
    problem = ""
    try:
        Query(text)
    except ValueError as error:
        problem = str(error)
    assert problem.removeprefix("not a JMESPath expression: ") == said


def test_an_on_demand_pool_is_written_where_it_is_read() -> None:
    manifest = on_demand_manifest(READER, name="b", namespace="", instance_type="b200-8x", maximum=4)
    assert manifest == {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": "b"},
        "spec": {
            "computeClass": "default",
            "instanceType": "b200-8x",
            "autoscaling": True,
            "maxNodes": 4,
            "targetNodes": 0,
        },
    }
    pool = READER.read(manifest)
    assert (pool.capacity, pool.gpu, pool.unusable, pool.problems) == (CapacityType.ON_DEMAND, Gpu.YES, "", ())


def changed_reader(**changes: object) -> PoolReader:
    """Return the reader with other fields; None: without it."""
    document = yaml.safe_load(CKS.read_text())
    pools = document["spec"]["nodePools"]
    pools[0] = {name: value for name, value in {**pools[0], **changes}.items() if value is not None}
    return reader_of(document)


def test_a_pool_without_autoscaling_is_written_with_a_fixed_size_and_its_namespace() -> None:
    reader = changed_reader(size={"desired": "spec.count"}, instanceType=None)
    manifest = on_demand_manifest(reader, name="b", namespace="ns", instance_type="", maximum=4)
    assert manifest is not None
    assert manifest["metadata"] == {"name": "b", "namespace": "ns"}
    assert manifest["spec"] == {"computeClass": "default", "count": 4}


def test_a_pool_whose_flag_of_autoscaling_is_the_map_of_its_maximum_is_written_with_that_map() -> None:
    size = {"desired": "spec.count", "autoscaling": "spec.scaling", "maximum": "spec.scaling.most"}
    manifest = on_demand_manifest(changed_reader(size=size), name="b", namespace="", instance_type="b200", maximum=4)
    assert manifest is not None
    assert manifest["spec"]["scaling"] == {"most": 4}


@pytest.mark.parametrize(
    "capacity",
    [
        {
            "from": "spec.requirements[?key=='capacity'].values[] | [0]",
            "values": {"od": "on-demand"},
            "default": "both",
        },
        {"from": "spec.spot", "values": {"true": "spot"}, "default": "on-demand"},
    ],
)
def test_a_pool_is_not_written_where_nobody_says_how(capacity: dict[str, Any]) -> None:
    reader = changed_reader(capacity=capacity)
    assert on_demand_manifest(reader, name="b", namespace="", instance_type="b200-8x", maximum=1) is None


def test_a_flag_can_say_which_capacity_it_is() -> None:
    reader = changed_reader(capacity={"from": "spec.spot", "values": {"true": "spot"}, "default": "on-demand"})
    assert reader.read({"spec": {"spot": True}}).capacity is CapacityType.SPOT
    assert reader.read({"spec": {}}).capacity is CapacityType.ON_DEMAND


@pytest.mark.parametrize(
    ("found", "zones"),
    [("a", {"a"}), (["a", "b", 1], {"a", "b"}), (None, set()), ({}, set()), (7, set())],
)
def test_zones_are_one_or_several(found: object, zones: set[str]) -> None:
    assert changed_reader(zones="spec.zones").read({"spec": {"zones": found}}).zones == zones


@pytest.mark.parametrize(("written", "value"), [("false", False), ("off", "off")])
def test_a_flag_is_written_as_one(written: str, value: object) -> None:
    reader = changed_reader(
        capacity={"from": "spec.spot", "values": {"on": "spot", written: "on-demand"}, "default": "on-demand"}
    )
    manifest = on_demand_manifest(reader, name="b", namespace="", instance_type="b200-8x", maximum=1)
    assert manifest is not None
    assert manifest["spec"]["spot"] == value
    assert reader.read(manifest).capacity is CapacityType.ON_DEMAND


def test_a_pool_of_several_types_is_not_written() -> None:
    assert on_demand_manifest(READER, name="b", namespace="", instance_type="b200-8x, gd-8x", maximum=1) is None


@pytest.mark.parametrize(
    ("value", "found"), [({"a": {"b": "SpOt"}}, "spot"), ({"a": {}}, None), ({}, None), ({"a": {"b": 5}}, None)]
)
def test_letter_case_can_be_left_out(value: dict[str, Any], found: str | None) -> None:
    assert Query("lower(a.b)")(value) == found

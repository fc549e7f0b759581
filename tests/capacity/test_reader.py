"""Readers of node pools: expressions and generated manifests. `test_pools` tests the pools that they read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.specs import spec_of
from webhook.capacity.providers.manifest import on_demand_manifest
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool
from webhook.capacity.providers.provider import Provider
from webhook.capacity.providers.query import Query
from webhook.capacity.providers.schema import CapacityProviderSpec

if TYPE_CHECKING:
    from webhook.capacity.providers.reader import PoolReader

CKS = Path(__file__).parents[2] / "policies" / "providers" / "cks.yaml"


def reader_of(document: dict[str, Any]) -> PoolReader:
    (reader,) = Provider.of("cks", spec_of(CapacityProviderSpec, document["spec"])).readers
    return reader


READER = reader_of(yaml.safe_load(CKS.read_text()))


def read(spec: object = None, status: object = None, **metadata: object) -> Pool:
    spec = {"instanceType": "gd-8xh100ib-i128", "targetNodes": 2} if spec is None else spec
    value = {"metadata": {"name": "a", **metadata}, "spec": spec, "status": status}
    return READER.read(value)


def test_a_problem_truncates_a_long_value() -> None:
    (problem,) = read({"instanceType": "b200-8x", "targetNodes": 1, "computeClass": "x" * 5000}).problems
    assert len(problem) < 200


def test_a_problem_names_the_pools_field() -> None:
    many = read({"instanceType": "b200-8x", "nodeLabels": dict.fromkeys(map(str, range(1001)), "")})
    other = changed_reader(taints="not_null(spec.a, spec.b)").read({"spec": {"instanceType": "b200-8x", "b": [{}]}})
    assert (*many.problems, *other.problems) == (
        "spec.nodeLabels has 1,001 items, more than the 1,000 that are read",
        "spec.b[0] lacks a key or an effect",
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
def test_an_expression_that_fails_on_a_value_returns_none(text: str, value: dict[str, Any]) -> None:
    assert Query(text)(value) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maximum([a, b])", "there is no function `maximum`, did you mean `max`?"),
        ("a[?length(b) > `1`] && nope(c)", "there is no function `nope`"),
        ("not_null(a, b, c)", ""),
        ("sort_by(a, &b)", ""),
        ("lower(a) || max(b)", ""),
        ("a[1::2][0]", ""),
        ("a" + "[*]" * 400, "has more than 1,000 characters"),
        ("a" + "[*]" * 320, "it is nested more than 100 levels deep"),
        ("(" * 101 + "a" + ")" * 101, "it is nested more than 100 levels deep"),
        (" || ".join(["a"] * 99), ""),
    ],
)
def test_an_invalid_expression_is_rejected_when_it_is_parsed(text: str, message: str) -> None:
    problem = ""
    try:
        Query.compiled(text)
    except ValueError as error:
        problem = str(error)
    assert problem.removeprefix("not a JMESPath expression: ") == message


def test_a_generated_on_demand_pool_can_be_read_back() -> None:
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
    """Return the reader with changed fields; None removes a field."""
    document = yaml.safe_load(CKS.read_text())
    pools = document["spec"]["nodePools"]
    pools[0] = {name: value for name, value in {**pools[0], **changes}.items() if value is not None}
    return reader_of(document)


def test_a_generated_pool_without_autoscaling_has_a_fixed_size_and_a_namespace() -> None:
    reader = changed_reader(size={"desired": "spec.count"}, instanceType=None)
    like = {"spec": {"nodeLabels": {"team": "a", "tier": "spot"}, "nodeTaints": [{"key": "team"}, {"key": "spot"}]}}
    manifest = on_demand_manifest(reader, name="b", namespace="ns", instance_type="", maximum=4, like=like)
    assert manifest is not None
    assert manifest["metadata"] == {"name": "b", "namespace": "ns"}
    shared = {"nodeLabels": {"team": "a"}, "nodeTaints": [{"key": "team"}]}
    assert manifest["spec"] == {"computeClass": "default", "count": 4, **shared}


def test_a_generated_pool_can_enable_autoscaling_by_the_map_that_has_the_maximum() -> None:
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
def test_no_pool_is_generated_if_the_capacity_has_no_writable_field_or_value(capacity: dict[str, Any]) -> None:
    reader = changed_reader(capacity=capacity)
    assert on_demand_manifest(reader, name="b", namespace="", instance_type="b200-8x", maximum=1) is None


def test_a_boolean_field_can_determine_the_capacity() -> None:
    reader = changed_reader(capacity={"from": "spec.spot", "values": {"true": "spot"}, "default": "on-demand"})
    assert reader.read({"spec": {"spot": True}}).capacity is CapacityType.SPOT
    assert reader.read({"spec": {}}).capacity is CapacityType.ON_DEMAND


@pytest.mark.parametrize(
    ("written", "zones"), [("a", {"a"}), (["a", "b", 1], {"a", "b"}), (None, set()), ({}, set()), (7, set())]
)
def test_zones_are_text_or_a_list(written: object, zones: set[str]) -> None:
    assert changed_reader(zones="spec.zones").read({"spec": {"zones": written}}).zones == zones


@pytest.mark.parametrize(("written", "value"), [("false", False), ("off", "off")])
def test_a_generated_boolean_field_is_a_boolean(written: str, value: object) -> None:
    reader = changed_reader(
        capacity={"from": "spec.spot", "values": {"on": "spot", written: "on-demand"}, "default": "on-demand"}
    )
    manifest = on_demand_manifest(reader, name="b", namespace="", instance_type="b200-8x", maximum=1)
    assert manifest is not None
    assert manifest["spec"]["spot"] == value
    assert reader.read(manifest).capacity is CapacityType.ON_DEMAND


def test_no_pool_is_generated_for_several_instance_types() -> None:
    assert on_demand_manifest(READER, name="b", namespace="", instance_type="b200-8x, gd-8x", maximum=1) is None


@pytest.mark.parametrize(
    ("value", "expected"), [({"a": {"b": "SpOt"}}, "spot"), ({"a": {}}, None), ({}, None), ({"a": {"b": 5}}, None)]
)
def test_lower_ignores_letter_case_and_values_that_are_not_text(value: dict[str, Any], expected: str | None) -> None:
    assert Query("lower(a.b)")(value) == expected


@pytest.mark.parametrize(
    ("text", "value", "obstacle"),
    [
        ("lower(spec.a)", {"spec": {"a": "X"}}, ""),
        ("lower(spec.a)", {"spec": {}}, ""),
        ("lower(spec.a)", {"spec": {"a": 5}}, "spec.a has an unexpected value"),
        ("lower(spec.a)", {"spec": []}, "spec is not a map"),
        ("length(spec.a)", {"spec": {}}, "spec.a is missing"),
        ("spec.a > `1`", {"spec": {"a": "2"}}, "spec.a has an unexpected value"),
        ("sum([spec.a, spec.b])", {"spec": {"b": 1}}, "spec.b has an unexpected value"),
        ("spec.a", {"spec": {"a": []}}, ""),
    ],
)
def test_an_expression_without_a_result_names_the_obstacle(text: str, value: dict[str, Any], obstacle: str) -> None:
    assert Query(text).answer(value)[1] == obstacle


@pytest.mark.parametrize(
    ("text", "value", "place"),
    [
        ("not_null(spec.a, spec.b)", {"spec": {"a": 1, "b": 2}}, "spec.a"),
        ("not_null(spec.a, spec.b)", {"spec": {"b": 2}}, "spec.b"),
        ("not_null(spec.a, spec.b)", {"spec": {}}, "spec.a"),
        ("[spec.a, spec.b][?@] | [0]", {"spec": {"a": False, "b": "x"}}, "spec.b"),
        ("lower(spec.b)", {"spec": {"b": "X"}}, "spec.b"),
        ("spec.a", {"spec": {"b": 2}}, "spec.a"),
    ],
)
def test_the_place_of_a_result_is_the_field_that_it_comes_from(text: str, value: dict[str, Any], place: str) -> None:
    assert Query(text).place(value) == place


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("a.b", ["a.b"]),
        ("not_null(a.b, ['t3.medium'][0], c.d)", ["a.b", "c.d"]),
        ("a.b[?c.d].e.f | [0].g.h", ["a.b"]),
        ("a.b.\"k8s.io/c\" == 'd.e'", ["a.b"]),
        ("{x: [a.b], y: !(c.d)}.x.y", ["a.b", "c.d"]),
        ("map(&c.d, a.b)", ["a.b"]),
        ("a", []),
    ],
)
def test_only_paths_from_the_object_are_fields(text: str, paths: list[str]) -> None:
    assert [".".join(path) for path in Query(text).paths] == paths

"""Readers of node pools: their expressions, and the manifests that they write; `test_pools` has what they read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from webhook.capacity.providers.manifest import on_demand_manifest
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool
from webhook.capacity.providers.provider import Provider
from webhook.capacity.providers.query import Query
from webhook.capacity.providers.schema import CapacityProviderSpec

if TYPE_CHECKING:
    from webhook.capacity.providers.reader import PoolReader

CKS = Path(__file__).parents[2] / "policies" / "providers" / "cks.yaml"


def reader_of(document: dict[str, Any]) -> PoolReader:
    (reader,) = Provider.of("cks", CapacityProviderSpec.model_validate(document["spec"])).readers
    return reader


READER = reader_of(yaml.safe_load(CKS.read_text()))


def read(spec: object = None, status: object = None, **metadata: object) -> Pool:
    spec = {"instanceType": "gd-8xh100ib-i128", "targetNodes": 2} if spec is None else spec
    value = {"metadata": {"name": "a", **metadata}, "spec": spec, "status": status}
    return READER.read(value)


def test_a_problem_repeats_no_more_than_the_beginning_of_a_long_value() -> None:
    (problem,) = read({"instanceType": "b200-8x", "targetNodes": 1, "computeClass": "x" * 5000}).problems
    assert len(problem) < 200


def test_a_problem_is_about_the_field_that_the_pool_has() -> None:
    many = read({"instanceType": "b200-8x", "nodeLabels": dict.fromkeys(map(str, range(1001)), "")})
    other = changed_reader(taints="not_null(spec.a, spec.b)").read({"spec": {"instanceType": "b200-8x", "b": [{}]}})
    assert (*many.problems, *other.problems) == (
        "spec.nodeLabels has 1,001 items, more than the 1,000 that are read",
        "spec.b[0] has no key and effect",
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
        ("a" + "[*]" * 400, "has more than 1,000 characters"),
        ("a" + "[*]" * 320, "it is nested more than 100 levels deep"),
        ("(" * 101 + "a" + ")" * 101, "it is nested more than 100 levels deep"),
        (" || ".join(["a"] * 99), ""),
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
    like = {"spec": {"nodeLabels": {"team": "a", "tier": "spot"}, "nodeTaints": [{"key": "team"}, {"key": "spot"}]}}
    manifest = on_demand_manifest(reader, name="b", namespace="ns", instance_type="", maximum=4, like=like)
    assert manifest is not None
    assert manifest["metadata"] == {"name": "b", "namespace": "ns"}
    shared = {"nodeLabels": {"team": "a"}, "nodeTaints": [{"key": "team"}]}
    assert manifest["spec"] == {"computeClass": "default", "count": 4, **shared}


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
    ("found", "zones"), [("a", {"a"}), (["a", "b", 1], {"a", "b"}), (None, set()), ({}, set()), (7, set())]
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


@pytest.mark.parametrize(
    ("text", "value", "obstacle"),
    [
        ("lower(spec.a)", {"spec": {"a": "X"}}, ""),
        ("lower(spec.a)", {"spec": {}}, ""),
        ("lower(spec.a)", {"spec": {"a": 5}}, "spec.a can't be read as it is"),
        ("lower(spec.a)", {"spec": []}, "spec is not a map"),
        ("length(spec.a)", {"spec": {}}, "spec.a is missing"),
        ("spec.a > `1`", {"spec": {"a": "2"}}, "spec.a can't be read as it is"),
        ("sum([spec.a, spec.b])", {"spec": {"b": 1}}, "spec.b can't be read as it is"),
        ("spec.a", {"spec": {"a": []}}, ""),
    ],
)
def test_an_expression_says_what_stands_in_its_way(text: str, value: dict[str, Any], obstacle: str) -> None:
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
def test_a_result_is_told_the_field_that_it_is_from(text: str, value: dict[str, Any], place: str) -> None:
    assert Query(text).place(value) == place

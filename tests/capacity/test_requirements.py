"""Karpenter's requirements: each operator, and combinations against a brute-force search over machines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.conftest import shipped_provider
from webhook.capacity.providers.pool import CapacityType, Gpu
from webhook.capacity.providers.requirements import OPERATORS, Requirements, read_requirements

KARPENTER = shipped_provider("karpenter")
(READER,) = KARPENTER.readers

TYPE = "node.kubernetes.io/instance-type"
FAMILY = "karpenter.k8s.aws/instance-family"
CATEGORY = "karpenter.k8s.aws/instance-category"
GPUS = "karpenter.k8s.aws/instance-gpu-count"
GPU_NAME = "karpenter.k8s.aws/instance-gpu-name"
CPUS = "karpenter.k8s.aws/instance-cpu"
CAPACITY = "karpenter.sh/capacity-type"
ZONE = "topology.kubernetes.io/zone"


def machine(name: str, cpus: int, gpus: int = 0, gpu_name: str = "") -> dict[str, str]:
    """Return Karpenter's labels of a machine; a machine without GPUs has no GPU labels."""
    family = name.partition(".")[0]
    labels = {TYPE: name, FAMILY: family, CATEGORY: family.rstrip("0123456789deni"), CPUS: str(cpus)}
    return labels | {GPUS: str(gpus), GPU_NAME: gpu_name} if gpus else labels


UNIVERSE = (
    machine("m5.large", 2),
    machine("m5.24xlarge", 96),
    machine("c6i.xlarge", 4),
    machine("r5.xlarge", 4),
    machine("g5.xlarge", 4, 1, "a10g"),
    machine("g6.48xlarge", 192, 8, "l4"),
    machine("p4d.24xlarge", 96, 8, "a100"),
    machine("p5.48xlarge", 192, 8, "h100"),
)


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def pool_spec(*requirements: dict[str, Any], **spec: Any) -> dict[str, Any]:
    template = {"spec": {"requirements": list(requirements)}}
    return {"metadata": {"name": "a"}, "spec": {"template": template, **spec}}


def read(*requirements: dict[str, Any]) -> Requirements:
    return read_requirements(list(requirements), "spec.requirements", {})


def holds(requirement: dict[str, Any], labels: dict[str, str]) -> bool:
    """Return whether labels meet a requirement, with the semantics of Kubernetes' node selectors."""
    value, values = labels.get(requirement["key"]), requirement["values"]
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    if value is None or not value.lstrip("-").isdigit():
        return False
    number, bound = int(value), int(values[0])
    return {"Gt": number > bound, "Lt": number < bound, "Gte": number >= bound, "Lte": number <= bound}[
        requirement["operator"]
    ]


def fitting(requirements: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [labels for labels in UNIVERSE if all(holds(requirement, labels) for requirement in requirements)]


WORDS = {
    TYPE: sorted({labels[TYPE] for labels in UNIVERSE}),
    FAMILY: sorted({labels[FAMILY] for labels in UNIVERSE}),
    CATEGORY: sorted({labels[CATEGORY] for labels in UNIVERSE}),
    GPU_NAME: ["a10g", "h100", "l4"],
    GPUS: ["1", "8"],
    CPUS: ["2", "4", "96", "192"],
}


@st.composite
def requirements_on_machines(draw: st.DrawFn) -> dict[str, Any]:
    key = draw(st.sampled_from(sorted(WORDS)))
    operators = OPERATORS if key in {GPUS, CPUS} else ("In", "NotIn", "Exists", "DoesNotExist")
    operator = draw(st.sampled_from(operators))
    if operator in {"Exists", "DoesNotExist"}:
        return requirement(key, operator)
    if operator in {"In", "NotIn"}:
        return requirement(key, operator, *draw(st.lists(st.sampled_from(WORDS[key]), min_size=1, max_size=4)))
    return requirement(key, operator, draw(st.sampled_from(["0", "1", "4", "7", "8", "100"])))


@settings(max_examples=100)
@given(st.lists(requirements_on_machines(), max_size=5))
def test_the_GPUs_of_a_pool_are_true_of_every_machine_that_fits(requirements: list[dict[str, Any]]) -> None:
    pool = READER.read(pool_spec(*requirements))
    with_gpus = {GPUS in labels for labels in fitting(requirements)}
    if pool.gpu is Gpu.YES:
        assert with_gpus <= {True}
    elif pool.gpu is Gpu.NO:
        assert with_gpus <= {False}
    elif pool.gpu is Gpu.UNKNOWN:
        assert with_gpus == set()  # no machine fits: the labels contradict each other
    if pool.blocked:
        assert with_gpus == set()
    assert pool.problems == ()


@settings(max_examples=100)
@given(requirements_on_machines())
def test_the_GPUs_of_a_pool_with_one_requirement_on_machines_are_exact(requirement: dict[str, Any]) -> None:
    pool = READER.read(pool_spec(requirement))
    with_gpus = {GPUS in labels for labels in fitting([requirement])}
    if requirement["key"] == CPUS:  # independent of GPUs
        assert pool.gpu is Gpu.ANY
    elif with_gpus and requirement["operator"] in {"In", "Exists", "DoesNotExist", "Gt", "Gte"}:
        expected = (Gpu.YES if True in with_gpus else Gpu.NO) if len(with_gpus) == 1 else Gpu.ANY
        assert pool.gpu is expected


LABEL = "example.com/label"


@st.composite
def requirements_on_a_label(draw: st.DrawFn) -> dict[str, Any]:
    operator = draw(st.sampled_from(OPERATORS))
    if operator in {"Exists", "DoesNotExist"}:
        return requirement(LABEL, operator)
    if operator in {"In", "NotIn"}:
        return requirement(LABEL, operator, *draw(st.lists(st.sampled_from("0123456ab"), min_size=1, max_size=6)))
    return requirement(LABEL, operator, draw(st.sampled_from("0123456")))


@settings(max_examples=100)
@given(st.lists(requirements_on_a_label(), max_size=5))
def test_a_labels_values_meet_every_requirement(requirements: list[dict[str, Any]]) -> None:
    values = read(*requirements).of(LABEL)
    everything = [*map(str, range(-2, 12)), "a", "b", "z"]
    right = {value for value in everything if all(holds(requirement, {LABEL: value}) for requirement in requirements)}
    assert {value for value in everything if values.admits(value)} == right
    assert values.admits_none == all(holds(requirement, {}) for requirement in requirements)
    if right:
        assert values.admits_some
    if values.values is not None:
        assert values.values == right
        assert values.admits_some == bool(right)
    assert bool(read(*requirements).impossible) == (not values.admits_none and not values.admits_some)


@settings(max_examples=100)
@given(st.lists(requirements_on_a_label(), max_size=3), st.lists(requirements_on_a_label(), max_size=3))
def test_values_within_others_are_admitted_by_them(ones: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    one, other = read(*ones).of(LABEL), read(*others).of(LABEL)
    everything = [*map(str, range(-2, 12)), "a", "b", "z"]
    if one.within(other):
        assert {value for value in everything if one.admits(value)} <= {
            value for value in everything if other.admits(value)
        }
        assert other.admits_none or not one.admits_none
    assert one.within(one)
    assert read(*ones, *others).of(LABEL).within(one)


@pytest.mark.parametrize(
    ("requirements", "some"),
    [
        ([requirement(LABEL, "Gt", "3"), requirement(LABEL, "Lt", "5"), requirement(LABEL, "NotIn", "4")], False),
        ([requirement(LABEL, "Gte", "3"), requirement(LABEL, "Lte", "5"), requirement(LABEL, "NotIn", "4", "3")], True),
        ([requirement(LABEL, "Gt", "3"), requirement(LABEL, "Lt", "4")], False),
        ([requirement(LABEL, "Gte", "3"), requirement(LABEL, "Lte", "3")], True),
        ([requirement(LABEL, "Gt", "0"), requirement(LABEL, "Lt", "999999999999999999")], True),
        ([requirement(LABEL, "Exists"), requirement(LABEL, "DoesNotExist")], False),
        ([requirement(LABEL, "In", "a"), requirement(LABEL, "DoesNotExist")], False),
    ],
)
def test_excluding_every_value_is_impossible(requirements: list[dict[str, Any]], *, some: bool) -> None:
    assert read(*requirements).of(LABEL).admits_some is some
    assert bool(read(*requirements).impossible) is not some


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (None, "spec.requirements is missing"),
        ({}, "spec.requirements is not a list"),
        (["a"], "spec.requirements[0] has no key"),
        ([{"operator": "Exists"}], "spec.requirements[0] has no key"),
        ([{"key": LABEL}], "spec.requirements[0] has an operator that is not text, not one of "),
        ([{"key": LABEL, "operator": "Inn"}], "spec.requirements[0] has operator 'Inn', not one of In, NotIn, Exists"),
        ([{"key": LABEL, "operator": ["In"]}], "spec.requirements[0] has an operator that is not text, not one of "),
        ([{"key": LABEL, "operator": "In"}], "spec.requirements[0] has operator In, which requires a list of strings"),
        ([requirement(LABEL, "NotIn")], "spec.requirements[0] has operator NotIn, which requires a list of strings"),
        (
            [{"key": LABEL, "operator": "In", "values": [1]}],
            "spec.requirements[0] has operator In, which requires a list of strings",
        ),
        (
            [{"key": LABEL, "operator": "In", "values": ["a", False]}],
            "spec.requirements[0] has operator In, which requires a list of strings",
        ),
        (
            [{"key": LABEL, "operator": "NotIn", "values": [["a"]]}],
            "spec.requirements[0] has operator NotIn, which requires a list of strings",
        ),
        ([requirement(LABEL, "Gt", "x")], "spec.requirements[0] has operator Gt, which requires one integer"),
        ([requirement(LABEL, "Lt", "1", "2")], "spec.requirements[0] has operator Lt, which requires one integer"),
        ([requirement(LABEL, "Gt", "9" * 5000)], "spec.requirements[0] has operator Gt, which requires one integer"),
    ],
)
def test_an_invalid_requirement_is_a_problem_and_makes_its_label_unreadable(written: object, problem: str) -> None:
    requirements = read_requirements(written, "spec.requirements", {})
    (message,) = requirements.problems
    assert message.startswith(problem)
    assert requirements.is_unreadable(LABEL)


def test_an_unreadable_requirement_leaves_other_labels_readable() -> None:
    requirements = read(requirement(LABEL, "Inn", "a"), requirement(ZONE, "In", "a"))
    assert requirements.is_unreadable(LABEL)
    assert not requirements.is_unreadable(ZONE)
    assert requirements.of(ZONE).values == frozenset({"a"})


SPOT, ON_DEMAND, RESERVED = "spot", "on-demand", "reserved"


@settings(max_examples=100)
@given(
    st.lists(
        st.one_of(
            st.builds(
                lambda operator, values: requirement(CAPACITY, operator, *values),
                st.sampled_from(("In", "NotIn")),
                st.lists(st.sampled_from((SPOT, ON_DEMAND, RESERVED)), min_size=1, max_size=3),
            ),
            st.sampled_from([requirement(CAPACITY, "Exists"), requirement(CAPACITY, "DoesNotExist")]),
        ),
        max_size=3,
    )
)
def test_the_capacity_of_a_pool_meets_every_requirement(required: list[dict[str, Any]]) -> None:
    pool = READER.read(pool_spec(*required))
    admitted = {
        value for value in (SPOT, ON_DEMAND, RESERVED) if all(holds(one, {CAPACITY: value}) for one in required)
    }
    meant = {CapacityType.SPOT if value == SPOT else CapacityType.ON_DEMAND for value in admitted}
    if not meant:
        assert pool.capacity is CapacityType.UNKNOWN
    else:
        assert pool.capacity is (meant.pop() if len(meant) == 1 else CapacityType.BOTH)


@pytest.mark.parametrize(
    ("alias", "key"),
    [
        ("beta.kubernetes.io/instance-type", TYPE),
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
        ("failure-domain.beta.kubernetes.io/zone", ZONE),
        ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ],
)
def test_a_deprecated_key_is_an_alias_of_its_replacement(alias: str, key: str) -> None:
    both = [
        {"key": alias, "operator": "In", "values": ["a", "b"]},
        {"key": key, "operator": "In", "values": ["b", "c"]},
    ]
    assert read_requirements(both, "spec.requirements", {}).of(key).values == frozenset({"b"})
    assert read_requirements([], "spec.requirements", {alias: "a"}).of(key).values == frozenset({"a"})
    assert read_requirements([{"key": alias, "operator": "?"}], "spec.requirements", {}).is_unreadable(key)

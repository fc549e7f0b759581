"""Matching of nodeSelector and required node affinity against the known labels of a node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import expression
from webhook.kube.affinity import (
    ANYWHERE,
    REQUIRED,
    Tristate,
    admits,
    contradiction,
    describe,
    terms_of,
    unmet_constraint,
)
from webhook.kube.pod import PodSpec, Requirement

NO, UNKNOWN, YES = Tristate.NO, Tristate.UNKNOWN, Tristate.YES

LABELS = {"zone": "a", "cpus": "16", "pool": "gpu"}


def spec_of(selector: dict[str, str] | None = None, terms: list[Any] | None = None) -> PodSpec:
    value: dict[str, Any] = {"nodeSelector": selector} if selector is not None else {}
    if terms is not None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        value["affinity"] = {"nodeAffinity": required}
    return msgspec.convert(value, PodSpec)


def answer(spec: PodSpec, absent: tuple[str, ...] = ()) -> Tristate:
    return admits(terms_of(spec), LABELS, absent)


@pytest.mark.parametrize(
    ("requirement", "known", "unknown", "absent"),
    [
        (("In", "a", "b"), YES, UNKNOWN, NO),
        (("In", "b"), NO, UNKNOWN, NO),
        (("NotIn", "a", "b"), NO, UNKNOWN, YES),
        (("NotIn", "b"), YES, UNKNOWN, YES),
        (("Exists",), YES, UNKNOWN, NO),
        (("DoesNotExist",), NO, UNKNOWN, YES),
        (("In",), NO, UNKNOWN, NO),
        (("Resembles", "a"), UNKNOWN, UNKNOWN, UNKNOWN),
    ],
)
def test_each_operator_on_a_known_an_unknown_and_an_absent_label(
    requirement: tuple[str, ...], known: Tristate, unknown: Tristate, absent: Tristate
) -> None:
    def on(key: str) -> PodSpec:
        return spec_of(terms=[{"matchExpressions": [expression(key, *requirement)]}])

    assert answer(on("zone")) is known
    assert answer(on("other")) is unknown
    assert answer(on("other"), ("other",)) is absent
    assert answer(on("zone"), ("zone",)) is known


@pytest.mark.parametrize(
    ("key", "requirement", "expected"),
    [
        ("cpus", ("Gt", "15"), YES),
        ("cpus", ("Gt", "16"), NO),
        ("cpus", ("Gt", "-1"), YES),
        ("cpus", ("Lt", "17"), YES),
        ("cpus", ("Lt", "16"), NO),
        ("cpus", ("Gt", "9", "10"), NO),
        ("cpus", ("Gt",), NO),
        ("cpus", ("Gt", "1_0"), NO),
        ("cpus", ("Gt", " 9"), NO),
        ("cpus", ("Lt", "9" * 5000), NO),
        ("zone", ("Gt", "1"), NO),
        ("other", ("Gt", "1"), UNKNOWN),
    ],
)
def test_gt_and_lt_compare_one_integer(key: str, requirement: tuple[str, ...], expected: Tristate) -> None:
    assert answer(spec_of(terms=[{"matchExpressions": [expression(key, *requirement)]}])) is expected


ZONE_A = expression("zone", "In", "a")
ZONE_B = expression("zone", "In", "b")
OTHER = expression("other", "Exists")


@pytest.mark.parametrize(
    ("selector", "terms", "expected"),
    [
        (None, None, YES),
        ({}, None, YES),
        ({"zone": "a"}, None, YES),
        ({"zone": "b"}, None, NO),
        ({"other": "x"}, None, UNKNOWN),
        ({"other": "x", "zone": "b"}, None, NO),
        ({"zone": "a"}, [{"matchExpressions": [ZONE_B]}], NO),
        ({"zone": "a"}, [{"matchExpressions": [OTHER]}], UNKNOWN),
        (None, [{"matchExpressions": [ZONE_B]}, {"matchExpressions": [ZONE_A]}], YES),
        (None, [{"matchExpressions": [ZONE_B]}, {"matchExpressions": [OTHER]}], UNKNOWN),
        (None, [{"matchExpressions": [OTHER]}, {"matchExpressions": [ZONE_A]}], YES),
        (None, [{"matchExpressions": [ZONE_A, ZONE_B]}], NO),
        (None, [{"matchExpressions": [ZONE_A, OTHER]}], UNKNOWN),
        (None, [], NO),
        (None, [{}], NO),
        (None, [{}, {"matchExpressions": [ZONE_A]}], YES),
        (None, [{"matchExpressions": [], "matchFields": []}], NO),
        (None, [{"matchFields": [expression("metadata.name", "In", "node-1")]}], UNKNOWN),
        (None, [{"matchFields": [expression("metadata.name", "In", "node-1")], "matchExpressions": [ZONE_B]}], NO),
    ],
)
def test_terms_are_ored_and_requirements_and_selector_anded(
    selector: dict[str, str] | None, terms: list[Any] | None, expected: Tristate
) -> None:
    assert answer(spec_of(selector, terms)) is expected


@pytest.mark.parametrize(
    ("selector", "terms", "expected"),
    [(None, None, False), ({}, None, False), ({"a": "b"}, None, True), (None, [], True), (None, [{}], True)],
)
def test_a_pod_is_constrained_by_a_selector_or_a_required_affinity(
    selector: dict[str, str] | None,
    terms: list[Any] | None,
    expected: bool,  # noqa: FBT001
) -> None:
    assert (terms_of(spec_of(selector, terms)) is not ANYWHERE) is expected


@pytest.mark.parametrize(
    ("operator", "expected"),
    [("In", True), ("Exists", True), ("Gt", True), ("Lt", True), ("NotIn", False), ("DoesNotExist", False)],
)
def test_only_positive_operators_require_a_label(operator: str, expected: bool) -> None:  # noqa: FBT001
    (term,) = terms_of(spec_of(terms=[{"matchExpressions": [expression("zone", operator, "1")]}]))
    assert term.demands({"zone"}) is expected
    assert not term.demands({"pool"})


@pytest.mark.parametrize(
    ("selector", "terms", "expected"),
    [
        ({"zone": "a"}, None, None),
        ({"other": "a"}, None, None),
        ({"pool": "gpu", "zone": "b"}, None, ('spec.nodeSelector["zone"]', "zone: b")),
        (
            None,
            [{"matchExpressions": [ZONE_A, expression("pool", "NotIn", "gpu", "cpu")]}, {"matchExpressions": [ZONE_B]}],
            (f"{REQUIRED}.nodeSelectorTerms[0].matchExpressions[1]", "pool NotIn [gpu, cpu]"),
        ),
        (None, [{"matchExpressions": [ZONE_B]}, {"matchExpressions": [ZONE_A]}], None),
        (None, [{}], (f"{REQUIRED}.nodeSelectorTerms", "terms that match no node")),
    ],
)
def test_a_mismatch_names_the_field_and_its_requirement(
    selector: dict[str, str] | None, terms: list[Any] | None, expected: tuple[str, str] | None
) -> None:
    unmet = unmet_constraint(spec_of(selector, terms), lambda term: term.admits(LABELS) is not NO)
    assert (unmet and unmet[:2]) == expected
    assert unmet is None or (unmet.requirement is None) is (terms == [{}])


def test_a_requirement_is_described_in_kubernetes_words() -> None:
    assert describe(Requirement("a/b", "In", ("x", "y"))) == "a/b In [x, y]"
    assert describe(Requirement("a/b", "Exists")) == "a/b Exists"


SPOT, ABSENT = expression("spot", "In", "true"), expression("spot", "DoesNotExist")


@pytest.mark.parametrize(
    ("selector", "terms", "text"),
    [
        (None, [[ABSENT, SPOT]], "spot DoesNotExist, contradicting spot In [true]"),
        ({"spot": "true"}, [[OTHER, ABSENT]], "spot In [true], contradicting spot DoesNotExist"),
        ({"spot": "true"}, [[expression("spot", "In", "false")]], "spot In [true], contradicting spot In [false]"),
        (
            None,
            [[SPOT, expression("spot", "NotIn", "true", "x")]],
            "spot In [true], contradicting spot NotIn [true, x]",
        ),
        (None, [[expression("spot", "Exists"), ABSENT]], "spot Exists, contradicting spot DoesNotExist"),
        (None, [[ABSENT, expression("spot", "Gt", "4")]], "spot DoesNotExist, contradicting spot Gt [4]"),
        (None, [[expression("cpus", "In", "4"), expression("cpus", "Gt", "4")]], ""),
        (None, [[SPOT, ABSENT], [SPOT]], ""),
        (
            None,
            [[expression("spot", "NotIn", "true"), SPOT, ABSENT]],
            "spot NotIn [true], contradicting spot In [true], contradicting spot DoesNotExist",
        ),
        (None, [[SPOT, expression("spot", "In", "true", "false")]], ""),
        (None, [[ABSENT, expression("spot", "NotIn", "true")]], ""),
        (None, [[SPOT, expression("other", "DoesNotExist")]], ""),
        (None, [[SPOT, expression("spot", "Resembles", "x")]], ""),
        (None, [], ""),
        ({"spot": "true"}, None, ""),
    ],
)
def test_requirements_of_one_key_that_no_node_meets_contradict_each_other(
    selector: dict[str, str] | None, terms: list[list[Any]] | None, text: str
) -> None:
    spec = spec_of(selector, None if terms is None else [{"matchExpressions": term} for term in terms])
    assert ", contradicting ".join(map(describe, contradiction(spec))) == text
    assert not text or admits(terms_of(spec), {}) is NO


_KEYS = ("a", "b", "c")
_VALUES = ("1", "2")
_expressions: Any = st.builds(
    expression, st.sampled_from(_KEYS), st.sampled_from(("In", "NotIn", "Gt", "Lt")), st.sampled_from(_VALUES)
) | st.builds(expression, st.sampled_from(_KEYS), st.sampled_from(("Exists", "DoesNotExist")))
_term = st.fixed_dictionaries({"matchExpressions": st.lists(_expressions, max_size=3)})
_specs: Any = st.builds(
    spec_of,
    st.none() | st.dictionaries(st.sampled_from(_KEYS), st.sampled_from(_VALUES), max_size=2),
    st.none() | st.lists(_term, max_size=3),
)
_labels = st.dictionaries(st.sampled_from(_KEYS), st.sampled_from(_VALUES))


@given(_specs, _labels, st.sets(st.sampled_from(_KEYS)))
def test_certain_answers_stay_certain_with_more_labels(spec: PodSpec, labels: dict[str, str], hidden: set[str]) -> None:
    """The node has exactly ``labels``, of which those that are not hidden are known."""
    truth = admits(terms_of(spec), labels, _KEYS)
    known = {key: value for key, value in labels.items() if key not in hidden}
    answer = admits(terms_of(spec), known, set(_KEYS) - hidden)

    assert truth is not UNKNOWN
    assert answer in {truth, UNKNOWN}
    assert answer is truth or hidden


@given(_specs, _labels)
def test_a_mismatch_exists_exactly_if_no_node_is_admitted(spec: PodSpec, labels: dict[str, str]) -> None:
    unmet = unmet_constraint(spec, lambda term: term.admits(labels) is not NO)
    assert (unmet is not None) is (admits(terms_of(spec), labels) is NO)

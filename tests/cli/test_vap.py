"""What is exported as CEL says what spotgate says: evaluated here, object by object.

tests/controlplane/test_exported_policies.py has the API server evaluate it.
"""

from __future__ import annotations

import json
import string
import tempfile
from copy import deepcopy
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from webhook.bundle import SHIPPED, load_bundle
from webhook.capacity.query import Query
from webhook.cel import language
from webhook.cel.text import Text, bound_name
from webhook.cli.vap import export
from webhook.cli.vap_cel import Fields, literal, names, quoted, segments, selects
from webhook.cli.vap_jmespath import UntranslatableError, condition
from webhook.context import Context, Phase
from webhook.decision import Outcome
from webhook.engine import decide
from webhook.globs import Globs, problem_with
from webhook.kube.templates import TemplatePath
from webhook.policy.common import LabelSelectorSpec
from webhook.policy.match import compile_selector
from webhook.review import decode_review

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.bundle import Bundle
    from webhook.cel import Expression

JSON = dict[str, Any]
TODAY = date(2026, 11, 21)


@cache
def compiled(text: str, variables: tuple[tuple[str, str], ...]) -> Expression:
    """A Boolean expression with the variables that it reads."""
    texts = {name: Text(each) for name, each in variables}
    read = set(Text(text).variables)
    for name in reversed(texts):
        read |= set(texts[name].variables) if name in read else set()
    bound = {bound_name(name): each.text for name, each in texts.items() if name in read}
    return language().compile(Text(text).text, bool, bound)


def evaluated(text: str, variables: Mapping[str, str], value: JSON, old: JSON | None = None) -> bool:
    """What a Boolean expression comes to. Raises EvaluationError."""
    shown = {"object": value, "oldObject": old, "request": {"operation": "CREATE"}}
    result = compiled(text, tuple(variables.items())).evaluate(language().values(shown))
    assert isinstance(result, bool)
    return result


# Globs, literals, selectors, paths

GLOBS = st.text("ab-[]!*?.^\\", min_size=1, max_size=6).filter(
    lambda text: not problem_with(text) and "[!]" not in text
)


@given(st.lists(GLOBS, min_size=1, max_size=3), st.text("ab-[]!.^\\\n", max_size=6))
def test_a_glob_names_in_cel_what_it_names_in_spotgate(globs: list[str], text: str) -> None:
    assert evaluated(names(quoted(text), globs), {}, {}) == Globs(globs).match(text)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_string_stays_what_it_is(text: str) -> None:
    assert evaluated(f"object.text == {quoted(text)}", {}, {"text": text})


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(string.ascii_letters + "'\"", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab'", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(JSON_VALUES)
def test_a_literal_is_the_value(value: Any) -> None:
    assert evaluated(f"object.value == dyn({literal(value)})", {}, {"value": value})


REQUIREMENTS = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from("ab"),
        st.sampled_from(("In", "NotIn")),
        st.lists(st.sampled_from(("x", "y")), min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from("ab"),
        st.sampled_from(("Exists", "DoesNotExist")),
    ),
)
LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(("x", "y", "")), max_size=3)


@given(st.dictionaries(st.sampled_from("ab"), st.just("x")), st.lists(REQUIREMENTS, max_size=2), LABELS)
def test_a_selector_selects_the_same(equal: JSON, requirements: list[JSON], labels: JSON) -> None:
    spec = LabelSelectorSpec.model_validate({"matchLabels": equal, "matchExpressions": requirements})
    selector = compile_selector(spec)
    expected = selector is None or selector.matches(labels)
    assert evaluated(selects(spec, "object.labels"), {}, {"labels": labels}) == expected


@given(
    st.sampled_from(("a.b", "a[*].b", "a.*.b", "a.b[*].c", "a[*].b.c")),
    st.recursive(
        st.none() | st.just("x") | st.just(1),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        max_leaves=10,
    ),
)
def test_the_maps_at_a_path_are_those_that_spotgate_finds(path: str, value: Any) -> None:
    fields = Fields()
    found = [each.value for each in TemplatePath(path).find({"a": value})]
    text = f"{fields.maps(segments(path))} == object.found"
    if path == "a.*.b":  # maps have no order
        text = f"{fields.maps(segments(path))}.size() == object.found.size()"
    assert evaluated(text, fields.variables, {"a": value, "found": found})


def test_a_list_in_a_list_can_not_be_said() -> None:
    with pytest.raises(ValueError, match="a list in a list"):
        Fields().maps(segments("a[*].b[*].c"))


# Rules for node pools


def documents() -> Iterator[JSON]:
    yield from yaml.safe_load_all((SHIPPED / "node-pool-rules.yaml").read_text())


VALUES: tuple[Any, ...] = (
    None,
    "",
    "spot",
    "SPOT",
    "system",
    "stable",
    "GB200-x",
    "570",
    0,
    1,
    5,
    1.5,
    True,
    False,
    [],
    ["a"],
    {},
    {"a": 1},
)


def nested(values: Mapping[str, Any]) -> JSON:
    """An object that has these values at these paths; where one is below another the one above gives way to a map."""
    built: JSON = {}
    for path, value in values.items():
        *parents, last = path.split(".")
        here = built
        for each in parents:
            there = here.get(each)
            here[each] = here = there if isinstance(there, dict) else {}
        if value is not None:
            here[last] = deepcopy(value)
    return built


NUMBERS = ("autoscaling", "minNodes", "maxNodes", "targetNodes")
WORDS = ("instanceType", "image", "image.name", "image.kernel", "image.releaseTrain", "gpu", "region", "mode")
MORE = ("scaleSetPriority", "capacityType", "instanceTypes", "nodeConfig.preemptible", "autoscaling.locationPolicy")
OBJECTS = st.fixed_dictionaries(
    {},
    optional={f"spec.{each}": st.sampled_from(VALUES) for each in NUMBERS}
    | {f"spec.{each}": st.sampled_from(VALUES) for each in WORDS + MORE},
).map(nested)
EXAMPLES = (
    "spec.a == spec.b",
    "spec.a != `1`",
    "spec.a > spec.b",
    "spec.a >= `1` && !(spec.a < spec.b)",
    "spec.a || !(spec.b)",
    "lower(spec.a) == 'spot'",
    "type(spec.a) == 'string' || type(spec.b) != 'object'",
    "length(spec.a) == `1`",
    "!(length(spec.a) == `1`) && !(contains(spec.b, 'po') || lower(spec.a) == 'spot')",
    "contains(lower(spec.a), 'gb200')",
    "contains(spec.a, 'po')",
    "contains(spec.a, 'a') || !(contains(spec.b, 'a'))",
    "spec.list[?a == 'spot' && !b]",
    "!(spec.list[?a]) || spec.list[?contains(a, 'a') || b == `1`]",
    "!(spec.a) && contains(spec.b, 'a') || lower(spec.b) == 'spot'",
    "(spec.a == 'spot' || contains(spec.b, 'a')) && !(spec.list[?length(a) > `0` && b])",
)


@pytest.mark.parametrize("text", EXAMPLES)
@settings(max_examples=60)
@given(
    one=st.sampled_from(VALUES),
    other=st.sampled_from(VALUES),
    items=st.lists(st.dictionaries(st.sampled_from("ab"), st.sampled_from(VALUES)), max_size=2),
)
def test_a_condition_holds_in_cel_where_it_does_in_jmespath(text: str, one: Any, other: Any, items: list[JSON]) -> None:
    assume(not ({"<", ">"} & set(text) and {str} & {type(one), type(other)}))  # JMESPath orders strings, too
    value = {"spec": {"a": one, "b": other, "list": items}}
    fields = Fields()
    translated = condition(text, fields)
    truth, problem = Query(text).search(value)
    if problem:  # then spotgate says so, and nothing is wrong
        assert not evaluated(translated, fields.variables, value)
        return
    holds = truth is not None and truth is not False and truth not in ("", [], {})
    assert evaluated(translated, fields.variables, value) == holds


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("spec.a[0]", "index expression"),
        ("spec.list[].a", "projection"),
        ("spec.a | b", "pipe"),
        ("max(spec.list)", r"max\(\)"),
        ("contains(spec.a, spec.b)", "no literal"),
        ("spec.list[?a].b", "what a filter of a list makes of its items"),
        ('spec."a-b"', "a name in quotes"),
        ("spec.in", "a name in quotes"),
        ("spec.list[?a.b]", "a field in a field of an item"),
        ("spec.a == `[1]`", "literal"),
    ],
)
def test_what_has_no_equal_is_named(text: str, part: str) -> None:
    with pytest.raises(UntranslatableError, match=part):
        condition(text, Fields())


@cache
def pool_rules() -> Bundle:
    """The shipped rules for node pools, without what takes a CapacityProvider to know."""
    document = next(documents())
    off = ("superchipOnSpot", "spotWithoutTaint", "unknownInstanceType", "unreadable")
    document["spec"] |= dict.fromkeys(off, "off")
    karpenter = {"requirements": "off", "budgets": "off", "malformedBudgets": "off"}
    document["spec"]["karpenter"] = {"diversification": {"enforcement": "off"}, **karpenter}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(document, file)
        return load_bundle([Path(file.name)])


@cache
def exported_rules() -> Mapping[str, JSON]:
    """What is exported of them, by name."""
    return {each["metadata"]["name"]: each for each in export(pool_rules(), TODAY)[0] if "variables" in each["spec"]}


def judged(bundle: Bundle, group: str, resource: str, value: JSON, old: JSON | None) -> set[Outcome]:
    """What spotgate's findings come to, beside those of checks that fail on what is there."""
    request = {
        "uid": "1",
        "kind": {"group": group, "version": "v1", "kind": "X"},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {"username": "alice"},
        "object": value,
        "oldObject": old,
    }
    review = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    context = Context(phase=Phase.VALIDATE, now=datetime(2026, 11, 21, tzinfo=UTC))
    findings = decide(decode_review(review.encode()), bundle.index, context).findings
    return {each.outcome for each in findings if "can't be made" not in each.reason}


def false_ones(policy: JSON, value: JSON, old: JSON | None) -> list[str]:
    """The messages of validations that are false. None may be without a result."""
    variables = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    validations = policy["spec"]["validations"]
    return [each["message"] for each in validations if not evaluated(each["expression"], variables, value, old)]


POOL_RESOURCES = [
    ("compute.coreweave.com", "nodepools"),
    ("eks.services.k8s.aws", "nodegroups"),
    ("containerservice.azure.com", "managedclustersagentpools"),
    ("container.cnrm.cloud.google.com", "containernodepools"),
]


@pytest.mark.parametrize(("group", "resource"), POOL_RESOURCES, ids=[resource for _, resource in POOL_RESOURCES])
@settings(max_examples=60)
@given(value=OBJECTS, old=st.none() | OBJECTS)
def test_a_pool_is_denied_and_warned_of_as_by_spotgate(
    group: str, resource: str, value: JSON, old: JSON | None
) -> None:
    found = set()
    for outcome, prefix in ((Outcome.DENY, ""), (Outcome.WARN, "warn.")):
        policy = exported_rules().get(f"node-pool-rules.{prefix}{resource}.{group}.spotgate.dev")
        if policy is not None and false_ones(policy, value, old):
            found.add(outcome)
    assert found == judged(pool_rules(), group, resource, value, old)

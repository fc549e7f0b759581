"""Exported CEL gives the same verdicts as spotgate, object by object.

tests/controlplane/exported/test_policies.py evaluates it in the API server.
"""

from __future__ import annotations

import string
from functools import cache
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tests.specs import spec_of
from webhook.base.globs import Globs, problem_with
from webhook.cel import language
from webhook.cel.text import Text, bound_name
from webhook.kube.affinity import matches
from webhook.kube.templates import TemplatePath
from webhook.policy.common import LabelSelectorSpec
from webhook.policy.match import compile_selector
from webhook.registration.cel import Fields, any_glob_matches, literal, quoted, selects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.cel.library import Expression

JSON = dict[str, Any]


@cache
def compile_bool(text: str, variables: tuple[tuple[str, str], ...]) -> Expression:
    """Compile a Boolean expression that reads these variables."""
    texts = {name: Text(value) for name, value in variables}
    read = set(Text(text).variables)
    for name in reversed(texts):
        read |= set(texts[name].variables) if name in read else set()
    bound = {bound_name(name): text.text for name, text in texts.items() if name in read}
    return language().compile(Text(text).text, bool, bound)


def evaluate(text: str, variables: Mapping[str, str], value: JSON, old: JSON | None = None) -> bool:
    """Evaluate a Boolean expression. Raises EvaluationError."""
    shown = {"object": value, "oldObject": old, "request": {"operation": "CREATE"}}
    result = compile_bool(text, tuple(variables.items())).evaluate(language().values(shown))
    assert isinstance(result, bool)
    return result


# Globs, literals, selectors, paths

GLOBS = st.text("ab-[]!*?.^\\", min_size=1, max_size=6).filter(
    lambda text: not problem_with(text) and "[!]" not in text
)


@given(st.lists(GLOBS, min_size=1, max_size=3), st.text("ab-[]!.^\\\n", max_size=6))
def test_a_glob_matches_the_same_names_in_cel(globs: list[str], text: str) -> None:
    assert evaluate(any_glob_matches(quoted(text), globs), {}, {}) == Globs(globs).match(text)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_a_string_round_trips(text: str) -> None:
    assert evaluate(f"object.text == {quoted(text)}", {}, {"text": text})


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(string.ascii_letters + "'\"", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab'", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(JSON_VALUES)
def test_a_literal_evaluates_to_its_value(value: Any) -> None:
    assert evaluate(f"object.value == dyn({literal(value)})", {}, {"value": value})


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
    spec = spec_of(LabelSelectorSpec, {"matchLabels": equal, "matchExpressions": requirements})
    selector = compile_selector(spec)
    expected = selector is None or matches(selector, labels)
    assert evaluate(selects(spec, "object.labels"), {}, {"labels": labels}) == expected


@given(
    st.sampled_from(("a.b", "a.b.c")),
    st.recursive(
        st.none() | st.just("x") | st.just(1),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        max_leaves=10,
    ),
)
def test_a_path_reads_the_map_that_spotgate_reads(path: str, value: Any) -> None:
    fields = Fields()
    selected = next((node.value for node in TemplatePath(path).find({"a": value})), {})
    text = f"{fields.map(path.split('.'))} == object.found"
    assert evaluate(text, fields.variables, {"a": value, "found": selected})

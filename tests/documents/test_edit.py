"""An edit in place makes exactly the requested change and keeps every other character."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from webhook.documents import DocumentError, read_documents
from webhook.documents.edit import EditError, edited

if TYPE_CHECKING:
    from collections.abc import Callable

JSON = Any


def value_of(source: str) -> JSON:
    (document,) = read_documents(source.encode(), "f.yaml")
    return document.value


def change(source: str, alter: Callable[[JSON], None]) -> str:
    """Edit the document, and assert that the result is the requested value."""
    before = value_of(source)
    after = deepcopy(before)
    alter(after)
    result = edited(source, before, after)
    assert value_of(result) == after
    return result


def select(thing: JSON) -> None:
    thing["spec"]["nodeSelector"] = {"example.com/pool": "a"}


def tolerate(thing: JSON) -> None:
    thing["spec"].setdefault("tolerations", []).append({"key": "spot", "value": "true", "effect": "NoSchedule"})


ALTERING = {"select": select, "tolerate": tolerate}
EDITS = yaml.safe_load(Path(__file__).with_name("edits.yaml").read_text())


@pytest.mark.parametrize("case", EDITS)
def test_additions_match_the_surrounding_style(case: str) -> None:
    edit = EDITS[case]
    assert change(edit["before"], ALTERING[edit["alter"]]) == edit["after"]


@pytest.mark.parametrize("key", ["<<", "!!merge <<"])  # yq writes the tag
def test_a_merged_scalar_is_overridden_locally(key: str) -> None:
    def longer(thing: JSON) -> None:
        thing["spec"]["grace"] = 60

    source = f"base: &base\n  grace: 30\nspec:\n  {key}: *base\n  a: 1\n"
    assert change(source, longer) == source + "  grace: 60\n"


def test_a_scalar_is_replaced_and_its_comment_kept() -> None:
    def shorten(thing: JSON) -> None:
        thing["spec"]["terminationGracePeriodSeconds"] = 60

    source = "spec:\n  terminationGracePeriodSeconds: 30 # the default\n  a: 1\n"
    assert change(source, shorten) == source.replace("30", "60")


def test_nested_mappings_that_end_together_get_their_own_members() -> None:
    def both(thing: JSON) -> None:
        thing["a"]["b"]["new"] = 1
        thing["a"]["new"] = 2
        thing["new"] = 3

    assert change("a:\n  b:\n    c: x\n", both) == "a:\n  b:\n    c: x\n    new: 1\n  new: 2\nnew: 3\n"


@pytest.mark.parametrize(
    ("source", "line", "problem"),
    [
        ("base: &base\n  a: 1\nspec: *base\n", 2, r"inside of the part that \*base repeats"),
        ("spec: &base\n  a: 1\nother: *base\n", 0, "aliases repeat it"),
        ("base: &base\n  nodeSelector: {a: b}\nspec:\n  <<: *base\n", 3, "which '<<' merges in"),
    ],
)
def test_an_impossible_edit_is_rejected_with_its_line(source: str, line: int, problem: str) -> None:
    before = value_of(source)
    after = deepcopy(before)
    after["spec"]["nodeSelector"] = {**(after["spec"].get("nodeSelector") or {}), "x": "y"}
    with pytest.raises(EditError, match=problem) as caught:
        edited(source, before, after)
    assert caught.value.line == line


def test_items_and_members_are_never_removed() -> None:
    with pytest.raises(EditError, match="removed"):
        edited("a: [b]\n", {"a": ["b"]}, {"a": []})
    with pytest.raises(EditError, match="removed"):
        edited("a: b\nc: d\n", {"a": "b", "c": "d"}, {"a": "b"})


# Any document, in any style

texts = st.one_of(
    st.sampled_from(
        ["a", "true", "y", "30", "", "~", "a: b", "- x", "#", "sleep 5", "0x1", "a\nb", "é𝒳", " a", '"', "{", "*a"]
    ),
    st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), max_size=8),
)
keys = st.one_of(st.sampled_from(["a", "b", "c", "example.com/x", "no", "1", "spec"]), texts)
scalars = st.one_of(texts, st.booleans(), st.integers(-99, 99), st.none())
values: st.SearchStrategy[JSON] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.dictionaries(keys, inner, max_size=4), st.lists(inner, max_size=3)),
    max_leaves=12,
)


class Writer:
    """A writer of YAML that draws a style for each part of a value."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.step = draw(st.sampled_from([1, 2, 4]))
        self.inset = draw(st.sampled_from([0, 2, 3]))

    def one_of(self, *choices: str) -> str:
        chosen: str = self.draw(st.sampled_from(choices))
        return chosen

    def comment(self) -> str:
        return self.one_of("", "", " # why", " # {not: 'this'}")

    def blank(self) -> list[str]:
        lines: list[str] = self.draw(st.sampled_from([[], [], [""], ["# above"]]))
        return lines

    def scalar(self, value: JSON) -> str:
        if isinstance(value, str):
            quoted = "'" + value.replace("'", "''") + "'"
            return self.one_of(
                json.dumps(value, ensure_ascii=False),
                quoted if value.isprintable() else json.dumps(value, ensure_ascii=False),
            )
        return "null" if value is None else json.dumps(value)

    def flow(self, value: JSON, inset: int) -> str:
        if not isinstance(value, dict | list) or not value:
            return (
                self.scalar(value)
                if not isinstance(value, dict | list)
                else self.one_of("{}", "{ }")
                if isinstance(value, dict)
                else "[]"
            )
        parts = (
            [f"{self.scalar(key)}: {self.flow(child, inset + 2)}" for key, child in value.items()]
            if isinstance(value, dict)
            else [self.flow(child, inset + 2) for child in value]
        )
        gap = self.one_of(", ", f",\n{' ' * (inset + 2)}")
        gap += self.one_of("", "", f"# which\n{' ' * (inset + 2)}")
        opening = self.one_of("", f"\n{' ' * (inset + 2)}")
        below = f"\n{' ' * (inset + 1)}"
        closing = self.one_of("", ",", below, f" # last{below}", f", # last{below}")
        return ("{%s%s%s}" if isinstance(value, dict) else "[%s%s%s]") % (opening, gap.join(parts), closing)

    def block(self, value: JSON, column: int) -> list[str]:
        """Return indented lines for a value that isn't empty."""
        lines: list[str] = []
        for key, child in value.items() if isinstance(value, dict) else ((None, item) for item in value):
            lines += self.blank()
            start = " " * column + ("-" if key is None else self.scalar(key) + ":")
            if key is None and isinstance(child, dict) and child and self.draw(st.booleans()):
                first, *rest = self.block(child, column + 2)
                if first.strip().startswith("#"):
                    lines += [start, first, *rest]
                else:
                    lines += [f"{start} {first.lstrip()}", *rest] if first else [start, *rest]
            elif isinstance(child, dict | list) and child and self.draw(st.booleans()):
                inner = column + (self.inset if key is not None and isinstance(child, list) else self.step)
                if key is None:
                    inner = column + 2
                lines += [start + self.comment(), *self.block(child, inner)]
            elif isinstance(child, str) and child.isalnum() and child.isascii() and self.draw(st.booleans()):
                style = self.one_of("|", "|-", "|+", ">")
                lines += [f"{start} {style}", f"{' ' * (column + 2)}{child}", *self.draw(st.sampled_from([[], [""]]))]
            else:
                lines.append(f"{start} {self.flow(child, column + 1)}{self.comment()}")
        return lines


@st.composite
def documents(draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    value = draw(st.dictionaries(keys, values, min_size=1, max_size=4))
    kind = draw(st.sampled_from(["block", "block", "flow", "json", "pretty", "tabs"]))
    if kind in {"json", "pretty", "tabs"}:
        return json.dumps(
            value, ensure_ascii=draw(st.booleans()), indent={"json": None, "pretty": 3, "tabs": "\t"}[kind]
        )
    writer = Writer(draw)
    text: str = writer.flow(value, 0) if kind == "flow" else "\n".join(writer.block(value, 0))
    text += draw(st.sampled_from(["", "\n", "\n\n# the end\n"]))
    newline: str = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    return text.replace("\n", newline)


def grow(draw: Callable[[st.SearchStrategy[Any]], Any], value: JSON) -> JSON:
    """Return the value with additions in random places."""
    if isinstance(value, dict):
        grown = {key: grow(draw, child) for key, child in value.items()}
        more = draw(st.dictionaries(keys, values, max_size=2)) if draw(st.booleans()) else {}
        return grown | {key: child for key, child in more.items() if key not in grown}
    if isinstance(value, list):
        return [grow(draw, child) for child in value] + (
            draw(st.lists(values, max_size=2)) if draw(st.booleans()) else []
        )
    return value


@settings(max_examples=100, phases=[Phase.generate])
@given(st.data(), documents())
def test_an_edit_of_any_document_only_adds(data: st.DataObject, source: str) -> None:
    before = value_of(source)
    after = grow(data.draw, before)

    result = edited(source, before, after)

    assert json.dumps(value_of(result), sort_keys=True) == json.dumps(after, sort_keys=True)
    remaining = iter(result)
    assert all(character in remaining for character in source), "a part of the file is missing"
    assert edited(result, after, after) == result


@given(st.data(), documents())
def test_a_scalar_of_any_document_can_be_replaced(data: st.DataObject, source: str) -> None:
    before = value_of(source)
    changed = [key for key, value in before.items() if not isinstance(value, dict | list)]
    after = before | {key: data.draw(scalars) for key in changed}

    result = edited(source, before, after)

    assert json.dumps(value_of(result), sort_keys=True) == json.dumps(after, sort_keys=True)


YAML = [": ", "- ", "\n  ", "#c\n", "|\n ", ">-\n  ", "&x ", "*x", "<<: ", "!!str ", "null", "---\n", "...\n"]
ODD = ["%TAG !k! tag:yaml.org,2002:\n---\n", "\x85", "\u2028", "\ufeff", "\x7f", "\\u", "\\ud83d", "\\ude00"]
pieces = st.sampled_from([*"ab{}[],?'\"\n\r", "!!merge ", *YAML, *ODD])


@settings(deadline=None)
@given(st.lists(pieces, max_size=25).map("".join))
def test_every_readable_document_is_edited_or_rejected(text: str) -> None:
    try:
        documents = read_documents(text.encode(), "f.yaml")
    except DocumentError:
        return
    for document in documents:
        if not isinstance(document.value, dict):
            continue
        first = next(iter(document.value), "a")
        for wanted in ({**document.value, "new": 1}, {**document.value, first: "new"}):
            try:
                edited(document.source, document.value, wanted)
            except EditError as error:
                assert 0 <= error.line <= text.count("\n")  # noqa: PT017

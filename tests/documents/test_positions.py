"""The position of a field: its key in a mapping, its item in a sequence."""

from __future__ import annotations

import pickle
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from webhook.base.field_paths import FieldPath, field_path, parse_pointer
from webhook.documents import Document, DocumentError, read_documents

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = FilePath(__file__).parents[2]

BLOCK = """\
# a comment
apiVersion: v1
metadata:
  labels:
    "example.com/team": x
    0x1: y
spec:
  containers:
  - name: web
    image: é𝒳
  - {name: log, args: [a, 'b']}
"""
LIST = """\
---
kind: ConfigMap
--- # second
  kind: List
  items:
    -   kind: Pod
        spec: {nodeName: a}
    - kind: Pod
"""
MERGED = """\
base: &base
  grace: 30
  nested: {a: 1}
one:
  <<: *base
  own: 1
two: *base
three:
  <<: [{x: 1}, *base]
  grace: 60
"""


@pytest.mark.parametrize(
    ("path", "position"),
    [
        ((), (2, 1)),
        (("apiVersion",), (2, 1)),
        (("metadata", "labels", "example.com/team"), (5, 5)),
        (("metadata", "labels", "1"), (6, 5)),
        (("metadata", "labels", 1), (6, 5)),
        (("spec", "containers", 0), (9, 5)),
        (("spec", "containers", 0, "image"), (10, 5)),
        (("spec", "containers", 1), (11, 5)),
        (("spec", "containers", 1, "name"), (11, 6)),
        (("spec", "containers", 1, "args"), (11, 17)),
        (("spec", "containers", 1, "args", 1), (11, 27)),
        (("spec", "containers", 2), (8, 3)),
        (("spec", "containers", "-"), (8, 3)),
        (("spec", "containers", 0, "env", 3, "name"), (9, 5)),
        (("spec", "containers", 0, "image", "x"), (10, 5)),
        (("status", "phase"), (2, 1)),
    ],
)
def test_a_position_points_to_the_key_item_or_deepest_ancestor(path: FieldPath, position: tuple[int, int]) -> None:
    (document,) = read_documents(BLOCK.encode(), "f.yaml")
    assert document.line == 2
    assert document.position(path) == position


def test_positions_are_relative_to_the_file_in_every_document() -> None:
    first, second = read_documents(LIST.encode(), "f.yaml")
    assert (first.line, first.position(("kind",))) == (2, (2, 1))
    assert (second.line, second.position(())) == (4, (4, 3))
    assert second.position(("items", 0)) == (6, 9)
    assert second.position(("items", 0, "spec", "nodeName")) == (7, 16)
    assert second.position(("items", 1, "kind")) == (8, 7)


def test_documents_on_the_line_of_their_separator_have_positions() -> None:
    first, second = read_documents(b"--- {a: 1}\n--- {b: {c: 1}}\n", "f.yaml")
    assert first.position(("a",)) == (1, 6)
    assert second.position(("b", "c")) == (2, 10)


@pytest.mark.parametrize(
    ("path", "position"),
    [
        (("base", "nested", "a"), (3, 12)),
        (("one", "grace"), (4, 1)),
        (("one", "own"), (6, 3)),
        (("two", "grace"), (7, 1)),
        (("three", "x"), (8, 1)),
        (("three", "grace"), (10, 3)),
    ],
)
def test_aliased_and_merged_values_are_at_the_alias(path: FieldPath, position: tuple[int, int]) -> None:
    (document,) = read_documents(MERGED.encode(), "f.yaml")
    assert document.position(path) == position


def test_json_has_positions() -> None:
    text = '\n{"a": "\\ud83d\\ude00", "b": [1,\n\t{"c": "\\/"}]} {"d": {\n"e": 1}}\n'
    first, second = read_documents(text.encode(), "f.json")
    assert (first.line, first.position(())) == (2, (2, 1))
    assert first.position(("b", 0)) == (2, 29)
    assert first.position(("b", 1, "c")) == (3, 3)
    assert (second.line, second.position(("d",))) == (3, (3, 17))
    assert second.position(("d", "e")) == (4, 1)


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param('"a\x7fb": 1', id="DEL"),
        pytest.param('"a": "\x9f\ufffe"', id="characters that YAML rejects"),
        pytest.param('"a": "\\ud83d\\ude00", "\\ud83d\\ude00": "\\ud83d\\ude00"', id="escaped surrogates"),
        pytest.param('"a": "C:\\\\uda", "b": "D"', id="text like an escaped surrogate"),
        pytest.param('"a"\n: 1, "b":{}', id="a colon on a separate line"),
    ],
)
def test_json_that_is_not_yaml_has_positions(odd: str) -> None:
    text = f'{{{odd},\n"items": [1,\n [],\n  {{"c": {{"d": null}}}}]}}'
    (document,) = read_documents(text.encode(), "f.json")
    line = text.count("\n") - 1
    assert document.position(()) == (1, 1)
    assert document.position(("items",)) == (line, 1)
    assert document.position(("items", 1)) == (line + 1, 2)
    assert document.position(("items", 2, "c", "d")) == (line + 2, 10)
    assert document.position(("items", 3, "c")) == (line, 1)
    assert document.position(("items", "c")) == (line, 1)


def test_a_json_string_that_is_not_yaml_has_a_position() -> None:
    _, document = read_documents(b'{"a": 1}\n "\x7f"', "f.json")
    assert document.position(()) == (2, 2)


def test_text_like_an_escaped_surrogate_does_not_hide_positions() -> None:
    text = "a: ['C:\\udev', \"x\"]\nb: 1\nc: {d: 1}\n"
    (document,) = read_documents(text.encode(), "f.yaml")
    assert document.position(("c", "d")) == (3, 5)


def test_documents_may_have_tag_directives() -> None:
    text = "# one\n%TAG !k! tag:yaml.org,2002:\n---\na: !k!int 3\n...\n# two\n%TAG !m! tag:yaml.org,2002:\n--- {b: !m!int 4}\n"
    first, second = read_documents(text.encode(), "f.yaml")
    assert (first.line, first.position(("a",)), first.position(())) == (2, (4, 1), (4, 1))
    assert (second.line, second.position(("b",))) == (7, (8, 6))
    assert text[second.begin :].startswith("%TAG !m!")


@pytest.mark.parametrize("file", ["policies/providers/cks.yaml", "examples/raycluster.yaml"])
@pytest.mark.parametrize("order", [1, -1], ids=["from the top", "from the end"])
def test_positions_come_from_the_parser_of_the_values(file: str, order: int) -> None:
    text = f"{(ROOT / file).read_text()}\n# {order}\n"
    composed = list(yaml.compose_all(text, yaml.CSafeLoader))
    documents = read_documents(text.encode(), "f.yaml")
    assert len(documents) == len(composed)
    for document, root in zip(documents, composed, strict=True):
        for path, mark in list(_marks((), root, root.start_mark))[::order]:
            assert document.position(path) == (mark.line + 1, mark.column + 1), path


def _marks(path: FieldPath, node: yaml.Node, mark: Any) -> Iterator[tuple[FieldPath, Any]]:
    yield path, mark
    yield (*path, "not there", 1), mark
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _marks((*path, key.value), value, key.start_mark)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _marks((*path, index), item, item.start_mark)


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029"], ids=["NEL", "LS", "PS"])
def test_lines_end_as_in_git_and_editors(end: str) -> None:
    texts = (
        f"# a{end}# b\n--- # c{end}\na:\n  x: 'x{end}  y'\n  b: 2\n",
        f'---\n# a{end}\n{{"a": {{"x": "a{end}{end}",\n"y": 1,\n    "b": 2}}}}\n',
        f'{{"a": {{"x": "a{end}{end}",\n"y{end}": 1,\n\n\n    "b": 2}}}}\n',
    )
    for text in texts:
        *_, document = read_documents(text.encode(), "f.yaml")
        line, column = document.position(("a", "b"))
        assert text.split("\n")[line - 1][column - 1 :].strip('"').startswith("b")


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029"], ids=["NEL", "LS", "PS"])
def test_errors_use_the_line_numbers_of_git_and_editors(end: str) -> None:
    for text in (
        f"a: 1 # {end}\nb: 2\nb: 3\n",
        f'{{"a": "{end}",\n"b": 1,\n"b": 2}}',
        f"a: 1 # {end}\nb: 2\nc: [\x00]",
    ):
        with pytest.raises(DocumentError) as caught:
            read_documents(text.encode(), "f.yaml")
        assert caught.value.line == 3
        assert "first at" not in str(caught.value) or "first at f.yaml:2" in str(caught.value)


def test_a_document_without_text_has_the_position_of_its_line() -> None:
    assert Document("f.yaml", 7, {"a": 1}).position(("a",)) == (7, 1)


def test_a_document_can_be_pickled() -> None:
    (document,) = read_documents(BLOCK.encode(), "f.yaml")
    copy = pickle.loads(pickle.dumps(document))  # noqa: S301 - our own bytes
    assert copy == document
    assert copy.position(("spec", "containers", 1)) == (11, 5)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("spec", "template", "spec", "containers", 0, "name"), "spec.template.spec.containers[0].name"),
        (("metadata", "labels", "foo.coreweave.cloud/bar"), 'metadata.labels["foo.coreweave.cloud/bar"]'),
        (("metadata", "labels", "app-name"), 'metadata.labels["app-name"]'),
        (("a", 'x"é', "$b"), 'a["x\\"é"].$b'),
        ((0, "a", ""), '[0].a[""]'),
    ],
)
def test_a_path_is_formatted_as_kubectl_formats_fields(path: FieldPath, text: str) -> None:
    assert field_path(path) == text


@pytest.mark.parametrize(
    ("pointer", "path"),
    [
        ("", ()),
        ("/", ("",)),
        ("/spec/containers/0/name", ("spec", "containers", 0, "name")),
        ("/a~1b/m~0n/~01", ("a/b", "m~n", "~1")),
        ("/items/-/01", ("items", "-", "01")),
    ],
)
def test_a_json_pointer_is_a_path(pointer: str, path: FieldPath) -> None:
    assert parse_pointer(pointer) == path


def test_a_pointer_begins_with_a_slash() -> None:
    with pytest.raises(ValueError, match="not a JSON pointer: 'spec'"):
        parse_pointer("spec")


@given(st.lists(st.integers(0, 10**6) | st.text().filter(lambda text: not text.isdigit())))
def test_every_path_round_trips_through_a_pointer(path: list[str | int]) -> None:
    pointer = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)
    assert parse_pointer(pointer) == tuple(path)

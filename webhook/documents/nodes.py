"""Find the values in the text of a document, with their anchors and brackets, for positions and edits."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import yaml
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from webhook.documents.values import key_text, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.base.field_paths import FieldPath

_Event: TypeAlias = Any  # PyYAML's stubs type every mark as optional, but the events of a parser always have marks
_Match: TypeAlias = "re.Match[str]"

_NO_ENTRIES: Final[dict[str | int, TextNode]] = {}
"""The entries of all scalars. One empty mapping for each scalar would take a quarter of the memory."""


class TextNode(msgspec.Struct, kw_only=True, eq=False):
    """The location of a value in the text: from ``start``, including its anchor and tag, to ``end``.

    Attributes:
        kind: the type of the value's first event.
        place: the start of the item or of the member's key, including its anchor and tag. The root's is ``start``.
        anchor: the name of the anchor or alias, or None.
        entries: the members by key or the items by index, without members that ``<<`` merges.
        flow: whether the collection is in brackets.
        opened: the index after the opening bracket.
        column: the column, from 0, of the keys or dashes of a block collection.
    """

    kind: type[yaml.Event]
    place: int
    start: int
    end: int
    anchor: str | None
    entries: dict[str | int, TextNode] = msgspec.field(default_factory=lambda: _NO_ENTRIES)
    flow: bool = False
    opened: int = 0
    column: int = 0


class TextTree:
    """The nodes of one valid document. `find` parses YAML only as far as it needs to.

    Attributes:
        nodes: the nodes parsed so far, in the order of the text. The first is the root.
        is_json: whether the text is JSON.
    """

    def __init__(self, source: str) -> None:
        self.nodes: list[TextNode] = []
        self._source = source
        self._line_starts = array("Q", (0,))
        self._open: list[TextNode] = []
        self.is_json = _is_json(source)
        if self.is_json:
            tokens = _TOKEN.finditer(source)
            token = next(tokens)
            self._add_json(token, token, tokens)
        else:
            self._following: Callable[[], _Event] = yaml.CSafeLoader(source).get_event
            _, _, event = (self._following() for _ in range(3))  # the first two start the stream and the document
            self._add(event, event)

    def find(self, path: FieldPath) -> tuple[int, int]:
        """Return the line and column, from 0, of the key or item at ``path``, or of its deepest existing ancestor."""
        node = self.nodes[0]
        for step in path:
            key = step if node.kind is SequenceStartEvent else str(step)
            while key not in node.entries and node in self._open:
                self._read_entry()
            if key not in node.entries:
                break
            node = node.entries[key]
        while (newline := self._source.find("\n", self._line_starts[-1], node.place)) >= 0:
            self._line_starts.append(newline + 1)
        line = bisect_right(self._line_starts, node.place) - 1
        return line, node.place - self._line_starts[line]

    def read_rest(self) -> None:
        """Parse the text to its end."""
        while self._open:
            self._read_entry()

    def _read_entry(self) -> None:
        """Parse the next entry of the innermost open collection, without the entries below it, or parse its end."""
        node = self._open[-1]
        first = self._following()
        if type(first) in {MappingEndEvent, SequenceEndEvent}:
            self._open.pop()
            node.end = first.end_mark.index if node.flow else max(entry.end for entry in node.entries.values())
        elif node.kind is SequenceStartEvent:
            node.entries[len(node.entries)] = self._add(first, first)
        else:
            node.entries[_key(first)] = self._add(first, self._following())

    def _add(self, first: _Event, event: _Event) -> TextNode:
        """Add the node of the value that starts with ``event``. Its key, or the item itself, starts with ``first``."""
        kind, mark = type(event), event.end_mark
        place, start = first.start_mark.index, event.start_mark.index
        node = TextNode(kind=kind, place=place, start=start, end=mark.index, anchor=event.anchor)
        self.nodes.append(node)
        if kind is ScalarEvent:
            if event.style in {"|", ">"}:
                node.end = _end_of_block_scalar(self._source, node)
        elif kind is not AliasEvent:
            node.entries, node.flow, node.opened = {}, event.flow_style, mark.index
            # The mark precedes the first key, `?`, or dash. It follows a dash that isn't indented.
            is_behind = kind is SequenceStartEvent and self._source[mark.index : mark.index + 1] != "-"
            node.column = mark.column - is_behind
            self._open.append(node)
        return node

    def _add_json(self, first: _Match, token: _Match, tokens: Iterator[_Match]) -> TextNode:
        """Add the node of the JSON value that starts with ``token``, and the nodes below it. See `_add`.

        YAML's parser rejects some JSON: DEL, and escaped surrogate pairs, which Python's json writes for an emoji.
        """
        kind = _KINDS.get(token[0], ScalarEvent)
        place, start, end = first.start(), *token.span()
        node = TextNode(kind=kind, place=place, start=start, end=end, anchor=None, flow=True, opened=end)
        self.nodes.append(node)
        if kind is not ScalarEvent:
            node.entries = {}
            while (first := next(tokens))[0] not in {"}", "]"}:
                if kind is SequenceStartEvent:
                    node.entries[len(node.entries)] = self._add_json(first, first, tokens)
                else:
                    node.entries[json.loads(first[0])] = self._add_json(first, next(tokens), tokens)
            node.end = first.end()
        return node


_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s"{}\[\]:,]+')
"""A token of valid JSON: a string, a bracket, a number, or a word."""
_KINDS: Final[dict[str, type[yaml.Event]]] = {"{": MappingStartEvent, "[": SequenceStartEvent}


def _is_json(source: str) -> bool:
    if source.lstrip().startswith(("{", "[", '"')):  # YAML's parser also reads JSON's numbers and words
        with suppress(ValueError):
            json.loads(source)
            return True
    return False


def _key(event: _Event) -> str:
    """Return a key as the YAML reader does, or an empty string for an alias: edits never use its node."""
    text: str = getattr(event, "value", "")
    return key_text(resolve(text)) if text and event.implicit[0] else text


def _end_of_block_scalar(source: str, node: TextNode) -> int:
    """Return the index after the last line of a block scalar, or after the empty lines that ``|+`` keeps."""
    text = source[node.start : node.end]
    header, *lines = text.split("\n")
    if "+" in header:
        return node.end
    indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=len(text))
    while lines and not lines[-1].strip(" \t\r") and len(lines[-1].rstrip("\r")) <= indent:  # longer ones are text
        lines.pop()
    return node.start + len("\n".join((header, *lines)).rstrip("\r"))

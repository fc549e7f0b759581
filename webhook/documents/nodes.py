"""Find the position of each value in the text of a document, with anchors and brackets, to edit the text."""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
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

_Event: TypeAlias = Any  # PyYAML's stubs let every mark be None, which those of a parser's events are not
_Match: TypeAlias = "re.Match[str]"

_ENDS: Final = frozenset({MappingEndEvent, SequenceEndEvent})
_NO_ENTRIES: Final[dict[str | int, TextNode]] = {}
"""Of all scalars: an empty mapping for each would take a quarter of the memory."""


class TextNode(msgspec.Struct, kw_only=True, eq=False):
    """The place of a value: the characters from ``start`` (its anchor and tag included) to ``end``.

    Attributes:
        kind: of the event that it begins with.
        place: where the item or the member's key begins, anchor and tag included; of a root as ``start``.
        anchor: its anchor, or the one that it repeats if it is an alias; None if there is none.
        entries: by key or index, without those that ``<<`` merges in.
        flow: it is written in brackets.
        opened: the offset after the opening bracket.
        column: of the keys or dashes of a block collection, from 0.
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
    """The nodes of one valid document. YAML is read no further than a position needs.

    Attributes:
        nodes: those that were read, in the order of the text: first the root.
        is_json: the text is JSON too.
    """

    def __init__(self, source: str) -> None:
        self.nodes: list[TextNode] = []
        self._source = source
        self._line_starts = array("Q", [0, *(newline.end() for newline in re.finditer("\n", source))])
        self._open: list[TextNode] = []
        self.is_json = True
        try:
            json.loads(source)
        except ValueError:
            self.is_json = False
            self._following: Callable[[], _Event] = yaml.CSafeLoader(source).get_event
            _, _, event = (self._following() for _ in range(3))  # after the starts of the stream and the document
            self._add(event, event)
        else:
            tokens = _TOKEN.finditer(source)
            token = next(tokens)
            self._add_json(token, token, tokens)

    def find(self, path: FieldPath) -> tuple[int, int]:
        """Return line and column, from 0, of the key or item at ``path``, or of its deepest ancestor that exists."""
        node = self.nodes[0]
        for step in path:
            key = step if node.kind is SequenceStartEvent else str(step)
            while key not in node.entries and node in self._open:
                self._read_entry()
            if key not in node.entries:
                break
            node = node.entries[key]
        line = bisect_right(self._line_starts, node.place) - 1
        return line, node.place - self._line_starts[line]

    def read_rest(self) -> None:
        """Read the nodes to the end of the text."""
        while self._open:
            self._read_entry()

    def _read_entry(self) -> None:
        """Read an entry of the innermost open collection, but nothing below it; or the collection's end."""
        node = self._open[-1]
        first = self._following()
        if type(first) in _ENDS:
            self._open.pop()
            node.end = first.end_mark.index if node.flow else max(entry.end for entry in node.entries.values())
        elif node.kind is SequenceStartEvent:
            node.entries[len(node.entries)] = self._add(first, first)
        else:
            node.entries[_key(first)] = self._add(first, self._following())

    def _add(self, first: _Event, event: _Event) -> TextNode:
        """Add the node of the value that begins with ``event``. Its key, or it as an item, begins with ``first``."""
        kind, mark = type(event), event.end_mark
        place, start = first.start_mark.index, event.start_mark.index
        node = TextNode(kind=kind, place=place, start=start, end=mark.index, anchor=event.anchor)
        self.nodes.append(node)
        if kind is ScalarEvent:
            if event.style in {"|", ">"}:
                node.end = _end_of_block_scalar(self._source, node)
        elif kind is not AliasEvent:
            node.entries, node.flow, node.opened = {}, event.flow_style, mark.index
            # The mark is before the first key, `?`, or dash; behind a dash that isn't indented.
            is_behind = kind is SequenceStartEvent and self._source[mark.index : mark.index + 1] != "-"
            node.column = mark.column - is_behind
            self._open.append(node)
        return node

    def _add_json(self, first: _Match, token: _Match, tokens: Iterator[_Match]) -> TextNode:
        """Add the node of the JSON value that begins with ``token``, and those below it. See `_add`.

        YAML's parser can't find them: it refuses DEL and escaped pairs of surrogates, as Python's json writes an emoji.
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
"""A token of valid JSON: a string, a bracket, a number or a word."""
_KINDS: Final[dict[str, type[yaml.Event]]] = {"{": MappingStartEvent, "[": SequenceStartEvent}


def _key(event: _Event) -> str:
    """Return a key as it is read; empty for an alias: nothing is ever added below it."""
    text: str = getattr(event, "value", "")
    return key_text(resolve(text)) if text and event.implicit[0] else text


def _end_of_block_scalar(source: str, node: TextNode) -> int:
    """Return the offset after the last line of a block scalar, or after the empty lines that it keeps (``|+``)."""
    text = source[node.start : node.end]
    header, *lines = text.split("\n")
    if "+" in header:
        return node.end
    end = len(text.rstrip(" \t\r\n"))
    indent = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=len(text))
    for blank in _BLANK.finditer(text, end):
        if len(blank[0]) > indent:  # its spaces are text
            end = blank.end()
    return node.start + end


_BLANK: Final = re.compile(r"(?<=\n)[ \t]+")

"""Find the position of each value in the text of a YAML document, with anchors and brackets, to edit the text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import yaml
from yaml.events import AliasEvent, MappingEndEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.documents.model import FieldPath

_ENDS: Final = frozenset({MappingEndEvent, SequenceEndEvent})
_Event: TypeAlias = Any  # PyYAML's stubs let every mark be None, which those of a parser's events are not


class TextNode(msgspec.Struct, kw_only=True):
    """The place of a value: the characters from ``start`` (its anchor and tag included) to ``end``.

    Attributes:
        place: where the item or the member's key begins, anchor and tag included; of a root as ``start``.
        column: of the keys or dashes of a block collection, from 0.
        flow: it is written in brackets.
        anchor: its anchor, if it has one.
        alias: the anchor that it repeats, if it is an alias.
        opened: the offset after the opening bracket.
        is_list: it is a sequence.
        entries: by key or index, without those that ``<<`` merges in; None: it is a scalar or an alias.
    """

    place: int
    start: int
    end: int
    column: int = 0
    flow: bool = False
    anchor: str | None = None
    alias: str | None = None
    opened: int = 0
    is_list: bool = False
    entries: dict[str | int, TextNode] | None = None

    @property
    def children(self) -> list[TextNode]:
        """Return the values directly below."""
        return list((self.entries or {}).values())

    def find(self, path: FieldPath) -> int:
        """Return the offset of the key or item at ``path`` below, or of its deepest ancestor that exists."""
        node = self
        for step in path:
            child = (node.entries or {}).get(step if node.is_list else str(step))
            if child is None:
                break
            node = child
        return node.place

    def walk(self) -> Iterator[TextNode]:
        """Yield the node and all nodes below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def compose_yaml(source: str) -> TextNode:
    """Return the root node of a text with one valid YAML document. Positions come from libyaml's events."""
    following: Callable[[], _Event] = yaml.CSafeLoader(source).get_event
    following()  # the stream's start
    following()  # the document's
    event = following()
    return _node(source, event.start_mark.index, event, following)


def _node(source: str, place: int, event: _Event, following: Callable[[], _Event]) -> TextNode:
    kind = type(event)
    node = TextNode(place=place, start=event.start_mark.index, end=event.end_mark.index, anchor=event.anchor)
    if kind is AliasEvent:
        node.anchor, node.alias = None, event.anchor
    elif kind is ScalarEvent:
        if event.style in {"|", ">"}:
            node.end = _end_of_block_scalar(source, node)
    else:
        node.flow, node.is_list, node.entries = event.flow_style, kind is SequenceStartEvent, {}
        mark = event.end_mark  # before the first key, `?`, or dash; behind a dash that isn't indented
        node.opened = mark.index
        node.column = mark.column - (node.is_list and source[mark.index : mark.index + 1] != "-")
        while type(first := following()) not in _ENDS:
            # Keys that aren't strings (`1: x`) go by what is written; nothing is ever added below them.
            key = len(node.entries) if node.is_list else str(getattr(first, "value", ""))
            value = first if node.is_list else following()
            node.entries[key] = _node(source, first.start_mark.index, value, following)
        node.end = first.end_mark.index if node.flow else max(child.end for child in node.children)
    return node


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

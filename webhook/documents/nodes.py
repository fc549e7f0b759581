"""Find the position of each value in the text of a YAML document, with anchors and brackets, to edit the text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec
import yaml
from yaml.events import AliasEvent, MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.documents.model import FieldPath

_Event: TypeAlias = Any  # PyYAML's stubs let every mark be None, which those of a parser's events are not


class Edit(NamedTuple):
    """The replacement of the characters from ``start`` to ``end`` by ``text``."""

    start: int
    end: int
    text: str


class EditError(ValueError):
    """A change that can't be made in place. The line counts from 0."""

    def __init__(self, at: int, source: str, problem: str, fix: str) -> None:
        super().__init__(at, source, problem, fix)
        self.line = source.count("\n", 0, at)
        self.problem = problem
        self.fix = fix


class Member(NamedTuple):
    """A member of a mapping: the offset of its key (anchor and tag included), and its value."""

    start: int
    value: TextNode


class TextNode(msgspec.Struct, kw_only=True):
    """The place of a value: the characters from ``start`` (its anchor and tag included) to ``end``.

    Attributes:
        column: of the keys or dashes of a block collection, from 0.
        flow: it is written in brackets.
        anchor: its anchor, if it has one.
        alias: the anchor that it repeats, if it is an alias.
        opened: the offset after the opening bracket.
        key: the offset after its key, if it is a member.
        members: of a mapping, without those that ``<<`` merges in.
    """

    start: int
    end: int
    column: int = 0
    flow: bool = False
    anchor: str | None = None
    alias: str | None = None
    opened: int = 0
    key: int | None = None
    members: dict[str, Member] | None = None
    items: list[TextNode] | None = None

    @property
    def children(self) -> list[TextNode]:
        """Return the values directly below."""
        return [member.value for member in self.members.values()] if self.members is not None else self.items or []

    @property
    def begins(self) -> list[int]:
        """Return the offset of each entry."""
        if self.members is not None:
            return [member.start for member in self.members.values()]
        return [item.start for item in self.items or []]

    def walk(self) -> Iterator[TextNode]:
        """Yield the node and all nodes below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def compose(source: str) -> TextNode:
    """Return the root node of a text with one valid YAML document. Positions come from libyaml's events."""
    following: Callable[[], _Event] = yaml.CSafeLoader(source).get_event
    following()  # the stream's start
    following()  # the document's
    return _node(source, following(), following)


def find(root: TextNode, path: FieldPath) -> int:
    """Return the offset of the key or item at ``path``, or of its deepest ancestor that exists."""
    at, node = root.start, root
    for step in path:
        if node.members is not None and str(step) in node.members:
            at, node = node.members[str(step)]
        elif node.items is not None and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            at = node.start
        else:
            break
    return at


def _node(source: str, event: _Event, following: Callable[[], _Event]) -> TextNode:
    kind = type(event)
    node = TextNode(start=event.start_mark.index, end=event.end_mark.index, anchor=event.anchor)
    if kind is AliasEvent:
        node.anchor, node.alias = None, event.anchor
    elif kind is ScalarEvent:
        if event.style in {"|", ">"}:
            node.end = _end_of_block_scalar(source, node)
    else:
        node.flow = event.flow_style
        node.opened = event.end_mark.index
        last = (
            _mapping(source, node, event, following)
            if kind is MappingStartEvent
            else _sequence(source, node, event, following)
        )
        node.end = last.end_mark.index if node.flow else max(child.end for child in node.children)
    return node


def _mapping(source: str, node: TextNode, start: _Event, following: Callable[[], _Event]) -> _Event:
    """Read the members, and return the event that ends them."""
    node.members = {}
    node.column = start.end_mark.column  # of the first key, or of the `?` before it
    while type(key := following()) is not MappingEndEvent:
        value = _node(source, following(), following)
        value.key = key.end_mark.index
        # Keys that are no texts (`1: x`) go by what is written; nothing is ever added below them.
        node.members[str(getattr(key, "value", ""))] = Member(key.start_mark.index, value)
    return key


def _sequence(source: str, node: TextNode, start: _Event, following: Callable[[], _Event]) -> _Event:
    """Read the items, and return the event that ends them."""
    node.items = []
    if not node.flow:
        mark = start.end_mark  # before the first dash, or, where it is not indented, behind it
        node.column = mark.column if source[mark.index : mark.index + 1] == "-" else mark.column - 1
    while type(item := following()) is not SequenceEndEvent:
        node.items.append(_node(source, item, following))
    return item


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

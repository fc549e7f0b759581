"""Changing a document in place: what is added goes where it belongs, and no other character changes.

    edited(document.source, document.value, wanted)

Positions come from libyaml's events, for JSON too. Members and items are added, and scalars replaced; whatever else is
asked for is refused, and so is a change that would show in another place, through an alias.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec
import yaml
from yaml.events import AliasEvent, MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent

from webhook.documents.model import ESCAPED_SURROGATE
from webhook.documents.values import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.documents.model import JSONValue

Event: TypeAlias = Any  # PyYAML's stubs let every mark be None, which those of a parser's events are not


class EditError(ValueError):
    """A change that can't be made in place. Line, from 0, in the text; problem; fix."""

    def __init__(self, line: int, problem: str, fix: str) -> None:
        super().__init__(line, problem, fix)
        self.line = line
        self.problem = problem
        self.fix = fix


Entry: TypeAlias = "tuple[str | None, JSONValue]"
"""A member to add, with its key, or an item, without."""


class Edit(NamedTuple):
    """Put ``text`` in place of the characters from ``start`` to ``end``."""

    start: int
    end: int
    text: str


class Node(msgspec.Struct, kw_only=True):
    """A value, and where it is: characters of the text from ``start`` (its anchor and tag included) to ``end``.

    Attributes:
        line: from 0.
        column: of the keys or dashes of a block collection, from 0.
        flow: in brackets.
        anchor: the name that aliases know it by.
        alias: it is one, of this name.
        opened: behind the opening bracket.
        members: of a mapping: where each key begins, and its value. Those that are merged in are not there.
        items: of a sequence.
    """

    start: int
    end: int
    line: int
    column: int = 0
    flow: bool = False
    anchor: str | None = None
    alias: str | None = None
    opened: int = 0
    members: dict[str, tuple[int, Node]] | None = None
    items: list[Node] | None = None

    @property
    def children(self) -> list[Node]:
        """The values in it."""
        return [value for _, value in self.members.values()] if self.members is not None else self.items or []

    @property
    def begins(self) -> list[int]:
        """Where each of its entries begins."""
        if self.members is not None:
            return [start for start, _ in self.members.values()]
        return [item.start for item in self.items or []]


def edited(source: str, before: JSONValue, after: JSONValue) -> str:
    """The text of a document, changed from one value to another.

    Args:
        source: one YAML document or JSON value.
        before: the value of ``source``.
        after: the value that the result has.

    Raises:
        EditError: it can't be done in place.
    """
    root = _compose(source)
    editor = _Editor(source, root)
    edits = list(editor.edits(root, before, after))
    for start, end, text in reversed(sorted(edits, key=lambda edit: edit.start)):  # noqa: C413 - inner ones first
        source = f"{source[:start]}{text}{source[end:]}"
    return source


def _compose(source: str) -> Node:
    following: Callable[[], Event] = yaml.CSafeLoader(ESCAPED_SURROGATE.sub(r"\\u0020", source)).get_event
    following()  # the stream's start
    following()  # the document's
    return _node(source, following(), following)


def _node(source: str, event: Event, following: Callable[[], Event]) -> Node:
    kind = type(event)
    node = Node(start=event.start_mark.index, end=event.end_mark.index, line=event.start_mark.line, anchor=event.anchor)
    if kind is AliasEvent:
        node.anchor, node.alias = None, event.anchor
    elif kind is ScalarEvent:
        if event.style in {"|", ">"}:
            node.end = _end_of_block_scalar(source, node)
    else:
        node.flow = event.flow_style
        node.opened = event.end_mark.index
        last = (
            _mapping(source, node, following)
            if kind is MappingStartEvent
            else _sequence(source, node, event, following)
        )
        node.end = last.end_mark.index if node.flow else max(child.end for child in node.children)
    return node


def _mapping(source: str, node: Node, following: Callable[[], Event]) -> Event:
    """Read the members; the event that ends them."""
    node.members = {}
    while type(key := following()) is not MappingEndEvent:
        written = source[key.start_mark.index : key.end_mark.index]
        name = json.loads(written) if ESCAPED_SURROGATE.search(written) else str(getattr(key, "value", ""))
        value = _node(source, following(), following)
        # Keys that are no texts (`1: x`) go by what is written; nothing is ever added below them.
        node.members[name] = (key.start_mark.index, value)
        if len(node.members) == 1:
            node.column = key.start_mark.column
    return key


def _sequence(source: str, node: Node, start: Event, following: Callable[[], Event]) -> Event:
    """Read the items; the event that ends them."""
    node.items = []
    if not node.flow:
        mark = start.end_mark  # before the first dash, or, where it is not indented, behind it
        node.column = mark.column if source[mark.index : mark.index + 1] == "-" else mark.column - 1
    while type(item := following()) is not SequenceEndEvent:
        node.items.append(_node(source, item, following))
    return item


def _end_of_block_scalar(source: str, node: Node) -> int:
    """Behind its last line; where it keeps the empty lines that follow (``|+``), behind those."""
    text = source[node.start : node.end]
    return node.end if "+" in text.partition("\n")[0] else node.start + len(text.rstrip())


class _Style(NamedTuple):
    """How a document is written.

    Attributes:
        json: every key and text in double quotes.
        indent: what one level of JSON is indented by; None where its members have no lines of their own.
        newline: how lines end.
        step: spaces that one level of block mappings is indented by.
        offset: spaces that the dashes of a block sequence are indented by.
    """

    json: bool
    indent: str | None
    newline: str
    step: int
    offset: int


class _Editor:
    """Finds the edits of one document."""

    def __init__(self, source: str, root: Node) -> None:
        self._source = source
        nodes = list(_walk(root))
        self._aliases = {node.alias for node in nodes if node.alias is not None}
        self._style = _Style(
            json=_is_json(source),
            indent=self._margin(root.begins[0]) if root.begins else None,
            newline="\r\n" if "\r\n" in source else "\n",
            step=min(_steps(nodes, "members"), default=2),
            offset=min(_steps(nodes, "items"), default=2),
        )

    def edits(self, node: Node, before: JSONValue, after: JSONValue) -> Iterator[Edit]:
        """What turns the node's value from one into the other; inner edits before outer ones."""
        if _same(before, after):
            return
        if node.alias is not None:
            raise self._refusal(node, f"the change is inside of what *{node.alias} repeats", "write it out here")
        if node.anchor in self._aliases:
            problem = f"the change is inside of what &{node.anchor} names, and aliases repeat it"
            raise self._refusal(node, problem, "write out what the aliases repeat")
        if (
            node.members is not None
            and isinstance(before, dict)
            and isinstance(after, dict)
            and before.keys() <= after.keys()
        ):
            yield from self._mapping(node, node.members, before, after)
        elif (
            node.items is not None
            and isinstance(before, list)
            and isinstance(after, list)
            and len(before) <= len(after)
        ):
            for item, old, new in zip(node.items, before, after, strict=False):
                yield from self.edits(item, old, new)
            yield from self._added(node, [(None, value) for value in after[len(before) :]])
        elif node.members is None and node.items is None:
            yield self._replaced(node, after)
        else:
            raise self._refusal(node, "something would have to be removed", "change it by hand")

    def _mapping(
        self,
        node: Node,
        members: dict[str, tuple[int, Node]],
        before: dict[str, JSONValue],
        after: dict[str, JSONValue],
    ) -> Iterator[Edit]:
        for key, old in before.items():
            if key in members:
                yield from self.edits(members[key][1], old, after[key])
        # A scalar that is merged in is overridden here; of a collection that is, there is nothing here to add to.
        for key in before.keys() - members.keys():
            if isinstance(before[key], (dict, list)) and not _same(before[key], after[key]):
                raise self._refusal(node, f"the change is inside of {key}, which '<<' merges in", "write it out here")
        yield from self._added(
            node,
            [
                (key, new)
                for key, new in after.items()
                if key not in members and not (key in before and _same(before[key], new))
            ],
        )

    def _added(self, node: Node, entries: list[Entry]) -> Iterator[Edit]:
        """New entries, behind the last one."""
        if not entries:
            return
        if node.flow:
            yield self._added_in_brackets(node, entries)
            return
        lines = [" " * node.column + line for entry in entries for line in _lines(entry, self._style)]
        yield self._inserted_lines(node.end, lines)

    def _inserted_lines(self, behind: int, lines: list[str]) -> Edit:
        """Whole lines, below the one that ``behind`` is on, comment included."""
        newline = self._style.newline
        if self._source[:behind].endswith("\n"):
            return Edit(behind, behind, "".join(line + newline for line in lines))
        end = self._source.find("\n", behind)
        end = len(self._source) if end < 0 else end
        if self._source[:end].endswith("\r"):
            end -= 1
        return Edit(end, end, "".join(newline + line for line in lines))

    def _added_in_brackets(self, node: Node, entries: list[Entry]) -> Edit:
        begins = node.begins
        if not begins:
            return Edit(node.opened, node.opened, ", ".join(self._entry(each, None) for each in entries))
        margin = self._margin(begins[0])
        between = ", " if margin is None else f",{self._style.newline}{margin}"
        text = "".join(between + self._entry(each, margin) for each in entries)
        behind = node.children[-1].end
        return Edit(behind, behind, text)

    def _margin(self, begin: int) -> str | None:
        """The white space before an entry that has a line of its own; None: other things are before it on the line."""
        line = self._source[self._source.rfind("\n", 0, begin) + 1 : begin]
        return None if line.strip() else line

    def _entry(self, entry: Entry, margin: str | None) -> str:
        key, value = entry
        if not self._style.json:
            return _flow(value) if key is None else f"{_scalar(key)}: {_flow(value)}"
        indent = None if margin is None else self._style.indent
        text = json.dumps(value, ensure_ascii=False, indent=indent).replace("\n", f"{self._style.newline}{margin}")
        return text if key is None else f"{json.dumps(key, ensure_ascii=False)}: {text}"

    def _replaced(self, node: Node, value: JSONValue) -> Edit:
        """A scalar, or nothing at all, becomes something."""
        text = json.dumps(value, ensure_ascii=False) if self._style.json else _flow(value)
        end = node.start + len(self._source[node.start : node.end].rstrip())
        return Edit(node.start, end, text if node.start < end else f" {text}")

    @staticmethod
    def _refusal(node: Node, problem: str, fix: str) -> EditError:
        return EditError(node.line, problem, fix)


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _walk(child)


def _steps(nodes: list[Node], kind: str) -> Iterator[int]:
    """How far block collections of a kind are indented in the block mappings that they are members of."""
    for node in nodes:
        if node.members is None or node.flow:
            continue
        for child in node.children:
            if getattr(child, kind) is not None and not child.flow:
                yield child.column - node.column


def _is_json(source: str) -> bool:
    try:
        json.loads(source)
    except ValueError:
        return False
    return True


def _same(one: JSONValue, other: JSONValue) -> bool:
    """Equal, ``1`` and ``true`` being two things."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(each, other[key]) for key, each in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other


def _lines(entry: Entry, style: _Style) -> list[str]:
    """An entry of a block collection, the first line not indented."""
    key, value = entry
    if key is None:
        first, *rest = _block(value, style)
        return [f"- {first}", *(f"  {line}" for line in rest)]
    if not isinstance(value, (dict, list)) or not value:
        return [f"{_scalar(key)}: {_flow(value)}"]
    inset = " " * (style.offset if isinstance(value, list) else style.step)
    return [f"{_scalar(key)}:", *(inset + line for line in _block(value, style))]


def _block(value: JSONValue, style: _Style) -> list[str]:
    if not isinstance(value, (dict, list)) or not value:
        return [_flow(value)]
    entries: list[Entry] = list(value.items()) if isinstance(value, dict) else [(None, item) for item in value]
    return [line for entry in entries for line in _lines(entry, style)]


def _flow(value: JSONValue) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value) if isinstance(value, str) else json.dumps(value)


def _scalar(text: str) -> str:
    """A text, in quotes unless every reader of YAML takes it for one without."""
    return text if _PLAIN.fullmatch(text) and resolve(text) == text else json.dumps(text, ensure_ascii=False)


_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")

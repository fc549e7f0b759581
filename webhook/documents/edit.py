"""Change a document in place: additions go where they belong, and no other character changes.

    edited(document.source, document.value, wanted)

Members and items can be added, and scalars replaced. Any other change is refused, and so is one that an alias would
repeat in another place.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from webhook.documents.json_text import compose_json, is_json
from webhook.documents.nodes import Edit, EditError, compose
from webhook.documents.values import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.documents.model import JSONValue
    from webhook.documents.nodes import Member, TextNode

__all__ = ["EditError", "edited"]

_Entry: TypeAlias = "tuple[str | None, JSONValue]"
"""A member to add, with its key, or an item, without one."""


def edited(source: str, before: JSONValue, after: JSONValue) -> str:
    """Return the text of a document, changed from one value to another.

    Raise EditError if the change can't be made in place.
    """
    editor = _Editor(source)
    pieces: list[str] = []
    done = 0
    # A stable sort: of two additions at one place, the inner one stays first.
    for start, end, text in sorted(editor.edits(editor.root, before, after), key=lambda edit: edit[:2]):
        pieces += (source[done:start], text)
        done = end
    return "".join((*pieces, source[done:]))


class _Style(NamedTuple):
    """Hold the style in which a document is written.

    Attributes:
        json: every key and text is in double quotes.
        indent: the white space of one level of JSON; None if its members have no lines of their own.
        step: spaces that one level of block mappings is indented by.
        offset: spaces that the dashes of a block sequence are indented by.
    """

    json: bool
    indent: str | None
    newline: str
    step: int
    offset: int


class _Editor:
    """Find the edits of one document, beginning at its `root`."""

    def __init__(self, source: str) -> None:
        written_as_json = is_json(source)
        self.root = root = compose_json(source) if written_as_json else compose(source)
        self._source = source
        nodes = list(root.walk())
        self._aliases = {node.alias for node in nodes if node.alias is not None}
        self._style = _Style(
            json=written_as_json,
            indent=self._margin(root.begins[0]) if root.begins else None,
            newline="\r\n" if "\r\n" in source else "\n",
            step=min(_steps(nodes, "members"), default=2),
            offset=min(_steps(nodes, "items"), default=2),
        )

    def edits(self, node: TextNode, before: JSONValue, after: JSONValue) -> Iterator[Edit]:
        """Yield the edits that change the value of a node; inner edits come before outer ones."""
        if _same(before, after):
            return
        if node.alias is not None:
            raise self._refusal(node, f"the change is inside of what *{node.alias} repeats", "write it out here")
        if node.anchor in self._aliases:
            problem = f"the change is inside of what &{node.anchor} names, and aliases repeat it"
            raise self._refusal(node, problem, "write out what the aliases repeat")
        if node.members is not None and isinstance(before, dict) and isinstance(after, dict):
            yield from self._mapping(node, node.members, before, after)
        elif (
            node.items is not None
            and isinstance(before, list)
            and isinstance(after, list)
            and len(before) <= len(after)
        ):
            for item, old, new in zip(node.items, before, after, strict=False):
                yield from self.edits(item, old, new)
            entries: list[_Entry] = [(None, value) for value in after[len(before) :]]
            yield from self._added(node, max((item.end for item in node.items), default=node.end), entries)
        elif node.members is None and node.items is None:
            yield self._replaced(node, after)
        else:
            raise self._refusal(node, "something would have to be removed", "change it by hand")

    def _mapping(
        self, node: TextNode, members: dict[str, Member], before: dict[str, JSONValue], after: dict[str, JSONValue]
    ) -> Iterator[Edit]:
        if not before.keys() <= after.keys():
            raise self._refusal(node, "something would have to be removed", "change it by hand")
        new = {key: value for key, value in after.items() if key not in before}
        for key, old in before.items():
            if key in members:
                yield from self.edits(members[key].value, old, after[key])
        # A scalar that is merged in is overridden here; of a collection that is, there is nothing here to add to.
        for key in before.keys() - members.keys():
            if _same(before[key], after[key]):
                continue
            if isinstance(before[key], (dict, list)):
                raise self._refusal(node, f"the change is inside of {key}, which '<<' merges in", "write it out here")
            new[key] = after[key]
        order: list[_Entry] = [(key, new[key]) for key in after if key in new]
        yield from self._added(node, max((member.value.end for member in members.values()), default=node.end), order)

    def _added(self, node: TextNode, behind: int, entries: list[_Entry]) -> Iterator[Edit]:
        """Yield the edit that adds entries after the last one."""
        if not entries:
            return
        if node.flow:
            yield from self._added_in_brackets(node, behind, entries)
            return
        lines = [" " * node.column + line for entry in entries for line in _lines(entry, self._style)]
        yield self._inserted_lines(behind, lines)

    def _inserted_lines(self, behind: int, lines: list[str]) -> Edit:
        """Return the edit that inserts whole lines below the line of ``behind``."""
        newline = self._style.newline
        if self._source[:behind].endswith("\n"):
            return Edit(behind, behind, "".join(line + newline for line in lines))
        end = self._source.find("\n", behind)
        end = len(self._source) if end < 0 else end
        if self._source[:end].endswith("\r"):
            end -= 1
        return Edit(end, end, "".join(newline + line for line in lines))

    def _added_in_brackets(self, node: TextNode, behind: int, entries: list[_Entry]) -> Iterator[Edit]:
        begins = node.begins
        if not begins:
            yield Edit(node.opened, node.opened, ", ".join(self._entry(each, None) for each in entries))
            return
        margin = self._margin(begins[0])
        comment = _COMMENT.match(self._source, behind)
        if comment and margin is None:
            margin = self._margin(begins[-1])
        if margin is None:
            yield Edit(behind, behind, "".join(f", {self._entry(each, None)}" for each in entries))
            return
        lines = [f"{self._style.newline}{margin}{self._entry(each, margin)}" for each in entries]
        if comment is None:
            yield Edit(behind, behind, "".join(f",{line}" for line in lines))
            return
        # The comment is about the entry that is there.
        if not comment["comma"]:
            yield Edit(behind, behind, ",")
        yield Edit(comment.end(), comment.end(), ",".join(lines) + (comment["comma"] or ""))

    def _margin(self, begin: int) -> str | None:
        """Return the white space before an entry, or None if something else is before it on the line."""
        line = self._source[self._source.rfind("\n", 0, begin) + 1 : begin]
        return None if line.strip() else line

    def _entry(self, entry: _Entry, margin: str | None) -> str:
        key, value = entry
        if not self._style.json:
            return _flow(value) if key is None else f"{_scalar(key)}: {_flow(value)}"
        indent = None if margin is None else self._style.indent
        text = json.dumps(value, ensure_ascii=False, indent=indent).replace("\n", f"{self._style.newline}{margin}")
        return text if key is None else f"{json.dumps(key, ensure_ascii=False)}: {text}"

    def _replaced(self, node: TextNode, value: JSONValue) -> Edit:
        """Return the edit that replaces a scalar, or a value that is missing."""
        written = self._source[node.start : node.end].rstrip()
        if not written and node.key is not None and ":" not in self._source[node.key : node.start]:
            problem = "a key without a colon has no place for a value"
            raise EditError.at(node.key, self._source, problem, "write the colon")
        if isinstance(value, str):
            text = self._text(value, written)
        else:
            text = json.dumps(value, ensure_ascii=False) if self._style.json else _flow(value)
        return Edit(node.start, node.start + len(written), text if written else f" {text}")

    def _text(self, text: str, written: str) -> str:
        """Return a string in the same quotes as the one that it replaces."""
        if self._style.json or written.startswith('"'):
            return json.dumps(text, ensure_ascii=False)
        if written.startswith("'") and text.isprintable():
            return "'" + text.replace("'", "''") + "'"
        return _scalar(text)

    def _refusal(self, node: TextNode, problem: str, fix: str) -> EditError:
        return EditError.at(node.start, self._source, problem, fix)


def _steps(nodes: list[TextNode], kind: str) -> Iterator[int]:
    """Yield the indentations of block collections of a kind in the block mappings that they are members of."""
    for node in nodes:
        if node.members is None or node.flow:
            continue
        for child in node.children:
            if getattr(child, kind) is not None and not child.flow:
                yield child.column - node.column


def _same(one: JSONValue, other: JSONValue) -> bool:
    """Return whether two values are equal; ``1`` and ``true`` are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(each, other[key]) for key, each in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other


def _lines(entry: _Entry, style: _Style) -> list[str]:
    """Return the lines of an entry of a block collection, the first one not indented."""
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
    entries: list[_Entry] = list(value.items()) if isinstance(value, dict) else [(None, item) for item in value]
    return [line for entry in entries for line in _lines(entry, style)]


def _flow(value: JSONValue) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value) if isinstance(value, str) else json.dumps(value)


def _scalar(text: str) -> str:
    """Return a string as YAML, without quotes if every reader of YAML takes it for a string."""
    return text if _PLAIN.fullmatch(text) and resolve(text) == text else json.dumps(text, ensure_ascii=False)


_COMMENT: Final = re.compile(r"[ \t]*(?P<comma>,)?[ \t]*#[^\r\n]*")
"""A comment on the line where an entry in brackets ends, with the comma before it."""

_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")

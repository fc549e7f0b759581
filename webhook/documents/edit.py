"""Change a document in place: additions go where they belong, and no other character changes.

    edited(document.source, document.value, wanted)

Members and items can be added, and scalars replaced. Any other change is refused, and so is one that an alias would
repeat in another place.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from webhook.documents.json_text import compose_json, is_json
from webhook.documents.nodes import Edit, EditError, compose
from webhook.documents.yaml_writer import dump_on_one_line

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


class _Editor:
    """The edits of one document.

    Attributes:
        root: the node to begin at.
    """

    def __init__(self, source: str) -> None:
        self._json = is_json(source)
        self.root = root = compose_json(source) if self._json else compose(source)
        self._source = source
        nodes = list(root.walk())
        self._aliases = {node.alias for node in nodes if node.alias is not None}
        self._newline = "\r\n" if "\r\n" in source else "\n"
        self._json_indent = self._margin(root.begins[0]) if root.begins else None  # None: all is on one line
        self._step = min(_steps(nodes, "members"), default=2)
        self._dash_step = min(_steps(nodes, "items"), default=2)

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
        for key, old in before.items():
            if key in members:
                yield from self.edits(members[key].value, old, after[key])
            elif isinstance(old, (dict, list)) and not _same(old, after[key]):
                raise self._refusal(node, f"the change is inside of {key}, which '<<' merges in", "write it out here")
        # A scalar that is merged in is overridden here.
        kept = {key for key, old in before.items() if key in members or _same(old, after[key])}
        new: list[_Entry] = [(key, value) for key, value in after.items() if key not in kept]
        yield from self._added(node, max((member.value.end for member in members.values()), default=node.end), new)

    def _added(self, node: TextNode, behind: int, entries: list[_Entry]) -> Iterator[Edit]:
        """Yield the edit that adds entries after the last one."""
        if not entries:
            return
        if node.flow:
            yield self._added_in_brackets(node, behind, entries)
            return
        lines = [" " * node.column + line for entry in entries for line in self._lines(entry)]
        yield self._inserted_lines(behind, lines)

    def _inserted_lines(self, behind: int, lines: list[str]) -> Edit:
        """Return the edit that inserts whole lines below the line of ``behind``."""
        newline = self._newline
        if self._source[:behind].endswith("\n"):
            return Edit(behind, behind, "".join(line + newline for line in lines))
        end = self._source.find("\n", behind)
        end = len(self._source) if end < 0 else end
        if self._source[:end].endswith("\r"):
            end -= 1
        return Edit(end, end, "".join(newline + line for line in lines))

    def _added_in_brackets(self, node: TextNode, behind: int, entries: list[_Entry]) -> Edit:
        if not node.begins:
            return Edit(node.opened, node.opened, ", ".join(self._entry(entry, None) for entry in entries))
        # A comment behind the last entry stays on its line.
        margin = None if _COMMENT.match(self._source, behind) else self._margin(node.begins[0])
        separator = ", " if margin is None else f",{self._newline}{margin}"
        return Edit(behind, behind, "".join(f"{separator}{self._entry(entry, margin)}" for entry in entries))

    def _margin(self, begin: int) -> str | None:
        """Return the white space before an entry, or None if something else is before it on the line."""
        line = self._source[self._source.rfind("\n", 0, begin) + 1 : begin]
        return None if line.strip() else line

    def _entry(self, entry: _Entry, margin: str | None) -> str:
        key, value = entry
        if not self._json:
            return dump_on_one_line(value) if key is None else dump_on_one_line({key: value})[1:-1]
        indent = None if margin is None else self._json_indent
        text = json.dumps(value, ensure_ascii=False, indent=indent).replace("\n", f"{self._newline}{margin}")
        return text if key is None else f"{json.dumps(key, ensure_ascii=False)}: {text}"

    def _replaced(self, node: TextNode, value: JSONValue) -> Edit:
        """Return the edit that replaces a scalar, or a value that is missing."""
        written = self._source[node.start : node.end].rstrip()
        if not written and node.key is not None and ":" not in self._source[node.key : node.start]:
            problem = "a key without a colon has no place for a value"
            raise EditError(node.key, self._source, problem, "write the colon")
        text = json.dumps(value, ensure_ascii=False) if self._json else dump_on_one_line(value)
        return Edit(node.start, node.start + len(written), text if written else f" {text}")

    def _lines(self, entry: _Entry) -> list[str]:
        """Return the lines of an entry of a block collection, the first one not indented."""
        key, value = entry
        if key is None:
            first, *rest = self._block(value)
            return [f"- {first}", *(f"  {line}" for line in rest)]
        if not isinstance(value, (dict, list)) or not value:
            return [dump_on_one_line({key: value})[1:-1]]
        inset = " " * (self._dash_step if isinstance(value, list) else self._step)
        return [f"{dump_on_one_line(key)}:", *(inset + line for line in self._block(value))]

    def _block(self, value: JSONValue) -> list[str]:
        if not isinstance(value, (dict, list)) or not value:
            return [dump_on_one_line(value)]
        entries: list[_Entry] = list(value.items()) if isinstance(value, dict) else [(None, item) for item in value]
        return [line for entry in entries for line in self._lines(entry)]

    def _refusal(self, node: TextNode, problem: str, fix: str) -> EditError:
        return EditError(node.start, self._source, problem, fix)


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
    return msgspec.json.encode(one) == msgspec.json.encode(other)


_COMMENT: Final = re.compile(r"[ \t]*,?[ \t]*#")
"""A comment on the line where an entry in brackets ends, maybe behind a comma."""

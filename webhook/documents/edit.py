"""Edit a document in place: add members and items, replace scalars, and keep every other character.

    edited(document.source, document.value, wanted)

Other changes raise EditError. So does a change to a value that an alias repeats.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from yaml.events import AliasEvent, MappingStartEvent, ScalarEvent, SequenceStartEvent

from webhook.documents.model import JSONValue, entries
from webhook.documents.nodes import TextNode, TextTree
from webhook.documents.yaml_writer import dump_on_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    import yaml


_Added: TypeAlias = "tuple[str | int, JSONValue]"
"""A new member with its key, or a new item with its index."""

_Edit: TypeAlias = tuple[int, int, str]
"""The start and end of the text to replace, and the replacement."""


class EditError(ValueError):
    """A change that can't be made in place. Lines count from 0."""

    def __init__(self, at: int, source: str, problem: str, fix: str) -> None:
        super().__init__(at, source, problem, fix)
        self.line = source.count("\n", 0, at)
        self.problem = problem
        self.fix = fix


def edited(source: str, before: JSONValue, after: JSONValue) -> str:
    """Return the text of a document after an edit from one value to another.

    Raise EditError if the change can't be made in place.
    """
    editor = _Editor(source)
    pieces: list[str] = []
    done = 0
    # The sort is stable: of two additions at one index, the inner one comes first.
    for start, end, text in sorted(editor.edits(editor.root, before, after), key=lambda edit: edit[:2]):
        pieces += (source[done:start], text)
        done = end
    return "".join((*pieces, source[done:]))


class _Editor:
    """The edits of one document.

    Attributes:
        root: the node of the whole document.
    """

    def __init__(self, source: str) -> None:
        tree = TextTree(source)
        tree.read_rest()
        self._json = tree.is_json
        self.root = tree.nodes[0]
        self._source = source
        self._aliases = {node.anchor for node in tree.nodes if node.kind is AliasEvent}
        self._newline = "\r\n" if "\r\n" in source else "\n"
        self._json_indent = self._margin(self.root)  # None: the text is on one line
        self._step = min(_steps(tree.nodes, MappingStartEvent), default=2)
        self._dash_step = min(_steps(tree.nodes, SequenceStartEvent), default=2)

    def edits(self, node: TextNode, before: JSONValue, after: JSONValue) -> Iterator[_Edit]:
        """Yield the edits that change the value of a node, inner edits before outer ones."""
        if _same(before, after):
            return
        self._refuse_repeated(node)
        if node.kind is ScalarEvent:
            yield self._replaced(node, after)
            return
        old, new = entries(before), entries(after)
        if type(before) is not type(after) or not old.keys() <= new.keys():
            raise EditError(node.start, self._source, "something would have to be removed", "change it by hand")
        added: list[_Added] = []
        for key, value in new.items():
            if key in node.entries:
                yield from self.edits(node.entries[key], old[key], value)
            elif key not in old or not _same(old[key], value):  # override a merged scalar here
                if isinstance(old.get(key), (dict, list)):
                    problem = f"the change is inside of {key}, which '<<' merges in"
                    raise EditError(node.start, self._source, problem, "write it out here")
                added.append((key, value))
        if added:
            yield self._addition(node, added)

    def _refuse_repeated(self, node: TextNode) -> None:
        """Raise EditError if an alias repeats the node."""
        if node.kind is AliasEvent:
            problem = f"the change is inside of the part that *{node.anchor} repeats"
            raise EditError(node.start, self._source, problem, "write it out here")
        if node.anchor in self._aliases:
            problem = f"the change is inside of the part that &{node.anchor} names, and aliases repeat it"
            raise EditError(node.start, self._source, problem, "write out the part at each alias")

    def _addition(self, node: TextNode, added: list[_Added]) -> _Edit:
        """Return the edit that adds entries after the last one."""
        last_end = max((child.end for child in node.entries.values()), default=node.opened)
        if node.flow:
            return self._addition_in_brackets(node, last_end, added)
        lines = [" " * node.column + line for entry in added for line in self._lines(entry)]
        if self._source[:last_end].endswith("\n"):
            return last_end, last_end, "".join(line + self._newline for line in lines)
        end = last_end + len(self._source[last_end:].partition("\n")[0].removesuffix("\r"))
        return end, end, "".join(self._newline + line for line in lines)

    def _addition_in_brackets(self, node: TextNode, last_end: int, added: list[_Added]) -> _Edit:
        # A comment after the last entry stays on its line.
        margin = None if _COMMENT.match(self._source, last_end) else self._margin(node)
        separator = ", " if margin is None else f",{self._newline}{margin}"
        text = separator.join(self._entry(entry, margin) for entry in added)
        return last_end, last_end, f"{separator}{text}" if node.entries else text

    def _margin(self, node: TextNode) -> str | None:
        """Return the white space before the first entry, or None if the entry isn't the first on its line."""
        begin = next((child.place for child in node.entries.values()), 0)
        line = self._source[self._source.rfind("\n", 0, begin) + 1 : begin]
        return None if not node.entries or line.strip() else line

    def _entry(self, entry: _Added, margin: str | None) -> str:
        key, value = entry
        text = self._text(value, margin)
        return text if isinstance(key, int) else f"{self._text(key)}: {text}"

    def _text(self, value: JSONValue, margin: str | None = None) -> str:
        """Return a value on one line. In JSON with a margin, return it on several."""
        if not self._json:
            return dump_on_one_line(value)
        indent = None if margin is None else self._json_indent
        return json.dumps(value, ensure_ascii=False, indent=indent).replace("\n", f"{self._newline}{margin}")

    def _replaced(self, node: TextNode, value: JSONValue) -> _Edit:
        """Return the edit that replaces a scalar, or that inserts a missing value."""
        written = self._source[node.start : node.end].rstrip()
        text = self._text(value)
        return node.start, node.start + len(written), text if written else f" {text}"

    def _lines(self, entry: _Added) -> list[str]:
        """Return the lines of an entry of a block collection, without the indentation of the collection."""
        key, value = entry
        if isinstance(key, int):
            first, *rest = self._block(value)
            return [f"- {first}", *(f"  {line}" for line in rest)]
        if not entries(value):
            return [self._entry(entry, None)]
        inset = " " * (self._dash_step if isinstance(value, list) else self._step)
        return [f"{dump_on_one_line(key)}:", *(inset + line for line in self._block(value))]

    def _block(self, value: JSONValue) -> list[str]:
        lines = [line for entry in entries(value).items() for line in self._lines(entry)]
        return lines or [dump_on_one_line(value)]


def _steps(nodes: list[TextNode], kind: type[yaml.Event]) -> Iterator[int]:
    """Yield the indentation of each block collection of a kind, relative to the block mapping that contains it."""
    for node in nodes:
        if node.kind is MappingStartEvent and not node.flow:
            inner = (child for child in node.entries.values() if child.kind is kind and not child.flow)
            yield from (child.column - node.column for child in inner)


def _same(one: JSONValue, other: JSONValue) -> bool:
    """Return whether two values are equal. ``1`` and ``true`` aren't equal."""
    return msgspec.json.encode(one) == msgspec.json.encode(other)


_COMMENT: Final = re.compile(r"[ \t]*,?[ \t]*#")
"""A comment on the same line as the end of an entry in brackets, with or without a comma before it."""

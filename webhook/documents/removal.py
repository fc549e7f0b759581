"""Taking members out of a mapping, in the text of a document: their lines go, comments on lines of their own stay."""

from __future__ import annotations

import re
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Final

from webhook.documents.nodes import Edit, EditError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.documents.nodes import Member, Node

_COMMA: Final = re.compile(r"\s*,")


def removed(source: str, node: Node, gone: Collection[str]) -> Iterator[Edit]:
    """What takes these members out of a mapping.

    Args:
        source: the text of the document.
        node: the mapping.
        gone: at least one of its keys.

    Raises:
        EditError: a comment would be lost, or the text is written in a way that can't be changed so.
    """
    members = list((node.members or {}).items())
    flags = [key in gone for key, _ in members]
    entries = [member for _, member in members]
    if node.flow:
        yield from _in_brackets(source, node, entries, flags)
    elif all(flags):
        yield from _all(source, node, entries)
    else:
        yield from _lines(source, node, entries, flags)


def _lines(source: str, node: Node, entries: list[Member], flags: list[bool]) -> Iterator[Edit]:
    """Some members of a block mapping."""
    kept = max(index for index, gone in enumerate(flags) if not gone)
    leading = 0
    if flags[0] and not _has_own_line(source, entries[0].start):  # `- key: value`
        _check_dashes(source, node, entries[0])
        leading = len(list(takewhile(bool, flags)))
        following = entries[leading]
        if any("#" in source[one.value.end : other.start] for one, other in pairwise(entries[: leading + 1])):
            leading = 1
            dash = len(source[: entries[0].start].rstrip())
            yield Edit(dash, _line(source, entries[0])[1], "")
        else:
            yield Edit(entries[0].start, following.start, "")
    for index, (entry, gone) in enumerate(zip(entries, flags, strict=True)):
        if index < leading or not gone:
            continue
        if index < kept:
            start, end = _line(source, entry)
            yield Edit(start, _behind_newline(source, end), "")
        else:
            yield _with_newline_before(source, entry)


def _all(source: str, node: Node, entries: list[Member]) -> Iterator[Edit]:
    """All members of a block mapping: ``{}`` stands for them."""
    first, *others = entries
    if node.key is not None and node.start == first.start and _has_own_line(source, first.start):  # no anchor, no tag
        behind = source.index(":", node.key) + 1
        yield Edit(behind, behind, " {}")
        yield _with_newline_before(source, first)
    else:
        yield Edit(first.start, _content_end(source, first.value.end), "{}")
    for each in others:
        yield _with_newline_before(source, each)


def _in_brackets(source: str, node: Node, entries: list[Member], flags: list[bool]) -> Iterator[Edit]:
    """Members of a flow mapping, each run of neighbours with one comma."""
    starts = [entry.start for entry in entries]
    ends = [entry.value.end for entry in entries]
    index = 0
    while index < len(entries):
        run = len(list(takewhile(bool, flags[index:])))
        behind = index + run
        if not run:
            index += 1
            continue
        if behind < len(entries):
            edit = Edit(starts[index], starts[behind], "")
            gaps = zip(ends[index:behind], starts[index + 1 : behind + 1], strict=True)
        elif index:
            edit = Edit(ends[index - 1], ends[-1], "")
            gaps = zip(ends[index - 1 : -1], starts[index:], strict=True)
        else:
            comma = _COMMA.match(source, ends[-1])
            edit = Edit(starts[0], comma.end() if comma else ends[-1], "")
            gaps = zip(ends, [*starts[1:], node.end - 1], strict=True)
        if any("#" in source[start:end] for start, end in gaps):
            raise EditError.at(node.start, source, "a comment in brackets would be lost", "change it by hand")
        yield edit
        index = behind


def _with_newline_before(source: str, entry: Member) -> Edit:
    """Its lines, and the end of the line above: what is added below the last line stays below."""
    start, end = _line(source, entry)
    return Edit(_content_end(source, start), end, "")


def _line(source: str, entry: Member) -> tuple[int, int]:
    """From the beginning of its first line to the end of its last, without the newline."""
    start = source.rfind("\n", 0, entry.start) + 1
    end = entry.value.end
    if source[:end].endswith("\n"):  # a block scalar that keeps its empty lines
        return start, _content_end(source, end)
    newline = source.find("\n", end)
    return start, len(source) if newline < 0 else _content_end(source, newline + 1)


def _content_end(source: str, behind: int) -> int:
    """Before the newline that ``behind`` is behind, if it is."""
    if source.endswith("\r\n", 0, behind):
        return behind - 2
    return behind - 1 if source.endswith("\n", 0, behind) else behind


def _behind_newline(source: str, end: int) -> int:
    newline = source.find("\n", end)
    return len(source) if newline < 0 else newline + 1


def _has_own_line(source: str, start: int) -> bool:
    return not source[source.rfind("\n", 0, start) + 1 : start].strip()


def _check_dashes(source: str, node: Node, entry: Member) -> None:
    """Only dashes may be before the first key of a mapping."""
    if source[source.rfind("\n", 0, entry.start) + 1 : entry.start].strip("- "):
        raise EditError.at(
            node.start, source, "something else begins on the line of what would be removed", "change it by hand"
        )

"""Match whole strings against globs (``*``, ``?``, ``[...]``), which policy files use instead of expressions."""

from __future__ import annotations

import fnmatch
import re
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_META = frozenset("*?[")

_LONGEST: Final = 1024
"""Characters of a glob, and of a text that it can match: names have 253 at most, users and images some more."""


class Globs:
    """Hold globs: exact names in a set, and one expression for those with wildcards."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(patterns)
        self._exact = frozenset(pattern for pattern in self.patterns if not _META & set(pattern))

    @cached_property
    def _match(self) -> Callable[[str], object] | None:
        """Return the match method of the expression; compiled when first asked, as most are never."""
        wild = [fnmatch.translate(pattern) for pattern in self.patterns if pattern not in self._exact]
        return re.compile("|".join(wild)).match if wild else None

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def __repr__(self) -> str:
        return f"Globs({self.patterns!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Globs) and self.patterns == other.patterns

    def __hash__(self) -> int:
        return hash(self.patterns)

    def match(self, text: str) -> bool:
        """Return whether one of the globs matches the whole of ``text``, case-sensitively."""
        if text in self._exact:
            return True
        return self._match is not None and len(text) <= _LONGEST and self._match(text) is not None


_OF_NAMES: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
"""The characters of a namespace's name."""
_STEP: Final = re.compile(r"\*|\[!?\]?[^\]]*\]|.", re.DOTALL)


def share_a_name(one: str, other: str) -> bool:
    """Return whether there is a text in the characters of a namespace's name that both globs match."""
    steps = tuple(map(_steps, (one, other)))
    todo, seen = [(0, 0)], set[tuple[int, int]]()
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        if all(index == len(of) for index, of in zip(at, steps, strict=True)):
            return True
        (left, many_left), (right, many_right) = (
            of[index] if index < len(of) else (frozenset[str](), False) for index, of in zip(at, steps, strict=True)
        )
        if many_left:
            todo.append((at[0] + 1, at[1]))
        if many_right:
            todo.append((at[0], at[1] + 1))
        if left & right:
            todo.append((at[0] + (not many_left), at[1] + (not many_right)))
    return False


def _steps(pattern: str) -> tuple[tuple[frozenset[str], bool], ...]:
    """Return the characters that each part of a glob matches, and whether it matches any number of them."""
    return tuple(
        (
            _OF_NAMES if part == "*" else frozenset(each for each in _OF_NAMES if fnmatch.fnmatchcase(each, part)),
            part == "*",
        )
        for part in _STEP.findall(pattern)
    )


def is_glob(pattern: str) -> bool:
    """Return whether the pattern has a wildcard."""
    return bool(_META & set(pattern))


def problem_with(pattern: str) -> str:
    """Return what is wrong with a glob, or an empty string; an unclosed ``[`` would silently match nothing."""
    if not pattern:
        return "an empty glob matches nothing"
    if len(pattern) > _LONGEST:
        return f"a glob has {_LONGEST:,} characters at most"
    if pattern != pattern.strip() or any(character.isspace() for character in pattern):
        return f"{pattern!r} has white space in it"
    opened = pattern.find("[")
    if opened >= 0 and pattern.find("]", opened + 2) < 0:
        return f"{pattern!r} opens a `[` that it does not close"
    return ""

"""Match whole strings against globs (``*``, ``?``, ``[...]``), which policy files use in place of expressions."""

from __future__ import annotations

import fnmatch
import re
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_META = frozenset("*?[")

_LONGEST: Final = 1024
"""Characters of a glob, and of a text that it can match. Names have at most 253; users and images can have more."""


class Globs:
    """Compiled globs: a set of exact names, and one regular expression for the globs with wildcards."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(patterns)
        self._exact = frozenset(pattern for pattern in self.patterns if not _META & set(pattern))

    @cached_property
    def _match(self) -> Callable[[str], object] | None:
        """Return the match method of the regular expression. Compile it on first use: most are never used."""
        wild = [fnmatch.translate(pattern) for pattern in self.patterns if pattern not in self._exact]
        return re.compile("|".join(wild)).match if wild else None

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Globs) and self.patterns == other.patterns

    def __hash__(self) -> int:
        return hash(self.patterns)

    def match(self, text: str) -> bool:
        """Return whether one of the globs matches the whole of ``text``, case-sensitively."""
        if text in self._exact:
            return True
        return self._match is not None and len(text) <= _LONGEST and self._match(text) is not None


_WILDCARD: Final = re.compile(r"[*?\[\]]")


def may_share_a_name(one: str, other: str) -> bool:
    """Return whether a text may match both globs: False only if the text before or after their wildcards differs."""
    if not is_glob(one) or not is_glob(other):
        return fnmatch.fnmatchcase(one, other) or fnmatch.fnmatchcase(other, one)
    (head, *_, tail), (other_head, *_, other_tail) = map(_WILDCARD.split, (one, other))
    heads_agree = head.startswith(other_head) or other_head.startswith(head)
    return heads_agree and (tail.endswith(other_tail) or other_tail.endswith(tail))


def is_glob(pattern: str) -> bool:
    """Return whether the pattern has a wildcard."""
    return bool(_META & set(pattern))


def problem_with(pattern: str) -> str:
    """Return the problem of a glob, or an empty string. An unclosed ``[`` would silently match nothing."""
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

"""Errors in policy files. All errors are reported together."""

from __future__ import annotations

import difflib
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.bounds import HINTED_AT_MOST
from webhook.base.exits import CannotJudgeError
from webhook.base.text import described, listed

if TYPE_CHECKING:
    from collections.abc import Iterable


class Problem(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """One mistake in a policy file.

    Attributes:
        file: the policy file.
        line: 1-based, or 0 without a line, such as for an unreadable folder.
        column: 1-based.
        field: the field path, such as ``spec.match.namespaces.include[0]``, or an empty string.
        text: the mistake and its fix.
        warning: the file is valid.
    """

    file: str
    line: int
    column: int
    field: str
    text: str
    warning: bool = False

    @property
    def place(self) -> str:
        """Return the file, with line and column if they are known."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.place, self.field, "warning" if self.warning else "", self.text)))


_LISTED: Final = 3
"""The maximum number of additional places that a line lists. It counts the others."""

LINES_AT_MOST: Final = 200
"""The maximum number of printed lines: more problems than a user corrects before the next run."""

_LISTED_FILES: Final = 20
"""The maximum number of files whose problems are listed. For more files, one line gives their number."""


def condensed(problems: Iterable[Problem]) -> list[Problem]:
    """Return the sorted problems, or for many files, the first problem with the number of files."""
    ordered = sorted(problems)
    files = list(dict.fromkeys(problem.file for problem in ordered))
    if len(files) <= _LISTED_FILES:
        return ordered
    first = ordered[0]
    named = f"{len(files)} files can't be read or evaluated: {', '.join(files[1 : _LISTED + 1])} and others"
    return [msgspec.structs.replace(first, text=f"{first.text} ({named}; `-o json` lists all)")]


def problem_lines(problems: Iterable[Problem], *, alone: bool = False) -> list[str]:
    """Return the sorted lines to print: one for each distinct text, or with ``alone``, one for each problem."""
    groups: dict[object, list[Problem]] = {}
    for problem in sorted(problems):
        groups.setdefault(problem if alone else problem.text, []).append(problem)
    if not alone and len(groups) > _LISTED_FILES:
        groups = {problem.text: [problem] for problem in condensed(chain.from_iterable(groups.values()))}
    lines = []
    for first, *others in islice(groups.values(), LINES_AT_MOST):
        places = listed((problem.place for problem in others), _LISTED)
        lines.append(f"{first} (also at {places})" if others else str(first))
    if len(groups) > LINES_AT_MOST:
        lines.append(f"and {len(groups) - LINES_AT_MOST} more problems, which are not shown; correct these first")
    return lines


class PolicyErrors(CannotJudgeError):  # noqa: N818 - several errors
    """The problems of policy files that can't be used. The message has a line for each, sorted by file and line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(problem_lines(self.problems, alone=True)))


class SpecError(ValueError):
    """An error in a spec that is well-formed but can't be compiled.

    Attributes:
        path: the field path below ``spec``.
        problem: the mistake and its fix.
    """

    def __init__(self, path: tuple[str | int, ...], problem: str) -> None:
        super().__init__(problem)
        self.path = path
        self.problem = problem


class SpecErrors(ValueError):  # noqa: N818 - several errors
    """Several `SpecError` at once."""

    def __init__(self, errors: Iterable[SpecError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(error.problem for error in self.errors))


def expect_at_most(field: str, value: int, limiting: str, limit: int) -> None:
    """Raise SpecError at ``field`` if its value exceeds that of the field ``limiting`` next to it."""
    if value > limit:
        raise SpecError((field,), f"{value} s is more than `{limiting}`, which is {limit} s; correct one of them")


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return ``, did you mean `x`?`` for the most similar known word, or an empty string if none reaches the cutoff."""
    if len(word) > HINTED_AT_MOST:
        return ""
    head, word = word[: word.rfind("/") + 1].casefold(), word.casefold()
    names = {name.casefold(): name for name in known}
    # A common prefix, such as a domain, must not make different names similar.
    if below := {name.removeprefix(head): names[name] for name in names if head and name.startswith(head)}:
        word, names = word.removeprefix(head), below
    close = difflib.get_close_matches(word, names, n=1, cutoff=cutoff)
    return f", did you mean `{names[close[0]]}`?" if close else ""


def quoted_value(value: Any) -> str:
    """Return a wrong value for a message: a string in quotes, a number as it is, or a description of other values."""
    written = isinstance(value, str | int | float) and not isinstance(value, bool)
    return repr(value) if written else described(value)


def escaped_name(file: str) -> str:
    """Return a file name in which bytes that aren't UTF-8 are escaped."""
    return file.encode(errors="backslashreplace").decode()


def unreadable(file: str, error: OSError) -> Problem:
    """Return the problem for a file that can't be read."""
    path = Path(file)
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        text = f"can't be read: it is a link to {path.readlink()}, which doesn't exist; correct the link or remove it"
    else:
        text = f"can't be read: {error.strerror or error}"
    return Problem(escaped_name(file), 0, 0, "", escaped_name(text))

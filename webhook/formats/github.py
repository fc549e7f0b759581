"""Write workflow commands, which GitHub shows as annotations in a pull request: ``check -o github``.

All are in the log; of a step GitHub shows no more than ten of each kind as annotations, so the first of each id comes
before the second of any, and a last line says how many are hidden.

Source: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import count
from typing import TYPE_CHECKING, Final

from webhook.base.text import printable
from webhook.formats import Format
from webhook.policy.errors import condensed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.offline.report import Report, Result

_COMMANDS: Final = {"deny": "error", "warn": "warning", "indeterminate": "notice", "audit": "notice"}
_SHOWN_AT_MOST: Final = 10
"""Annotations of each kind that GitHub shows of a step."""

_IN_MESSAGES: Final = str.maketrans({"%": "%25", "\n": "%0A"})
_IN_PROPERTIES: Final = str.maketrans({"%": "%25", ":": "%3A", ",": "%2C"})


def render(report: Report) -> str:
    """Return a command for each finding, each unreadable file and each warning."""
    paths = report.paths
    lines = [
        _command(name, paths[each.file], each.line, each.column, title, each.text)
        for name, title, problems in (
            ("error", "can't be judged", condensed(report.unreadable)),
            ("warning", "spotgate", report.warnings),
        )
        for each in problems
    ]
    lines += [_annotation(each, paths[each.file]) for each in _first_of_each(report.results)]
    counts = Counter(line.partition(" ")[0] for line in lines)
    hidden = sum(max(number - _SHOWN_AT_MOST, 0) for number in counts.values())
    if hidden:
        lines.append(f"GitHub shows {_SHOWN_AT_MOST} errors, warnings and notices each: {hidden} more are only here.")
    return "\n".join(lines)


def _first_of_each(results: Sequence[Result]) -> list[Result]:
    """Return the findings with the first of each id before the second of any: GitHub shows few of them."""
    counts: defaultdict[str, Iterator[int]] = defaultdict(count)
    return sorted(results, key=lambda result: next(counts[result.id]))


def _annotation(result: Result, path: str) -> str:
    command = _COMMANDS[result.outcome]
    title = f"{result.policy}: {result.reason} [{result.id}]"
    return _command(command, path, result.line, result.column, title, result.explanation())


def _command(name: str, file: str, line: int, column: int, title: str, message: str) -> str:
    properties = {"file": file, "line": str(line), "col": str(column), "title": title}
    shown = ",".join(f"{key}={printable(text).translate(_IN_PROPERTIES)}" for key, text in properties.items())
    lines = "\n".join(map(printable, message.split("\n")))
    return f"::{name} {shown}::{lines.translate(_IN_MESSAGES)}"


FORMAT: Final = Format(about="annotations on the lines of a pull request", render=render)

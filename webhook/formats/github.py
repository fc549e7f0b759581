"""Write workflow commands, which GitHub shows as annotations in a pull request: ``check -o github``.

The log has all commands, but GitHub shows at most ten annotations of each kind for a step. So the first finding of
each id precedes the second of any id, and a last line counts the hidden ones.

Source: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import count
from typing import TYPE_CHECKING, Final

from webhook.base.text import printable
from webhook.formats import Format
from webhook.policy.errors import Problem, condensed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.report.report import Report, Result

_COMMANDS: Final = {"deny": "error", "warn": "warning", "indeterminate": "notice", "audit": "notice"}
_SHOWN_AT_MOST: Final = 10
"""The maximum number of annotations of each kind that GitHub shows for a step."""

_IN_MESSAGES: Final = str.maketrans({"%": "%25", "\n": "%0A"})
_IN_PROPERTIES: Final = str.maketrans({"%": "%25", ":": "%3A", ",": "%2C"})


def render(report: Report) -> str:
    """Return a command for each finding, unreadable file, and warning."""
    rows: list[tuple[str, str, str, Problem | Result]] = [
        *(("error", "can't be evaluated", problem.text, problem) for problem in condensed(report.unreadable)),
        *(("warning", "spotgate", problem.text, problem) for problem in report.warnings),
    ]
    counts: defaultdict[str, Iterator[int]] = defaultdict(count)
    # The first finding of each id precedes the second of any: GitHub shows only a few.
    for result in sorted(report.results, key=lambda result: next(counts[result.id])):
        title = f"{result.policy}: {result.reason} [{result.id}]"
        rows.append((_COMMANDS[result.outcome], title, result.explanation(), result))
    paths = report.paths
    lines = [_command(name, paths[place.file], place, title, message) for name, title, message, place in rows]
    hidden = sum(max(number - _SHOWN_AT_MOST, 0) for number in Counter(name for name, *_ in rows).values())
    if hidden:
        lines.append(f"GitHub shows {_SHOWN_AT_MOST} errors, warnings and notices each: {hidden} more are only here.")
    return "\n".join(lines)


def _command(name: str, file: str, place: Problem | Result, title: str, message: str) -> str:
    properties = {"file": file, "line": str(place.line), "col": str(place.column), "title": title}
    shown = ",".join(f"{key}={printable(text).translate(_IN_PROPERTIES)}" for key, text in properties.items())
    lines = "\n".join(map(printable, message.split("\n")))
    return f"::{name} {shown}::{lines.translate(_IN_MESSAGES)}"


FORMAT: Final = Format(about="annotations on the lines of a pull request", render=render)

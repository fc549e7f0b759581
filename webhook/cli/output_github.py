"""``check -o github``: workflow commands, which GitHub shows as annotations on the lines of a pull request.

Source: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from webhook.cli.report import Report, Result

_COMMANDS: Final = {"deny": "error", "warn": "warning", "indeterminate": "notice", "audit": "notice"}
_IN_MESSAGES: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTIES: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def render(report: Report) -> str:
    """One command a finding, and one a file that could not be read."""
    unread = [
        _command("error", each.file, each.line, each.column, "can't be judged", each.message)
        for each in report.unreadable
    ]
    return "\n".join([*unread, *map(_annotation, report.results)])


def _annotation(result: Result) -> str:
    command = _COMMANDS[result.outcome]
    title = f"{result.policy}: {result.reason}"
    return _command(command, result.file, result.line, result.column, title, result.explanation())


def _command(name: str, file: str, line: int, column: int, title: str, message: str) -> str:
    properties = {"file": file, "line": str(line), "col": str(column), "title": title}
    shown = ",".join(f"{key}={text.translate(_IN_PROPERTIES)}" for key, text in properties.items())
    return f"::{name} {shown}::{message.translate(_IN_MESSAGES)}"

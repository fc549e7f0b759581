"""Write the report as JSON: ``check -o json``."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook.base.terminal import as_json
from webhook.formats import Format
from webhook.report.report import Report, Result, problem_members

_OF_OBJECTS: Final = ("file", "line", "kind", "namespace", "name", "patch")


def render(report: Report) -> str:
    """Return the report as a JSON object.

    Omit empty ``unreadable`` and ``warnings``. Omit ``onSpot`` unless the report is of a live cluster.
    """
    shown: dict[str, Any] = {
        "results": list(map(_result, report.results)),
        "patches": [{name: getattr(patched, name) for name in _OF_OBJECTS} for patched in report.patched],
        "summary": report.summary,
    }
    if report.unreadable:
        shown["unreadable"] = list(map(problem_members, report.unreadable))
    if report.warnings:
        shown["warnings"] = list(map(problem_members, report.warnings))
    if report.on_spot is not None:
        shown["onSpot"] = report.on_spot
    return as_json(shown)


def _result(result: Result) -> dict[str, Any]:
    """Return the documented fields: all except the column."""
    members: dict[str, Any] = msgspec.to_builtins(result)
    del members["column"]
    return members


FORMAT: Final = Format(about="programs", render=render)

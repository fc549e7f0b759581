"""``check -o json``: the report for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cli.output import Format

if TYPE_CHECKING:
    from webhook.cli.report.model import Report, Result, Unreadable


def render(report: Report) -> str:
    """Return the report as a JSON object.

    ``unreadable`` and ``warnings`` are left out if they are empty, ``onSpot`` if no live cluster was asked.
    """
    shown: dict[str, Any] = {
        "results": [_documented(each) for each in report.results],
        "patches": report.patches,
        "summary": report.summary,
    }
    if report.unreadable:
        shown["unreadable"] = [_documented(each) for each in report.unreadable]
    if report.warnings:
        shown["warnings"] = [_documented(each) for each in report.warnings]
    if report.on_spot is not None:
        shown["onSpot"] = report.on_spot
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()


def _documented(found: Result | Unreadable) -> dict[str, Any]:
    """Return the documented members: all but the column."""
    members: dict[str, Any] = msgspec.to_builtins(found)
    del members["column"]
    return members


FORMAT: Final = Format(about="programs", render=render)

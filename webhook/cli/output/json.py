"""``check -o json``: for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from webhook.cli.output.report import Report, Result, Unreadable


def render(report: Report) -> str:
    """The report as one JSON object; ``unreadable`` and ``warnings`` are left out where there is nothing."""
    shown: dict[str, Any] = {
        "results": [_promised(each) for each in report.results],
        "patches": report.patches,
        "summary": report.summary,
    }
    if report.unreadable:
        shown["unreadable"] = [_promised(each) for each in report.unreadable]
    if report.warnings:
        shown["warnings"] = [_promised(each) for each in report.warnings]
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()


def _promised(found: Result | Unreadable) -> dict[str, Any]:
    """The members that were promised, and no more."""
    members: dict[str, Any] = msgspec.to_builtins(found)
    del members["column"]
    return members

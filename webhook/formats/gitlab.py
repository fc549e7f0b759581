"""Write a Code Quality report, which GitLab shows in merge requests and on their lines: ``check -o gitlab``.

Source: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.base.terminal import as_json
from webhook.formats import Format
from webhook.offline.report import fingerprints
from webhook.policy.errors import condensed

if TYPE_CHECKING:
    from webhook.offline.report import Report, Result

_SEVERITIES: Final = {"deny": "critical", "warn": "major", "indeterminate": "minor", "audit": "info"}


def render(report: Report) -> str:
    """Return a JSON array of the findings and of the files that could not be read."""
    paths = report.paths
    unread = [
        _issue(
            "unreadable",
            f"can't be judged: {each.text}",
            f"{paths[each.file]}:{each.line}:{each.column}",
            "blocker",
            paths[each.file],
            each.line,
        )
        for each in condensed(report.unreadable)
    ]
    found = [
        _issue(each.id, _description(each), fingerprint, _SEVERITIES[each.outcome], paths[each.file], each.line)
        for each, fingerprint in zip(report.results, fingerprints(report.results), strict=True)
    ]
    return as_json([*unread, *found])


def _description(result: Result) -> str:
    """Return one line, which is all that GitLab shows. A fix of several lines is in the job's log."""
    stop = "" if result.reason.endswith("?") else "."
    fix = "" if "\n" in result.fix else f"{stop} {result.fix[:1].upper()}{result.fix[1:]}"
    return f"{result.kind} {result.name}: {result.reason}{fix} (policy {result.policy})"


def _issue(name: str, description: str, fingerprint: str, severity: str, path: str, line: int) -> dict[str, Any]:
    return {
        "description": description,
        "check_name": name,
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": path, "lines": {"begin": max(line, 1)}},
    }


FORMAT: Final = Format(about="Code Quality findings in a merge request", render=render)

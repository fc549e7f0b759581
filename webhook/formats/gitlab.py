"""Write a Code Quality report, which GitLab shows in merge requests: ``check -o gitlab``.

Source: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
"""

from __future__ import annotations

from typing import Final

from webhook.base.terminal import as_json
from webhook.base.text import sentence
from webhook.formats import Format
from webhook.policy.errors import Problem, condensed
from webhook.report.report import Report, Result, fingerprints

_SEVERITIES: Final = {"deny": "critical", "warn": "major", "indeterminate": "minor", "audit": "info"}


def render(report: Report) -> str:
    """Return a JSON array of the findings and the unreadable files."""
    paths = report.paths
    rows: list[tuple[str, str, str, str, Problem | Result]] = []
    for problem in condensed(report.unreadable):
        fingerprint = f"{paths[problem.file]}:{problem.line}:{problem.column}"
        rows.append(("unreadable", f"can't be evaluated: {problem.text}", fingerprint, "blocker", problem))
    for result, fingerprint in zip(report.results, fingerprints(report.results), strict=True):
        rows.append((result.id, _description(result), fingerprint, _SEVERITIES[result.outcome], result))
    return as_json(
        [
            {
                "description": description,
                "check_name": name,
                "fingerprint": fingerprint,
                "severity": severity,
                "location": {"path": paths[place.file], "lines": {"begin": max(place.line, 1)}},
            }
            for name, description, fingerprint, severity, place in rows
        ]
    )


def _description(result: Result) -> str:
    """Return one line, which is all that GitLab shows. The job's log has the longer fixes."""
    about = f"{result.kind} {result.name}: {result.reason}"
    if "\n" not in result.fix:
        about = f"{sentence(about)} {result.fix[:1].upper()}{result.fix[1:]}"
    return f"{about} (policy {result.policy})"


FORMAT: Final = Format(about="Code Quality findings in a merge request", render=render)

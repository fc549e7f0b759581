"""Write a SARIF log for code scanning, which GitHub shows on the lines of a pull request: ``check -o sarif``.

Only findings are results: code scanning turns every result into an alert, regardless of its ``kind``. Each result has
exactly one location.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from webhook import __version__
from webhook.base.terminal import as_json
from webhook.engine.findings import as_markdown, finding_texts, page_of
from webhook.formats import Format
from webhook.inputs.files import STDIN
from webhook.report.report import Report, Result, fingerprints, title_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.policy.errors import Problem

JSON = dict[str, Any]

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: Final = {"deny": "error", "warn": "warning", "indeterminate": "note", "audit": "note"}
_FINGERPRINT: Final = "spotgate/v1"


def render(report: Report) -> str:
    """Return a log of one run, with a rule for each finding id."""
    ids = list(dict.fromkeys(result.id for result in report.results))
    paths = report.paths
    notifications = (("error", report.unreadable), ("warning", report.warnings))
    run = {
        "tool": {"driver": {"name": "spotgate", "semanticVersion": __version__, "rules": list(map(_rule, ids))}},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not report.unreadable,
                "toolExecutionNotifications": [
                    {"level": level, "message": {"text": problem.text}, "locations": [_location(problem, paths)]}
                    for level, problems in notifications
                    for problem in problems
                ],
            }
        ],
        "results": [
            _result(result, ids.index(result.id), fingerprint, paths)
            for result, fingerprint in zip(report.results, fingerprints(report.results), strict=True)
        ],
    }
    return as_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(finding_id: str) -> JSON:
    text = finding_texts()[finding_id]
    return {
        "id": finding_id,
        "shortDescription": {"text": text.means},
        "fullDescription": {"text": f"{text.means} {text.matters}"},
        "help": {
            "text": f"{text.matters} For an example and what to do: spotgate explain {finding_id}",
            "markdown": as_markdown(finding_id),
        },
        **({"helpUri": page} if (page := page_of(finding_id)) else {}),
        "properties": {"tags": ["kubernetes", "spot"]},
    }


def _result(result: Result, rule: int, fingerprint: str, paths: Mapping[str, str]) -> JSON:
    name = title_of(result)
    location = _location(result, paths)
    location["logicalLocations"] = [{"fullyQualifiedName": f"{name} {result.field}".rstrip(), "kind": "object"}]
    return {
        "ruleId": result.id,
        "ruleIndex": rule,
        "level": _LEVELS[result.outcome],
        "message": {"text": f"{result.reason}\n{result.explanation()}".rstrip()},
        "locations": [location],
        "partialFingerprints": {_FINGERPRINT: fingerprint},
        "properties": {"policy": result.policy, "outcome": result.outcome, "field": result.field, "object": name},
    }


def _location(place: Result | Problem, paths: Mapping[str, str]) -> JSON:
    path = paths[place.file]
    artifact = {"uri": "stdin"} if path == STDIN else {"uri": quote(path), "uriBaseId": "%SRCROOT%"}
    physical: JSON = {"artifactLocation": artifact}
    if place.line:
        physical["region"] = {"startLine": place.line, "startColumn": max(place.column, 1)}
    return {"physicalLocation": physical}


FORMAT: Final = Format(about="code scanning (SARIF 2.1.0), with stable fingerprints", render=render)

"""``check -o sarif``: for code scanning, as GitHub and others show it on the lines of a pull request.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from webhook import __version__

if TYPE_CHECKING:
    from webhook.cli.report import Report, Result

JSON = dict[str, Any]

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: Final = {"deny": "error", "warn": "warning", "indeterminate": "note", "audit": "note"}
_FINGERPRINT: Final = "spotgate/v1"
_STDIN: Final = "-"


def render(report: Report) -> str:
    """One run; a rule for each policy."""
    rules = [_rule(each.name, each.kind, each.about) for each in report.policies]
    numbers = {rule["id"]: number for number, rule in enumerate(rules)}
    for result in report.results:  # what the engine itself says is of no policy
        if result.policy not in numbers:
            numbers[result.policy] = len(rules)
            rules.append(_rule(result.policy, result.policy, "Said by spotgate itself, not by a policy."))
    run = {
        "tool": {
            "driver": {"name": "spotgate", "semanticVersion": __version__, "rules": rules},
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not report.unreadable,
                "toolExecutionNotifications": [
                    {
                        "level": "error",
                        "message": {"text": each.message},
                        "locations": [_location(each.file, each.line, each.column)],
                    }
                    for each in report.unreadable
                ],
            }
        ],
        "results": _results(report, numbers),
    }
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log), indent=2).decode()


def _rule(name: str, title: str, text: str) -> JSON:
    return {
        "id": name,
        "name": name,
        "shortDescription": {"text": title},
        "fullDescription": {"text": text},
        "help": {"text": text, "markdown": text},
    }


def _results(report: Report, numbers: dict[str, int]) -> list[JSON]:
    seen: dict[str, int] = {}
    results = []
    for result in report.results:
        identity = _identity(result)
        seen[identity] = seen.get(identity, 0) + 1
        results.append(_result(result, numbers[result.policy], _fingerprint(identity, seen[identity])))
    return results


def _result(result: Result, rule: int, fingerprint: str) -> JSON:
    name = f"{result.namespace}/{result.name}" if result.namespace else result.name
    location = _location(result.file, result.line, result.column)
    location["logicalLocations"] = [
        {"fullyQualifiedName": f"{result.kind} {name} {result.field}".rstrip(), "kind": "object"}
    ]
    return {
        "ruleId": result.policy,
        "ruleIndex": rule,
        "level": _LEVELS[result.outcome],
        "message": {"text": f"{result.reason}\n{result.explanation()}".rstrip()},
        "locations": [location],
        "partialFingerprints": {_FINGERPRINT: fingerprint},
        "properties": {"outcome": result.outcome, "field": result.field, "object": f"{result.kind} {name}"},
    }


def _location(file: str, line: int, column: int) -> JSON:
    physical: JSON = {"artifactLocation": _artifact(file)}
    if line:
        physical["region"] = {"startLine": line, "startColumn": column}
    return {"physicalLocation": physical}


def _artifact(file: str) -> JSON:
    """Relative to the working directory, which in a pipeline is the repository."""
    if file == _STDIN:
        return {"uri": "stdin"}
    relative = os.path.relpath(file) if Path(file).is_absolute() else os.path.normpath(file)
    return {"uri": quote(Path(relative).as_posix()), "uriBaseId": "%SRCROOT%"}


def _identity(result: Result) -> str:
    """What makes it the same finding after lines have moved: everything but the line, and no wording."""
    thing = f"{result.api_version} {result.kind} {result.namespace}/{result.name}"
    return f"{result.policy}\n{result.file}\n{thing}\n{result.field}"


def _fingerprint(identity: str, number: int) -> str:
    return hashlib.sha256(f"{identity}\n{number}".encode()).hexdigest()[:32]

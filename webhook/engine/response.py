"""Build the AdmissionReview response. No other module builds one.

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response
"""

from __future__ import annotations

import base64
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson
from msgspec.structs import replace

from webhook.base.text import listed, printable
from webhook.documents import DocumentError, read_documents
from webhook.documents.yaml_writer import dump_on_one_line
from webhook.model.decision import Decision, Finding, Outcome
from webhook.model.review import API_VERSION, KIND
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


WARNING_LENGTH: Final = 120
"""Characters of one warning that every client shows in full, as the API recommends."""

WARNINGS_TOTAL: Final = 4096
"""Runes of all warnings together. Beyond this limit, the API server truncates each warning to 256."""

MESSAGE_LENGTH: Final = 16 * 1024
"""Characters of a denial, and of an audit annotation. Clients receive them in a Status, print them, and log them, so a
Pod with a thousand bad labels must not produce megabytes."""


_INDENT: Final = "    "
_FIX: Final = "  Fix: "
_PLACES: Final = 3
"""Further fields of a finding to name. The rest is counted."""


def respond(uid: str, decision: Decision, phase: Phase) -> bytes:
    """Return the response for a decision."""
    denials = decision.of(Outcome.DENY)
    response: dict[str, Any] = {"uid": uid, "allowed": not denials}
    if denials:
        code, reason = (400, "BadRequest") if decision.malformed else (403, "Forbidden")
        response["status"] = _status(code, reason, _message(denials))
    elif decision.patch and phase is Phase.MUTATE:
        patch = orjson.dumps([operation.as_json() for operation in decision.patch])
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(patch).decode()
    if warnings := _warnings(decision.of(Outcome.WARN)):
        response["warnings"] = warnings
    if decision.audit:
        response["auditAnnotations"] = {key: printable(text[:MESSAGE_LENGTH]) for key, text in decision.audit.items()}
    return _review(response)


def errored(uid: str, code: int, message: str) -> bytes:
    """Return the response for a review that could not be decided. ``uid`` is empty if it could not be read."""
    return _review({"uid": uid, "allowed": False, "status": _status(code, "InternalError", message)})


def _review(response: dict[str, Any]) -> bytes:
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"status": "Failure", "code": code, "reason": reason, "message": message}


def _message(denials: Iterable[Finding]) -> str:
    text = "\n".join(_messages(denials))
    if len(text) <= MESSAGE_LENGTH:
        return text
    cut = text.rfind("\n", 0, MESSAGE_LENGTH)
    return text[: cut if cut > 0 else MESSAGE_LENGTH] + "\n... and more of the same"


def _messages(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield the text of each finding. If several pod templates have the same finding, yield it once with its fields."""
    alike: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.policy, finding.id, finding.reason), []).append(finding)
    for first, *others in alike.values():
        text = first.message()
        if places := [other.field for other in others if other.field]:
            text += f"\n  Also at {listed(places, _PLACES)}."
        yield printable(text, keep="\n")


def _warnings(findings: Iterable[Finding]) -> list[str]:
    """Return findings as lines that clients show in full. Stop before the first finding that exceeds the total.

    The API server and kubectl deduplicate lines, kubectl also across objects. Therefore put a fix on one line, and pad
    repeated lines with spaces. Source: https://github.com/kubernetes/client-go/blob/master/rest/warnings.go
    """
    warnings: dict[str, None] = {}
    left = WARNINGS_TOTAL
    for text in _messages(replace(finding, fix=_on_one_line(finding.fix)) for finding in findings):
        parts = text.split("\n")
        lines = [line for part in parts for line in ([part] if part.startswith(_FIX) else _wrapped(part))]
        needed = sum(map(len, lines))
        if needed > left:
            break
        left -= needed
        for line in lines:
            while line in warnings:
                line += " "  # noqa: PLW2901
            warnings[line] = None
    return list(warnings)


@lru_cache(maxsize=256)  # 0.1 to 0.4 ms each; applying a workload again repeats its fixes
def _on_one_line(fix: str) -> str:
    """Return a fix on one line, with its YAML in flow style."""
    lead, _, block = fix.partition(":\n")
    if block:
        with suppress(DocumentError, ValueError):  # truncated text, or not YAML
            (document,) = read_documents(block.encode(), "")
            if isinstance(document.value, dict | list):
                return f"{lead}: {dump_on_one_line(document.value)}"
    return " ".join(fix.split("\n"))


def _wrapped(text: str) -> Iterator[str]:
    """Yield the text in lines. `textwrap` takes ten times as long, a sixth of a decision with warnings."""
    while len(text) > WARNING_LENGTH:
        cut = text.rfind(" ", 0, WARNING_LENGTH + 1)
        word = text[cut + 1 :].partition(" ")[0]
        if len(_INDENT) + len(word) > WARNING_LENGTH:  # longer than a line
            cut = WARNING_LENGTH
        yield text[:cut].rstrip()
        text = _INDENT + text[cut:].lstrip()
    yield text

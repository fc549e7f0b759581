"""What ``check`` found, in the words of its JSON output."""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.decision import Outcome


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One finding, and the object it is about.

    Attributes:
        file, line: of the offending field.
        namespace: where the object would be created; empty for cluster-scoped objects.
        field: in the object.
    """

    file: str
    line: int
    api_version: str
    kind: str
    namespace: str
    name: str
    policy: str
    outcome: str
    reason: str
    detail: str
    field: str
    fix: str


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """What the webhook would change in one object.

    Attributes:
        line: where the object begins.
        patch: JSONPatch (RFC 6902) for the document as it is in the file.
    """

    file: str
    line: int
    kind: str
    namespace: str
    name: str
    patch: list[dict[str, Any]]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each.

    Attributes:
        documents: objects, those in lists counted one by one.
        skipped: documents that are none, Helm templates, and policy files.
        patched: objects that the webhook would change.
    """

    documents: int
    skipped: int
    deny: int
    warn: int
    audit: int
    indeterminate: int
    patched: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that ``check`` says on standard output."""

    results: list[Result]
    patches: list[Patch]
    summary: Summary

    @classmethod
    def of(cls, results: list[Result], patches: list[Patch], *, documents: int, skipped: int) -> Report:
        """The report, counted."""
        outcomes = [result.outcome for result in results]
        summary = Summary(
            documents=documents,
            skipped=skipped,
            **{str(outcome): outcomes.count(str(outcome)) for outcome in Outcome},
            patched=len(patches),
        )
        return cls(results=results, patches=patches, summary=summary)

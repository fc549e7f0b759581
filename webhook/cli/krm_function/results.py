"""The ``results`` of a KRM function, for the orchestrator, and the same as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from webhook.cli.judging.additions import addition_of
from webhook.cli.report import named
from webhook.decision import Outcome
from webhook.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.cli.judging.judge import Judgement
    from webhook.documents import Document, FieldPath
    from webhook.manifests.objects import Manifest
    from webhook.policy.errors import Problem

_PREFIXES = ("internal.config.kubernetes.io", "config.kubernetes.io")


class ResourceRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Reference to the object that a result is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""


class Field(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A field of the object, and the value proposed for it."""

    path: str
    proposed_value: Any = None


class File(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The file of an object, from the orchestrator's annotations.

    Attributes:
        index: number of the document in the file, from 0.
    """

    path: str
    index: int = 0


class FunctionResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One result, with the fields of the specification of KRM functions.

    Attributes:
        severity: ``error``, ``warning`` or ``info``.
        tags: ``policy``, ``id`` and ``outcome`` of a finding.
    """

    message: str
    severity: str
    resource_ref: ResourceRef | None = None
    field: Field | None = None
    file: File | None = None
    tags: dict[str, str] = {}


class FunctionResults:
    """The results of one run.

    Args:
        document: the document of the ResourceList.
        resources: its value.
        fail_on: a finding of this outcome, or of a worse one, is an error.

    Attributes:
        lines: lines for standard error.
        failed: whether a finding is an error.
    """

    def __init__(self, document: Document, resources: dict[str, Any], fail_on: Outcome) -> None:
        self.results: list[FunctionResult] = []
        self.lines: list[str] = []
        self.failed = False
        self._document = document
        self._resources = resources
        self._fail_on = fail_on

    def add_patches(self, objects: Iterable[tuple[Manifest, Judgement]], *, injected: bool) -> None:
        """Add a result for each field that the webhook injects, and whether it has been injected here."""
        what = "injected" if injected else "the webhook would inject"
        for manifest, judgement in objects:
            for operation in judgement.patch:
                addition = addition_of(operation, len(manifest.path))
                self.results.append(
                    FunctionResult(
                        message=f"{what} {addition.field}",
                        severity="info",
                        resource_ref=_reference(manifest),
                        field=Field(path=addition.field, proposed_value=addition.value),
                        file=self._file(manifest.path),
                    )
                )

    def add_findings(self, objects: Iterable[tuple[Manifest, Judgement]]) -> None:
        """Add a result for each finding."""
        for manifest, judgement in objects:
            file = self._file(manifest.path)
            for finding in judgement.findings:
                fails = finding.outcome >= self._fail_on
                self.failed |= fails
                text = [finding.reason, finding.detail, finding.fix and f"Fix: {finding.fix}"]
                self.results.append(
                    FunctionResult(
                        message="\n".join(filter(None, text)),
                        severity="error" if fails else "warning" if finding.outcome is Outcome.WARN else "info",
                        resource_ref=_reference(manifest),
                        field=Field(path=finding.field) if finding.field else None,
                        file=file,
                        tags={"policy": finding.policy, "id": finding.id, "outcome": str(finding.outcome)},
                    )
                )
                where = f"{file.path}: " if file else ""
                name = "/".join(filter(None, (judgement.namespace, manifest.shown_name)))
                at = f" (at {finding.field})" if finding.field else ""
                self._say(f"{where}{finding.outcome}  {manifest.kind} {name}  {named(finding.policy, finding.id)}", 0)
                for line in "\n".join(filter(None, [f"{finding.reason}{at}", *text[1:]])).split("\n"):
                    self._say(line, 4)

    def add_problems(self, problems: Iterable[Problem]) -> None:
        """Add a result for each problem in the ResourceList or in a file of the state."""
        for problem in sorted(problems):
            file = self._file_at(problem.line) if problem.file == self._document.file else None
            said = f"{problem.field}: {problem.text}" if problem.field else problem.text
            self.results.append(FunctionResult(message=said if file else str(problem), severity="error", file=file))
            self._say(f"{file.path}: {said}" if file else str(problem), 0)

    def _say(self, line: str, indent: int) -> None:
        self.lines.append(" " * indent + printable(line))

    def _file(self, path: FieldPath) -> File | None:
        """Return the file of the item at this path, or None. An object in a List has the file of the List."""
        value: Any = self._resources
        for step in path[:2]:
            value = value[step]
        metadata = value.get("metadata") if isinstance(value, dict) else None
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        if not isinstance(annotations, dict):
            return None
        for prefix in _PREFIXES:
            file, index = annotations.get(f"{prefix}/path"), annotations.get(f"{prefix}/index")
            if isinstance(file, str) and file:
                return File(path=file, index=int(index) if isinstance(index, str) and index.isdecimal() else 0)
        return None

    def _file_at(self, line: int) -> File | None:
        """Return the file of the item on this line of the ResourceList, or None."""
        paths = [("items", number) for number in range(len(self._resources.get("items") or []))]
        before = [path for path in paths if self._document.position(path)[0] <= line]
        return self._file(before[-1]) if before else None


def _reference(manifest: Manifest) -> ResourceRef:
    """Return a reference with the names as they are written, so that orchestrators find the object."""
    return ResourceRef(
        api_version=manifest.api_version,
        kind=manifest.kind,
        name=manifest.shown_name,
        namespace=manifest.namespace,
    )

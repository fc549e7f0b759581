"""Read the ResourceList of a KRM function on standard input, and write it with results on standard output.

Source: https://github.com/kubernetes-sigs/kustomize/blob/master/cmd/config/docs/api-conventions/functions-spec.md (v1)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from webhook.base.exits import CannotJudgeError
from webhook.documents import DOCUMENT_LIMITS, Document, DocumentError, read_documents
from webhook.documents.edit import EditError, edited
from webhook.inputs.files import STDIN, ManifestFile
from webhook.inputs.manifests import read_objects
from webhook.inputs.objects import Manifest, Manifests
from webhook.judging.judge import Judgement
from webhook.kube.filling import mapping
from webhook.model.decision import Outcome
from webhook.policy.errors import Problem
from webhook.report.additions import addition_of
from webhook.report.report import named, without_empty

if TYPE_CHECKING:
    from webhook.base.field_paths import FieldPath

JSON = dict[str, Any]

_GROUP: Final = "config.kubernetes.io"
_NO_OBJECT: Final = "not a Kubernetes object, which has `apiVersion` and `kind`; add them or remove the item"
_ORCHESTRATION: Final = ("internal.config.kubernetes.io/", "config.k8s.io/", "kustomize.config.k8s.io/")
_LEGACY_ORCHESTRATION: Final = frozenset(
    f"{_GROUP}/{name}" for name in ("path", "index", "id", "package", "merge-source")
)


class ResourceList:
    """The ResourceList on standard input, with its document and value. Raise CannotJudgeError if it is invalid."""

    def __init__(self) -> None:
        self._data = sys.stdin.buffer.read(DOCUMENT_LIMITS.size + 1)
        self.document, self.value = _resource_list(self._data)

    def items(self) -> Manifests:
        """Return the items as manifests."""
        items = read_objects([ManifestFile(STDIN, data=self._data)])
        items.problems += [item.problem((), _NO_OBJECT) for item in items.objects if _is_half_an_object(item)]
        items.objects = [_as_applied(item) for item in items.objects if not _is_half_an_object(item)]
        return items

    def answer(self, changed: JSON) -> None:
        """Write the changed ResourceList. Edit its text, so that comments and order stay.

        Raise CannotJudgeError if it can't be changed in place.
        """
        try:
            text = edited(self.document.source, self.document.value, changed)
        except EditError as error:
            line = self.document.line + error.line
            raise CannotJudgeError(f"{STDIN}:{line}: can't be changed in place: {error.problem}; {error.fix}") from None
        before = self._data.decode("utf-8-sig")[: self.document.begin]
        sys.stdout.buffer.write(f"{before}{text.removesuffix(chr(10))}\n".encode())

    def file_of(self, path: FieldPath) -> JSON | None:
        """Return the file of the item at this path, or None. An object in a List has the file of the List."""
        value: Any = self.value
        for step in path[:2]:
            value = value[step]
        annotations = mapping(value, "metadata", "annotations")
        for prefix in (f"internal.{_GROUP}", _GROUP):
            file, index = annotations.get(f"{prefix}/path"), annotations.get(f"{prefix}/index")
            if isinstance(file, str) and file:
                return {"path": file, "index": int(index) if isinstance(index, str) and index.isdecimal() else 0}
        return None

    def file_at(self, line: int) -> JSON | None:
        """Return the file of the item on this line of the ResourceList, or None."""
        paths = [("items", number) for number in range(len(self.value.get("items") or []))]
        before = [path for path in paths if self.document.position(path)[0] <= line]
        return self.file_of(before[-1]) if before else None


def _resource_list(data: bytes) -> tuple[Document, JSON]:
    """Return the only document of standard input and its value. Raise CannotJudgeError unless it is a ResourceList."""
    try:
        documents = read_documents(data, STDIN)
    except DocumentError as error:
        raise CannotJudgeError(str(error)) from None
    if len(documents) != 1:
        raise CannotJudgeError(
            f"{STDIN}: expected one ResourceList, got {len(documents)} documents; kustomize and kpt make one; "
            "for plain manifests there is `spotgate check -`"
        )
    document = documents[0]
    value: Any = document.value
    kind = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else (None, None)
    if not str(kind[0]).startswith(f"{_GROUP}/") or kind[1] != "ResourceList":
        text = "expected a ResourceList of config.kubernetes.io/v1; for plain manifests there is `spotgate check -`"
        raise CannotJudgeError(str(Problem(STDIN, *document.position(()), "", text)))
    for field in ("items", "results"):
        if not isinstance(value.get(field), list | None):
            raise CannotJudgeError(str(Problem(STDIN, *document.position((field,)), field, "is not a list")))
    return document, value


def _is_half_an_object(manifest: Manifest) -> bool:
    """Return whether the item lacks apiVersion or kind: like a List item, it inherited them from the ResourceList."""
    return manifest.group == _GROUP or manifest.kind == "Resource"


def _as_applied(manifest: Manifest) -> Manifest:
    """Return the object as the API server receives it: without the annotations that orchestrators remove."""
    annotations = manifest.metadata.get("annotations") or {}
    kept = {
        key: text
        for key, text in annotations.items()
        if not key.startswith(_ORCHESTRATION) and key not in _LEGACY_ORCHESTRATION
    }
    if len(kept) == len(annotations):
        return manifest
    return replace(manifest, value={**manifest.value, "metadata": {**manifest.metadata, "annotations": kept}})


FunctionResult = tuple[JSON, list[str]]
"""A result as in the KRM function specification, and its lines for standard error."""

JudgedObjects = Iterable[tuple[Manifest, Judgement]]


def injections(resources: ResourceList, objects: JudgedObjects, *, injected: bool) -> Iterator[FunctionResult]:
    """Yield a result for each field that the webhook injects."""
    what = "injected" if injected else "the webhook would inject"
    for manifest, judgement in objects:
        for operation in judgement.patch:
            added = addition_of(operation, len(manifest.path))
            field = {"path": added.field, "proposedValue": added.value}
            yield _result(resources, manifest, f"{what} {added.field}", "info", field), []


def findings(resources: ResourceList, objects: JudgedObjects, fail_on: Outcome) -> Iterator[FunctionResult]:
    """Yield a result for each finding. Its severity is ``error`` if its outcome is ``fail_on`` or worse."""
    for manifest, judgement in objects:
        name = "/".join(filter(None, (judgement.namespace, manifest.shown_name)))
        for finding in judgement.findings:
            lesser = "warning" if finding.outcome is Outcome.WARN else "info"
            severity = "error" if finding.outcome >= fail_on else lesser
            more = [*filter(None, (finding.detail, finding.fix and f"Fix: {finding.fix}"))]
            field = {"path": finding.field} if finding.field else {}
            tags = {"policy": finding.policy, "id": finding.id, "outcome": str(finding.outcome)}
            message = "\n".join([finding.reason, *more])
            result = _result(resources, manifest, message, severity, field, tags)
            where = f"{result['file']['path']}: " if "file" in result else ""
            at = f" (at {finding.field})" if finding.field else ""
            lines = "\n".join([f"{finding.reason}{at}", *more]).split("\n")
            head = f"{where}{finding.outcome}  {manifest.kind} {name}  {named(finding.policy, finding.id)}"
            yield result, [head, *(f"    {line}" for line in lines)]


def failures(resources: ResourceList, problems: Iterable[Problem]) -> Iterator[FunctionResult]:
    """Yield a result for each problem in the ResourceList or in a file of the state."""
    for problem in sorted(problems):
        file = resources.file_at(problem.line) if problem.file == resources.document.file else None
        text = f"{problem.field}: {problem.text}" if problem.field else problem.text
        result = {"message": text if file else str(problem), "severity": "error", "file": file}
        yield without_empty(result), [f"{file['path']}: {text}" if file else str(problem)]


def _result(
    resources: ResourceList, manifest: Manifest, message: str, severity: str, field: JSON, tags: JSON | None = None
) -> JSON:
    """Return a result about an object, identified by its written names."""
    reference = {
        "apiVersion": manifest.api_version,
        "kind": manifest.kind,
        "name": manifest.shown_name,
        **({"namespace": manifest.namespace} if manifest.namespace else {}),
    }
    about = {"resourceRef": reference, "field": field, "file": resources.file_of(manifest.path), "tags": tags}
    return without_empty({"message": message, "severity": severity, **about})

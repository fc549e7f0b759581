"""The ResourceList that a KRM function reads on standard input and writes on standard output.

Source: https://github.com/kubernetes-sigs/kustomize/blob/master/cmd/config/docs/api-conventions/functions-spec.md (v1)
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from webhook.cli.exits import CannotJudgeError
from webhook.cli.judging.inputs import read_objects
from webhook.documents import DOCUMENT_LIMITS, DocumentError, read_documents
from webhook.documents.edit import EditError, edited
from webhook.manifests.files import STDIN, ManifestFile
from webhook.manifests.objects import Manifest, Manifests
from webhook.policy.errors import Problem

if TYPE_CHECKING:
    from webhook.documents import Document

_GROUP: Final = "config.kubernetes.io"
_NO_OBJECT: Final = "not a Kubernetes object, which has `apiVersion` and `kind`; add them or remove the item"
_ORCHESTRATION: Final = ("internal.config.kubernetes.io/", "config.k8s.io/", "kustomize.config.k8s.io/")
_LEGACY_ORCHESTRATION: Final = frozenset(
    f"{_GROUP}/{name}" for name in ("path", "index", "id", "package", "merge-source")
)


class ResourceList:
    """The ResourceList of standard input.

    Attributes:
        document: the one document of standard input.
        value: what it says.

    Raises:
        CannotJudgeError: standard input is no ResourceList.
    """

    def __init__(self) -> None:
        self._data = sys.stdin.buffer.read(DOCUMENT_LIMITS.size + 1)
        self.document, self.value = _resource_list(self._data)

    def items(self) -> Manifests:
        """Return the items as objects that can be judged."""
        found = Manifests()
        read_objects([ManifestFile(STDIN, data=self._data)], found)
        found.problems += [each.problem((), _NO_OBJECT) for each in found.objects if _is_half_an_object(each)]
        found.objects = [_as_applied(each) for each in found.objects if not _is_half_an_object(each)]
        return found

    def answer(self, changed: dict[str, Any]) -> None:
        """Write the ResourceList with the changes in its text, so that comments and order stay.

        Raises:
            CannotJudgeError: it can't be changed in place.
        """
        try:
            text = edited(self.document.source, self.document.value, changed)
        except EditError as error:
            line = self.document.line + error.line
            raise CannotJudgeError(f"{STDIN}:{line}: can't be changed in place: {error.problem}; {error.fix}") from None
        before = self._data.decode("utf-8-sig")[: self.document.begin]
        sys.stdout.buffer.write(f"{before}{text.removesuffix(chr(10))}\n".encode())


def _resource_list(data: bytes) -> tuple[Document, dict[str, Any]]:
    """Return the one document of standard input and its value.

    Raises:
        CannotJudgeError: it is no ResourceList.
    """
    try:
        documents = read_documents(data, STDIN)
    except DocumentError as error:
        raise CannotJudgeError(str(error)) from None
    match documents:
        case [document]:
            value: Any = document.value
        case _:
            raise CannotJudgeError(
                f"{STDIN}: expected one ResourceList, got {len(documents)} documents; kustomize and kpt make one; "
                "for plain manifests there is `spotgate check -`"
            )
    kind = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else (None, None)
    if not str(kind[0]).startswith(f"{_GROUP}/") or kind[1] != "ResourceList":
        text = "expected a ResourceList of config.kubernetes.io/v1; for plain manifests there is `spotgate check -`"
        raise CannotJudgeError(str(Problem(STDIN, *document.position(()), "", text)))
    for field in ("items", "results"):
        if not isinstance(value.get(field), list | None):
            raise CannotJudgeError(str(Problem(STDIN, *document.position((field,)), field, "is not a list")))
    return document, value


def _is_half_an_object(manifest: Manifest) -> bool:
    """Return whether an item has taken its apiVersion or kind from the ResourceList, as items of a List do."""
    return manifest.group == _GROUP or manifest.kind == "Resource"


def _as_applied(manifest: Manifest) -> Manifest:
    """Return the object as the API server gets it: without the annotations that orchestrators remove again."""
    annotations = manifest.metadata.get("annotations") or {}
    kept = {
        key: text
        for key, text in annotations.items()
        if not key.startswith(_ORCHESTRATION) and key not in _LEGACY_ORCHESTRATION
    }
    if len(kept) == len(annotations):
        return manifest
    return replace(manifest, value={**manifest.value, "metadata": {**manifest.metadata, "annotations": kept}})

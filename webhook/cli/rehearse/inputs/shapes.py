"""The shape of the objects that a rehearsal reads: only as far as it reads them, as the API server judges the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from webhook.cli.exits import CannotJudgeError
from webhook.kube.disruption import KIND as BUDGET
from webhook.kube.disruption import budget_from
from webhook.review import MalformedObjectError

if TYPE_CHECKING:
    from webhook.manifests.objects import Manifest


class _Container(msgspec.Struct):
    name: str
    resources: dict[str, dict[str, Any] | list[Any] | None] | None = None


class _PodSpec(msgspec.Struct):
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None
    nodeSelector: dict[str, str] | None = None


class _Metadata(msgspec.Struct):
    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[dict[str, Any]] | None = None


class _Template(msgspec.Struct):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


class _Spec(_PodSpec):
    template: _Template | None = None
    replicas: int | None = None
    parallelism: int | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None


def expect_shape(manifest: Manifest) -> None:
    """Raise CannotJudgeError if the object is not as all of its kind are, where a rehearsal reads it."""
    try:
        msgspec.convert(manifest.value, _Object)
        if manifest.kind == BUDGET:
            budget_from(manifest.value)
    except (msgspec.ValidationError, MalformedObjectError) as error:
        raise CannotJudgeError(f"{manifest.file}:{manifest.line}: {manifest.kind} {manifest.name}: {error}") from None

"""What a workload says around its pod template: how many Pods it makes, which are its own, who controls it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook.kube.pod import OwnerReference  # noqa: TC001 - msgspec reads the annotations
from webhook.review import is_null

_INDEXED: Final = "Indexed"


class _Metadata(msgspec.Struct):
    name: str = ""
    generateName: str = ""
    labels: dict[str, str] | None = None
    ownerReferences: list[OwnerReference] | None = None


class _Spec(msgspec.Struct):
    replicas: int | None = None
    parallelism: int | None = None
    completionMode: str | None = None
    selector: Any = None


class WorkloadFields(msgspec.Struct):
    """The parts of a workload that are not its template. Also of a custom resource, as far as it looks like one.

    Attributes:
        metadata: the workload's own.
        spec: what is not its template.
    """

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def name(self) -> str:
        """Its name; where the API server makes one up, what it begins with."""
        return self.metadata.generateName.rstrip("-") or self.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        """Its own labels, which its Pods do not have."""
        return self.metadata.labels or {}

    @property
    def controller(self) -> OwnerReference | None:
        """The object that manages it."""
        return next((owner for owner in self.metadata.ownerReferences or () if owner.controller), None)

    @property
    def indexed(self) -> bool:
        """Is it a Job whose Pods have ranks, and work at the same time?"""
        return self.spec.completionMode == _INDEXED and (self.spec.parallelism or 0) > 1

    @property
    def match_labels(self) -> dict[str, str]:
        """The labels by which it knows its Pods; empty where it does not say so with labels alone."""
        selector = self.spec.selector
        if not isinstance(selector, dict) or selector.get("matchExpressions"):
            return {}
        labels = selector.get("matchLabels", selector)  # a ReplicationController's selector is the labels
        pairs = labels.items() if isinstance(labels, dict) else ()
        return {key: value for key, value in pairs if isinstance(value, str)}


_decoder: Final = msgspec.json.Decoder(WorkloadFields)


def workload_fields_of(raw: msgspec.Raw) -> WorkloadFields:
    """What is around the templates in this object; nothing where a field has another type than in built-in kinds."""
    if is_null(raw):
        return WorkloadFields()
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return WorkloadFields()

"""Read the fields of a workload outside its pod template: replicas, selector, and controller."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook.kube.disruption import scaled
from webhook.kube.pod import ObjectMeta, OwnerReference
from webhook.model.review import is_null

_INDEXED: Final = "Indexed"
_RECREATE: Final = "Recreate"
_ROLLING: Final = {"maxSurge": "25%", "maxUnavailable": "25%"}
"""The defaults of a Deployment's rolling update."""


class _Spec(msgspec.Struct):
    replicas: Any = None
    parallelism: int | None = None
    completionMode: str | None = None
    selector: Any = None
    strategy: Any = None


class WorkloadFields(msgspec.Struct):
    """The fields of a workload outside its pod template. Custom resources may have the same fields."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: _Spec = msgspec.field(default_factory=_Spec)

    @property
    def name(self) -> str:
        """Return the workload's name, or the prefix of a generated name."""
        return self.metadata.generateName.rstrip("-") or self.metadata.name

    @property
    def replicas(self) -> int | None:
        """Return the number of replicas, which defaults to 1, or None if it isn't an integer (a placeholder)."""
        replicas = 1 if self.spec.replicas is None else self.spec.replicas
        return replicas if type(replicas) is int else None

    def spare_pods(self, replicas: int) -> int | None:
        """Return how many Pods a Deployment's rollout adds before it removes one; None if it may remove one first.

        Source: ResolveFenceposts in pkg/controller/deployment/util of Kubernetes 1.36.
        """
        strategy = self.spec.strategy if isinstance(self.spec.strategy, dict) else {}
        rolling = strategy.get("rollingUpdate")
        written = rolling.items() if isinstance(rolling, dict) else ()
        bounds = {**_ROLLING, **{name: bound for name, bound in written if bound is not None}}
        spare, removable = scaled(bounds["maxSurge"], replicas), scaled(bounds["maxUnavailable"], -replicas)
        # Kubernetes rounds maxUnavailable down, and so does `scaled` with a negative number of replicas.
        return spare if strategy.get("type") != _RECREATE and spare and not removable else None

    @property
    def labels(self) -> dict[str, str]:
        """Return the workload's own labels, which its Pods don't inherit."""
        return self.metadata.labels or {}

    @property
    def controller(self) -> OwnerReference | None:
        """Return the owner that manages the workload, or None."""
        return self.metadata.controller

    @property
    def indexed(self) -> bool:
        """Return whether this is an indexed Job whose Pods run in parallel."""
        return self.spec.completionMode == _INDEXED and (self.spec.parallelism or 0) > 1

    @property
    def match_labels(self) -> dict[str, str]:
        """Return the labels that select the workload's Pods, or an empty dict if the selector has expressions."""
        selector = self.spec.selector
        if not isinstance(selector, dict) or selector.get("matchExpressions"):
            return {}
        labels = selector.get("matchLabels", selector)  # a ReplicationController's selector is a map of labels
        pairs = labels.items() if isinstance(labels, dict) else ()
        return {key: value for key, value in pairs if isinstance(value, str)}


_decoder: Final = msgspec.json.Decoder(WorkloadFields)


def workload_fields_of(raw: msgspec.Raw) -> WorkloadFields:
    """Decode the fields of a workload. Return empty fields if one has a different type than in built-in kinds."""
    if is_null(raw):
        return WorkloadFields()
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return WorkloadFields()

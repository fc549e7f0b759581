"""Read the fields of a workload outside its pod template (replicas, selector, controller), and its autoscaler.

Source of the autoscalers: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/horizontal-pod-autoscaler-v2/
(minReplicas defaults to 1); https://keda.sh/docs/latest/reference/scaledobject-spec/ (minReplicaCount defaults to 0,
and the target's kind defaults to Deployment).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook.kube.disruption import scaled
from webhook.kube.layouts import member
from webhook.kube.pod import ApiObject
from webhook.model.review import is_null

_ROLLING: Final = {"maxSurge": "25%", "maxUnavailable": "25%"}
"""The defaults of a Deployment's rolling update."""

_MINIMUMS: Final = {
    ("autoscaling", "HorizontalPodAutoscaler"): ("minReplicas", 1),
    ("keda.sh", "ScaledObject"): ("minReplicaCount", 0),
}
"""The field with the minimum number of replicas and its default, by the group and kind of the autoscaler."""

AUTOSCALERS: Final = frozenset(kind for _, kind in _MINIMUMS)
"""The kinds of autoscalers."""


class _Spec(msgspec.Struct):
    replicas: Any = None
    parallelism: int | None = None
    completionMode: str | None = None
    selector: Any = None
    strategy: Any = None


class WorkloadFields(ApiObject):
    """The fields of a workload outside its pod template. Custom resources may have the same fields."""

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
        return spare if strategy.get("type") != "Recreate" and spare and not removable else None

    @property
    def indexed(self) -> bool:
        """Return whether this is an indexed Job whose Pods run in parallel."""
        return self.spec.completionMode == "Indexed" and (self.spec.parallelism or 0) > 1

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


class Autoscaler(msgspec.Struct, frozen=True, kw_only=True):
    """An autoscaler of one workload in its namespace.

    Attributes:
        target: the workload's kind and name.
        field: the name of the field with the minimum number of replicas.
    """

    kind: str
    name: str
    target: tuple[str, str]
    field: str
    minimum: int


def autoscaler_from(group: str, kind: str, name: str, value: dict[str, Any]) -> Autoscaler | None:
    """Parse an autoscaler. Return None for other kinds, and if a field has the wrong type."""
    target = member(value, ("spec", "scaleTargetRef"))
    if (group, kind) not in _MINIMUMS or not isinstance(target, dict):
        return None
    field, default = _MINIMUMS[group, kind]
    minimum = member(value, ("spec", field))
    target_kind, target_name = target.get("kind") or "Deployment", target.get("name")
    if not (isinstance(minimum, int | None) and isinstance(target_kind, str) and isinstance(target_name, str)):
        return None
    minimum = default if minimum is None else minimum
    return Autoscaler(kind=kind, name=name, target=(target_kind, target_name), field=field, minimum=minimum)

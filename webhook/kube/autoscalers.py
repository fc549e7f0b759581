"""Read autoscalers: the workload that each one scales, and its minimum number of replicas.

Source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/horizontal-pod-autoscaler-v2/
(minReplicas defaults to 1); https://keda.sh/docs/latest/reference/scaledobject-spec/ (minReplicaCount defaults to 0,
and the target's kind defaults to Deployment).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook.kube.layouts import member

_MINIMUMS: Final = {
    ("autoscaling", "HorizontalPodAutoscaler"): ("minReplicas", 1),
    ("keda.sh", "ScaledObject"): ("minReplicaCount", 0),
}
"""The field with the minimum number of replicas and its default, by the group and kind of the autoscaler."""

KINDS: Final = frozenset(kind for _, kind in _MINIMUMS)


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

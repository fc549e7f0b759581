"""Read PodDisruptionBudgets: the Pods that they cover, and whether they ever allow an eviction.

Source: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/ and pkg/controller/disruption of Kubernetes 1.36
(percentages are rounded up).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.kube.affinity import LabelSelector, label_selector, matches
from webhook.kube.pod import ObjectMeta, Requirement  # noqa: TC001 - msgspec reads the annotations
from webhook.model.review import converted

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP: Final = "policy"
KIND: Final = "PodDisruptionBudget"
RESOURCE: Final = "poddisruptionbudgets"

_ALL: Final = 100
_PERCENTAGE: Final = re.compile(r"(\d{1,9})%", re.ASCII)


class DisruptionBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget. It sets at most one bound: a number of Pods, or a percentage such as ``50%``.

    Attributes:
        selector: selects the Pods that the budget covers; None selects no Pods.
        min_available: the Pods that must stay available.
        max_unavailable: the Pods that may be unavailable.
    """

    name: str
    selector: LabelSelector | None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Return whether the budget covers Pods in its namespace with these labels."""
        return self.selector is not None and matches(self.selector, labels)

    def least(self, replicas: int) -> int:
        """Return how many of the replicas must stay available."""
        if self.max_unavailable is not None:
            return max(replicas - scaled(self.max_unavailable, replicas), 0)
        return 0 if self.min_available is None else scaled(self.min_available, replicas)

    def blocks(self, replicas: int | None) -> bool:
        """Return whether the budget blocks every eviction from a workload with this many replicas (None: unknown)."""
        if replicas is None and self.max_unavailable is None:
            return _percent(self.min_available or 0) >= _ALL
        return self.least(replicas or 1) >= (replicas or 1)

    @property
    def bound(self) -> str:
        """Return the bound as written in the manifest: ``maxUnavailable: 0``."""
        if self.max_unavailable is not None:
            return f"maxUnavailable: {self.max_unavailable}"
        return f"minAvailable: {self.min_available}"


def _percent(bound: int | str) -> int:
    """Return the number before the percent sign, or 0 if the bound isn't a valid percentage."""
    percentage = _PERCENTAGE.fullmatch(str(bound))
    return int(percentage[1]) if percentage is not None else 0


def scaled(bound: int | str, replicas: int) -> int:
    """Convert a bound to a number of Pods. Round percentages up."""
    return bound if isinstance(bound, int) else -(-replicas * _percent(bound) // _ALL)


class _Selector(msgspec.Struct):
    matchLabels: dict[str, str] | None = None
    matchExpressions: list[Requirement] | None = None


class _Spec(msgspec.Struct):
    selector: _Selector | None = None
    minAvailable: int | str | None = None
    maxUnavailable: int | str | None = None


class _Budget(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)


def decode_budget(raw: msgspec.Raw) -> DisruptionBudget:
    """Decode a PodDisruptionBudget from JSON. Raise `msgspec.MsgspecError` if a field has the wrong type."""
    return _read(msgspec.json.decode(raw, type=_Budget))


def budget_from(value: dict[str, Any]) -> DisruptionBudget:
    """Convert the plain JSON of a PodDisruptionBudget. Raise MalformedObjectError if a field has the wrong type."""
    return _read(converted(value, _Budget))


def _read(budget: _Budget) -> DisruptionBudget:
    spec = budget.spec
    selector: LabelSelector | None = None
    if spec.selector is not None:  # an empty selector matches every Pod in the namespace
        written = spec.selector.matchExpressions or ()
        expressions = ((item.key, item.operator, item.values or ()) for item in written)
        selector = label_selector(spec.selector.matchLabels or {}, expressions)
    return DisruptionBudget(
        name=budget.metadata.name,
        selector=selector,
        min_available=spec.minAvailable,
        max_unavailable=spec.maxUnavailable,
    )

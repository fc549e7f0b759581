"""Compute the on-demand floor of a workload: how many of its Pods run on on-demand nodes, and which ordinals.

The annotation is on the Pod template: ``"2"``, ``"20%"``, or ``"2 + 20%"``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.kube.pod import Requirement

if TYPE_CHECKING:
    from collections.abc import Collection

    from webhook.capacity.placement.supply import Supply

FLOOR_ANNOTATION: Final = "spotgate.dev/on-demand-floor"
FLOOR_GATE: Final = "spotgate.dev/on-demand-floor"
"""The scheduling gate of Pods that the controller assigns."""
ASSIGNED_LABEL: Final = "spotgate.dev/assigned"
"""The label with which the controller assigns a Pod: ``on-demand`` or ``spot``."""
FLOOR_LEASE: Final = "spotgate-on-demand-floor"
"""The Lease of the controller, in its own namespace."""
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""A ReplicaSet that shrinks deletes the Pods with the lowest cost first; without the annotation it is 0."""
ON_DEMAND_COST: Final = "100"
FORMS: Final = ('"2"', '"20%"', '"2 + 20%"')
"""The forms of the annotation, as YAML shows them."""

_FORM: Final = re.compile(r"(?:(\d{1,9})(?: *\+ *(\d{1,3})%)?|(\d{1,3})%)", re.ASCII)
_WHOLE: Final = 100


class Floor(msgspec.Struct, frozen=True):
    """A number of Pods, and a percentage of the Pods beyond it, that run on on-demand nodes."""

    base: int
    percent: int

    def need(self, count: int) -> int:
        """Return how many of ``count`` Pods run on on-demand nodes, rounded up."""
        beyond = max(0, count - self.base)
        return min(self.base, count) - (-self.percent * beyond // _WHOLE)

    def keeps(self, ordinal: int) -> bool:
        """Return whether the Pod with this ordinal, counted from 0, runs on an on-demand node."""
        return self.need(ordinal + 1) > self.need(ordinal)


def parse_floor(text: str) -> Floor | None:
    """Return the floor that the annotation asks for, or None if the text has none of the forms."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    base, more, alone = match.groups(default="0")
    floor = Floor(int(base), int(more) or int(alone))
    return floor if floor.percent <= _WHOLE else None


def excluding_spot(supply: Supply, providers: Collection[str]) -> tuple[Requirement, ...]:
    """Return the ``NotIn`` requirements that the spot nodes of these providers fail, and all other nodes meet.

    A provider's spot label excludes its spot nodes. Where there is none, as on CKS, the names of the spot pools do.
    """
    values: dict[str, set[str]] = {}
    for nodes in (*supply.spot, *supply.unseen):
        if nodes.provider.name in providers:
            label = nodes.provider.pool_name_label
            for key, value in nodes.marks[:1] or ((label, nodes.labels.get(label, "")),):
                values.setdefault(key, set()).add(value)
    return tuple(Requirement(key, "NotIn", tuple(sorted(excluded))) for key, excluded in sorted(values.items()))

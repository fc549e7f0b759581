"""Compute the on-demand floor of a workload: how many of its Pods run on on-demand nodes, and which ordinals.

An annotation on the Pod template sets the floor: ``"2"``, ``"20%"``, or ``"2 + 20%"``.
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
"""The scheduling gate of Pods that wait for the controller to assign them."""
ASSIGNED_LABEL: Final = "spotgate.dev/assigned"
"""The label with which the controller assigns a Pod to ``on-demand`` or ``spot`` capacity."""
FLOOR_LEASE: Final = "spotgate-on-demand-floor"
"""The Lease of the controller, in the controller's namespace."""
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""A ReplicaSet that scales down deletes the Pods with the lowest cost first. The default cost is 0."""
ON_DEMAND_COST: Final = "100"
FORMS: Final = ('"2"', '"20%"', '"2 + 20%"')
"""The forms of the annotation, as written in YAML."""

_FORM: Final = re.compile(r"(?:(\d{1,9})(?: *\+ *(\d{1,3})%)?|(\d{1,3})%)", re.ASCII)
_WHOLE: Final = 100


class Floor(msgspec.Struct, frozen=True):
    """A number of Pods, and a percentage of the remaining Pods, that run on on-demand nodes."""

    base: int
    percent: int

    def need(self, count: int) -> int:
        """Return how many of ``count`` Pods run on on-demand nodes, rounded up."""
        beyond = max(0, count - self.base)
        return min(self.base, count) - (-self.percent * beyond // _WHOLE)

    def keeps(self, ordinal: int) -> bool:
        """Return whether the Pod with this zero-based ordinal runs on an on-demand node."""
        return self.need(ordinal + 1) > self.need(ordinal)


def parse_floor(text: str) -> Floor | None:
    """Parse the value of the annotation. Return None if it has none of the `FORMS`."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    base, more, alone = match.groups(default="0")
    floor = Floor(int(base), int(more) or int(alone))
    return floor if floor.percent <= _WHOLE else None


def excluding_spot(supply: Supply, providers: Collection[str]) -> tuple[Requirement, ...]:
    """Return the ``NotIn`` requirements that exclude the spot nodes of these providers and admit all other nodes.

    A provider's spot label excludes its spot nodes. If the provider has no spot label, such as CKS, the pool names do.
    """
    values: dict[str, set[str]] = {}
    for nodes in (*supply.spot, *supply.unseen(providers)):
        if nodes.provider.name in providers:
            label = nodes.provider.pool_name_label
            for key, value in nodes.marks[:1] or ((label, nodes.labels.get(label, "")),):
                values.setdefault(key, set()).update(nodes.provider.spot_values.get(key, {value}))
    return tuple(Requirement(key, "NotIn", tuple(sorted(excluded))) for key, excluded in sorted(values.items()))

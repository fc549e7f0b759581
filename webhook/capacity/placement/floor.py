"""Compute the on-demand floor of a workload: how many of its Pods run on on-demand nodes, and which ordinals.

An annotation on the Pod template sets the floor: ``"2"``, ``"20%"``, or ``"2 + 20%"``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.providers.pool import CapacityType
from webhook.kube.pod import Requirement

if TYPE_CHECKING:
    from collections.abc import Collection

    from webhook.capacity.placement.supply import Supply
    from webhook.capacity.providers.provider import Provider

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


def on_demand_only(supply: Supply, providers: Collection[Provider]) -> tuple[Requirement, ...]:
    """Return requirements that only on-demand nodes of these providers meet.

    The spot labels of a provider exclude its spot nodes, also those of pools that are created later. A label that few
    pools have ``instead`` counts if a pool has it. If a provider has no spot label, such as CKS, only its pools that
    are known to be on demand meet the requirements; a cluster of CKS has no nodes of other providers.
    """
    labelled = {provider.name for provider in providers if provider.spot_node_labels}
    labels = [(provider, label) for provider in providers for label in provider.spot_node_labels]
    # Karpenter ignores Pods that mention a label of its domains that it doesn't know (aws/karpenter-provider-aws#9553).
    marks = [(of, label.key, label.value) for of, label in labels if label.spot_only or not label.instead]
    for nodes in supply.spot:  # a pool of these providers may have another label, or none
        if nodes.provider.name in labelled:
            name = nodes.provider.pool_name_label
            marks.append((nodes.provider, *(*nodes.marks, (name, nodes.labels.get(name, "")))[0]))
    excluded: dict[str, set[str]] = {}
    for provider, key, value in marks:
        excluded.setdefault(key, set()).update(provider.spot_values.get(key, {value}))
    requirements = [Requirement(key, "NotIn", tuple(sorted(values))) for key, values in sorted(excluded.items())]
    known = [pool for pool in supply.pools if pool.capacity is CapacityType.ON_DEMAND]
    for provider in providers if supply.known else ():
        if provider.name not in labelled:
            pools = tuple(sorted(pool.pool_name for pool in known if pool.provider == provider.name))
            operator = "In" if pools else "DoesNotExist"
            requirements.append(Requirement(provider.pool_name_label, operator, pools or None))
    return tuple(requirements)

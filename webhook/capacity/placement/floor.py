"""Compute the on-demand floor of a workload: how many of its Pods run on on-demand nodes, and which ordinals.

An annotation on the Pod template sets the floor: ``"2"``, ``"20%"``, or ``"2 + 20%"``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import chain
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


def on_demand_only(supply: Supply, providers: Collection[Provider]) -> tuple[tuple[Requirement, ...], ...]:
    """Return alternative sets of requirements that only on-demand nodes of these providers meet.

    The spot labels of a provider exclude its spot nodes, also those of pools that are created later. If a provider has
    no spot label, such as CKS, the requirements list its on-demand pools. Return an empty tuple if they are unknown.
    """
    on_demand = [pool for pool in supply.pools if pool.capacity is CapacityType.ON_DEMAND]
    without_label = [provider for provider in providers if supply.known and not provider.spot_node_labels]
    listed = {
        provider.pool_name_label: tuple(sorted(pool.pool_name for pool in on_demand if pool.provider == provider.name))
        for provider in without_label
    }
    excluded: defaultdict[str, set[str]] = defaultdict(set)
    for label in chain.from_iterable(provider.spot_node_labels for provider in providers):
        excluded[label.key].add(label.value)
    for nodes in supply.spot:  # some pools of a provider may have another label, or none
        if nodes.provider in providers and nodes.provider not in without_label:
            name = nodes.provider.pool_name_label
            key, value = (*nodes.marks, (name, nodes.labels.get(name, "")))[0]
            excluded[key].add(value)
    by_name = tuple((Requirement(name, "In", pools),) for name, pools in sorted(listed.items()) if pools)
    if by_name and not excluded:
        return by_name
    others = [Requirement(name, "DoesNotExist") for name in sorted(listed)]
    others += (Requirement(key, "NotIn", tuple(sorted(values))) for key, values in sorted(excluded.items()))
    return (*by_name, tuple(others)) if others else ()

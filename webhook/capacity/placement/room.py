"""Compute how many Pods of one kind the on-demand nodes of a cluster have room for, as far as node pools tell.

A pool tells it if it has a size and its provider's document lists what a node of its instance type offers. The nodes
are taken as empty, so this is the most that can run.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING

from webhook.kube.quantity import amount_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.kube.pod import Pod


def room_for(pod: Pod, pools: Iterable[Pool | None], providers: Mapping[str, Provider]) -> int | None:
    """Return how many Pods like this one fit on the nodes of these pools, or None if that is unknown."""
    requests, room = _requests_of(pod), 0
    for pool in pools:
        if pool is None:
            return None
        size = pool.maximum if pool.autoscaling else pool.desired
        offered = providers[pool.provider].instance_types.allocatable.get(pool.instance_type, {})
        fitting = [int((amount_of(offered[name]) or 0) // least) for name, least in requests.items() if name in offered]
        if size is None or not fitting:
            return None
        room += 0 if pool.closed else size * min(fitting)
    return room


def _requests_of(pod: Pod) -> dict[str, Decimal]:
    """Return what the running containers request together, by resource, without what is zero or no quantity."""
    total: defaultdict[str, Decimal] = defaultdict(Decimal)
    for container in pod.spec.containers:
        if (resources := container.resources) is not None:
            for name, quantity in {**(resources.limits or {}), **(resources.requests or {})}.items():
                total[name] += amount_of(quantity) or 0
    return {name: amount for name, amount in total.items() if amount > 0}

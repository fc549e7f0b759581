"""Count the Pods of one shape that fit on the on-demand nodes of a cluster, according to its node pools.

This requires the size of each pool, and the allocatable resources of its instance type in the provider's document. The
nodes are assumed to be empty, so the count is an upper bound.
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
    """Count the Pods like this one that fit on the nodes of these pools. Return None if that is unknown."""
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
    """Return the total requests by resource, with the overhead, without zeros and invalid quantities."""
    total: defaultdict[str, Decimal] = defaultdict(Decimal)
    for container in pod.spec.containers:
        if (resources := container.resources) is not None:
            for name, quantity in {**(resources.limits or {}), **(resources.requests or {})}.items():
                total[name] += amount_of(quantity) or 0
    for name, quantity in (pod.spec.overhead or {}).items():
        total[name] += amount_of(quantity) or 0
    return {name: amount for name, amount in total.items() if amount > 0}

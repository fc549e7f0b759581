"""Node pools that allowed requests take away, until the cluster shows it.

Between the answer to a request and the moment when a reading shows what came of it, another request must not count on
what the first takes away: two last fallbacks deleted at once would both go.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from webhook.bounds import OverBoundError
from webhook.capacity.providers.pool import CapacityType
from webhook.capacity.providers.provider import readers_by_resource, sizers_by_resource
from webhook.capacity.providers.sizes import sizes_in, with_size
from webhook.review import MalformedObjectError, decode_object, is_null

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.cluster.protocol import ClusterView
    from webhook.review import Request

LASTS: Final = 30.0
"""Seconds. As long another validating webhook may take (its ``timeoutSeconds``), and then the API server stores the
object at once, or refuses the request. What was refused elsewhere is there again after it."""

_MOST: Final = 1_000
"""Pools remembered. A request for each would have to be allowed within `LASTS`."""

_MAY_BE_SPOT: Final = frozenset({CapacityType.SPOT, CapacityType.UNKNOWN})

_Identity = tuple[str, str, str, str]


class LetGo:
    """What one process has let go, each pool as the worst that may have become of it.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._pools: dict[_Identity, tuple[float, Pool]] = {}

    def note(self, request: Request, view: ClusterView, providers: Mapping[str, Provider]) -> None:
        """Remember what an allowed request, which is no dry run, does to node pools.

        Args:
            request: as it was allowed.
            view: the cluster as it was read for it.
            providers: of the bundle; they say how pools are read.
        """
        try:
            changes = list(_changes(request, view, providers))
        except (MalformedObjectError, OverBoundError):
            return
        for before, after in changes:
            worst = _worst(before, after)
            pool = after or before
            if pool is None:
                continue
            self._pools.pop(pool.identity, None)
            if worst is not None:
                self._pools[pool.identity] = (self._clock() + LASTS, worst)
        while len(self._pools) > _MOST:
            del self._pools[next(iter(self._pools))]

    def applied(self, view: ClusterView) -> ClusterView:
        """Return the view with what was let go; what it shows, and what is long ago, is forgotten."""
        if not self._pools or view.pools is None:
            return view
        pools = {pool.identity: pool for pool in view.pools}
        now = self._clock()
        for identity, (ends, worst) in list(self._pools.items()):
            shown = pools.get(identity)
            if now > ends or _shows(shown, worst):
                del self._pools[identity]
            else:
                pools[identity] = worst
        return replace(view, pools=tuple(pools.values())) if self._pools else view


def _changes(
    request: Request, view: ClusterView, providers: Mapping[str, Provider]
) -> Iterator[tuple[Pool | None, Pool | None]]:
    """Yield each pool before and after the request; None: it is not there."""
    key = (request.resource.group, request.resource.resource)
    readers = readers_by_resource(providers.values()).get(key)
    sizers = sizers_by_resource(providers.values()).get(key)
    if request.sub_resource not in {"", "scale"}:
        return
    new = None if is_null(request.object) else decode_object(request.object)
    replicas = ((new or {}).get("spec") or {}).get("replicas") or 0  # the API server leaves out 0
    if readers is not None:
        identities = {(each.provider, each.kind, request.namespace, request.name) for each in readers.readers}
        before = next((pool for pool in view.pools or () if pool.identity in identities), None)
        if request.sub_resource:
            if before is not None:
                yield before, replace(before, desired=replicas)
            return
        after = None if new is None else readers.read(new)
        if after is not None and before is not None and before.size is not None:
            after = with_size(after, before.size)
        yield before, after
    elif sizers is not None:
        by = (sizers[0].kind, request.namespace, request.name)
        sizes = {each.pool: each for each in sizes_in(new or {}, sizers)}
        for before in view.pools or ():
            if before.size is None or before.size.by != by:
                continue
            size = sizes.get((before.kind, before.namespace, before.name))
            if request.sub_resource:
                yield before, replace(before, desired=replicas)
            else:
                yield before, None if size is None else with_size(before, size)


def _worst(before: Pool | None, after: Pool | None) -> Pool | None:
    """Return what others must reckon with while nobody knows whether it came to that; None: nothing is worse."""
    if after is not None and not after.deleting and after.capacity in _MAY_BE_SPOT:
        return after  # it needs a fallback, and is none
    if before is None or before.capacity in _MAY_BE_SPOT or before.unusable:
        return None
    if after is None or _gives(after) != _gives(before):
        return replace(before, deleting=True)
    return None


def _gives(pool: Pool) -> tuple[object, ...]:
    """Return what others may count on."""
    types = (pool.capacity, pool.gpu, pool.gpu_type, pool.instance_type, pool.machines)
    return (*types, pool.zones, pool.taints, pool.cluster_id, bool(pool.unusable))


def _shows(shown: Pool | None, worst: Pool) -> bool:
    """Does the cluster show what was let go?"""
    if worst.deleting:
        return shown is None or bool(shown.unusable)
    return shown is not None and shown.capacity is worst.capacity and _gives(shown) == _gives(worst)

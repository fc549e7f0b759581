"""Remember node pools that allowed requests remove or change, until the cluster shows the change.

Until then, other requests must not rely on the pools that an allowed request removes. Otherwise, two concurrent
requests could delete the last two fallbacks.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from webhook.base.bounds import OverBoundError
from webhook.capacity.providers.joins import sizes_in, with_size, with_template, with_template_of
from webhook.capacity.providers.pool import CapacityType, Pool
from webhook.capacity.providers.provider import Provider, readers_by_resource, sizers_by_resource
from webhook.model.review import MalformedObjectError, Request, decode_object, is_null

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from webhook.capacity.view import ClusterView

REMEMBERED_SECONDS: Final = 30.0
"""Seconds for which a change is remembered: the longest ``timeoutSeconds`` of another validating webhook.

After that, the API server has stored the object or rejected the request."""

_POOLS_AT_MOST: Final = 1_000
"""The maximum number of remembered pools. Exceeding it takes as many allowed requests within `REMEMBERED_SECONDS`."""

_MAY_BE_SPOT: Final = frozenset({CapacityType.SPOT, CapacityType.UNKNOWN})

_Identity = tuple[str, str, str, str]


class PendingChanges:
    """The pending changes of node pools by allowed requests, each with the worst possible state of the pool."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._pools: dict[_Identity, tuple[float, Pool]] = {}

    def note(self, request: Request, view: ClusterView, providers: Mapping[str, Provider]) -> None:
        """Remember the node pools that an allowed request changes. Don't call this for dry runs."""
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
                self._pools[pool.identity] = (self._clock() + REMEMBERED_SECONDS, worst)
        while len(self._pools) > _POOLS_AT_MOST:
            del self._pools[next(iter(self._pools))]

    def applied(self, view: ClusterView) -> ClusterView:
        """Return the view with the remembered changes. Forget changes that are old or that the view already shows."""
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
    """Yield the state of each changed pool before and after the request. A state is None if the pool doesn't exist."""
    key = (request.resource.group, request.resource.resource)
    readers = readers_by_resource(providers.values()).get(key)
    sizers = sizers_by_resource(providers.values()).get(key)
    if request.sub_resource not in {"", "scale"}:
        return
    new = None if is_null(request.object) else decode_object(request.object)
    replicas = ((new or {}).get("spec") or {}).get("replicas") or 0  # the API server omits 0
    if readers is not None:
        before = readers.known(view.pools, request.namespace, request.name)
        after = None if new is None else with_template_of(readers.read(new), view.templates)
        if readers.any.is_template:
            yield from _through_template(request, view, after)
        elif request.sub_resource and before is not None:
            yield before, replace(before, desired=replicas)
        elif not request.sub_resource:
            yield before, with_size(after, before.size) if after and before and before.size else after
    elif sizers is not None:
        sizes = {size.pool: size for size in sizes_in(new or {}, sizers)}
        for before in view.pools or ():
            if before.size is None or before.size.by != (sizers[0].kind, request.namespace, request.name):
                continue
            if request.sub_resource:
                yield before, replace(before, desired=replicas)
            else:
                size = sizes.get((before.kind, before.namespace, before.name))
                yield before, None if size is None else with_size(before, size)


def _through_template(request: Request, view: ClusterView, template: Pool | None) -> Iterator[tuple[Pool, Pool]]:
    """Yield each pool that uses the template, before and after the request."""
    ref = (request.kind.kind, request.namespace, request.name)
    yield from ((pool, with_template(pool, template)) for pool in view.pools or () if pool.template == ref)


def _worst(before: Pool | None, after: Pool | None) -> Pool | None:
    """Return the state of the pool that is worse for other requests, or None if the change is harmless."""
    if after is not None and not after.deleting and after.capacity in _MAY_BE_SPOT:
        return after  # the pool needs a fallback and can't be one
    if before is None or before.capacity in _MAY_BE_SPOT or before.unusable:
        return None
    if after is None or _gives(after) != _gives(before):
        return replace(before, deleting=True)
    return None


def _gives(pool: Pool) -> tuple[object, ...]:
    """Return the properties that make a pool a fallback for others."""
    types = (pool.capacity, pool.gpu, pool.gpu_type, pool.instance_type, pool.machines)
    return (*types, pool.zones, pool.taints, pool.cluster_id, bool(pool.unusable))


def _shows(shown: Pool | None, worst: Pool) -> bool:
    """Return whether the cluster shows the remembered change of a pool."""
    if worst.deleting:
        return shown is None or bool(shown.unusable)
    return shown is not None and shown.capacity is worst.capacity and _gives(shown) == _gives(worst)

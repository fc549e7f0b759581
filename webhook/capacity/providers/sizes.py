"""Pools whose size stands in another object: Cluster API's ``MachinePool.spec.replicas``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.clusters import cluster_of, same_cluster
from webhook.capacity.providers.pool import Pool, Size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.capacity.providers.query import Query


class Sizer(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of object that sizes pools of one kind in its namespace.

    Attributes:
        pool_kind: kind of the pools.
        pool: name of the pool that an object sizes; no result: it sizes none of that kind.
        desired: how many nodes that should have.
        autoscaling: holds where an autoscaler sets that.
        cluster: the cluster that both belong to; ``this_cluster``: how that of the policies is written.
    """

    group: str
    versions: tuple[str, ...]
    kind: str
    resource: str
    scale: bool
    pool_kind: str
    pool: Query
    desired: Query
    autoscaling: Query | None
    cluster: Query | None
    this_cluster: str

    def read(self, value: Mapping[str, Any]) -> Size | None:
        """The size that an object gives; None: to no pool of this kind. Never raises for what is in it."""
        name, desired = self.pool(value), self.desired(value)
        metadata = value.get("metadata")
        if not isinstance(name, str) or not name or not isinstance(metadata, dict):
            return None
        namespace = str(metadata.get("namespace") or "")
        cluster = self.cluster(value) if self.cluster is not None else None
        return Size(
            by=(self.kind, namespace, str(metadata.get("name") or "")),
            pool=(self.pool_kind, namespace, name),
            desired=desired if isinstance(desired, int) and not isinstance(desired, bool) else None,
            autoscaling=self.autoscaling is not None and bool(self.autoscaling(value)),
            cluster=cluster_of(cluster, namespace, self.this_cluster)[0]
            if isinstance(cluster, str) and cluster
            else "",
            deleting=bool(metadata.get("deletionTimestamp")),
        )


def sizes_in(value: Mapping[str, Any], sizers: Iterable[Sizer]) -> tuple[Size, ...]:
    """The sizes that one object gives."""
    return tuple(size for sizer in sizers if (size := sizer.read(value)) is not None)


def joined(items: Iterable[Pool | tuple[Size, ...]]) -> tuple[Pool, ...]:
    """The pools among these, each with the size that another object among these gives it, and gone with its cluster."""
    pools: list[Pool] = []
    sizes: dict[tuple[str, str, str], Size] = {}
    for item in items:
        if isinstance(item, Pool):
            pools.append(item)
        else:
            sizes |= {size.pool: size for size in item}
    found = ((pool, sizes.get((pool.kind, pool.namespace, pool.name))) for pool in pools)
    sized = tuple(pool if size is None else resized(pool, size) for pool, size in found)
    gone = [pool for pool in sized if pool.is_cluster and pool.deleting]
    return tuple(replace(pool, deleting=True) if _goes_with(pool, gone) else pool for pool in sized)


def _goes_with(pool: Pool, clusters: list[Pool]) -> bool:
    return any(pool.provider == each.provider and same_cluster(pool, each) for each in clusters)


def merged(known: Iterable[Pool], given: Iterable[Pool]) -> tuple[Pool, ...]:
    """Known pools, and those given, which take the place of others with the same identity and keep their size."""
    pools = {pool.identity: pool for pool in known}
    for pool in given:
        before = pools.get(pool.identity)
        size = before.size if before is not None and pool.size is None else None
        pools[pool.identity] = pool if size is None else resized(pool, size)
    return tuple(pools.values())


def resized(pool: Pool, size: Size) -> Pool:
    """The pool with this size."""
    # A maximum of its own bounds what an autoscaler asks for; without one the autoscaler's is not known here.
    unlimited = pool.unlimited or (size.autoscaling and pool.maximum is None)
    return replace(
        pool,
        desired=size.desired,
        autoscaling=pool.autoscaling or size.autoscaling,
        unlimited=unlimited,
        size=size,
        cluster=pool.cluster or size.cluster,
        deleting=pool.deleting or size.deleting,
    )


def unsized(pool: Pool) -> Pool:
    """The pool without the size that another object gives it."""
    if pool.size is None:
        return pool
    # Where both it and that object are for an autoscaler, only the latter is known of here: the safe side.
    return replace(
        pool,
        desired=None,
        autoscaling=pool.autoscaling and not pool.size.autoscaling,
        unlimited=pool.unlimited and not pool.size.autoscaling,
        deleting=pool.deleting and not pool.size.deleting,
        size=None,
    )

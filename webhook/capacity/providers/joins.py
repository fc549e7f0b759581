"""Join pools with the other objects that describe them: sizes, machine templates, and clusters.

Cluster API stores the size of some pools in ``MachinePool.spec.replicas``, and the machines of others in a template.

Config Connector, Azure Service Operator, and others accept two names for a cluster: ``prod`` in namespace ``infra``,
and ``projects/p/locations/l/clusters/prod``. Two different paths are two clusters. A path and a name are one cluster if
the path ends with the name and both pools are in one namespace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from webhook.capacity.providers.pool import CapacityType, MachineFacts, Pool, Size
from webhook.capacity.providers.query import QueryResults
from webhook.capacity.providers.reader_schema import SizedBySpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Sizer(SizedBySpec):
    """The reader of one kind of object that sizes pools of one kind in its namespace.

    Attributes:
        this_cluster: the cluster that the policies are for, in the form of ``cluster``.
    """

    pool_kind: str
    this_cluster: str

    def read(self, value: Mapping[str, Any]) -> Size | None:
        """Return the size that an object sets, or None if it sizes no pool. Never raise because of its contents."""
        results, metadata = QueryResults(value), value.get("metadata")
        name = results.typed(self.pool, str, "not text")
        if not name or not isinstance(metadata, dict):
            return None
        namespace = str(metadata.get("namespace") or "")
        cluster = results.typed(self.cluster, str, "not text")
        return Size(
            by=(self.kind, namespace, str(metadata.get("name") or "")),
            pool=(self.pool_kind, namespace, name),
            desired=results.number(self.desired),
            autoscaling=bool(results.ask(self.autoscaling)),
            cluster=cluster_of(cluster, namespace, self.this_cluster)[0] if cluster else "",
            deleting=bool(metadata.get("deletionTimestamp")),
        )


def sizes_in(value: Mapping[str, Any], sizers: Iterable[Sizer]) -> tuple[Size, ...]:
    """Return the pool sizes that one object sets."""
    return tuple(size for sizer in sizers if (size := sizer.read(value)) is not None)


class Joined(NamedTuple):
    """The node pools of a cluster, joined with the objects that describe them, and the machine templates."""

    pools: tuple[Pool, ...]
    templates: tuple[Pool, ...]


def join(items: Iterable[Pool | tuple[Size, ...]]) -> Joined:
    """Return the pools with the sizes that other objects set and the machines of their templates.

    The pools of a cluster that is being deleted are marked as being deleted.
    """
    pools: list[Pool] = []
    templates: list[Pool] = []
    sizes: dict[tuple[str, str, str], Size] = {}
    for item in items:
        if isinstance(item, Pool):
            (templates if item.is_template else pools).append(item)
        else:
            sizes |= {size.pool: size for size in item}
    by_ref = {(template.kind, template.namespace, template.name): template for template in templates}
    whole = (with_template(pool, by_ref.get(pool.template)) if pool.template is not None else pool for pool in pools)
    sized = tuple(with_size(pool, sizes.get((pool.kind, pool.namespace, pool.name))) for pool in whole)
    clusters_deleting = [pool for pool in sized if pool.is_cluster and pool.deleting]
    marked = (
        replace(pool, deleting=True)
        if any(pool.provider == cluster.provider and same_cluster(pool, cluster) for cluster in clusters_deleting)
        else pool
        for pool in sized
    )
    return Joined(tuple(marked), tuple(templates))


def merge_pools(known: Iterable[Pool], given: Iterable[Pool]) -> tuple[Pool, ...]:
    """Merge the given pools into the known pools by identity. A given pool without a size keeps the known size."""
    pools = {pool.identity: pool for pool in known}
    for pool in given:
        before = pools.get(pool.identity)
        pools[pool.identity] = with_size(pool, before.size) if before is not None and pool.size is None else pool
    return tuple(pools.values())


def with_size(pool: Pool, size: Size | None) -> Pool:
    """Return the pool with this size from another object instead of the previous one. None removes the size."""
    if pool.size is None and size is None:
        return pool
    own, autoscaled = pool.own or pool, size is not None and size.autoscaling
    by_itself = pool.deleting and not (pool.size is not None and pool.size.deleting)
    return replace(
        pool,
        desired=size.desired if size is not None else None,
        autoscaling=own.autoscaling or autoscaled,
        # The pool's own maximum limits the autoscaler. Without it, the autoscaler's maximum is unknown.
        unlimited=own.unlimited or (autoscaled and pool.maximum is None),
        size=size,
        cluster=own.cluster or (size.cluster if size is not None else ""),
        deleting=by_itself or (size is not None and size.deleting),
        own=own,
    )


def with_template(pool: Pool, template: Pool | None) -> Pool:
    """Return the pool with the machines of its template. Without the template, the machines are unknown."""
    own = pool.own or pool
    if template is None:
        kind, _, name = own.template or ("", "", "")
        missing = f"{kind or 'template'} {name or '(without a name)'} is not known"
        problems, unread = (*own.problems, missing), own.unread or missing
        return replace(own, unread=unread, problems=problems, lacks_template=True, own=own)
    return replace(
        own,
        **{fact: getattr(template, fact) for fact in MachineFacts.__struct_fields__},
        labels={**template.labels, **own.labels},
        zones=own.zones or template.zones,
        problems=(*own.problems, *(f"{template}: {problem}" for problem in template.problems)),
        own=own,
        deleting=pool.deleting,
    )


def with_template_of(pool: Pool, templates: Iterable[Pool]) -> Pool:
    """Return the pool with the machines of its template in ``templates``, if it references a template."""
    if pool.template is None:
        return pool
    own = (template for template in templates if (template.kind, template.namespace, template.name) == pool.template)
    return with_template(pool, next(own, None))


def with_used(pool: Pool, pools: Iterable[Pool]) -> Pool:
    """Return the pool with the combined capacity type of its own nodes and of the pools that it uses."""
    if not pool.uses:
        return pool
    local = (other for other in pools if other.provider == pool.provider and not other.elsewhere)
    capacities = {pool.capacity, *(other.capacity for other in local if other.pool_name in pool.uses)}
    for ignored in (CapacityType.UNKNOWN, CapacityType.LIMITED):
        if len(capacities) > 1:
            capacities.discard(ignored)
    return replace(pool, capacity=CapacityType.BOTH if len(capacities) > 1 else capacities.pop())


def cluster_of(written: str, namespace: str, this: str) -> tuple[str, str]:
    """Return the namespaced name and the path of a cluster. Return empty strings for this cluster.

    ``written`` is a cluster, and ``this`` is this cluster. Each is a name, a path of the provider, or a URL.
    """
    path = _path(written) if "/" in written else ""
    short = path.rpartition("/")[2] or written
    name = f"{namespace}/{short}" if namespace else short
    if this and (this in {short, name} or (path and "/" in this and _same_path(path, _path(this)))):
        return "", ""
    return name, path


def same_cluster(pool: Pool, other: Pool) -> bool:
    """Return whether both pools name the same cluster."""
    if pool.cluster_path and other.cluster_path:
        return _same_path(pool.cluster_path, other.cluster_path)
    return pool.cluster == other.cluster


def assume_here(pools: tuple[Pool, ...]) -> tuple[Pool, ...]:
    """Return the pools as pools of this cluster if all of them name the same cluster.

    If files with node pools describe only one cluster, it is the cluster of the objects to evaluate.
    """
    named = [pool for pool in pools if not pool.chosen_by]
    if not named or not all(pool.cluster and pool.provider == named[0].provider for pool in named):
        return pools
    most = max(named, key=lambda pool: bool(pool.cluster_path))
    if not all(same_cluster(most, pool) for pool in named):
        return pools
    return tuple(replace(pool, assumed_here=bool(pool.cluster)) for pool in pools)


def _path(written: str) -> str:
    return "/".join(filter(None, written.casefold().split("/")))


def _same_path(one: str, other: str) -> bool:
    """Return whether two paths name one cluster. One of them may be a URL, which has a longer prefix."""
    return f"/{one}".endswith(f"/{other}") or f"/{other}".endswith(f"/{one}")

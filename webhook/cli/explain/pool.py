"""How a node pool is read: its properties as the provider's reader sees them, and their fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.joins import with_size, with_template_of
from webhook.capacity.providers.pool import Gpu
from webhook.capacity.providers.provider import readers_by_resource
from webhook.cli.terminal import counted
from webhook.review import decode_object, is_null

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.bundle import Bundle
    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.providers.query import Query
    from webhook.capacity.providers.reader import PoolReader
    from webhook.cli.judging.judge import PhaseDecisions
    from webhook.cluster.protocol import ClusterView

_NOT_SAID: Final = "not said"
_GPUS: Final = {Gpu.ANY: "as its Pods ask", Gpu.UNKNOWN: "unknown: as spot it counts as GPU, as on-demand it does not"}


class PoolFact(msgspec.Struct, frozen=True):
    """Hold one property of a pool, and the fields that it comes from, or that are missing."""

    name: str
    value: str
    source: str = ""


class PoolReading(msgspec.Struct, frozen=True):
    """Hold the properties of a node pool, and its reader."""

    reader: str
    facts: tuple[PoolFact, ...]


def read_pool(trace: PhaseDecisions, bundle: Bundle, view: ClusterView) -> PoolReading | None:
    """Read the node pool of a request. Return None if the object is no node pool."""
    request = trace.request
    readers = readers_by_resource(bundle.providers.values())
    raw = request.old_object if is_null(request.object) else request.object
    found = readers.get((request.resource.group, request.resource.resource))
    if found is None or is_null(raw):
        return None
    value = decode_object(raw)
    reader = found.of(value)
    pool = reader.read(value)
    known = next((each for each in view.pools or () if each.identity == pool.identity), None)
    if known is not None:
        pool = replace(pool, assumed_here=known.assumed_here)
        pool = pool if known.size is None else with_size(pool, known.size)
    pool = with_template_of(pool, view.templates)
    which = f"CapacityProvider {reader.provider}: {reader.kind} of {reader.group}"
    return PoolReading(which, tuple(_facts(reader, bundle.providers[reader.provider], pool, value)))


def _facts(reader: PoolReader, provider: Provider, pool: Pool, value: dict[str, Any]) -> Iterator[PoolFact]:
    def source(*queries: Query | None) -> str:
        places = ((query, query.place(value)) for query in queries if query is not None)
        said = (
            f"no {place}" if place == query.field and query.written(value) is None else place for query, place in places
        )
        return "; ".join(dict.fromkeys(said))

    accelerators = reader.accelerators
    machine = reader.requirements if reader.instance_type is None else reader.instance_type
    capacity = f"{reader.capacity.label} in {reader.capacity_query.field}" if reader.capacity.label else ""
    yield PoolFact("capacity", pool.capacity, capacity or source(reader.capacity_query))
    count = f", {pool.gpu_count} in each node" if pool.gpu_count else ""
    gpu = f"{_GPUS.get(pool.gpu, pool.gpu)}{count}{f' ({pool.gpu_type})' if pool.gpu_type else ''}"
    yield PoolFact("GPUs", gpu, source(accelerators.type, accelerators.count, accelerators.when, machine))
    yield PoolFact("instance types", pool.instance_type or _NOT_SAID, source(machine))
    now = _NOT_SAID if pool.desired is None else counted(pool.desired, "node")
    by = f"{pool.size.by[0]} {pool.size.by[2]}" if pool.size is not None else ""
    yield PoolFact("size", now, by or source(reader.size.desired))
    if pool.autoscaling:
        unbounded = "no maximum" if pool.unlimited else _NOT_SAID
        most = unbounded if pool.maximum is None else counted(pool.maximum, "node")
        yield PoolFact("autoscaled to", most, source(reader.size.autoscaling, reader.size.maximum, reader.size.limits))
    else:
        yield PoolFact("autoscaled", "no", source(reader.size.autoscaling))
    yield PoolFact("can have nodes", f"no: {pool.unusable}" if pool.unusable else "yes")
    here = " (taken for this one: the files describe no other, and no Nodes)" if pool.assumed_here else ""
    yield PoolFact("cluster", f"{pool.cluster_id or 'this one'}{here}", source(reader.cluster))
    yield PoolFact("taints", _listed(map(str, pool.taints)), source(reader.taints))
    labels = (f"{key}={text}" for key, text in sorted(pool.labels.items()))
    yield PoolFact("labels of nodes", _listed(labels), source(reader.labels))
    zones = reader.requirements if reader.zones is None else reader.zones
    yield PoolFact("zones", ", ".join(sorted(pool.zones)) or _NOT_SAID, source(zones))
    own = pool.grace_seconds is not None
    seconds = pool.grace_seconds if pool.grace_seconds is not None else provider.grace_period.budget_seconds
    margin = (
        provider.grace_period.safety_margin_seconds
        if pool.safety_margin_seconds is None
        else pool.safety_margin_seconds
    )
    free = f", of which {margin} s are kept free" if margin else ""
    yield PoolFact("time to stop", f"{seconds} s{free}", "the pool's own" if own else f"of every {provider.title} pool")
    for problem in pool.problems:
        yield PoolFact("can't be read", problem)


def _listed(items: Iterable[str]) -> str:
    return ", ".join(items) or "none"

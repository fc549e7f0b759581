"""Build the manifest of an on-demand pool from the field paths in its ``CapacityProvider`` document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.kube.layouts import member

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.query import Query
    from webhook.capacity.providers.reader import PoolReader

_BOOLEANS: Final[Mapping[str, object]] = {"true": True, "false": False}
"""Values of boolean fields, by their text in a document."""


def on_demand_manifest(
    reader: PoolReader,
    *,
    name: str,
    namespace: str,
    instance_type: str,
    maximum: int,
    like: Mapping[str, Any] | None = None,
) -> dict[str, Any] | None:
    """Return the manifest of an on-demand pool. If the pool supports autoscaling, it starts with zero nodes.

    It has the zones, taints, and labels of the pool ``like``, except those that mark spot nodes. Return None if the
    provider's document has no plain path for a required field, or if ``instance_type`` names several types.
    """
    if reader.listed_in is not None:
        return None
    sized: list[tuple[Query | None, object]] = [(reader.size.desired, maximum)]
    if reader.size.autoscaling is not None and reader.size.maximum is not None:
        sized = [(reader.size.autoscaling, True), (reader.size.maximum, maximum), (reader.size.desired, 0)]
    on_demand = _BOOLEANS.get(reader.capacity.on_demand.casefold(), reader.capacity.on_demand)
    queries = (reader.labels, reader.taints, reader.zones) if like is not None else ()
    plain = (query for query in queries if query is not None and query.plain)
    shared = ((query, value) for query in plain if (value := _without_spot(member(like or {}, query.path))))
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    version = f"{reader.group}/{reader.versions[0]}"
    manifest: dict[str, Any] = {"apiVersion": version, "kind": reader.kind, "metadata": metadata}
    for query, value in ((reader.capacity_query, on_demand), (reader.instance_type, instance_type), *sized, *shared):
        if query is None:
            continue
        # A size may have several fields, such as nodes and racks. Write the first one.
        writable = query.plain or query is reader.size.desired
        if value == "" or not writable or reader.capacity.label or ", " in instance_type:
            return None
        *parents, last = query.path
        place = manifest
        for parent in parents:
            if not isinstance(place.get(parent), dict):
                place[parent] = {}  # The path of a flag may be the parent of the maximum, which needs a map.
            place = place[parent]
        place[last] = value
    return manifest


def _without_spot(value: object) -> object:
    """Return labels, taints, or zones without the items that contain "spot", in the key or in the value."""
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if "spot" not in f"{key}={item}".casefold()}
    return [item for item in value if "spot" not in str(item).casefold()] if isinstance(value, list) else value

"""A cluster after changes: each is merged into the object that is there, as a patch, or is a new object."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from webhook.capacity.providers.machines import TYPE_LABEL
from webhook.cli.rehearse.inputs.nodes import check_number, node_of_pool, pool_of_node
from webhook.cli.rehearse.inputs.resources import identity_of
from webhook.cli.rehearse.inputs.snapshot import namespaces_for, rolled_out, sort_objects
from webhook.documents.model import merge_patch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from webhook.bundle import Bundle
    from webhook.capacity.providers.pool import Pool
    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.cli.rehearse.inputs.snapshot import ClusterSnapshot
    from webhook.manifests.objects import Manifest


def with_changes(
    snapshot: ClusterSnapshot,
    changes: Sequence[Manifest],
    bundle: Bundle,
    allocatable: Mapping[str, Mapping[str, str]],
    *,
    size: Callable[[Pool], int],
) -> ClusterSnapshot:
    """Return the cluster after these changes. An object that is there keeps its UID, its status and its owners.

    Args:
        snapshot: the cluster before them.
        changes: manifests, whole or as merge patches.
        bundle: says how node pools are read.
        allocatable: what a node of an instance type offers, where no Node of it is there.
        size: tells how many Nodes a new pool gets.

    Raises:
        CannotJudgeError: it is unknown what a new node offers, or a new Node does not say it.
    """
    stored, applied, state = list(snapshot.stored), list(snapshot.applied), list(snapshot.state)
    new: list[Manifest] = []
    for change in changes:
        there = [_merge_into(objects, change) for objects in (stored, applied, state)]
        if not any(there):
            new.append(change)
    added = sort_objects(new, bundle)
    pools = {(each.kind, each.namespace, each.name): each for each in snapshot.pools}
    for pool in (pool for change in changes for pool in _read_pools(change, state, bundle)):
        identity = (pool.kind, pool.namespace, pool.name)
        if identity not in pools:
            check_number(size(pool), str(pool))
            offered = {**_seen(snapshot, bundle), **allocatable}
            added.stored.extend(node_of_pool(pool, each, bundle.providers, offered) for each in range(size(pool)))
        pools[identity] = pool
    return replace(
        snapshot,
        stored=[*namespaces_for(stored, added.applied), *stored, *added.stored],
        applied=[*applied, *added.applied],
        sources=[*snapshot.sources, *added.sources],
        pools=[*pools.values()],
        state=[*state, *(each.value for each in new), *(each for each in added.stored if each["kind"] == "Node")],
        not_simulated=[*snapshot.not_simulated, *added.notes],
    )


def _merge_into(objects: list[JSON], change: Manifest) -> bool:
    """Merge a change into the object that it is about. Return whether it is there."""
    for number, each in enumerate(objects):
        if _is_same(each, change):
            objects[number] = rolled_out(each, merge_patch(each, change.value))
            return True
    return False


def _is_same(value: JSON, change: Manifest) -> bool:
    kind, namespace, name = identity_of(value)
    if (kind, name) != (change.kind, change.name) or value["apiVersion"].rpartition("/")[0] != change.group:
        return False
    return not namespace or namespace == (change.namespace or "default")


def _read_pools(change: Manifest, state: Sequence[JSON], bundle: Bundle) -> Sequence[Pool]:
    """Return the node pool that a change makes of the object, or is."""
    value = next((each for each in state if _is_same(each, change)), change.value)
    return [
        reader.read(dict(value))
        for reader in bundle.readers
        if (reader.group, reader.kind) == (change.group, change.kind)
    ]


def _seen(snapshot: ClusterSnapshot, bundle: Bundle) -> dict[str, Mapping[str, str]]:
    """Return what the Nodes that are there offer, by instance type."""
    types = {name: pool.instance_type for pool in snapshot.pools for name in (pool.name, pool.pool_name)}
    found = {}
    for node in snapshot.nodes:
        labels = node["metadata"]["labels"]
        pool = pool_of_node(labels, bundle.providers)
        kind = labels.get(TYPE_LABEL) or types.get(pool[0] if pool else "", "")
        if kind:
            found[kind] = node["status"]["allocatable"]
    return found

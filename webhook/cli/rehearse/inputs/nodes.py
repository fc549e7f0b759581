"""The Nodes of a rehearsal: those that are given, and those that node pools without Nodes would have."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from webhook.capacity.providers.machines import TYPE_LABEL, ZONE_LABEL
from webhook.cli.exits import CannotJudgeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.cli.rehearse.inputs.resources import JSON

HOSTNAME: Final = "kubernetes.io/hostname"
_DEFAULTS: Final = {"pods": "110", "ephemeral-storage": "100Gi"}
"""What a node offers where nobody says so: the kubelet's default, and a small disk."""

_MOST_OF_ONE_POOL: Final = 20_000
"""More than any cluster can have, and than a rehearsal ends with."""

_GOOD: Final = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}


def pool_of_node(labels: Mapping[str, str], providers: Mapping[str, Provider]) -> tuple[str, Provider] | None:
    """Return the name of a Node's pool, and its provider. Return None if no label tells."""
    named = [each for each in providers.values() if each.pool_name_label in labels]
    # Karpenter's Nodes have labels of EKS or AKS too: a provider whose pools are objects of the cluster comes first.
    named.sort(key=lambda each: not each.pools_are_here)
    if named:
        return labels[named[0].pool_name_label], named[0]
    spot = next((each for each in providers.values() if each.is_spot_node(labels)), None)
    return ("", spot) if spot is not None else None


def running_node(value: JSON, allocatable: Mapping[str, Any]) -> JSON:
    """Return a Node as the API server has one that runs, with what it offers."""
    metadata, spec, status = (dict(value.get(key) or {}) for key in ("metadata", "spec", "status"))
    metadata.pop("managedFields", None)
    metadata.pop("resourceVersion", None)
    labels = {HOSTNAME: metadata["name"], **(metadata.get("labels") or {})}
    now = "2026-01-01T00:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"uid": str(uuid.uuid4()), "creationTimestamp": now, **metadata, "labels": labels},
        "spec": spec,
        "status": {
            **status,
            "allocatable": {**_DEFAULTS, **allocatable},
            "capacity": {**_DEFAULTS, **allocatable, **(status.get("capacity") or {})},
            "conditions": [{"type": each, "status": good, "lastTransitionTime": now} for each, good in _GOOD.items()],
        },
    }


def nodes_of_pools(
    pools: Iterable[Pool],
    objects: Iterable[JSON],
    providers: Mapping[str, Provider],
    allocatable: Mapping[str, Mapping[str, str]],
) -> Iterator[JSON]:
    """Yield the Nodes of those pools that have none among the objects.

    Raises:
        CannotJudgeError: it is unknown what a node of such a pool offers, or it has more than a rehearsal can take.
    """
    there = {
        found[0]
        for each in objects
        if each["kind"] == "Node" and (found := pool_of_node(each["metadata"]["labels"], providers))
    }
    for pool in pools:
        if there.isdisjoint({pool.name, pool.pool_name}):
            check_number(size_of(pool), str(pool))
            for number in range(size_of(pool)):
                yield node_of_pool(pool, number, providers, allocatable)


def expect_known_types(
    allocatable: Mapping[str, Mapping[str, str]], pools: Iterable[Pool], nodes: Iterable[JSON]
) -> None:
    """Raise CannotJudgeError if what a node offers is said of an instance type or pool that nothing has."""
    known = {each["metadata"]["labels"].get(TYPE_LABEL, "") for each in nodes}
    for pool in pools:
        known |= {pool.name, *pool.instance_type.split(", ")}
    if unknown := sorted(allocatable.keys() - known):
        there = ", ".join(sorted(known - {""})) or "none is known"
        raise CannotJudgeError(
            f"spotgate rehearse: --allocatable {unknown[0]}: nothing here has that type; types and pools: {there}"
        )


def check_number(number: int, whose: str) -> None:
    """Raise CannotJudgeError if these are more nodes of one pool than a rehearsal can take."""
    if number > _MOST_OF_ONE_POOL:
        raise CannotJudgeError(
            f"spotgate rehearse: {whose}: {number} nodes are more than a rehearsal takes; at most {_MOST_OF_ONE_POOL}"
        )


def size_of(pool: Pool) -> int:
    """Return how many nodes a pool says that it has."""
    desired = pool.desired if pool.size is None or pool.size.desired is None else pool.size.desired
    return max(desired or 0, 0)


def node_of_pool(
    pool: Pool, number: int, providers: Mapping[str, Provider], allocatable: Mapping[str, Mapping[str, str]]
) -> JSON:
    """Return a Node that the pool would have. Its zones take turns. Raises CannotJudgeError."""
    provider = providers[pool.provider]
    name = f"{pool.name}-{number}"
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", HOSTNAME: name, **pool.labels}
    if provider.pool_name_label:
        labels.setdefault(provider.pool_name_label, pool.pool_name or pool.name)
    kind = pool.instance_type.partition(", ")[0]
    if kind:
        labels.setdefault(TYPE_LABEL, kind)
    if pool.zones:
        labels.setdefault(ZONE_LABEL, sorted(pool.zones)[number % len(pool.zones)])
    if pool.spot and provider.spot_node_labels:
        labels.setdefault(provider.spot_node_labels[0].key, provider.spot_node_labels[0].value)
    offered = allocatable.get(pool.name) or allocatable.get(kind) or provider.instance_types.allocatable.get(kind)
    if offered is None:
        raise CannotJudgeError(
            f"spotgate rehearse: it is unknown what a node of {pool} offers: pass "
            f"`--allocatable {kind or pool.name}=cpu=8,memory=32Gi`, or the Nodes themselves"
        )
    taints = [{"key": each.key, "value": each.value, "effect": each.effect} for each in pool.taints]
    value = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}
    return running_node(value, offered)

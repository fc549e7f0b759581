"""Build the Nodes of a rehearsal from Node objects, and from node pools without Nodes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from webhook.base.exits import CannotJudgeError
from webhook.base.text import listed
from webhook.capacity.providers.machines import TYPE_LABEL, ZONE_LABEL
from webhook.capacity.providers.nodes import HOSTNAME_LABEL, provider_of
from webhook.kube.quantity import amount_of
from webhook.policy.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.rehearse.inputs.resources import JSON

Offers: TypeAlias = "Mapping[str, Mapping[str, str]]"
"""The allocatable resources of a node, by instance type or pool."""

CREATED: Final = "2026-01-01T00:00:00Z"
"""The creation time of objects that have none; its value has no effect."""

_DEFAULTS: Final = {"pods": "110", "ephemeral-storage": "100Gi"}
"""The default resources of a node: the kubelet's maximum of Pods, and a small disk."""

_MOST_OF_ONE_POOL: Final = 20_000
"""The maximum number of nodes of one pool in a rehearsal; real clusters have fewer."""

_LISTED: Final = 20
"""The maximum number of names that an error lists."""


@dataclass(frozen=True, slots=True)
class RehearsedNode:
    """A Node with the provider and node pool that its labels identify.

    Attributes:
        value: the Node object.
        pool_name: the pool's name in the labels; empty if there is none.
        provider: the provider; None if no label identifies it.
        pool: the pool; None if no object describes it.
        spot: whether the labels or the pool mark the Node as spot.
    """

    value: JSON
    pool_name: str
    provider: Provider | None
    pool: Pool | None
    spot: bool

    @property
    def name(self) -> str:
        """Return the Node's name."""
        return str(self.value["metadata"]["name"])

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the Node's labels."""
        labels: Mapping[str, str] = self.value["metadata"]["labels"]
        return labels

    @property
    def allocatable(self) -> dict[str, float]:
        """Return the allocatable amount of each resource, in whole units or bytes."""
        return {name: float(amount_of(quantity) or 0) for name, quantity in self.value["status"]["allocatable"].items()}

    @property
    def pool_names(self) -> set[str]:
        """Return all names of the Node's pool: its label, object name, and provider name."""
        return {self.pool_name, *((self.pool.name, self.pool.pool_name) if self.pool is not None else ())} - {""}


def read_node(value: JSON, pools: Sequence[Pool], providers: Mapping[str, Provider]) -> RehearsedNode:
    """Return a Node with its provider and pool."""
    labels = value["metadata"]["labels"]
    provider = provider_of(labels, providers.values())
    name = labels.get(provider.pool_name_label, "") if provider is not None else ""
    pool = next((pool for pool in pools if pool.is_named(name)), None)
    spot = any(provider.is_spot_node(labels) for provider in providers.values()) or (pool is not None and pool.spot)
    return RehearsedNode(value, name, provider, pool, spot)


def no_such_node(flag: str, what: str, name: str, names: Sequence[str]) -> CannotJudgeError:
    """Return the error for a name that matches no Node; ``names`` are the existing ones."""
    choice = f"{what}s: {listed(names, _LISTED) or 'none'}"
    return CannotJudgeError(f"spotgate rehearse: {flag}: no Node has this {what}{did_you_mean(name, names)}; {choice}")


def running_node(value: JSON, allocatable: Mapping[str, Any]) -> JSON:
    """Return the Node as the API server stores a ready one, with these allocatable resources."""
    metadata, status = stored_metadata(value["metadata"]), value.get("status") or {}
    metadata["labels"] = {HOSTNAME_LABEL: metadata["name"], **(metadata.get("labels") or {})}
    offered = {**_DEFAULTS, **allocatable}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": dict(value.get("spec") or {}),
        "status": {
            **status,
            "allocatable": offered,
            "capacity": {**offered, **(status.get("capacity") or {})},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED}],
        },
    }


def stored_metadata(metadata: JSON) -> JSON:
    """Return metadata as stored in etcd: with a UID, and without the fields that the API server adds on reads."""
    own = {key: field for key, field in metadata.items() if key not in {"managedFields", "resourceVersion"}}
    return {"uid": str(uuid.uuid4()), "creationTimestamp": CREATED, **own}


def nodes_of_pools(
    pools: Iterable[Pool], existing: Sequence[RehearsedNode], providers: Mapping[str, Provider], allocatable: Offers
) -> list[RehearsedNode]:
    """Return the Nodes of pools without existing Nodes, in the size of each pool. Raise CannotJudgeError."""
    names = {node.pool_name for node in existing} - {""}
    empty = [pool for pool in pools if names.isdisjoint({pool.name, pool.pool_name})]
    offered = {**allocatable_by_type(existing), **allocatable}
    return [
        read_node(node_of_pool(pool, number, providers, offered), empty, providers)
        for pool in empty
        for number in node_numbers(size_of(pool), str(pool))
    ]


def allocatable_by_type(nodes: Iterable[RehearsedNode]) -> dict[str, Mapping[str, str]]:
    """Return the allocatable resources of each instance type."""
    typed = ((node.labels.get(TYPE_LABEL) or (node.pool and node.pool.instance_type), node) for node in nodes)
    return {kind: node.value["status"]["allocatable"] for kind, node in typed if kind}


def size_of(pool: Pool) -> int:
    """Return the desired number of nodes of a pool."""
    desired = pool.desired if pool.size is None or pool.size.desired is None else pool.size.desired
    return max(desired or 0, 0)


def node_numbers(size: int, whose: str) -> range:
    """Return the indexes of this many nodes. Raise CannotJudgeError if there are too many."""
    if size > _MOST_OF_ONE_POOL:
        raise CannotJudgeError(
            f"spotgate rehearse: {whose}: {size} nodes are too many; the maximum is {_MOST_OF_ONE_POOL}"
        )
    return range(size)


def node_of_pool(pool: Pool, number: int, providers: Mapping[str, Provider], allocatable: Offers) -> JSON:
    """Return the pool's Node with this index. Indexes rotate through the zones. Raise CannotJudgeError."""
    provider = providers[pool.provider]
    name = f"{pool.name}-{number}"
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", HOSTNAME_LABEL: name, **pool.labels}
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
            f"spotgate rehearse: the allocatable resources of a node of {pool} are unknown: pass "
            f"`--allocatable {kind or pool.name}=cpu=8,memory=32Gi`, or the Nodes themselves"
        )
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in pool.taints]
    value = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}
    return running_node(value, offered)

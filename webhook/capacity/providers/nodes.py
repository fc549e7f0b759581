"""Group Nodes, to infer pools that aren't visible and to complete declared pools.

The Nodes of a group have the same value of the provider's pool-name label and the same capacity type. A group has the
labels and taints that all its Nodes have in common: any others are specific to a Node, or temporary.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from webhook.capacity.providers.machines import TYPE_LABEL, ZONE_LABEL, classify
from webhook.capacity.providers.pool import NODE_GROUP, CapacityType, Gpu, Pool, Taint
from webhook.capacity.providers.requirements import LabelValues, Requirements
from webhook.kube.containers import is_zero

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from webhook.base.globs import Globs
    from webhook.capacity.providers.provider import Provider

_SHARED: Final = 16_384
"""Cached labels, sets of taints, and kinds of Nodes: thousands of Nodes have the same thirty labels."""

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
_OF_ONE_NODE: Final = frozenset({HOSTNAME_LABEL, ZONE_LABEL})
"""Labels that distinguish Nodes of one pool. `NodeKind` has a field for the zone."""

_REGION_LABEL: Final = "topology.kubernetes.io/region"
"""All Nodes of a cluster have the same region."""

_DOMAINS_OF_ONE_NODE: Final = ("topology.", "failure-domain.", "feature.node.kubernetes.io/")
_NAMES_OF_ONE_NODE: Final = ("/hostname", "/instance-id", "/zone", "/zone-id", "/rack")


class NodeSpec(msgspec.Struct):
    """The part of a Node's spec that spotgate reads."""

    taints: list[Taint] | None = None


class NodeInfo(msgspec.Struct):
    """The part of ``status.nodeInfo`` that spotgate reads."""

    kubeletVersion: str = ""


class NodeStatus(msgspec.Struct):
    """The part of a Node's status that spotgate reads."""

    nodeInfo: NodeInfo = msgspec.field(default_factory=NodeInfo)
    allocatable: dict[str, Any] | None = None


class Node(msgspec.Struct):
    """The part of a Node that spotgate reads, without its metadata."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class NodeKind(msgspec.Struct, frozen=True):
    """The facts about a pool in one of its Nodes. Nodes that are alike share one kind.

    Attributes:
        pool: the value of the pool-name label, or empty.
        spot: whether the Node is spot; None if its provider doesn't label spot Nodes.
        labels: the labels, without those that distinguish Nodes of one pool.
        keys: the keys of all labels.
        taints: the taints, without temporary taints.
        limited: whether the Node ends by itself.
    """

    provider: str
    pool: str
    spot: bool | None
    gpu: Gpu
    zone: str
    labels: tuple[tuple[str, str], ...]
    keys: frozenset[str]
    taints: frozenset[Taint]
    limited: bool = False

    @property
    def group(self) -> tuple[object, ...]:
        """Return the key of the Node's group.

        Nodes without a pool-name label are in one group if they also have the same taints and GPUs.
        """
        key = (self.provider, self.pool, self.spot, self.limited)
        return key if self.pool else (*key, self.taints, self.gpu)


_CAPACITIES: Final = {True: CapacityType.SPOT, False: CapacityType.ON_DEMAND, None: CapacityType.UNKNOWN}
_T = TypeVar("_T")


@lru_cache(_SHARED)
def _shared(value: _T) -> _T:
    """Return the cached value that is equal to this one, so that equal values share memory."""
    return value


def kind_of(labels: Mapping[str, str], node: Node, providers: Iterable[Provider]) -> NodeKind | None:
    """Return the kind of a Node. Return None if the Node belongs to no provider."""
    provider = provider_of(labels, providers)
    if provider is None:
        return None
    kind: NodeKind = _shared(
        NodeKind(
            provider=provider.name,
            pool=labels.get(provider.pool_name_label, ""),
            spot=provider.is_spot_node(labels) if provider.spot_node_labels else None,
            gpu=_gpu(labels, node.status.allocatable, provider),
            zone=labels.get(ZONE_LABEL, ""),
            labels=tuple(
                _shared(item)
                for item in sorted(labels.items())
                if item[0] == provider.pool_name_label or not _varies(item[0], provider.labels_of_one_node)
            ),
            keys=_shared(frozenset(labels)),
            taints=_shared(frozenset(taint for taint in node.spec.taints or () if not provider.is_passing(taint))),
            limited=not provider.is_spot_node(labels)
            and any(labels.get(label.key) == label.value for label in provider.limited.node_labels),
        )
    )
    return kind


def provider_of(labels: Mapping[str, str], providers: Iterable[Provider]) -> Provider | None:
    """Return the provider of a Node's pool.

    Karpenter's Nodes also have labels of EKS or AKS, so a provider whose pools are objects of the cluster comes first.
    """

    def precedence(provider: Provider) -> tuple[bool, ...]:
        named, here = provider.pool_name_label in labels, provider.pools_are_here
        return (named and here, provider.runs_on_clouds, named, here)

    return max(providers_of(labels, providers), key=precedence, default=None)


def providers_of(labels: Mapping[str, str], providers: Iterable[Provider]) -> list[Provider]:
    """Return the providers whose nodes have these labels."""
    return [provider for provider in providers if not labels.keys().isdisjoint(provider.node_keys)]


def _gpu(labels: Mapping[str, str], allocatable: Mapping[str, Any] | None, provider: Provider) -> Gpu:
    by_type = classify(provider.instance_types, labels.get(TYPE_LABEL, ""))
    resources = provider.gpu.resources
    offered = any(resources.match(name) and not is_zero(amount) for name, amount in (allocatable or {}).items())
    # A Node that has just started doesn't report its GPUs yet.
    if by_type is Gpu.YES or offered or any(map(provider.gpu.labels.match, labels)):
        return Gpu.YES
    return Gpu.NO if allocatable else by_type


@lru_cache(4096)
def _varies(key: str, of_one_node: Globs) -> bool:
    """Return whether Nodes of one pool may differ in a label, in general or according to the provider's document."""
    return is_of_one_node(key) or of_one_node.match(key)


@lru_cache(1024)
def is_of_one_node(key: str) -> bool:
    """Return whether a label distinguishes Nodes of one pool, so that new nodes of the pool may have other values."""
    if key == _REGION_LABEL:
        return False
    return key in _OF_ONE_NODE or key.startswith(_DOMAINS_OF_ONE_NODE) or key.endswith(_NAMES_OF_ONE_NODE)


class NodeGroups:
    """Pools that are inferred from Nodes. The time to add or remove a Node is linear in the kinds of its group."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], Counter[NodeKind]] = {}
        self._changed: set[tuple[object, ...]] = set()
        self._read: dict[tuple[object, ...], Pool] = {}
        self._pools: tuple[Pool, ...] = ()

    def count(self, kind: NodeKind, change: int) -> None:
        """Add a Node of this kind if ``change`` is 1, or remove one if it is -1."""
        kinds = self._kinds.setdefault(kind.group, Counter())
        if kinds[kind] in {0, -change}:
            self._changed.add(kind.group)
        kinds[kind] += change
        if not kinds[kind]:
            del kinds[kind]

    def pools(self) -> tuple[Pool, ...]:
        """Return a pool for each group, sorted by provider and name. Return the same tuple until a pool changes."""
        before = dict(self._read)
        for group in self._changed:
            if kinds := self._kinds[group]:
                self._read[group] = _pool_of(kinds)
            else:
                del self._kinds[group]
                self._read.pop(group, None)
        self._changed.clear()
        if self._read != before:
            pools = self._read.values()
            self._pools = tuple(sorted(pools, key=lambda pool: (pool.identity, pool.capacity, *map(str, pool.taints))))
        return self._pools


def _pool_of(kinds: Collection[NodeKind]) -> Pool:
    """Return the pool that is inferred from Nodes of these kinds."""
    first, *others = kinds
    zones = frozenset(kind.zone for kind in kinds if kind.zone)
    gpus = {kind.gpu for kind in kinds}
    return Pool(
        provider=first.provider,
        kind=NODE_GROUP,
        name=first.pool,
        pool_name=first.pool,
        capacity=CapacityType.LIMITED if first.limited else _CAPACITIES[first.spot],
        gpu=next((gpu for gpu in (Gpu.YES, Gpu.UNKNOWN) if gpu in gpus), Gpu.NO),
        autoscaling=True,
        unlimited=True,
        taints=tuple(sorted(first.taints.intersection(*(kind.taints for kind in others)), key=str)),
        requirements=Requirements({ZONE_LABEL: LabelValues(listed=zones, present=True)}) if zones else None,
        labels=dict(sorted(set(first.labels).intersection(*(kind.labels for kind in others)))),
        label_keys=frozenset[str]().union(*(kind.keys for kind in kinds)),
        zones=zones,
    )

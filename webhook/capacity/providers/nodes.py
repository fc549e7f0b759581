"""Read Nodes as groups: they stand for pools that can't be seen, and say what declared pools leave open.

The Nodes with one value of the provider's pool-name label are one group, of the same capacity type. What all of them
have is the group's: a label or taint that only some Nodes have is of those Nodes, or there for a while.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from webhook.capacity.providers.machines import TYPE_LABEL, ZONE_LABEL, classify
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, Taint
from webhook.capacity.providers.requirements import LabelValues, Requirements
from webhook.kube.containers import is_zero

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from webhook.base.globs import Globs
    from webhook.capacity.providers.provider import Provider

KIND: Final = "node group"
"""The kind of a pool that is read from its Nodes."""

_SHARED: Final = 16_384
"""Labels, sets of taints and kinds of Nodes that are held once: thousands of Nodes have the same thirty labels."""

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
_OF_ONE_NODE: Final = frozenset({HOSTNAME_LABEL, ZONE_LABEL})
"""Labels that tell Nodes of one pool apart. `NodeKind` has the zone in a field."""

_REGION_LABEL: Final = "topology.kubernetes.io/region"
"""All Nodes of a cluster have the same one."""

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
    """The facts that a Node tells about its pool. Nodes that are alike share one.

    Attributes:
        pool: the value of its pool-name label, or empty.
        spot: whether it is spot; None if its provider puts no label on spot Nodes.
        labels: its labels, without those that tell Nodes of one pool apart.
        keys: the keys of all its labels.
        taints: its taints, without those that pass.
    """

    provider: str
    pool: str
    spot: bool | None
    gpu: Gpu
    zone: str
    labels: tuple[tuple[str, str], ...]
    keys: frozenset[str]
    taints: frozenset[Taint]

    @property
    def group(self) -> tuple[object, ...]:
        """Return what Nodes of one group have in common.

        Nodes without a pool-name label are one group if they have the same taints and GPUs.
        """
        key = (self.provider, self.pool, self.spot)
        return key if self.pool else (*key, self.taints, self.gpu)


_CAPACITIES: Final = {True: CapacityType.SPOT, False: CapacityType.ON_DEMAND, None: CapacityType.UNKNOWN}
_T = TypeVar("_T")


@lru_cache(_SHARED)
def _shared(value: _T) -> _T:
    """Return the equal value that is held already, if there is one."""
    return value


def kind_of(labels: Mapping[str, str], node: Node, providers: Iterable[Provider]) -> NodeKind | None:
    """Return what a Node tells of its pool. Return None if it is of no provider."""
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
        )
    )
    return kind


def provider_of(labels: Mapping[str, str], providers: Iterable[Provider]) -> Provider | None:
    """Return the provider that made the pool of a Node.

    Karpenter's Nodes have labels of EKS or AKS too: a provider whose pools are objects of the cluster comes first.
    """
    by_pool = [provider for provider in providers if provider.pool_name_label in labels]
    candidates = by_pool or [provider for provider in providers if provider.is_spot_node(labels)]
    return next((provider for provider in candidates if provider.pools_are_here), candidates[0] if candidates else None)


def _gpu(labels: Mapping[str, str], allocatable: Mapping[str, Any] | None, provider: Provider) -> Gpu:
    by_type = classify(provider.instance_types, labels.get(TYPE_LABEL, ""))
    resources = provider.gpu.resources
    offered = any(resources.match(name) and not is_zero(amount) for name, amount in (allocatable or {}).items())
    # A Node that has just begun offers no GPUs yet.
    if by_type is Gpu.YES or offered or any(map(provider.gpu.labels.match, labels)):
        return Gpu.YES
    return Gpu.NO if allocatable else by_type


@lru_cache(4096)
def _varies(key: str, of_one_node: Globs) -> bool:
    """Return whether Nodes of one pool may have different values of a label, also by the provider's document."""
    return is_of_one_node(key) or of_one_node.match(key)


@lru_cache(1024)
def is_of_one_node(key: str) -> bool:
    """Return whether a label tells Nodes of one pool apart, so that other nodes of the pool may have another value."""
    if key == _REGION_LABEL:
        return False
    return key in _OF_ONE_NODE or key.startswith(_DOMAINS_OF_ONE_NODE) or key.endswith(_NAMES_OF_ONE_NODE)


class NodeGroups:
    """Pools that are inferred from Nodes. To add or remove a Node takes time linear in the kinds of its group."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, ...], Counter[NodeKind]] = {}
        self._changed: set[tuple[object, ...]] = set()
        self._read: dict[tuple[object, ...], Pool] = {}
        self._pools: tuple[Pool, ...] = ()

    def add(self, kind: NodeKind) -> None:
        """Count a Node of this kind."""
        kinds = self._kinds.setdefault(kind.group, Counter())
        if not kinds[kind]:
            self._changed.add(kind.group)
        kinds[kind] += 1

    def remove(self, kind: NodeKind) -> None:
        """Count a Node of this kind no more."""
        kinds = self._kinds[kind.group]
        kinds[kind] -= 1
        if not kinds[kind]:
            del kinds[kind]
            self._changed.add(kind.group)

    def pools(self) -> tuple[Pool, ...]:
        """Return a pool for each group, sorted by provider and name; the same tuple while none changes."""
        before = dict(self._read)
        for group in self._changed:
            if kinds := self._kinds[group]:
                self._read[group] = _pool_of(kinds)
            else:
                del self._kinds[group]
                self._read.pop(group, None)
        self._changed.clear()
        if self._read != before:
            self._pools = tuple(sorted(self._read.values(), key=_order))
        return self._pools


def _order(pool: Pool) -> tuple[object, ...]:
    return (pool.identity, pool.capacity, *map(str, pool.taints))


def _pool_of(kinds: Collection[NodeKind]) -> Pool:
    """Return the pool that Nodes of these kinds stand for."""
    first, *others = kinds
    zones = frozenset(kind.zone for kind in kinds if kind.zone)
    gpus = {kind.gpu for kind in kinds}
    return Pool(
        provider=first.provider,
        kind=KIND,
        name=first.pool,
        pool_name=first.pool,
        capacity=_CAPACITIES[first.spot],
        gpu=next((gpu for gpu in (Gpu.YES, Gpu.UNKNOWN) if gpu in gpus), Gpu.NO),
        autoscaling=True,
        unlimited=True,
        taints=tuple(sorted(first.taints.intersection(*(kind.taints for kind in others)), key=str)),
        requirements=Requirements({ZONE_LABEL: LabelValues(listed=zones, present=True)}) if zones else None,
        labels=dict(sorted(set(first.labels).intersection(*(kind.labels for kind in others)))),
        label_keys=frozenset[str]().union(*(kind.keys for kind in kinds)),
        zones=zones,
    )

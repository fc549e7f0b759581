"""Read Nodes as the node pools that they stand for, where a provider's pools can't be seen.

The Nodes with one value of the provider's pool-name label are one group, of the same capacity type. What all of them
have is the group's: a label or taint that only some Nodes have is of those Nodes, or there for a while.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from webhook.capacity.providers.machines import TYPE_LABEL, ZONE_LABEL, classify
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, Taint
from webhook.capacity.providers.requirements import LabelValues, Requirements
from webhook.kube.containers import is_zero

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.capacity.providers.provider import Provider

KIND: Final = "node group"
"""What a pool is called that only its Nodes show."""

_SHARED: Final = 16_384
"""Labels, sets of taints and kinds of Nodes that are held once: thousands of Nodes have the same thirty labels."""

_OF_ONE_NODE: Final = frozenset({"kubernetes.io/hostname", ZONE_LABEL})
"""Labels that tell Nodes of one pool apart. The zone is kept beside the labels."""

_DOMAINS_OF_ONE_NODE: Final = ("topology.", "failure-domain.", "feature.node.kubernetes.io/")
_NAMES_OF_ONE_NODE: Final = ("/hostname", "/instance-id", "/zone", "/zone-id", "/rack")


class NodeSpec(msgspec.Struct):
    """Hold the part of a Node's spec that is read."""

    taints: list[Taint] | None = None


class NodeInfo(msgspec.Struct):
    """Hold the part of ``status.nodeInfo`` that is read."""

    kubeletVersion: str = ""


class NodeStatus(msgspec.Struct):
    """Hold the part of a Node's status that is read."""

    nodeInfo: NodeInfo = msgspec.field(default_factory=NodeInfo)
    allocatable: dict[str, Any] | None = None


class Node(msgspec.Struct):
    """Hold the part of a Node that is read, beside its metadata."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class NodeKind(msgspec.Struct, frozen=True):
    """Describe a Node of a provider as far as it tells of its pool. Nodes that are alike share one.

    Attributes:
        pool: the value of its pool-name label, or empty.
        labels: its labels, without those that tell Nodes of one pool apart.
        taints: its taints, without those that pass.
    """

    provider: str
    pool: str
    spot: bool
    gpu: Gpu
    zone: str
    labels: tuple[tuple[str, str], ...]
    taints: frozenset[Taint]

    @property
    def group(self) -> tuple[object, ...]:
        """Return what Nodes of one group have in common.

        Nodes without a pool-name label are one group if they have the same taints and GPUs.
        """
        key = (self.provider, self.pool, self.spot)
        return key if self.pool else (*key, self.taints, self.gpu)


_T = TypeVar("_T")


@lru_cache(_SHARED)
def _hold(value: object) -> object:
    return value


def _shared(value: _T) -> _T:
    """Return the equal value that is held already, if there is one."""
    return cast("_T", _hold(value))


def kind_of(labels: Mapping[str, str], node: Node, providers: Iterable[Provider]) -> NodeKind | None:
    """Return what a Node tells of its pool. Return None if it is of no provider that labels its spot nodes."""
    provider = provider_of(labels, providers)
    if provider is None or not provider.spot_node_labels:
        return None
    return _shared(
        NodeKind(
            provider=provider.name,
            pool=labels.get(provider.pool_name_label, ""),
            spot=provider.is_spot_node(labels),
            gpu=_gpu(labels, node.status.allocatable, provider),
            zone=labels.get(ZONE_LABEL, ""),
            labels=tuple(
                _shared(item)
                for item in sorted(labels.items())
                if item[0] == provider.pool_name_label or not is_of_one_node(item[0])
            ),
            taints=_shared(frozenset(taint for taint in node.spec.taints or () if not provider.is_passing(taint))),
        )
    )


def provider_of(labels: Mapping[str, str], providers: Iterable[Provider]) -> Provider | None:
    """Return the provider that made the pool of a Node.

    Karpenter's Nodes have labels of EKS or AKS too: a provider whose pools are objects of the cluster comes first.
    """
    found = [each for each in providers if each.pool_name_label in labels] or [
        each for each in providers if each.is_spot_node(labels)
    ]
    return next((each for each in found if each.pools_are_here), found[0] if found else None)


def _gpu(labels: Mapping[str, str], allocatable: Mapping[str, Any] | None, provider: Provider) -> Gpu:
    by_type = classify(provider.instance_types, labels.get(TYPE_LABEL, ""))
    offered = any(
        provider.gpu.resources.match(name) and not is_zero(amount) for name, amount in (allocatable or {}).items()
    )
    # A Node that has just begun offers no GPUs yet.
    if by_type is Gpu.YES or offered or any(map(provider.gpu.labels.match, labels)):
        return Gpu.YES
    return Gpu.NO if allocatable else by_type


@lru_cache(1024)
def is_of_one_node(key: str) -> bool:
    """Return whether a label tells Nodes of one pool apart, so that other nodes of the pool may have another value."""
    return key in _OF_ONE_NODE or key.startswith(_DOMAINS_OF_ONE_NODE) or key.endswith(_NAMES_OF_ONE_NODE)


class NodeGroups:
    """Hold the pools that Nodes stand for. A Node that comes or goes costs the same however many there are."""

    def __init__(self) -> None:
        self._groups: dict[tuple[object, ...], _Group] = {}
        self._changed: set[tuple[object, ...]] = set()
        self._pools: tuple[Pool, ...] = ()

    def add(self, kind: NodeKind) -> None:
        """Count a Node of this kind."""
        group = self._groups.get(kind.group)
        if group is None:
            group = self._groups[kind.group] = _Group(kind)
        group.add(kind)
        self._changed.add(kind.group)

    def remove(self, kind: NodeKind) -> None:
        """Count a Node of this kind no more."""
        self._groups[kind.group].remove(kind)
        self._changed.add(kind.group)

    def pools(self) -> tuple[Pool, ...]:
        """Return a pool for each group, sorted by provider and name; the same tuple while none changes."""
        before = [self._groups[key].pool for key in self._changed]
        after = [self._groups[key].renew() for key in self._changed]
        self._changed.clear()
        if before != after:
            self._groups = {key: group for key, group in self._groups.items() if group.pool is not None}
            pools = (group.pool for group in self._groups.values() if group.pool is not None)
            self._pools = tuple(
                sorted(pools, key=lambda pool: (pool.identity, pool.capacity, sorted(map(str, pool.taints))))
            )
        return self._pools


class _Group:
    """Count the labels, taints, zones and GPUs of the Nodes of one group.

    Attributes:
        pool: the pool that they stood for when they were last looked at, or None.
    """

    __slots__ = ("_first", "_gpus", "_labels", "_nodes", "_taints", "_zones", "pool")

    def __init__(self, first: NodeKind) -> None:
        self.pool: Pool | None = None
        self._first = first
        self._nodes = 0
        self._labels: Counter[tuple[str, str]] = Counter()
        self._taints: Counter[Taint] = Counter()
        self._zones: Counter[str] = Counter()
        self._gpus: Counter[Gpu] = Counter()

    def add(self, kind: NodeKind) -> None:
        """Count a Node."""
        self._nodes += 1
        self._labels.update(kind.labels)
        self._taints.update(kind.taints)
        self._zones.update((kind.zone,) if kind.zone else ())
        self._gpus.update((kind.gpu,))

    def remove(self, kind: NodeKind) -> None:
        """Count a Node no more."""
        self._nodes -= 1
        _subtract(self._labels, kind.labels)
        _subtract(self._taints, kind.taints)
        _subtract(self._zones, (kind.zone,) if kind.zone else ())
        _subtract(self._gpus, (kind.gpu,))

    def renew(self) -> Pool | None:
        """Return the pool that the Nodes stand for now, or None if there are none."""
        self.pool = self._read() if self._nodes else None
        return self.pool

    def _read(self) -> Pool:
        first, zones = self._first, frozenset(self._zones)
        return Pool(
            provider=first.provider,
            kind=KIND,
            name=first.pool,
            pool_name=first.pool,
            capacity=CapacityType.SPOT if first.spot else CapacityType.ON_DEMAND,
            gpu=next((each for each in (Gpu.YES, Gpu.UNKNOWN) if each in self._gpus), Gpu.NO),
            autoscaling=True,
            unlimited=True,
            taints=tuple(sorted(self._of_all(self._taints), key=str)),
            requirements=Requirements({ZONE_LABEL: LabelValues(listed=zones, present=True)}) if zones else None,
            labels=dict(sorted(self._of_all(self._labels))),
            label_keys=frozenset(key for key, _ in self._labels),
            zones=zones,
        )

    def _of_all(self, counted: Counter[_T]) -> Iterator[_T]:
        """Yield what every Node has."""
        return (each for each, times in counted.items() if times == self._nodes)


def _subtract(counter: Counter[_T], values: Iterable[_T]) -> None:
    """Count values no more, and forget those that are gone."""
    for value in values:
        counter[value] -= 1
        if not counter[value]:
            del counter[value]

"""Read Nodes as the node pools that they stand for, where a provider's pools can't be seen.

The Nodes with one value of the provider's pool-name label are one group, of the same capacity type. What all of them
have is the group's: a label or taint that only some Nodes have is of those Nodes, or there for a while.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.capacity.providers.machines import TYPE_LABEL, ZONE_LABEL
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, Taint
from webhook.capacity.providers.requirements import LabelValues, Requirements
from webhook.kube.containers import is_zero

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.capacity.providers.provider import Provider

KIND: Final = "node group"
"""What a pool is called that only its Nodes show."""

_KINDS: Final = 4096
"""Kinds of Nodes that share one `NodeKind`: as many as node groups, zones and instance types make."""

_OF_ONE_NODE: Final = frozenset({"kubernetes.io/hostname", ZONE_LABEL})
"""Labels that tell Nodes of one pool apart. The zone is kept beside the labels."""

_DOMAINS_OF_ONE_NODE: Final = ("topology.", "failure-domain.", "feature.node.kubernetes.io/")
_NAMES_OF_ONE_NODE: Final = ("/hostname", "/instance-id", "/zone", "/zone-id", "/rack")


class NodeSpec(msgspec.Struct):
    """The part of a Node's spec that is read."""

    taints: list[Taint] | None = None


class NodeInfo(msgspec.Struct):
    """The part of ``status.nodeInfo`` that is read."""

    kubeletVersion: str = ""


class NodeStatus(msgspec.Struct):
    """The part of a Node's status that is read."""

    nodeInfo: NodeInfo = msgspec.field(default_factory=NodeInfo)
    allocatable: dict[str, Any] | None = None


class Node(msgspec.Struct):
    """The part of a Node that is read, beside its metadata."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class NodeKind(msgspec.Struct, frozen=True):
    """Describe a Node of a provider as far as it tells of its pool. Nodes that are alike share one.

    Attributes:
        provider: the name of its provider.
        pool: the value of its pool-name label, or empty.
        spot: whether it is spot.
        gpu: whether it has GPUs.
        zone: its zone, or empty.
        labels: its labels, without those that tell Nodes of one pool apart.
        taints: its taints, without those that pass.
    """

    provider: str
    pool: str
    spot: bool
    gpu: Gpu
    zone: str
    labels: frozenset[tuple[str, str]]
    taints: frozenset[Taint]


@lru_cache(_KINDS)
def _shared(kind: NodeKind) -> NodeKind:
    return kind


def kind_of(labels: Mapping[str, str], node: Node, providers: Iterable[Provider]) -> NodeKind | None:
    """Return what a Node tells of its pool. Return None if it is of no provider that labels its spot nodes."""
    provider = _provider_of(labels, providers)
    if provider is None or not provider.spot_labels:
        return None
    return _shared(
        NodeKind(
            provider=provider.name,
            pool=labels.get(provider.pool_label, ""),
            spot=provider.is_spot_node(labels),
            gpu=_gpu(labels, node.status.allocatable, provider),
            zone=labels.get(ZONE_LABEL, ""),
            labels=frozenset(
                item for item in labels.items() if item[0] == provider.pool_label or not _is_of_one_node(item[0])
            ),
            taints=frozenset(taint for taint in node.spec.taints or () if not provider.is_passing(taint)),
        )
    )


def _provider_of(labels: Mapping[str, str], providers: Iterable[Provider]) -> Provider | None:
    """Return the provider that made the pool of a Node.

    Karpenter's Nodes have labels of EKS or AKS too: a provider whose pools are objects of the cluster comes first.
    """
    found = [each for each in providers if each.pool_label in labels] or [
        each for each in providers if each.is_spot_node(labels)
    ]
    return next((each for each in found if each.pools_are_here), found[0] if found else None)


def _gpu(labels: Mapping[str, str], allocatable: Mapping[str, Any] | None, provider: Provider) -> Gpu:
    machines, resources = provider.machines, provider.gpu_resources
    by_type = machines.types.classify(labels.get(TYPE_LABEL, ""))
    offered = any(resources.match(name) and not is_zero(amount) for name, amount in (allocatable or {}).items())
    # A Node that has just begun offers no GPUs yet.
    if by_type is Gpu.YES or offered or any(map(machines.gpu_labels.match, labels)):
        return Gpu.YES
    return Gpu.NO if allocatable else by_type


def _is_of_one_node(key: str) -> bool:
    return key in _OF_ONE_NODE or key.startswith(_DOMAINS_OF_ONE_NODE) or key.endswith(_NAMES_OF_ONE_NODE)


def group_nodes(kinds: Iterable[NodeKind]) -> tuple[Pool, ...]:
    """Return the pools that Nodes of these kinds stand for, sorted by provider and name.

    Nodes without a pool-name label are one group if they have the same taints, GPUs, architecture and system.
    """
    groups: dict[tuple[object, ...], list[NodeKind]] = {}
    for kind in kinds:
        key: tuple[object, ...] = (kind.provider, kind.pool, kind.spot)
        groups.setdefault(key if kind.pool else (*key, kind.taints, kind.gpu), []).append(kind)
    found = [_group(kinds) for kinds in groups.values()]
    return tuple(sorted(found, key=lambda pool: (pool.identity, pool.capacity, sorted(map(str, pool.taints)))))


def _group(kinds: list[NodeKind]) -> Pool:
    first = kinds[0]
    zones = frozenset(each.zone for each in kinds if each.zone)
    gpus = {each.gpu for each in kinds}
    return Pool(
        provider=first.provider,
        kind=KIND,
        name=first.pool,
        pool_name=first.pool,
        capacity=CapacityType.SPOT if first.spot else CapacityType.ON_DEMAND,
        gpu=next((each for each in (Gpu.YES, Gpu.UNKNOWN) if each in gpus), Gpu.NO),
        autoscaling=True,
        unlimited=True,
        taints=tuple(sorted(frozenset.intersection(*(each.taints for each in kinds)), key=str)),
        requirements=Requirements({ZONE_LABEL: LabelValues(listed=zones, present=True)}) if zones else None,
        labels=dict(sorted(frozenset.intersection(*(each.labels for each in kinds)))),
        zones=zones,
    )

"""Build the view of a cluster from its objects, which come from files or an API server.

`webhook.capacity.providers.reader.PoolReader` reads node pools.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.nodes import HOSTNAME_LABEL, Node, NodeGroups, NodeKind, kind_of, providers_of
from webhook.kube.resources import NAMESPACE_NAME_LABEL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView

NamespacedObject = TypeVar("NamespacedObject")

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")


class NodeFacts(msgspec.Struct, frozen=True):
    """The facts about a Node and its cluster.

    Attributes:
        providers: the names of the providers whose nodes have these labels.
        kind: the facts about the node's pool; None if no provider that labels spot nodes matches.
        kubelet: the (major, minor) version of the kubelet; None if unknown.
        names: the name of the Node, and its hostname label if it differs.
    """

    providers: frozenset[str]
    kind: NodeKind | None
    kubelet: tuple[int, int] | None
    names: tuple[str, ...] = ()


class NodeTally:
    """The sum of the facts of all Nodes. The cost of adding a Node depends only on the kinds of Nodes in its pool."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[frozenset[str], tuple[int, int] | None]] = Counter()
        self._groups = NodeGroups()
        self._by_name: dict[str, NodeKind] = {}

    def replace(self, before: NodeFacts | None, after: NodeFacts | None) -> None:
        """Update the sum for a Node that was added (``before`` is None), changed, or deleted (``after`` is None)."""
        for node, change in ((before, -1), (after, 1)):
            if node is not None:
                self._counts[node.providers, node.kubelet] += change
                if node.kind is not None:
                    self._groups.count(node.kind, change)
        for name in before.names if before is not None else ():
            self._by_name.pop(name, None)
        if after is not None and after.kind is not None:
            self._by_name |= dict.fromkeys(after.names, after.kind)

    def added_to(self, view: ClusterView) -> ClusterView:
        """Return the view with the Nodes, and with the providers of Nodes and of pools in this cluster."""
        self._counts = +self._counts
        groups = self._groups.pools()
        shown = frozenset(pool.provider for pool in view.pools or () if not pool.elsewhere)
        return replace(
            view,
            node_groups=groups,
            providers=shown.union(*(providers for providers, _ in self._counts)),
            spot_providers=frozenset(pool.provider for pool in groups if pool.spot),
            nodes=dict(self._by_name),  # a copy, because views don't change
            oldest_kubelet=min((kubelet for _, kubelet in self._counts if kubelet is not None), default=None),
        )


def namespace_labels(name: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return a Namespace's labels, with the label that the API server adds to each Namespace."""
    return {**labels, NAMESPACE_NAME_LABEL: name}


def node_facts(labels: Mapping[str, str], node: Node, providers: Collection[Provider], name: str = "") -> NodeFacts:
    """Return the facts of a Node with these labels."""
    shown = frozenset(provider.name for provider in providers_of(labels, providers))
    names = tuple(dict.fromkeys(filter(None, (name, labels.get(HOSTNAME_LABEL)))))
    return NodeFacts(shown, kind_of(labels, node, providers), version_of(node.status.nodeInfo.kubeletVersion), names)


def with_nodes(view: ClusterView, nodes: Iterable[NodeFacts]) -> ClusterView:
    """Return the view with these Nodes."""
    tally = NodeTally()
    for node in nodes:
        tally.replace(None, node)
    return tally.added_to(view)


@lru_cache(1024)
def version_of(text: str) -> tuple[int, int] | None:
    """Return (major, minor) of a Kubernetes version, such as ``v1.31.4-gke.100``, or None if it is malformed."""
    match = _VERSION.match(text)
    return (int(match[1]), int(match[2])) if match else None


def labels_by_namespace(namespaces: Mapping[tuple[str, str], Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """Return the labels of Namespaces by name."""
    return {name: labels for (_, name), labels in namespaces.items()}


def by_namespace(objects: Mapping[tuple[str, str], NamespacedObject]) -> dict[str, tuple[NamespacedObject, ...]]:
    """Group objects by namespace, sorted by name."""
    grouped: dict[str, list[NamespacedObject]] = {}
    for (namespace, _), item in sorted(objects.items(), key=itemgetter(0)):
        grouped.setdefault(namespace, []).append(item)
    return {namespace: tuple(items) for namespace, items in grouped.items()}

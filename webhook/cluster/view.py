"""Build the view of a cluster from its objects, the same whether they come from files or an API server.

Node pools are read by `webhook.capacity.providers.reader.PoolReader`.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from webhook.capacity.providers.nodes import HOSTNAME_LABEL, NodeGroups, kind_of
from webhook.capacity.view import ClusterView
from webhook.kube.resources import NAMESPACE_NAME_LABEL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from webhook.capacity.providers.nodes import Node, NodeKind
    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.kube.disruption import DisruptionBudget

NamespacedObject = TypeVar("NamespacedObject")

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")


class NodeFacts(msgspec.Struct, frozen=True):
    """The facts that a Node tells about its cluster.

    Attributes:
        providers: names of the providers whose nodes have such labels.
        kind: what it says of its pool; None: it is of no provider, or of one that does not label spot nodes.
        kubelet: (major, minor); None: it does not say.
        names: its name, and its hostname label if that is another.
    """

    providers: frozenset[str]
    kind: NodeKind | None
    kubelet: tuple[int, int] | None
    names: tuple[str, ...] = ()


class NodeSummary(msgspec.Struct, frozen=True):
    """The facts that all Nodes tell about their cluster.

    Attributes:
        providers: names of the providers that any Node shows.
        spot_providers: names of the providers of spot Nodes.
        oldest_kubelet: (major, minor); None: no Node says its own.
        groups: the node pools that they stand for.
        by_name: the facts of each Node about its pool, by the Node's names.
    """

    providers: frozenset[str] = frozenset()
    spot_providers: frozenset[str] = frozenset()
    oldest_kubelet: tuple[int, int] | None = None
    groups: tuple[Pool, ...] = ()
    by_name: Mapping[str, NodeKind] = msgspec.field(default_factory=dict)


class NodeTally:
    """The sum of the facts of all Nodes. Adding a Node costs as much as its pool has kinds of Nodes."""

    def __init__(self) -> None:
        self._providers: Counter[frozenset[str]] = Counter()
        self._kubelets: Counter[tuple[int, int] | None] = Counter()
        self._groups = NodeGroups()
        self._by_name: dict[str, NodeKind] = {}
        self._shown: dict[str, NodeKind] | None = None

    def replace(self, before: NodeFacts | None, after: NodeFacts | None) -> None:
        """Count a Node that was added (before is None), changed, or deleted (after is None)."""
        if before is not None:
            self._providers[before.providers] -= 1
            self._kubelets[before.kubelet] -= 1
            if before.kind is not None:
                self._groups.remove(before.kind)
        self._rename(before, after)
        if after is not None:
            self._providers[after.providers] += 1
            self._kubelets[after.kubelet] += 1
            if after.kind is not None:
                self._groups.add(after.kind)

    def _rename(self, before: NodeFacts | None, after: NodeFacts | None) -> None:
        """Look up a Node by its names, where these or its pool changed."""
        if before is not None and after is not None and (before.names, before.kind) == (after.names, after.kind):
            return
        self._shown = None
        for name in before.names if before is not None else ():
            self._by_name.pop(name, None)
        if after is not None and after.kind is not None:
            self._by_name |= dict.fromkeys(after.names, after.kind)

    def summary(self) -> NodeSummary:
        """Return the facts of all Nodes."""
        if self._shown is None:  # A copy, as views don't change.
            self._shown = dict(self._by_name)
        self._providers, self._kubelets = +self._providers, +self._kubelets
        groups = self._groups.pools()
        return NodeSummary(
            providers=frozenset().union(*self._providers),
            spot_providers=frozenset(pool.provider for pool in groups if pool.spot),
            oldest_kubelet=min((kubelet for kubelet in self._kubelets if kubelet is not None), default=None),
            groups=groups,
            by_name=self._shown,
        )


def namespace_labels(name: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return a Namespace's labels, with the one that the API server adds to each."""
    return {**labels, NAMESPACE_NAME_LABEL: name}


def node_facts(labels: Mapping[str, str], node: Node, providers: Collection[Provider], name: str = "") -> NodeFacts:
    """Return the facts of a Node with these labels."""
    shown = frozenset(
        provider.name for provider in providers if provider.pool_name_label in labels or provider.is_spot_node(labels)
    )
    names = tuple(dict.fromkeys(filter(None, (name, labels.get(HOSTNAME_LABEL)))))
    return NodeFacts(shown, kind_of(labels, node, providers), version_of(node.status.nodeInfo.kubeletVersion), names)


def node_summary(nodes: Iterable[NodeFacts]) -> NodeSummary:
    """Return the facts of all Nodes."""
    tally = NodeTally()
    for node in nodes:
        tally.replace(None, node)
    return tally.summary()


@lru_cache(1024)
def version_of(text: str) -> tuple[int, int] | None:
    """Return (major, minor) of a version as Kubernetes writes it, such as ``v1.31.4-gke.100``."""
    match = _VERSION.match(text)
    return (int(match[1]), int(match[2])) if match else None


def cluster_view(
    *,
    pools: tuple[Pool, ...] | None,
    templates: tuple[Pool, ...] = (),
    namespaces: Mapping[str, Mapping[str, str]],
    nodes: NodeSummary,
    api_server: tuple[int, int] | None = None,
    why_unknown: str,
    remedy: str,
    budgets: Mapping[str, tuple[DisruptionBudget, ...]] | None = None,
) -> ClusterView:
    """Return the `ClusterView` of these parts."""
    return ClusterView(
        pools=pools,
        templates=templates,
        node_groups=nodes.groups,
        why_unknown=why_unknown,
        remedy=remedy,
        namespaces=namespaces,
        providers=nodes.providers.union(pool.provider for pool in pools or () if not pool.elsewhere),
        spot_providers=nodes.spot_providers,
        nodes=nodes.by_name,
        api_server=api_server,
        oldest_kubelet=nodes.oldest_kubelet,
        budgets=budgets,
    )


def labels_by_namespace(namespaces: Mapping[tuple[str, str], Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """Return the labels of Namespaces, which are given by the key of each object, by name."""
    return {name: labels for (_, name), labels in namespaces.items()}


def by_namespace(objects: Mapping[tuple[str, str], NamespacedObject]) -> dict[str, tuple[NamespacedObject, ...]]:
    """Return the objects of each namespace, sorted by name. They are given by namespace and name."""
    grouped: dict[str, list[NamespacedObject]] = {}
    for (namespace, _), item in sorted(objects.items(), key=itemgetter(0)):
        grouped.setdefault(namespace, []).append(item)
    return {namespace: tuple(items) for namespace, items in grouped.items()}

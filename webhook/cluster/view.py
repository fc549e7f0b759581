"""Build the view of a cluster from its objects, the same whether they come from files or an API server.

A node pool's part is done by its `webhook.capacity.providers.reader.PoolReader`.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.cluster.protocol import ClusterView
from webhook.kube.resources import NAMESPACE_NAME_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.kube.disruption import DisruptionBudget

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")


class NodeFacts(msgspec.Struct, frozen=True):
    """The facts that a Node tells about its cluster.

    Attributes:
        providers: names of those whose nodes have such labels.
        spot_providers: names of those whose spot nodes have such labels.
        kubelet: (major, minor); None: it does not say.
    """

    providers: frozenset[str]
    spot_providers: frozenset[str]
    kubelet: tuple[int, int] | None


def namespace_labels(name: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return a Namespace's labels, with the one that the API server adds to each."""
    return {**labels, NAMESPACE_NAME_LABEL: name}


def node_facts(labels: Mapping[str, str], kubelet_version: str, providers: Iterable[Provider]) -> NodeFacts:
    """Return the facts of a Node with these labels and this ``status.nodeInfo.kubeletVersion``."""
    known = list(providers)
    spot = frozenset(provider.name for provider in known if _is_spot(provider, labels))
    pooled = frozenset(provider.name for provider in known if provider.pool_label in labels)
    return NodeFacts(spot | pooled, spot, version_of(kubelet_version))


def version_of(text: str) -> tuple[int, int] | None:
    """Return (major, minor) of a version as Kubernetes writes it, such as ``v1.31.4-gke.100``."""
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2])) if found else None


def cluster_view(
    *,
    pools: tuple[Pool, ...] | None,
    namespaces: Mapping[str, Mapping[str, str]],
    nodes: Iterable[NodeFacts],
    api_server: tuple[int, int] | None = None,
    why_unknown: str,
    remedy: str,
    budgets: Mapping[tuple[str, str], DisruptionBudget] | None = None,
) -> ClusterView:
    """Return the `ClusterView` of these parts. Disruption budgets are given by namespace and name."""
    kubelets: set[tuple[int, int]] = set()
    shown = {pool.provider for pool in pools or () if not pool.cluster}
    spot: set[str] = set()
    for node in nodes:
        shown |= node.providers
        spot |= node.spot_providers
        if node.kubelet is not None:
            kubelets.add(node.kubelet)
    return ClusterView(
        pools=pools,
        why_unknown=why_unknown,
        remedy=remedy,
        namespaces=namespaces,
        providers=frozenset(shown),
        spot_providers=frozenset(spot),
        api_server=api_server,
        oldest_kubelet=min(kubelets, default=None),
        budgets=None if budgets is None else _by_namespace(budgets),
    )


def _by_namespace(budgets: Mapping[tuple[str, str], DisruptionBudget]) -> dict[str, tuple[DisruptionBudget, ...]]:
    found: dict[str, list[DisruptionBudget]] = {}
    for (namespace, _), budget in sorted(budgets.items(), key=itemgetter(0)):
        found.setdefault(namespace, []).append(budget)
    return {namespace: tuple(each) for namespace, each in found.items()}


def _is_spot(provider: Provider, labels: Mapping[str, str]) -> bool:
    return any(labels.get(each.key) == each.value for each in provider.spot_labels)

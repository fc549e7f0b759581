"""Define the view of a cluster that rules read. It distinguishes unknown state from empty state.

``None`` always means *unknown*. An empty tuple of pools means that the cluster has no pools.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - as the next
from typing import Protocol

import msgspec

from webhook.capacity.providers.nodes import NodeKind  # noqa: TC001 - msgspec reads the annotations
from webhook.capacity.providers.pool import Pool  # noqa: TC001 - msgspec reads the annotations of recorded views
from webhook.kube.disruption import DisruptionBudget  # noqa: TC001 - as above
from webhook.kube.references import Reference  # noqa: TC001 - as above
from webhook.kube.workload import Autoscaler  # noqa: TC001 - as above


class UnusableCredentialsError(Exception):
    """A cluster address or credentials that can't be read. ``str()`` is the reason."""


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable view of a cluster at one moment.

    Attributes:
        pools: all node pools that the providers' readers can read; None if unknown.
        templates: the machine templates that pools can reference, each read as a partial pool.
        node_groups: the node pools that are inferred from Nodes.
        why_unknown: why the pools are unknown, as a sentence ("the API server did not answer within 1.0 s").
        remedy: how to make them known, as an instruction ("pass --state with the node pools' manifests").
        namespaces: the labels of each namespace by name; a namespace without an entry is unknown.
        providers: the names of the providers in use, according to pools or labels of Nodes.
        spot_providers: the names of the providers that have spot Nodes.
        nodes: the kind of each Node, by the Node's name and by its hostname label.
        api_server: the (major, minor) version of the API server; None if unknown.
        oldest_kubelet: the (major, minor) version of the oldest kubelet; None if no Node is known.
        budgets: the PodDisruptionBudgets by namespace, without namespaces that have none; None if unknown.
        autoscalers: the autoscalers by namespace, from files only: a live cluster's autoscalers are not read.
        floor_controller: whether `spotgate controller` runs, so that Pods can wait for it; None if unknown.
        references: the objects that Pods name, by `webhook.kube.references.key_of`; others are unknown. In a live
            cluster, these are always the latest ones.
        ordinal_starts: the first ordinal of each StatefulSet that was read for a request, by ``namespace/name``.
    """

    pools: tuple[Pool, ...] | None = None
    templates: tuple[Pool, ...] = ()
    node_groups: tuple[Pool, ...] = ()
    why_unknown: str = "The webhook was started without access to a cluster."
    remedy: str = "ask the administrator of spotgate to start it with --in-cluster, --kubeconfig, or --state"
    namespaces: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    providers: frozenset[str] = frozenset()
    spot_providers: frozenset[str] = frozenset()
    nodes: Mapping[str, NodeKind] = msgspec.field(default_factory=dict)
    api_server: tuple[int, int] | None = None
    oldest_kubelet: tuple[int, int] | None = None
    budgets: Mapping[str, tuple[DisruptionBudget, ...]] | None = None
    autoscalers: Mapping[str, tuple[Autoscaler, ...]] = msgspec.field(default_factory=dict)
    floor_controller: bool | None = None
    references: Mapping[str, Reference] = msgspec.field(default_factory=dict)
    ordinal_starts: Mapping[str, int] = msgspec.field(default_factory=dict)


class ClusterState(Protocol):
    """A source of views: a live cluster or files. It belongs to one bundle, whose providers read the pools."""

    def view(self) -> ClusterView:
        """Return the latest view without waiting."""

    async def fresh(self) -> ClusterView:
        """Return a view with freshly read pools. Pools that can't be read are unknown. Never raise."""


class FixedState:
    """A cluster state that doesn't change: the state from files, or an unknown state."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def view(self) -> ClusterView:
        """Return the view."""
        return self._view

    async def fresh(self) -> ClusterView:
        """Return the same view."""
        return self._view


def spot_nodes(view: ClusterView) -> dict[str, tuple[str, Pool | None]]:
    """Return the provider and the node pool of each spot Node: a Node with a spot label or in a spot pool.

    The pool is None if it isn't declared.
    """
    listed = (*view.node_groups, *(view.pools or ()))
    pools = {(pool.provider, pool.pool_name): pool for pool in listed if not pool.elsewhere and pool.pool_name}
    nodes = ((name, kind, pools.get((kind.provider, kind.pool))) for name, kind in view.nodes.items())
    return {name: (kind.provider, pool) for name, kind, pool in nodes if kind.spot or (pool is not None and pool.spot)}

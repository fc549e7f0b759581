"""Define what the rules may know of a cluster. Known, empty and unknown are three different things.

``None`` always means *unknown* here. An empty tuple of pools means that the cluster was looked at and has none.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - as the next
from operator import or_
from typing import Protocol

import msgspec

from webhook.capacity.providers.nodes import NodeKind  # noqa: TC001 - msgspec reads the annotations
from webhook.capacity.providers.pool import Pool  # noqa: TC001 - msgspec reads the annotations of recorded views
from webhook.kube.autoscalers import Autoscaler  # noqa: TC001 - as above
from webhook.kube.disruption import DisruptionBudget  # noqa: TC001 - as above


class UnusableCredentialsError(Exception):
    """The error for an unreadable address or credentials of a cluster. ``str()`` says why."""


class Needs(msgspec.Struct, frozen=True):
    """The parts of the cluster's state that a policy needs to judge a request.

    Attributes:
        namespaces: labels of the request's namespace.
        fresh: the pools as they are now in the API server, not as a cache last saw them.
        budgets: the PodDisruptionBudgets of the request's namespace.
    """

    namespaces: bool = False
    pools: bool = False
    fresh: bool = False
    budgets: bool = False

    def __or__(self, other: Needs) -> Needs:
        return Needs(*map(or_, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable view of a cluster at one moment.

    Attributes:
        pools: every node pool that any reader reads; None: unknown.
        templates: the templates of machines of which pools are made, as far as they describe a pool.
        node_groups: the node pools that its Nodes stand for, where those of their provider can't be seen.
        why_unknown: why, when pools are unknown, as a sentence ("the API server did not answer within 1.0 s").
        remedy: what makes them known, as an instruction ("pass --state with the node pools' manifests").
        namespaces: labels of each namespace by its name; a name that is not there is an unknown namespace.
        providers: names of the providers that the cluster shows, by their pools or by labels of its Nodes.
        spot_providers: names of those of which there are spot Nodes.
        nodes: what each Node tells of its pool, by the Node's name and by its hostname label.
        api_server: (major, minor) of its API server; None: not known.
        oldest_kubelet: (major, minor) of the oldest kubelet among its Nodes; None: no Node is known.
        budgets: the PodDisruptionBudgets by namespace, where there is any; None: unknown.
        autoscalers: the autoscalers by namespace, as far as files show them: those of a live cluster are not read.
        floor_controller: `spotgate controller` runs: Pods may wait for it.
        ordinal_starts: the first ordinal of the StatefulSets that were read for a request, by ``namespace/name``.
    """

    pools: tuple[Pool, ...] | None = None
    templates: tuple[Pool, ...] = ()
    node_groups: tuple[Pool, ...] = ()
    why_unknown: str = "The webhook was not told of the cluster."
    remedy: str = "ask who runs spotgate to start it with --in-cluster, --kubeconfig or --state"
    namespaces: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    providers: frozenset[str] = frozenset()
    spot_providers: frozenset[str] = frozenset()
    nodes: Mapping[str, NodeKind] = msgspec.field(default_factory=dict)
    api_server: tuple[int, int] | None = None
    oldest_kubelet: tuple[int, int] | None = None
    budgets: Mapping[str, tuple[DisruptionBudget, ...]] | None = None
    autoscalers: Mapping[str, tuple[Autoscaler, ...]] = msgspec.field(default_factory=dict)
    floor_controller: bool = False
    ordinal_starts: Mapping[str, int] = msgspec.field(default_factory=dict)


class ClusterState(Protocol):
    """The state of a live cluster, or of files. Each is built for one bundle, whose providers read the pools."""

    def view(self) -> ClusterView:
        """Return the newest view without waiting."""

    async def fresh(self) -> ClusterView:
        """Return the view with freshly read pools. Pools that can't be read are unknown in it. Raise nothing."""


class FixedState:
    """The state of a cluster that does not change: of files, or of a cluster of which nothing is known."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def view(self) -> ClusterView:
        """Return the view."""
        return self._view

    async def fresh(self) -> ClusterView:
        """Return the same view."""
        return self._view

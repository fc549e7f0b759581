"""What the rules may know of a cluster: known, empty and unknown are three different things.

``None`` always means *unknown* here. An empty tuple of pools means that the cluster was looked at and has none.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - as the next
from typing import Protocol

import msgspec

from webhook.capacity.providers.pool import Pool  # noqa: TC001 - msgspec reads the annotations of recorded views
from webhook.kube.disruption import DisruptionBudget  # noqa: TC001 - as above


class UnusableCredentialsError(Exception):
    """There is no saying where a cluster is, or how to authenticate to it. ``str()`` says why."""


class Needs(msgspec.Struct, frozen=True):
    """What of the cluster a policy must know to judge a request.

    Attributes:
        namespaces: labels of the request's namespace.
        pools: the node pools.
        fresh: the pools as they are now in the API server, not as a cache last saw them.
        budgets: the PodDisruptionBudgets of the request's namespace.
    """

    namespaces: bool = False
    pools: bool = False
    fresh: bool = False
    budgets: bool = False

    def __or__(self, other: Needs) -> Needs:
        return Needs(
            self.namespaces or other.namespaces,
            self.pools or other.pools,
            self.fresh or other.fresh,
            self.budgets or other.budgets,
        )


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable look at a cluster.

    Attributes:
        pools: every node pool that any reader reads; None: unknown.
        why_unknown: why, when pools are unknown, as a sentence ("the API server did not answer within 1.0 s").
        remedy: what makes them known, as an instruction ("pass --state with the node pools' manifests").
        namespaces: labels of each namespace by its name; a name that is not there is an unknown namespace.
        providers: names of the providers that the cluster shows, by their pools or by labels of its Nodes.
        spot_providers: names of those whose spot label a Node has.
        api_server: (major, minor) of its API server; None: not known.
        oldest_kubelet: (major, minor) of the oldest kubelet among its Nodes; None: no Node is known.
        budgets: the PodDisruptionBudgets by namespace, where there is any; None: unknown.
    """

    pools: tuple[Pool, ...] | None = None
    why_unknown: str = "The webhook was not told of the cluster."
    remedy: str = "ask who runs spotgate to start it with --in-cluster, --kubeconfig or --state"
    namespaces: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    providers: frozenset[str] = frozenset()
    spot_providers: frozenset[str] = frozenset()
    api_server: tuple[int, int] | None = None
    oldest_kubelet: tuple[int, int] | None = None
    budgets: Mapping[str, tuple[DisruptionBudget, ...]] | None = None


class ClusterState(Protocol):
    """A cluster, or what stands for one. Built for one bundle, whose providers say how pools are read."""

    def view(self) -> ClusterView:
        """The newest view at hand; never waits."""

    async def fresh(self) -> ClusterView:
        """The view with the pools read now. What could not be read is unknown in it; it never raises."""

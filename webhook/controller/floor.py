"""Keep on-demand floors: watch Pods, Nodes, and node pools, and assign gated Pods while this process leads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from webhook.capacity.placement.floor import FLOOR_LEASE, on_demand_only
from webhook.capacity.placement.supply import in_play, supply_of
from webhook.cluster.live import LiveState
from webhook.controller.election import Candidate
from webhook.controller.leader import Leader
from webhook.controller.ledger import Ledger
from webhook.controller.pods import ALL_PODS, NODE_LABELS
from webhook.kube.affinity import holds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry

    from webhook.capacity.view import ClusterView
    from webhook.cluster.api import Api
    from webhook.cluster.source import ObjectKey
    from webhook.engine.bundle import Bundle
    from webhook.kube.pod import Requirement


class Cluster:
    """The controller's knowledge of the cluster. ``nodes`` has the labels of each Node."""

    def __init__(self, api: Api, bundle: Bundle, nodes: Mapping[ObjectKey, Mapping[str, str]]) -> None:
        self._bundle = bundle
        self._seen: ClusterView | None = None
        self._on_demand: tuple[Requirement, ...] = ()
        self._nodes = nodes
        self.state = LiveState(api, bundle.providers)

    def is_on_demand(self, name: str) -> bool:
        """Return whether the Node is known to be on demand: an on-demand Pod can be scheduled there."""
        labels, view = self._nodes.get(("", name)), self.state.view()
        if labels is None or view.pools is None:
            return False
        if view is not self._seen:
            providers = self._bundle.providers
            here = [providers[name] for name in in_play(view, providers)]
            self._seen, self._on_demand = view, on_demand_only(supply_of(view, providers), here)
        return all(holds(need.operator, labels.get(need.key), need.values or ()) for need in self._on_demand)


async def keep_floors(api: Api, bundle: Bundle, registry: CollectorRegistry, namespace: str) -> None:
    """Run as a candidate in this namespace until cancelled, and assign Pods while elected."""
    candidate = Candidate(api, FLOOR_LEASE, namespace)
    cluster = Cluster(api, bundle, candidate.watch(NODE_LABELS).items)
    ledger = Ledger(cluster.is_on_demand)
    leader = Leader(api, bundle.index, cluster.state.view, ledger, registry, candidate.leads)
    candidate.watch(ALL_PODS, leader.take)
    async with asyncio.TaskGroup() as group:
        group.create_task(cluster.state.run())
        await cluster.state.synced()
        await candidate.run(leader.lead)

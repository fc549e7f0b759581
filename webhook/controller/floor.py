"""Keep on-demand floors: watch Pods, Nodes, and node pools, and assign gated Pods while this process leads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from webhook.capacity.placement.floor import FLOOR_LEASE, on_demand_only
from webhook.capacity.placement.supply import in_play, supply_of
from webhook.cluster.live import LiveState
from webhook.cluster.mirror import Mirror
from webhook.controller.election import PACE, Lock, elect
from webhook.controller.leader import Leader
from webhook.controller.ledger import Ledger
from webhook.controller.metrics import ControllerMetrics
from webhook.controller.pods import all_pods, node_labels
from webhook.kube.affinity import holds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from webhook.capacity.view import ClusterView
    from webhook.cluster.api import Api
    from webhook.engine.bundle import Bundle
    from webhook.kube.pod import Requirement


class Cluster:
    """The controller's knowledge of the cluster."""

    def __init__(self, api: Api, bundle: Bundle, changed: Callable[[], None]) -> None:
        self._bundle = bundle
        self._seen: ClusterView | None = None
        self._on_demand: tuple[Requirement, ...] = ()
        self.state = LiveState(api, bundle.providers)
        self.nodes: Mirror[Mapping[str, str]] = Mirror(api, node_labels(), PACE, changed)

    def is_on_demand(self, name: str) -> bool:
        """Return whether the Node is known to be on demand: an on-demand Pod can be scheduled there."""
        labels, view = self.nodes.items.get(("", name)), self.state.view()
        if labels is None or view.pools is None:
            return False
        if view is not self._seen:
            providers = self._bundle.providers
            here = [providers[name] for name in in_play(view, providers)]
            self._seen, self._on_demand = view, on_demand_only(supply_of(view, providers), here)
        return all(holds(need.operator, labels.get(need.key), need.values or ()) for need in self._on_demand)


async def keep_floors(api: Api, bundle: Bundle, registry: CollectorRegistry, namespace: str) -> None:
    """Run as a candidate in this namespace until cancelled, and assign Pods while elected."""
    known = asyncio.Event()

    def changed() -> None:
        if pods.known and cluster.nodes.known:
            known.set()

    cluster = Cluster(api, bundle, changed)
    ledger = Ledger(cluster.is_on_demand)
    lock: list[Lock] = []
    metrics = ControllerMetrics(registry, ledger, lambda: bool(lock) and lock[0].leads and sees())
    leader = Leader(api, bundle.index, cluster.state.view, ledger, metrics)
    pods = Mirror(api, all_pods(), PACE, changed, leader.take)

    def sees() -> bool:
        """Return whether the counts are current. Without a watch, deleted Pods would still count."""
        return pods.live and cluster.nodes.live

    async def lead(held: Lock) -> None:
        lock[:] = [held]
        await leader.lead(lambda: held.leads and sees())

    async def be_candidate() -> None:
        await cluster.state.synced()
        await known.wait()
        await elect(FLOOR_LEASE, namespace, lambda: api.client, lead, sees)

    async with asyncio.TaskGroup() as group:
        for work in (cluster.state.run(), cluster.nodes.run(), pods.run(), be_candidate()):
            group.create_task(work)

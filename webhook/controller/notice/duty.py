"""Tell Pods of reclaims: watch Nodes, and the Pods that ask for notices, and change these while this process leads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from webhook.cluster.mirror import Mirror
from webhook.controller.election import PACE, Lock, elect
from webhook.controller.notice.informer import Informer
from webhook.controller.notice.metrics import NoticeMetrics
from webhook.controller.notice.objects import nodes_with_notices, pods_to_notify

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from webhook.cluster.api import Api
    from webhook.engine.bundle import Bundle

_LEASE: Final = "spotgate-reclaim-notice"
"""The Lease of this duty. The webhook gates Pods while the Lease of on-demand floors is renewed, so they differ."""


async def tell_of_reclaims(api: Api, bundle: Bundle, registry: CollectorRegistry, namespace: str) -> None:
    """Run as a candidate in this namespace until cancelled, and tell Pods of notices while elected."""
    known = asyncio.Event()
    lock: list[Lock] = []

    def changed() -> None:
        if pods.known and nodes.known:
            known.set()

    def sees() -> bool:
        """Return whether Nodes and Pods are current."""
        return pods.live and nodes.live

    providers = tuple(bundle.providers.values())
    metrics = NoticeMetrics(registry, lambda: bool(lock) and lock[0].leads and sees())
    informer = Informer(api, providers, metrics)
    nodes = Mirror(api, nodes_with_notices(providers), PACE, changed, informer.take_node)
    pods = Mirror(api, pods_to_notify(), PACE, changed, informer.take_pod)

    async def lead(held: Lock) -> None:
        lock[:] = [held]
        await informer.lead(lambda: held.leads and sees())

    async def be_candidate() -> None:
        await known.wait()
        await elect(_LEASE, namespace, lambda: api.client, lead, sees)

    async with asyncio.TaskGroup() as group:
        for work in (nodes.run(), pods.run(), be_candidate()):
            group.create_task(work)

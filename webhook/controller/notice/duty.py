"""Tell Pods of reclaims: watch Nodes, and the Pods that ask for notices, and change these while this process leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.controller.election import Candidate
from webhook.controller.notice.informer import Informer
from webhook.controller.notice.objects import PODS_TO_NOTIFY, nodes_with_notices

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from webhook.cluster.api import Api
    from webhook.engine.bundle import Bundle

_LEASE: Final = "spotgate-reclaim-notice"
"""The Lease of this duty. The webhook gates Pods while the Lease of on-demand floors is renewed, so they differ."""


async def tell_of_reclaims(api: Api, bundle: Bundle, registry: CollectorRegistry, namespace: str) -> None:
    """Run as a candidate in this namespace until cancelled, and tell Pods of notices while elected."""
    candidate = Candidate(api, _LEASE, namespace)
    providers = tuple(bundle.providers.values())
    informer = Informer(api, providers, registry, candidate.leads)
    candidate.watch(nodes_with_notices(providers), informer.take_node)
    candidate.watch(PODS_TO_NOTIFY, informer.take_pod)
    await candidate.run(informer.lead)

"""Serve the operators' port, plain HTTP: ``/healthz``, ``/readyz``, ``/metrics``, ``/version``, and a page at ``/``."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from webhook import __version__
from webhook.runtime.ops import serve_registry
from webhook.runtime.rehearsals import read_rehearsals

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from prometheus_client import Metric

    from webhook.server.lifecycle import Replica

    _Value: TypeAlias = float | datetime | Mapping[str, float] | Mapping[tuple[str, str], float]

_PAGE_SECONDS: Final = 1.0
"""Seconds for which the server caches the page, so that it renders at most once a second."""

_PAGE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class OpsPort(Collector):
    """The operators' port of a replica, and the collector of the replica's gauges.

    Args:
        rehearsal: the file of the last published rehearsals; None if there are none.
    """

    def __init__(self, replica: Replica, rehearsal: Path | None = None) -> None:
        self._replica = replica
        self._rehearsal = rehearsal
        self._page, self._page_policy = "", ""
        self._page_ends = 0.0
        self._rendering = asyncio.Lock()
        replica.metrics.registry.register(self)

    async def start(self, listener: socket.socket) -> web.AppRunner:
        """Serve on a listening socket until the runner is cleaned up."""
        shown = [web.get("/", self._show), web.get("/readyz", self._readyz), web.get("/version", self._version)]
        return await serve_registry(listener, self._replica.metrics.registry, shown)

    async def _show(self, _: web.Request) -> web.Response:
        async with self._rendering:
            if monotonic() >= self._page_ends:
                # In a thread, so that reviews don't wait.
                self._page, self._page_policy = await asyncio.to_thread(self._render)
                self._page_ends = monotonic() + _PAGE_SECONDS
            headers = {**_PAGE_HEADERS, "Content-Security-Policy": f"{self._page_policy}; frame-ancestors 'none'"}
            return web.Response(text=self._page, content_type="text/html", headers=headers)

    def _render(self) -> tuple[str, str]:
        # The template engine takes 40 ms and several MB. Only the first request for the page loads it.
        from webhook.server.ops.overview import render  # noqa: PLC0415

        return render(self._replica, read_rehearsals(self._rehearsal))

    async def _readyz(self, _: web.Request) -> web.Response:
        why_not = self._replica.why_not_ready
        return web.Response(status=503, text=f"{why_not}\n") if why_not else web.Response(text="ok\n")

    async def _version(self, _: web.Request) -> web.Response:
        bundle = self._replica.webhook.snapshot.bundle
        version = {
            "program": "spotgate",
            "version": __version__,
            "bundle": bundle.hash,
            "policies": [
                {"name": policy.name, "kind": policy.kind.name, "enforcement": str(policy.enforcement)}
                for policy in bundle.policies
            ],
            "certificate": self._replica.certificate.served.decode(),
        }
        return web.Response(body=msgspec.json.encode(version), content_type="application/json")

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges that have a value."""
        for name, text, value, *labels in self._gauges():
            if value is None:
                continue
            gauge = GaugeMetricFamily(f"spotgate_{name}", text, labels=labels)
            for key, number in value.items() if isinstance(value, Mapping) else [((), value)]:
                seconds = number.timestamp() if isinstance(number, datetime) else number
                gauge.add_metric([key] if isinstance(key, str) else key, float(seconds))
            yield gauge
        removed = self._replica.reloader.removed
        yield CounterMetricFamily("spotgate_policies_removed", "Policies that a reload removed.", value=removed)

    def _gauges(self) -> Iterator[tuple[str, str, _Value | None, *tuple[str, ...]]]:
        """Yield the name, help text, value, and label names of each gauge."""
        replica, cluster, managed = self._replica, self._replica.cluster, self._replica.managed
        bundle, certificate, reloads = replica.webhook.snapshot.bundle, replica.certificate, replica.reloads
        yield "ready", "1 if the replica is ready.", not replica.why_not_ready
        yield "connections", "Open connections.", len(replica.acceptor)
        yield "in_flight", "Reviews in progress.", replica.webhook.in_flight
        yield "bundle_info", "1 for the active bundle.", {bundle.hash: 1}, "hash"
        enforcements = Counter(str(policy.enforcement) for policy in bundle.policies)
        yield "policies", "Active policies.", enforcements, "enforcement"
        ends = replica.exemption_ends or None
        yield "exemption_expiry_timestamp_seconds", "When an exemption expires.", ends, "policy", "exemption"
        success = {what: reload.success for what, reload in reloads.items()}
        yield "last_reload_success", "1 if the last change is in force.", success, "what"
        last = {what: reload.last_success for what, reload in reloads.items()}
        yield "last_reload_timestamp_seconds", "When it was last loaded or renewed successfully.", last, "what"
        if cluster is not None:
            yield "cluster_silence_seconds", "Since the least recent message about a resource.", cluster.silence
            outdated = "Webhooks that are missing, or whose rules or conditions differ from the policies in force."
            yield "webhooks_outdated", outdated, cluster.registered.outdated
        yield "certificate_trusted", "1 if the active caBundles verify the served certificate.", certificate.trusted
        yield "certificate_expiry_timestamp_seconds", "When the served certificate expires.", certificate.expiry
        if managed is not None:
            yield "ca_expiry_timestamp_seconds", "When spotgate's CA expires.", managed.authority_expiry
        trust = "When the first caBundle in force has no valid certificate left."
        yield "ca_bundle_expiry_timestamp_seconds", trust, certificate.trust_expiry
        if (rehearsals := read_rehearsals(self._rehearsal)) is not None:
            pools = rehearsals.pools
            yield "rehearsal_timestamp_seconds", "When spot reclaims were last rehearsed.", rehearsals.timestamp
            pending = {pool.pool: pool.pending for pool in pools}
            yield "rehearsal_pending_pods", "Pods that don't fit after the loss of the pool.", pending, "pool"
            killed = {pool.pool: pool.killed_early for pool in pools}
            yield "rehearsal_killed_early", "Pods that the loss of the pool kills too early.", killed, "pool"

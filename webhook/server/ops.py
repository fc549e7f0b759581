"""Serve the operators' port, plain HTTP: ``/healthz``, ``/readyz``, ``/metrics``, ``/version``, and ``/``, a page."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from webhook import __version__
from webhook.server.rehearsals import read_rehearsals

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from prometheus_client import Metric

    from webhook.server.lifecycle import Replica


_PAGE_SECONDS: Final = 1.0
"""Seconds for which a rendered page is served again: endless requests make the server render one a second."""

_PAGE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class OpsPort:
    """Serve the operators' port of a replica. The gauges of its state are added to its metrics.

    Args:
        rehearsal: the file with the rehearsals that were published last; None: there are none.
    """

    def __init__(self, replica: Replica, rehearsal: Path | None = None) -> None:
        self._replica = replica
        self._rehearsal = rehearsal
        self._page, self._page_policy = "", ""
        self._page_ends = 0.0
        self._rendering = asyncio.Lock()
        replica.metrics.registry.register(_States(replica, rehearsal))

    async def start(self, listener: socket.socket) -> web.AppRunner:
        """Serve on a listening socket until the runner is cleaned up."""
        app = web.Application()
        app.router.add_get("/", self._show)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/version", self._version)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        return runner

    async def _show(self, _: web.Request) -> web.Response:
        async with self._rendering:
            if monotonic() >= self._page_ends:
                # In a thread: reviews are answered meanwhile.
                self._page, self._page_policy = await asyncio.to_thread(_render, self._replica, self._rehearsal)
                self._page_ends = monotonic() + _PAGE_SECONDS
            headers = {**_PAGE_HEADERS, "Content-Security-Policy": f"{self._page_policy}; frame-ancestors 'none'"}
            return web.Response(text=self._page, content_type="text/html", headers=headers)

    async def _healthz(self, _: web.Request) -> web.Response:
        # Process-local: a restart would mend nothing that is around this process.
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        why_not = self._why_not_ready()
        return web.Response(status=503, text=f"{why_not}\n") if why_not else web.Response(text="ok\n")

    def _why_not_ready(self) -> str:
        if self._replica.webhook.stopping:
            return "stopping"
        if self._replica.ready:
            return ""
        return f"not ready: {self._replica.waits_for}" if self._replica.waits_for else "not ready"

    async def _metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self._replica.metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _version(self, _: web.Request) -> web.Response:
        bundle = self._replica.webhook.snapshot.bundle
        version = {
            "program": "spotgate",
            "version": __version__,
            "bundle": bundle.hash,
            "policies": [
                {"name": each.name, "kind": each.kind.name, "enforcement": str(each.enforcement)}
                for each in bundle.policies
            ],
            "certificate": self._replica.certificate.served.decode(),
        }
        return web.Response(body=msgspec.json.encode(version), content_type="application/json")


def _render(replica: Replica, rehearsal: Path | None) -> tuple[str, str]:
    # The template engine is 40 ms and some MB that a replica of which nobody asks for the page need not have.
    from webhook.server.overview import render  # noqa: PLC0415

    return render(replica, read_rehearsals(rehearsal))


class _States(Collector):
    """Show the state of a replica as gauges."""

    def __init__(self, replica: Replica, rehearsal: Path | None) -> None:
        self._replica = replica
        self._rehearsal = rehearsal

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges as they are now."""
        replica = self._replica
        bundle, certificate, reloads = replica.webhook.snapshot.bundle, replica.certificate, replica.reloads
        yield _gauge("ready", "1 if it answers reviews, and knows what it needs for that.", replica.ready)
        yield _gauge("connections", "Open connections.", replica.connections)
        yield _gauge("in_flight", "Reviews being judged.", replica.webhook.in_flight)
        yield _gauge("bundle_info", "1 for the bundle in force.", {bundle.hash: 1}, "hash")
        in_force = Counter(str(policy.enforcement) for policy in bundle.policies)
        yield _gauge("policies", "Policies in force.", in_force, "enforcement")
        yield CounterMetricFamily(
            "spotgate_policies_removed", "Policies that a reload put out of force.", value=replica.reloader.removed
        )
        if ends := {(each.policy, each.exemption): each.time for each in replica.endings}:
            yield _gauge("exemption_expiry_timestamp_seconds", "When an exemption ends.", ends, "policy", "exemption")
        success = {what: reload.success for what, reload in reloads.items()}
        when = {what: reload.last_success for what, reload in reloads.items()}
        yield _gauge("last_reload_success", "1 if what changed last is in force.", success, "what")
        yield _gauge(
            "last_reload_timestamp_seconds", "When an attempt to load or renew it last succeeded.", when, "what"
        )
        optional = (
            (
                "cluster_silence_seconds",
                "Since the cluster was last heard of, for the resource of which that is longest ago.",
                replica.cluster_silence,
            ),
            (
                "webhooks_outdated",
                "Webhooks that are missing, or whose rules or conditions are not those of the policies in force.",
                replica.webhooks_outdated,
            ),
            ("certificate_trusted", "1 if the caBundles in force verify what is served.", certificate.trusted),
            ("certificate_expiry_timestamp_seconds", "When the served certificate expires.", certificate.expiry),
            (
                "ca_expiry_timestamp_seconds",
                "When the CA expires that spotgate signs with.",
                replica.authority_expiry,
            ),
            (
                "ca_bundle_expiry_timestamp_seconds",
                "When a caBundle in force trusts nothing more.",
                certificate.trust_expiry,
            ),
        )
        for name, meaning, value in optional:
            if value is not None:
                yield _gauge(name, meaning, value.timestamp() if isinstance(value, datetime) else value)
        if (rehearsals := read_rehearsals(self._rehearsal)) is not None:
            yield _gauge(
                "rehearsal_timestamp_seconds", "When the loss of spot pools was last rehearsed.", rehearsals.timestamp
            )
            without_room = {one.pool: one.pending for one in rehearsals.pools}
            yield _gauge(
                "rehearsal_pending_pods", "Pods that losing the pool leaves without room.", without_room, "pool"
            )
            killed = {one.pool: one.killed_early for one in rehearsals.pools}
            yield _gauge("rehearsal_killed_early", "Pods that losing the pool kills too early.", killed, "pool")


def _gauge(
    name: str, help_text: str, value: float | Mapping[str, float] | Mapping[tuple[str, str], float], *labels: str
) -> GaugeMetricFamily:
    """Return a gauge with one value, or with one value for each value of its labels."""
    family = GaugeMetricFamily(f"spotgate_{name}", help_text, labels=labels or None)
    for key, number in value.items() if isinstance(value, Mapping) else [((), value)]:
        family.add_metric([key] if isinstance(key, str) else key, float(number))
    return family

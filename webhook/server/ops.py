"""The operators' port, plain HTTP: ``/healthz``, ``/readyz``, ``/metrics``, ``/version``, and a page at ``/``."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeAlias

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
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from prometheus_client import Metric

    from webhook.server.lifecycle import Replica

    _Value: TypeAlias = float | datetime | Mapping[str, float] | Mapping[tuple[str, str], float]

_GAUGES: Final = {
    "ready": ("1 if it answers reviews, and knows what it needs for that.",),
    "connections": ("Open connections.",),
    "in_flight": ("Reviews being judged.",),
    "bundle_info": ("1 for the bundle in force.", "hash"),
    "policies": ("Policies in force.", "enforcement"),
    "exemption_expiry_timestamp_seconds": ("When an exemption ends.", "policy", "exemption"),
    "last_reload_success": ("1 if what changed last is in force.", "what"),
    "last_reload_timestamp_seconds": ("When an attempt to load or renew it last succeeded.", "what"),
    "cluster_silence_seconds": ("Since the cluster was last heard of, for the resource of which that is longest ago.",),
    "webhooks_outdated": (
        "Webhooks that are missing, or whose rules or conditions are not those of the policies in force.",
    ),
    "certificate_trusted": ("1 if the caBundles in force verify what is served.",),
    "certificate_expiry_timestamp_seconds": ("When the served certificate expires.",),
    "ca_expiry_timestamp_seconds": ("When the CA expires that spotgate signs with.",),
    "ca_bundle_expiry_timestamp_seconds": ("When a caBundle in force trusts nothing more.",),
    "rehearsal_timestamp_seconds": ("When the loss of spot pools was last rehearsed.",),
    "rehearsal_pending_pods": ("Pods that losing the pool leaves without room.", "pool"),
    "rehearsal_killed_early": ("Pods that losing the pool kills too early.", "pool"),
}
"""The help text and the labels of each gauge."""

_PAGE_SECONDS: Final = 1.0
"""Seconds for which a rendered page is served again: endless requests make the server render one a second."""

_PAGE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class OpsPort:
    """The operators' port of a replica. It adds the gauges of the replica's state to the replica's metrics.

    Args:
        rehearsal: the file with the rehearsals that were published last; None: there are none.
    """

    def __init__(self, replica: Replica, rehearsal: Path | None = None) -> None:
        self._replica = replica
        self._rehearsal = rehearsal
        self._page, self._page_policy = "", ""
        self._page_ends = 0.0
        self._rendering = asyncio.Lock()
        replica.metrics.registry.register(_StateCollector(replica, rehearsal))

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
        # About this process alone: a restart would fix nothing outside of it.
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        why_not = self._replica.why_not_ready
        return web.Response(status=503, text=f"{why_not}\n") if why_not else web.Response(text="ok\n")

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
                {"name": policy.name, "kind": policy.kind.name, "enforcement": str(policy.enforcement)}
                for policy in bundle.policies
            ],
            "certificate": self._replica.certificate.served.decode(),
        }
        return web.Response(body=msgspec.json.encode(version), content_type="application/json")


def _render(replica: Replica, rehearsal: Path | None) -> tuple[str, str]:
    # The template engine takes 40 ms and some MB: it is loaded with the first request for the page.
    from webhook.server.overview import render  # noqa: PLC0415

    return render(replica, read_rehearsals(rehearsal))


class _StateCollector(Collector):
    """Gauges of the state of a replica."""

    def __init__(self, replica: Replica, rehearsal: Path | None) -> None:
        self._replica = replica
        self._rehearsal = rehearsal

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges as they are now, without those that have no value."""
        replica = self._replica
        bundle, certificate, reloads = replica.webhook.snapshot.bundle, replica.certificate, replica.reloads
        rehearsals = read_rehearsals(self._rehearsal)
        pools = rehearsals.pools if rehearsals is not None else None
        values: dict[str, _Value | None] = {
            "ready": replica.ready,
            "connections": replica.connections,
            "in_flight": replica.webhook.in_flight,
            "bundle_info": {bundle.hash: 1},
            "policies": Counter(str(policy.enforcement) for policy in bundle.policies),
            "exemption_expiry_timestamp_seconds": {(end.policy, end.exemption): end.time for end in replica.endings}
            or None,
            "last_reload_success": {what: reload.success for what, reload in reloads.items()},
            "last_reload_timestamp_seconds": {what: reload.last_success for what, reload in reloads.items()},
            "cluster_silence_seconds": replica.cluster_silence,
            "webhooks_outdated": replica.webhooks_outdated,
            "certificate_trusted": certificate.trusted,
            "certificate_expiry_timestamp_seconds": certificate.expiry,
            "ca_expiry_timestamp_seconds": replica.authority_expiry,
            "ca_bundle_expiry_timestamp_seconds": certificate.trust_expiry,
            "rehearsal_timestamp_seconds": None if rehearsals is None else rehearsals.timestamp,
            "rehearsal_pending_pods": None if pools is None else {pool.pool: pool.pending for pool in pools},
            "rehearsal_killed_early": None if pools is None else {pool.pool: pool.killed_early for pool in pools},
        }
        for name, (text, *labels) in _GAUGES.items():
            if (value := values[name]) is not None:
                yield _gauge(f"spotgate_{name}", text, value, labels)
        yield CounterMetricFamily(
            "spotgate_policies_removed", "Policies that a reload put out of force.", value=replica.reloader.removed
        )


def _gauge(name: str, text: str, value: _Value, labels: Sequence[str]) -> GaugeMetricFamily:
    """Return a gauge with one value, or with one value for each value of its labels."""
    gauge = GaugeMetricFamily(name, text, labels=labels)
    for key, number in value.items() if isinstance(value, Mapping) else [((), value)]:
        seconds = number.timestamp() if isinstance(number, datetime) else number
        gauge.add_metric([key] if isinstance(key, str) else key, float(seconds))
    return gauge

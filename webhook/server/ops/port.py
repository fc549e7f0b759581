"""Serve the operators' port, plain HTTP: ``/healthz``, ``/readyz``, ``/metrics``, ``/version``, and a page at ``/``."""

from __future__ import annotations

import asyncio
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from webhook import __version__
from webhook.runtime.metrics import MetricsOf
from webhook.runtime.ops import serve_registry
from webhook.runtime.rehearsals import read_rehearsals

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from webhook.runtime.metrics import Value
    from webhook.server.lifecycle import Replica

_PAGE_SECONDS: Final = 1.0
"""Seconds for which the server caches the page, so that it renders at most once a second."""

_PAGE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class OpsPort:
    """The operators' port of a replica, and the replica's gauges.

    Args:
        rehearsal: the file of the last published rehearsals; None if there are none.
    """

    def __init__(self, replica: Replica, rehearsal: Path | None = None) -> None:
        self._replica = replica
        self._rehearsal = rehearsal
        self._page, self._page_policy = "", ""
        self._page_ends = 0.0
        self._rendering = asyncio.Lock()
        MetricsOf("replica", replica.metrics.registry, self._gauges)

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

    def _gauges(self) -> dict[str, Value]:
        """Return the values of the gauges by name."""
        replica, cluster, managed = self._replica, self._replica.cluster, self._replica.managed
        bundle, certificate, reloads = replica.webhook.snapshot.bundle, replica.certificate, replica.reloads
        rehearsals = read_rehearsals(self._rehearsal)
        pools = rehearsals.pools if rehearsals is not None else ()
        return {
            "ready": not replica.why_not_ready,
            "connections": len(replica.acceptor),
            "in_flight": replica.webhook.in_flight,
            "bundle_info": {bundle.hash: 1},
            "policies": Counter(str(policy.enforcement) for policy in bundle.policies),
            "policies_removed": replica.reloader.removed,
            "exemption_expiry_timestamp_seconds": replica.exemption_ends or None,
            "last_reload_success": {what: reload.success for what, reload in reloads.items()},
            "last_reload_timestamp_seconds": {what: reload.last_success for what, reload in reloads.items()},
            "cluster_silence_seconds": cluster.silence if cluster is not None else None,
            "webhooks_outdated": cluster.registered.outdated if cluster is not None else None,
            "certificate_trusted": certificate.trusted,
            "certificate_expiry_timestamp_seconds": certificate.expiry,
            "ca_expiry_timestamp_seconds": managed.authority_expiry if managed is not None else None,
            "ca_bundle_expiry_timestamp_seconds": certificate.trust_expiry,
            "rehearsal_timestamp_seconds": rehearsals.timestamp if rehearsals is not None else None,
            "rehearsal_pending_pods": {pool.pool: pool.pending for pool in pools} or None,
            "rehearsal_killed_early": {pool.pool: pool.killed_early for pool in pools} or None,
        }

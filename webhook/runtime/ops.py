"""Serve the operators' port of any process, plain HTTP: ``/healthz`` and ``/metrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable


async def serve_registry(
    listener: socket.socket, registry: CollectorRegistry, others: Iterable[web.RouteDef] = ()
) -> web.AppRunner:
    """Serve ``/healthz``, ``/metrics``, and other routes on a listening socket until the runner is cleaned up."""

    async def healthz(_: web.Request) -> web.Response:
        # Check only this process: a restart doesn't fix other problems.
        return web.Response(text="ok\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/metrics", metrics), *others])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    return runner

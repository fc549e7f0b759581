"""The operators' port, plain HTTP: ``/healthz``, ``/readyz``, ``/metrics``, ``/version``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from webhook import __version__

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from prometheus_client import CollectorRegistry, Metric

    from webhook.server.lifecycle import Stop
    from webhook.server.status import Status

    Statuses: TypeAlias = Callable[[], Sequence[Status]]


class OpsPort:
    """Answers operators from what the workers say of themselves.

    Args:
        statuses: of every worker that has spoken.
        workers: how many there should be.
        registry: of the counters; the workers' states are added to it.
        stop: once it is wanted, not ready, whatever the workers say.
    """

    def __init__(self, statuses: Statuses, workers: int, registry: CollectorRegistry, stop: Stop) -> None:
        self._stop = stop
        self._statuses = statuses
        self._workers = workers
        self._registry = registry
        registry.register(_States(statuses))

    async def start(self, listener: socket.socket) -> web.AppRunner:
        """Serve on a listening socket until the runner is cleaned up."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/version", self._version)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        return runner

    async def _healthz(self, _: web.Request) -> web.Response:
        # Process-local: a restart would mend nothing that is around this process.
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        why_not = self._why_not_ready()
        return web.Response(status=503, text=f"{why_not}\n") if why_not else web.Response(text="ok\n")

    def _why_not_ready(self) -> str:
        if self._stop.wanted.is_set():
            return "stopping"
        statuses = self._statuses()
        # One is enough: those that are not ready do not accept, and without this Pod the others would have to do more.
        if any(status.ready for status in statuses):
            return ""
        waits_for = next((f": {status.waits_for}" for status in statuses if status.waits_for), "")
        return f"0 of {self._workers} workers are ready{waits_for}"

    async def _metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _version(self, _: web.Request) -> web.Response:
        first = next(iter(self._statuses()), None)
        version = {
            "program": "spotgate",
            "version": __version__,
            "bundle": first.bundle if first else "",
            "policies": first.policies if first else (),
        }
        return web.Response(body=msgspec.json.encode(version), content_type="application/json")


class _States(Collector):
    """The workers' states as gauges: the sum of what adds up, the worst of what does not."""

    def __init__(self, statuses: Statuses) -> None:
        self._statuses = statuses

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges as they are now."""
        statuses = self._statuses()
        yield _gauge("ready_workers", "Workers that answer reviews.", sum(each.ready for each in statuses))
        yield _gauge("connections", "Open connections.", sum(each.connections for each in statuses))
        yield _gauge("in_flight", "Reviews being judged.", sum(each.in_flight for each in statuses))
        yield _gauge(
            "bundle_info",
            "Workers that judge with this bundle.",
            dict(Counter(each.bundle for each in statuses)),
            "hash",
        )
        if ends := {(each.policy, each.exemption): each.time for status in statuses for each in status.endings}:
            yield _gauge("exemption_expiry_timestamp_seconds", "When an exemption ends.", ends, "policy", "exemption")
        reloads = [(what, reload) for each in statuses for what, reload in each.reloads.items()]
        success = {what: all(r.success for w, r in reloads if w == what) for what, _ in reloads}
        when = {what: max(r.time for w, r in reloads if w == what) for what, _ in reloads}
        yield _gauge("last_reload_success", "1 if what changed last is in force.", success, "what")
        yield _gauge(
            "last_reload_timestamp_seconds", "When something was last loaded, or should have been.", when, "what"
        )
        silence = [each.cluster_silence for each in statuses if each.cluster_silence is not None]
        if silence:
            yield _gauge(
                "cluster_silence_seconds",
                "Since the cluster was last heard of, for the resource of which that is longest ago.",
                max(silence),
            )
        if statuses:
            expiry = min(each.certificate_expiry for each in statuses)
            yield _gauge("certificate_expiry_timestamp_seconds", "When the served certificate expires.", expiry)


def _gauge(
    name: str, help_text: str, value: float | Mapping[str, float] | Mapping[tuple[str, str], float], *labels: str
) -> GaugeMetricFamily:
    """A gauge of one value, or of one value for each value of the label, or of the two."""
    family = GaugeMetricFamily(f"spotgate_{name}", help_text, labels=labels or None)
    for key, number in value.items() if isinstance(value, Mapping) else [((), value)]:
        family.add_metric([key] if isinstance(key, str) else key, float(number))
    return family

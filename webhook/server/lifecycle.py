"""Run one replica, and stop it without failing a request."""

from __future__ import annotations

import asyncio
import gc
import signal
from datetime import UTC, datetime, time
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

from webhook.cluster.installation import ca_bundles
from webhook.runtime.log import log, log_loop_error
from webhook.server.http.app import Webhook
from webhook.server.http.connections import Acceptor
from webhook.server.http.metrics import Metrics
from webhook.server.http.peers import Peers
from webhook.server.http.recorder import Recorder

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from webhook.runtime.limits import Limits
    from webhook.runtime.reload import Reload, Reloader
    from webhook.server.follow import LiveCluster
    from webhook.server.tls.self_managed import SelfManaged
    from webhook.server.tls.serving import ServingCertificate


_TIMEOUT: Final = 5.0
"""The timeout of an API request about one object, in seconds."""

_CHECK_INTERVAL: Final = 0.5
"""Seconds between checks for new requests, while stopping."""


class Stop:
    """A request to stop: after all clients use other replicas (SIGTERM), or after the requests in flight (SIGINT)."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.drains = True

    def skip_drain(self) -> None:
        """Stop after the requests in flight are answered."""
        self.drains = False
        self.wanted.set()

    def on_signals(self) -> None:
        """Stop on SIGTERM and SIGINT."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.wanted.set)
        loop.add_signal_handler(signal.SIGINT, self.skip_drain)


class Replica:
    """A webhook that serves on a listening socket. Create it inside a running loop.

    Args:
        listener: a listening, non-blocking socket.
        cluster: the live cluster that provides the state; if None, the reloader's snapshots contain it.
        record: the folder for recorded decisions; None disables recording.
        callers: the names of allowed callers; empty allows any caller.
        managed: the self-managed certificates; None if another tool renews the certificate.
    """

    def __init__(
        self,
        listener: socket.socket,
        certificate: ServingCertificate,
        reloader: Reloader,
        limits: Limits,
        cluster: LiveCluster | None = None,
        *,
        record: Path | None = None,
        callers: frozenset[str] = frozenset(),
        managed: SelfManaged | None = None,
    ) -> None:
        self.metrics = Metrics()
        peers = Peers()
        self._recorder = Recorder(record, self.metrics, limits) if record is not None else None
        self.webhook = Webhook(reloader.snapshot, self.metrics, limits, peers, callers, self._recorder)
        self.webhook.floor = cluster.floor if cluster is not None else None
        self.certificate = certificate
        self.managed = managed
        self.reloader = reloader
        self.cluster = cluster
        self._limits = limits
        self._serving = False
        handle = self.webhook.handle
        self.acceptor = Acceptor(
            listener, handle, lambda: certificate.context, metrics=self.metrics, limits=limits, peers=peers
        )

    @property
    def waits_for(self) -> str:
        """Return what the replica waits for before it is ready: the live cluster, or its certificate."""
        parts = (self.cluster, self.managed, self.certificate)
        return next((part.waits_for for part in parts if part is not None and part.waits_for), "")

    @property
    def why_not_ready(self) -> str:
        """Return why the replica isn't ready, or an empty string if it answers reviews and knows the cluster."""
        if self.webhook.stopping:
            return "stopping"
        if self.waits_for:
            return f"not ready: {self.waits_for}"
        return "" if self._serving else "not ready"

    @property
    def reloads(self) -> dict[str, Reload]:
        """Return the last reload of each kind; ``renewal`` is for self-managed certificates."""
        reloads = {"policies": self.reloader.last_reload, "certificate": self.certificate.last_reload}
        return reloads | ({"renewal": self.managed.last_look} if self.managed is not None else {})

    @property
    def exemption_ends(self) -> dict[tuple[str, str], float]:
        """Return when exemptions end (Unix time), by policy and exemption. An exemption includes its last day."""
        return {
            (policy.name, exemption.name): datetime.combine(exemption.expires, time(), UTC).timestamp() + 86400
            for policy in self.webhook.snapshot.bundle.policies
            for exemption in policy.exemptions
            if exemption.expires is not None
        }

    async def run(self, stop: Stop) -> None:
        """Serve until a stop is requested, then stop."""
        asyncio.get_running_loop().set_exception_handler(log_loop_error)
        # Exclude loaded objects from garbage collection: a full collection would delay requests by 20 ms.
        gc.collect()
        gc.freeze()
        if self._recorder is not None:
            self._recorder.start()
        managed, cluster, limits = self.managed, self.cluster, self._limits
        bundles = managed.look if managed is not None else None
        following, use = [], self.webhook.use
        if cluster is not None:
            use, bundles = cluster.offer, bundles or partial(ca_bundles, cluster.api, _TIMEOUT)
            watching = cluster.registered.watch(lambda: self.webhook.snapshot.bundle, limits.webhooks_poll)
            following = [cluster.run(self.reloader.snapshot, self.webhook.use), watching]
        works = (
            self.acceptor.accept(),
            self.acceptor.sweep(),
            self.certificate.watch(limits.certificate_poll, bundles, self.acceptor.retire),
            *following,
            self.reloader.watch(use, limits.policy_poll),
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
            self._serving = True
            await stop.wanted.wait()
            self.webhook.stopping = True
            log.info("stopping", connections=len(self.acceptor))
            await self._drain(stop)
            if self.managed is not None:
                await self.managed.leave()
            for task in tasks:
                task.cancel()
        await self.acceptor.close()
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.close)
        log.info("stopped")

    async def _drain(self, stop: Stop) -> None:
        """Continue to serve, with `Connection: close` in every response, until no request has arrived for a while.

        Kubernetes notifies the clients and this Pod at the same time that the Pod terminates. Until the clients have
        reacted, they open new connections.
        """
        started = perf_counter()
        while stop.drains:
            quiet_at = max(started, self.webhook.last_request) + self._limits.quiet
            remaining = min(quiet_at, started + self._limits.drain) - perf_counter()
            if remaining <= 0:
                return await self.acceptor.dismiss()
            await asyncio.sleep(min(remaining, _CHECK_INTERVAL))
        return None

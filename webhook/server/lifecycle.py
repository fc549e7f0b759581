"""Run one replica from start to end, and stop it without a failed request."""

from __future__ import annotations

import asyncio
import gc
import signal
from contextlib import suppress
from datetime import UTC, datetime, time
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

import uvloop

from webhook.cluster.installation import ca_bundles
from webhook.server.app import Webhook
from webhook.server.connections import Acceptor
from webhook.server.log import flush_log, log, log_loop_error
from webhook.server.metrics import Metrics
from webhook.server.peers import Peers
from webhook.server.recorder import Recorder
from webhook.server.request_reader import Callers

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine
    from pathlib import Path
    from typing import Any

    from webhook.server.app import Snapshot
    from webhook.server.follow import LiveCluster
    from webhook.server.limits import Limits
    from webhook.server.reload import Reload, Reloader
    from webhook.server.self_managed import SelfManaged
    from webhook.server.tls import ServingCertificate


_ANSWER_SECONDS: Final = 5.0
"""Seconds that the API server may take to answer about one object."""


class Stop:
    """A request to stop: gracefully (the Pod is deleted), or right after the requests in flight (Ctrl-C)."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.at_once = asyncio.Event()

    def gracefully(self) -> None:
        """Stop when all clients have gone elsewhere."""
        self.wanted.set()

    def soon(self) -> None:
        """Stop when the requests in flight are answered."""
        self.wanted.set()
        self.at_once.set()

    def on_signals(self) -> None:
        """Stop gracefully on SIGTERM, and soon on SIGINT."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.gracefully)
        loop.add_signal_handler(signal.SIGINT, self.soon)


class Ending(NamedTuple):
    """The end of an exemption from a policy (Unix time). ``exemption`` is ``exempt[0]`` or ``Exemption team-a``."""

    time: float
    policy: str
    exemption: str


class Replica:
    """A webhook that serves on a listening socket. Create it inside a running loop.

    Args:
        listener: listening and non-blocking.
        cluster: the live cluster whose state it judges with; None: the state is that of the reloader's snapshots.
        record: the folder for recorded decisions; None: record none.
        callers: those whose reviews are judged.
        managed: renews the certificate; None: something else does.
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
        callers: Callers | None = None,
        managed: SelfManaged | None = None,
    ) -> None:
        self.metrics = Metrics()
        peers = Peers()
        self._recorder = Recorder(record, self.metrics, limits) if record is not None else None
        self.webhook = Webhook(reloader.snapshot, self.metrics, limits, peers, callers or Callers(), self._recorder)
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
        """Return what keeps it from being ready: something to be read of a live cluster, or its certificate."""
        parts = (self.cluster, self.managed, self.certificate)
        return next((part.waits_for for part in parts if part is not None and part.waits_for), "")

    @property
    def why_not_ready(self) -> str:
        """Return why it is not ready, or an empty string if it answers reviews and knows the cluster."""
        if self.webhook.stopping:
            return "stopping"
        if self.waits_for:
            return f"not ready: {self.waits_for}"
        return "" if self._serving else "not ready"

    @property
    def reloads(self) -> dict[str, Reload]:
        """Return the last reloads by what was loaded; ``renewal`` is that of self-managed certificates."""
        reloads = {"policies": self.reloader.last_reload, "certificate": self.certificate.last_reload}
        return reloads | ({"renewal": self.managed.last_look} if self.managed is not None else {})

    @property
    def endings(self) -> list[Ending]:
        """Return the ends of all exemptions that have one, the earliest first. An exemption includes its last day."""
        return sorted(
            Ending(datetime.combine(exemption.expires, time(), UTC).timestamp() + 86400, policy.name, exemption.name)
            for policy in self.webhook.snapshot.bundle.policies
            for exemption in policy.exemptions
            if exemption.expires is not None
        )

    async def run(self, stop: Stop) -> None:
        """Serve until told to stop, then stop."""
        asyncio.get_running_loop().set_exception_handler(log_loop_error)
        # What was loaded stays: a full collection that walked it all would hold up requests for 20 ms.
        gc.collect()
        gc.freeze()
        if self._recorder is not None:
            self._recorder.start()
        managed, cluster, limits = self.managed, self.cluster, self._limits
        bundles = managed.look if managed is not None else None
        following, use = [], self._use
        if cluster is not None:
            use, bundles = cluster.offer, bundles or partial(ca_bundles, cluster.api, _ANSWER_SECONDS)
            watching = cluster.registered.watch(lambda: self.webhook.snapshot.bundle, limits.webhooks_poll)
            following = [cluster.run(self.reloader.snapshot, self._use), watching]
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

    def _use(self, snapshot: Snapshot) -> None:
        self.webhook.snapshot = snapshot

    async def _drain(self, stop: Stop) -> None:
        """Go on serving, every answer with `Connection: close`, until no request has come for a while.

        Kubernetes tells the clients that this Pod is going away at the same moment as the Pod itself: until they have
        heard, new connections come.
        """
        started = perf_counter()
        while not stop.at_once.is_set():
            quiet_at = max(started, self.webhook.last_request) + self._limits.quiet
            left = min(quiet_at, started + self._limits.drain) - perf_counter()
            if left <= 0:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.at_once.wait(), left)
        if not stop.at_once.is_set():
            await self.acceptor.dismiss()


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run on uvloop, and write all log lines before returning."""
    try:
        return uvloop.run(main)
    finally:
        flush_log()

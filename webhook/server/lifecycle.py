"""Run one replica from start to end, and stop it without a failed request."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from time import perf_counter
from typing import TYPE_CHECKING

import uvloop

from webhook.server.app import Webhook
from webhook.server.connections import Acceptor, Server
from webhook.server.log import flush_log, log, log_loop_error
from webhook.server.metrics import Metrics
from webhook.server.peers import Peers
from webhook.server.recorder import Recorder
from webhook.server.request_reader import Callers
from webhook.server.status import Overview, PolicyInfo, Status, endings

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path
    from typing import Any

    from webhook.server.app import Snapshot
    from webhook.server.follow import LiveCluster
    from webhook.server.limits import Limits
    from webhook.server.reload import Reloader
    from webhook.server.self_managed import SelfManaged
    from webhook.server.tls import ServingCertificate


class Stop:
    """A request to stop: gracefully (a Pod is deleted), or right after the requests in flight (a person's Ctrl-C)."""

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


class Replica:
    """A webhook on a listening socket. Made inside a running loop.

    Args:
        listener: listening and non-blocking.
        certificate: that it serves with.
        reloader: of policies and files of state.
        limits: bounds and durations.
        cluster: the live cluster whose state it judges with; None: the state is that of the reloader's snapshots.
        record: the folder for its decisions; None: they are not recorded.
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
        self._certificate = certificate
        self._managed = managed
        self._reloader = reloader
        self._limits = limits
        self._cluster = cluster
        self._serving = False
        server = Server(self.webhook.handle, self.metrics, limits, peers)
        self._acceptor = Acceptor(listener, server, lambda: certificate.context)

    def status(self) -> Status:
        """Return the state of the replica now."""
        bundle = self.webhook.snapshot.bundle
        waits_for = (
            (self._cluster.waits_for() if self._cluster is not None else "")
            or (self._managed.waits_for if self._managed is not None else "")
            or self._certificate.waits_for
        )
        return Status(
            ready=self._serving and not self.webhook.stopping and not waits_for,
            waits_for=waits_for,
            bundle=bundle.hash,
            policies=tuple(PolicyInfo(policy.name, policy.kind, str(policy.enforcement)) for policy in bundle.policies),
            policies_removed=self._reloader.removed,
            endings=endings(bundle.policies),
            reloads={
                "policies": self._reloader.last_reload,
                "certificate": self._certificate.last_reload,
                **({"renewal": self._managed.last_look} if self._managed is not None else {}),
            },
            authority_expiry=self._managed.authority_expiry if self._managed is not None else None,
            trust_expiry=self._certificate.trust_expiry,
            certificate=self._certificate.served,
            certificate_expiry=self._certificate.expiry.timestamp(),
            certificate_trusted=self._certificate.trusted,
            connections=len(self._acceptor),
            in_flight=self.webhook.in_flight,
            cluster_silence=self._cluster.silence() if self._cluster is not None else None,
        )

    def overview(self) -> Overview:
        """Return what the operators' page shows, as it is now."""
        snapshot = self.webhook.snapshot
        return Overview(
            status=self.status(),
            replica=socket.gethostname(),
            view=snapshot.state.view(),
            needs_budgets=any(policy.needs.budgets for policy in snapshot.bundle.policies),
            findings=self.metrics.findings(),
            found=tuple(self.webhook.found),
            last=tuple(self.webhook.last),
        )

    async def run(self, stop: Stop) -> None:
        """Serve until told to stop, then stop."""
        asyncio.get_running_loop().set_exception_handler(log_loop_error)
        # What was loaded stays: a full collection that walked it all would hold up requests for 20 ms.
        gc.collect()
        gc.freeze()
        if self._recorder is not None:
            self._recorder.start()
        use, following, bundles = self._use, [], None
        if self._cluster is not None:
            use, bundles = self._cluster.offer, self._cluster.ca_bundles
            following = [self._cluster.run(self._reloader.snapshot, self._use)]
        if self._managed is not None:
            bundles = self._managed.look
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(work)
                for work in (
                    self._acceptor.accept(),
                    self._acceptor.sweep(),
                    self._certificate.watch(self._limits.certificate_poll, bundles, self._acceptor.retire),
                    *following,
                    self._reloader.watch(use, self._limits.policy_poll),
                )
            ]
            self._serving = True
            await stop.wanted.wait()
            self.webhook.stopping = True
            log.info("stopping", connections=len(self._acceptor))
            await self._drain(stop)
            if self._managed is not None:
                await self._managed.leave()
            for task in tasks:
                task.cancel()
        await self._acceptor.close()
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
            try:
                await asyncio.wait_for(stop.at_once.wait(), left)
            except TimeoutError:
                continue
        if not stop.at_once.is_set():
            await self._acceptor.dismiss()


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run on uvloop, and write all log lines before returning."""
    try:
        return uvloop.run(main)
    finally:
        flush_log()

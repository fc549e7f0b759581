"""Elect one leader with the leader election of the Kubernetes client. The webhook watches the Lease."""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import aiohttp
import structlog
from kubernetes.aio.client import V1Lease, V1ObjectMeta
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from webhook.cluster.mirror import Mirror, Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from kubernetes.aio.client.api_client import ApiClient
    from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
    from structlog.typing import FilteringBoundLogger

    from webhook.cluster.api import Api
    from webhook.cluster.source import T, WatchedResource

    Lender: TypeAlias = Callable[[], AbstractAsyncContextManager[ApiClient]]
    Leading: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
    """The work of a leader."""

LEASE_SECONDS: Final = 10
"""The duration of the Lease. Without a renewal, another candidate becomes the leader."""
RENEW_SECONDS: Final = 7
"""A leader that can't renew for this time steps down."""
RETRY_SECONDS: Final = 2
"""The interval of renewals, and of a candidate's checks. The webhook counts the controller of on-demand floors as
running for 10 s."""
ACT_SECONDS: Final = 8
"""A leader with an older renewal changes no Pods: the process may have been paused, and another one may lead."""

PACE: Final = Pace(most=4, answer=15, watch=4, steady=3, silence=6)
"""Pods wait while the leader can't watch, so it retries sooner than the webhook. The API server ends each watch after 4
or 5 s. So a connection without data for 6 s hangs, and the leader no longer sees the cluster."""

log: FilteringBoundLogger = structlog.get_logger()


class Lock(LeaseLock):  # type: ignore[misc]  # the library has no types
    """The Lease of one candidate. It says that a leader is alive and sees the cluster.

    Args:
        lease: the name of the Lease. Each duty has its own.
        client: lends the client with the newest credentials for one request.
        may_renew: returns whether the candidate sees the cluster, and so may acquire or renew the Lease.
    """

    def __init__(self, lease: str, namespace: str, client: Lender, may_renew: Callable[[], bool]) -> None:
        # Each term has its own name, so that a webhook can distinguish a renewal from a new leader.
        # `_attempt` sets the client of each request. Without a value, the library would create one.
        super().__init__(lease, namespace, f"spotgate-{uuid.uuid4()}", client)
        self._client = client
        self._may_renew = may_renew
        self.renewed = -math.inf
        self.leading: asyncio.Task[Any] | None = None

    @property
    def leads(self) -> bool:
        """Return whether this candidate has renewed the Lease within `ACT_SECONDS`, by the local clock."""
        alive = self.leading is None or not self.leading.done()
        return alive and monotonic() - self.renewed < ACT_SECONDS

    async def get(self, name: str, namespace: str) -> Any:
        """Return whether the Lease exists, with its record or the error.

        A leader that sees another holder, for example after a clock change, stops changing Pods.
        """
        exists, record = await self._attempt(super().get(name, namespace), (False, ApiException(reason="no answer")))
        if exists and record.holder_identity != self.identity:
            self.renewed = -math.inf
        return exists, record

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Create the Lease. Return whether that succeeded. The library's method passes an argument of a wrong type."""
        lease = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        return await self._write(self.api_instance.create_namespaced_lease(namespace, lease))

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Renew or acquire the Lease. Return whether that succeeded, which needs a view of the cluster."""
        if not self._may_renew() or (self.leading is not None and self.leading.done()):
            return False
        return await self._write(super().update(name, namespace, updated_record))

    async def release(self) -> None:
        """Stop leading and release the Lease, so that the next leader doesn't wait for it to expire."""
        led, self.renewed = self.renewed > -math.inf, -math.inf
        if self.leading is not None:
            self.leading.cancel()
            await asyncio.wait([self.leading])
            if not self.leading.cancelled() and (error := self.leading.exception()) is not None:
                log.error("the leader failed", problem=repr(error))
        if led:
            exists, record = await self.get(self.name, self.namespace)
            if exists and record.holder_identity == self.identity:
                self.lease_reference.spec.holder_identity = None
                replace = self.api_instance.replace_namespaced_lease
                await self._attempt(replace(self.name, self.namespace, self.lease_reference), failure=None)

    async def _write(self, writing: Coroutine[Any, Any, object]) -> bool:
        began = monotonic()
        written = bool(await self._attempt(writing, failure=False))
        if written:
            self.renewed = began
        return written

    async def _attempt(self, call: Coroutine[Any, Any, Any], failure: Any) -> Any:
        try:
            async with asyncio.timeout(RETRY_SECONDS), self._client() as self.api_instance.api_client:
                return await call
        except (ApiException, aiohttp.ClientError, OSError, TimeoutError):
            return failure


class Candidate:
    """A candidate for a Lease, which can lead while it sees the resources that it watches.

    Args:
        lease: the name of the Lease. Each duty has its own.
        namespace: the namespace of the Lease.
    """

    def __init__(self, api: Api, lease: str, namespace: str) -> None:
        self._api = api
        self._lease = lease
        self._namespace = namespace
        self._mirrors: list[Mirror[Any]] = []
        self._known = asyncio.Event()
        self._lock: Lock | None = None

    def watch(
        self, source: WatchedResource[T], replaced: Callable[[T | None, T | None], None] = lambda _before, _after: None
    ) -> Mirror[T]:
        """Return a copy of a resource, which `run` keeps up to date."""
        mirror = Mirror(self._api, source, PACE, self._changed, replaced)
        self._mirrors.append(mirror)
        return mirror

    def _changed(self) -> None:
        if all(mirror.known for mirror in self._mirrors):
            self._known.set()

    def _sees(self) -> bool:
        return all(mirror.live for mirror in self._mirrors)

    def leads(self) -> bool:
        """Return whether this candidate leads and sees. Without a watch, deleted objects would still count."""
        return self._lock is not None and self._lock.leads and self._sees()

    async def run(self, lead: Leading) -> None:
        """Watch until cancelled. While elected, call ``lead``."""
        async with asyncio.TaskGroup() as group:
            for mirror in self._mirrors:
                group.create_task(mirror.run())
            await self._known.wait()
            logging.getLogger("kubernetes.aio.leaderelection").setLevel(logging.CRITICAL)  # it logs tracebacks
            while True:
                await self._run_for_one_term(lead)

    async def _run_for_one_term(self, lead: Leading) -> None:
        lock = self._lock = Lock(self._lease, self._namespace, self._api.client, self._sees)

        async def start() -> None:
            lock.leading = asyncio.current_task()
            await lead()

        async def stopped() -> None:
            log.warning("no longer the leader")

        config = Config(lock, LEASE_SECONDS, RENEW_SECONDS, RETRY_SECONDS, start, stopped)
        try:
            await LeaderElection(config).run()
        finally:
            await lock.release()

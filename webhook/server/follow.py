"""Follow a live cluster for the active policies, and read it for new policies before they take effect."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from webhook.cluster.floor import FloorFacts
from webhook.cluster.live import LiveState
from webhook.server.registered import Registered

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cluster.api import Api
    from webhook.runtime.snapshot import Snapshot


class LiveCluster:
    """A live cluster, whose state is added to snapshots.

    Args:
        api: the connection to the cluster.
        namespace: the namespace of the Lease of `spotgate controller`.

    Attributes:
        api: the connection to the cluster.
        registered: the webhook configurations of the cluster.
        floor: the facts for the on-demand floors of Pods.
    """

    def __init__(self, api: Api, namespace: str = "spotgate-system") -> None:
        self.api = api
        self.floor = FloorFacts(api, namespace)
        self.registered = Registered(api)
        self._group = asyncio.TaskGroup()
        self._in_force: LiveState | None = None
        self._coming: LiveState | None = None
        self._following: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def run(self, first: Snapshot, use: Callable[[Snapshot], None]) -> None:
        """Follow the cluster until cancelled.

        Args:
            first: the first snapshot, without the cluster's state.
            use: activates a snapshot with the cluster's state.
        """
        self._use = use
        try:
            async with self._group:
                self._group.create_task(self.floor.lease.run())
                self.offer(first)
                await asyncio.Event().wait()
        finally:
            await self.api.close()

    def offer(self, snapshot: Snapshot) -> None:
        """Activate a snapshot after the cluster is read for it, unless a newer one is offered before."""
        if self._reading is not None:
            self._reading.cancel()
        self._reading = self._group.create_task(self._follow(snapshot))

    @property
    def waits_for(self) -> str:
        """Return the part of the cluster that spotgate must read before it is ready, or an empty string."""
        if self._in_force is not None:
            return ""
        return self._coming.why_not_synced() if self._coming is not None else "the cluster"

    @property
    def silence(self) -> float:
        """Return the seconds since the last message of the API server."""
        return self._in_force.silence() if self._in_force is not None else 0.0

    async def _follow(self, snapshot: Snapshot) -> None:
        """Follow the cluster for a snapshot, and activate the snapshot after all resources are read."""
        bundle = snapshot.bundle
        state = self._coming = LiveState(self.api, bundle.providers, budgets=bundle.reads_budgets)
        async with asyncio.TaskGroup() as group:
            group.create_task(state.run())
            await state.synced()
            self._use(replace(snapshot, state=state))
            if self._following is not None:
                self._following.cancel()
            self._in_force, self._following, self._reading = state, self._reading, None

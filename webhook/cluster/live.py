"""Follow the state of a live cluster: node pools, Namespaces, and Nodes.

Also follow the objects that Pods name, and PodDisruptionBudgets if a policy needs them. They are optional: if they
can't be read, they are unknown.

`view` uses copies that watches keep up to date. While the API server is unreachable, the copies stay in use without a
time limit, because node pools seldom change. `silence` returns their age. Requests that need the current state use
`fresh`, which lists the node pools.
"""

from __future__ import annotations

import asyncio
import math
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from webhook.capacity.providers.joins import Joined, join
from webhook.capacity.view import ClusterView
from webhook.cluster.api import NO_ANSWER, Api, ApiError
from webhook.cluster.mirror import Mirror, Pace
from webhook.cluster.resources import BUDGETS, NAMESPACES, REFERENCES, all_nodes, all_pools, api_server_version, unread
from webhook.cluster.view import NodeTally, by_namespace, labels_by_namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.capacity.providers.pool import Pool, Size
    from webhook.capacity.providers.provider import Provider
    from webhook.cluster.source import WatchedResource
    from webhook.kube.references import Reference

_COMPANY: Final = 0.005
"""Seconds that a fresh read waits for other requests to share it. Users can apply many node pools at the same time."""


class LiveState:
    """The `ClusterState` of a live cluster, for one bundle. `run` keeps it up to date."""

    def __init__(
        self, api: Api, providers: Mapping[str, Provider], pace: Pace | None = None, *, budgets: bool = False
    ) -> None:
        self._api = api
        self._pace = pace or Pace()
        self._tally = NodeTally()
        self._pools = [Mirror(api, source, self._pace, self._changed) for source in all_pools(providers.values())]
        self._namespaces = Mirror(api, NAMESPACES, self._pace, self._changed)
        self._nodes = Mirror(api, all_nodes(providers.values()), self._pace, self._forget_view, self._tally.replace)
        self._needed: list[Mirror[Any]] = [*self._pools, self._namespaces, self._nodes]
        self._budgets = [Mirror(api, BUDGETS, self._pace, self._changed)] if budgets else []
        # Not copied for each view: a cluster can have tens of thousands of bound volumes.
        self._references: dict[str, Reference] = {}
        references = [Mirror(api, source, self._pace, self._sync, self._refer) for source in REFERENCES]
        self._optional: list[Mirror[Any]] = [*self._budgets, *references]
        self._without_nodes: ClusterView | None = None
        self._version: tuple[int, int] | None = None
        self._version_asked = False
        self._synced = asyncio.Event()
        self._view: ClusterView | None = None
        self._last_pools = Joined((), ())
        self._next_reading: asyncio.Task[ClusterView] | None = None
        self._last_reading = -math.inf

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for mirror in (*self._needed, *self._optional):
                group.create_task(mirror.run())
            group.create_task(self._follow_version())

    async def synced(self) -> None:
        """Wait until all resources have been read once."""
        await self._synced.wait()

    def why_not_synced(self) -> str:
        """Return the resource that hasn't been read yet and the reason, or an empty string."""
        if self._synced.is_set():
            return ""
        unknown = next((mirror for mirror in (*self._needed, *self._optional) if not mirror.known), None)
        return unread(unknown.source, unknown.problem) if unknown is not None else "the API server's version is unknown"

    def silence(self) -> float:
        """Return the seconds since the API server's last message about the least recently updated resource."""
        return monotonic() - min(mirror.heard for mirror in self._needed)

    def view(self) -> ClusterView:
        """Return the view of the cluster from the watches."""
        if self._view is None:
            unknown = next((mirror for mirror in self._pools if not mirror.known), None)
            if unknown is not None:
                self._view = self._without_pools(unknown.source, unknown.problem)
            else:
                self._view = self._tally.added_to(self._of_watches())
        return self._view

    async def fresh(self) -> ClusterView:
        """Return the view with freshly listed node pools."""
        # Only requests that arrive before a read starts can share it: the read may miss later changes.
        if self._next_reading is None:
            self._next_reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._next_reading)

    async def _read(self) -> ClusterView:
        await asyncio.sleep(max(_COMPANY, self._last_reading + self._pace.apart - monotonic()))
        self._next_reading = None
        self._last_reading = monotonic()
        sources = [mirror.source for mirror in self._pools]
        listings = await asyncio.gather(
            *(source.list(self._api, self._pace.answer) for source in sources), return_exceptions=True
        )
        pools: list[Pool | tuple[Size, ...]] = []
        for source, listing in zip(sources, listings, strict=True):
            if isinstance(listing, BaseException):
                return self._without_pools(source, listing)
            pools.extend(listing.items.values() if listing is not None else ())
        joined = self._same_pools(pools)
        return self._tally.added_to(replace(self._of_watches(), pools=joined.pools, templates=joined.templates))

    def _of_watches(self) -> ClusterView:
        """Return the view from the watches without Nodes, which change more often than the rest."""
        if self._without_nodes is None:
            joined = self._same_pools(item for mirror in self._pools for item in mirror.items.values())
            budgets = next((by_namespace(mirror.items) for mirror in self._budgets if mirror.known), None)
            self._without_nodes = ClusterView(
                pools=joined.pools,
                templates=joined.templates,
                namespaces=labels_by_namespace(self._namespaces.items),
                api_server=self._version,
                why_unknown="",
                remedy="",
                references=self._references,
                budgets=budgets,
            )
        return self._without_nodes

    def _same_pools(self, items: Iterable[Pool | tuple[Size, ...]]) -> Joined:
        """Return the sorted pools. Reuse the previous tuple if it is equal, because rules cache results by identity."""
        joined = join(items)
        pools = tuple(sorted(joined.pools, key=lambda pool: pool.identity))
        same = self._last_pools.pools if pools == self._last_pools.pools else pools
        self._last_pools = Joined(same, joined.templates)
        return self._last_pools

    def _without_pools(self, source: WatchedResource[Any], problem: BaseException | None) -> ClusterView:
        why, remedy = f"{unread(source, problem)}.", _remedy(source, problem)
        unknown = replace(self._of_watches(), pools=None, templates=(), why_unknown=why, remedy=remedy)
        return self._tally.added_to(unknown)

    def _changed(self) -> None:
        self._without_nodes = None
        self._forget_view()

    def _refer(self, before: tuple[str, Reference] | None, after: tuple[str, Reference] | None) -> None:
        if before is not None:
            del self._references[before[0]]
        if after is not None:
            self._references[after[0]] = after[1]

    def _forget_view(self) -> None:
        self._view = None
        self._sync()

    def _sync(self) -> None:
        if (
            self._version_asked
            and all(mirror.known for mirror in self._needed)
            and all(mirror.known or mirror.problem is not None for mirror in self._optional)
        ):
            self._synced.set()

    async def _follow_version(self) -> None:
        pauses = self._pace.pauses()
        while True:
            pause = self._pace.version
            try:
                self._version = await api_server_version(self._api, self._pace.answer)
                pauses, self._version_asked = self._pace.pauses(), True
            except ApiError as error:  # the version is optional
                pause = next(pauses)
                self._version_asked |= error.status != NO_ANSWER
            self._changed()
            await asyncio.sleep(pause)


def _remedy(source: WatchedResource[Any], problem: BaseException | None) -> str:
    match problem:
        case ApiError(status=HTTPStatus.FORBIDDEN):
            return f"permit spotgate's ServiceAccount to list and watch {source}"
        case ApiError(status=HTTPStatus.UNAUTHORIZED):
            return "give spotgate credentials that the API server accepts"
    return "try again; if that doesn't help, see spotgate's log"

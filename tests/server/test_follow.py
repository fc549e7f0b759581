"""Policies take effect only after their state has been read from the live cluster."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.answers import Answer, Silence
from tests.server.harness import LOOPBACK, PAIR, SHORT, Client, Known, bundle_of
from webhook.cluster.api import Api, ApiError
from webhook.kube.references import KINDS
from webhook.runtime.log import configure_logging
from webhook.runtime.reload import Reloader
from webhook.runtime.snapshot import Snapshot
from webhook.server.follow import LiveCluster
from webhook.server.lifecycle import Replica, Stop
from webhook.server.tls.serving import ServingCertificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp


WATCHES = 2 + len(KINDS)
"""The watches of one bundle without providers: Namespaces, Nodes, and the objects that Pods name."""


@pytest.fixture(autouse=True)
def written() -> io.BytesIO:
    """Return the log."""
    file = io.BytesIO()
    configure_logging(file)
    return file


class Gate(Api):
    """An API server without objects that answers while the gate is open."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.watches = 0
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    @asynccontextmanager
    async def get(self, path: str, *_: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        if not self.open.is_set():
            raise ApiError("closed")
        body: object = {"metadata": {"resourceVersion": "1"}, "items": []}
        if path == "/version":
            body = {"gitVersion": "v1.35.2"}
        if "watch=1" not in path:
            yield cast("aiohttp.ClientResponse", Answer(body))
            return
        of_policies = "/leases" not in path  # the floor's Lease is always watched
        self.watches += of_policies
        try:
            yield cast("aiohttp.ClientResponse", Silence())
        finally:
            self.watches -= of_policies


class Running:
    """A running `LiveCluster` and the snapshots that it loaded."""

    def __init__(self) -> None:
        self.api = Gate()
        self.cluster = LiveCluster(self.api)
        self.used: list[Snapshot] = []

    @property
    def hashes(self) -> list[str]:
        return [snapshot.bundle.hash for snapshot in self.used]


@asynccontextmanager
async def running() -> AsyncIterator[Running]:
    it = Running()
    run = asyncio.create_task(it.cluster.run(snapshot("first"), it.used.append))
    yield it
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert it.api.closed
    assert it.api.watches == 0


def snapshot(name: str) -> Snapshot:
    return Snapshot(bundle_of(name=name), Known())


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for is elsewhere
            await asyncio.sleep(0.001)


async def test_policies_are_not_loaded_until_the_cluster_is_known() -> None:
    async with running() as it:
        await until(lambda: "closed" in it.cluster.waits_for)
        assert it.cluster.waits_for == "namespaces can't be read: closed"
        assert not it.used
        it.api.open.set()
        await until(lambda: it.used)
        assert it.hashes == ["first"]
        assert it.cluster.waits_for == ""
        assert it.used[0].state.view().api_server == (1, 35)


async def test_new_policies_wait_for_their_state_while_the_old_ones_decide() -> None:
    async with running() as it:
        it.api.open.set()
        await until(lambda: it.used and it.api.watches == WATCHES)
        it.api.open.clear()
        it.cluster.offer(snapshot("second"))
        await asyncio.sleep(0.05)
        assert it.hashes == ["first"]
        assert it.cluster.waits_for == ""
        assert it.api.watches == WATCHES  # for the first
        it.api.open.set()
        await until(lambda: len(it.used) == 2)
        assert it.hashes == ["first", "second"]
        assert it.used[0].state is not it.used[1].state
        await until(lambda: it.api.watches == WATCHES)  # for the second


async def test_newer_policies_replace_waiting_ones() -> None:
    async with running() as it:
        await until(lambda: "closed" in it.cluster.waits_for)
        it.cluster.offer(snapshot("second"))
        await asyncio.sleep(0)
        it.cluster.offer(snapshot("third"))
        it.api.open.set()
        await until(lambda: it.used)
        await asyncio.sleep(0.05)
        assert it.hashes == ["third"]
        await until(lambda: it.api.watches == WATCHES)


async def test_a_replica_without_cluster_state_answers_but_is_not_ready(tmp_path: Path) -> None:
    api, stop, listener = Gate(), Stop(), LOOPBACK.bind()
    reloader = Reloader(lambda: snapshot("first"), (tmp_path,))
    replica = Replica(listener, ServingCertificate(PAIR), reloader, SHORT, LiveCluster(api))
    run = asyncio.create_task(replica.run(stop))
    await until(lambda: "closed" in replica.waits_for)
    assert (await asyncio.to_thread(Client(listener.getsockname()[1], 0).post)).allowed
    assert replica.why_not_ready
    api.open.set()
    await until(lambda: not replica.why_not_ready)
    stop.skip_drain()
    await run

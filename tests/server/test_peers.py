"""Peers share scarce capacity: the largest user is limited first, and a lone peer may use everything."""

from __future__ import annotations

import asyncio
import dataclasses
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.server.harness import SHORT, Slow, bundle_of, eventually, review
from tests.server.test_connections import HEAD, LONG, is_cut
from webhook.server.http.peers import Peer, Peers

if TYPE_CHECKING:
    from tests.server.conftest import Start

ELSEWHERE = "127.0.0.2"


# Turns --------------------------------------------------------------------------------------------------------------


async def service_order(peers: Peers, *queues: tuple[Peer, int, float]) -> list[str]:
    """Return the order of service for peers that each queue a number of requests of some duration at once."""
    order: list[str] = []

    async def ask(peer: Peer, cost: float) -> None:
        await peers.turn(peer)
        order.append(peer.address)
        peer.time += cost

    await asyncio.gather(*(ask(peer, cost) for peer, count, cost in queues for _ in range(count)))
    return order


async def test_a_busy_peer_waits_for_a_quiet_one() -> None:
    peers = Peers()
    flood, quiet = peers.at("flood"), peers.at("quiet")
    order = await service_order(peers, (flood, 100, 0.03), (quiet, 3, 0.001))
    assert order.index("quiet") <= 1
    assert [n for n, address in enumerate(order) if address == "quiet"][-1] <= 4
    assert len(order) == 103


async def test_equal_peers_take_turns_by_work_done() -> None:
    peers = Peers()
    order = await service_order(peers, (peers.at("a"), 30, 0.02), (peers.at("b"), 60, 0.01))
    for upto in range(3, 90, 3):
        done = {"a": 0.02 * order[:upto].count("a"), "b": 0.01 * order[:upto].count("b")}
        assert abs(done["a"] - done["b"]) <= 0.021


async def test_unused_time_is_not_saved() -> None:
    peers = Peers()
    busy, late = peers.at("busy"), peers.at("late")
    await service_order(peers, (busy, 50, 1.0))
    order = await service_order(peers, (busy, 20, 1.0), (late, 20, 1.0))
    assert all(one != other for one, other in pairwise(order[2:])), order


async def test_a_new_peer_gets_no_preference_over_a_lone_one() -> None:
    peers = Peers()
    alone = peers.at("alone")
    await service_order(peers, (alone, 50, 1.0))
    order = await service_order(peers, (alone, 20, 1.0), (peers.at("new"), 20, 1.0))
    assert order[:10].count("alone") >= 4


async def test_a_peer_that_stops_waiting_takes_no_turn() -> None:
    peers = Peers()
    one, other = peers.at("one"), peers.at("other")
    left = asyncio.create_task(peers.turn(one))
    stays = asyncio.create_task(peers.turn(other))
    await asyncio.sleep(0)
    left.cancel()
    async with asyncio.timeout(10):
        await stays
    assert left.cancelled()


async def test_a_lone_peer_does_not_wait() -> None:
    peers = Peers()
    coroutine = peers.turn(peers.at("alone"))
    with pytest.raises(StopIteration):
        coroutine.send(None)


# Connections --------------------------------------------------------------------------------------------------------


def test_partial_requests_from_one_address_cost_others_no_connection(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, connections=10))
    with ExitStack() as stack:
        kept = [stack.enter_context(closing(served.connection())) for _ in range(3)]
        for connection in kept:
            assert served.post(over=connection).allowed
        sockets = [connection.sock for connection in kept]
        flood = []
        for _ in range(40):
            client = stack.enter_context(served.socket(ELSEWHERE))
            client.sendall(HEAD)
            flood.append(client)
        eventually(lambda: served.metric("spotgate_connections_cut_total", reason="evicted") >= 33)
        assert is_cut(flood[0])
        for connection in kept:
            assert served.post(over=connection).allowed
        assert [connection.sock for connection in kept] == sockets
        assert served.post().allowed, "a new connection is accepted"


def test_partial_requests_from_a_shared_address_are_cut_first(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, connections=10))
    with ExitStack() as stack:
        kept = stack.enter_context(closing(served.connection()))
        assert served.post(over=kept).allowed
        first = kept.sock
        for _ in range(40):
            client = stack.enter_context(served.socket())
            client.sendall(HEAD)
        assert served.post(over=kept).allowed
        assert kept.sock is first


def test_a_lone_peer_may_have_all_connections(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, connections=10))
    with ExitStack() as stack:
        kept = [stack.enter_context(closing(served.connection())) for _ in range(10)]
        for connection in [*kept, *kept]:
            assert served.post(over=connection).allowed
        assert served.metric("spotgate_connections_cut_total") == 0


# Requests and bytes -------------------------------------------------------------------------------------------------


def test_waiting_requests_only_block_their_own_peer(start: Start) -> None:
    state = Slow()
    served = start(bundle_of(fresh_pools=True), state, limits=dataclasses.replace(SHORT, in_flight=4, fresh=20))

    def ask(source: str) -> int:
        with closing(served.connection(source)) as connection:
            return served.post(path="/validate?timeout=25s", over=connection).status

    with ThreadPoolExecutor(8) as pool:
        flood = [pool.submit(ask, ELSEWHERE) for _ in range(4)]
        for _ in flood:
            assert state.asked.acquire(timeout=20)
        ours = pool.submit(ask, "127.0.0.1")
        assert state.asked.acquire(timeout=20), "evaluated although the capacity is used up"
        assert ask(ELSEWHERE) == 429
        served.loop.call_soon_threadsafe(state.open.set)
        assert [task.result() for task in (*flood, ours)] == [200] * 5


def test_large_bodies_only_block_their_own_peer(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, buffered_bytes=250_000))
    piece = b" " * 100_000
    large = [review(), piece]  # in pieces, so that the size is unknown in advance

    def ask(source: str, body: bytes | list[bytes]) -> int:
        with closing(served.connection(source)) as connection:
            return served.post(body, over=connection).status

    with ExitStack() as stack:
        for _ in range(2):
            holding = stack.enter_context(served.socket(ELSEWHERE))
            holding.sendall(HEAD.replace(b"1000", b"300000") + piece)
        eventually(lambda: ask(ELSEWHERE, large) == 429)
        assert ask("127.0.0.1", large) == 200
        assert ask(ELSEWHERE, review()) == 200, "a small body is always read"

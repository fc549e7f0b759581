"""Limits of request size, concurrency, and answer time."""

from __future__ import annotations

import dataclasses
import gzip
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.server.harness import SHORT, Known, Slow, bundle_of, eventually, review
from webhook.model.decision import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.server.conftest import Start
    from webhook.capacity.view import ClusterView
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject

MIB = 1024 * 1024


def deny_unknown(_: Subject, context: Context) -> Iterable[Violation]:
    """Deny with the reason why the pools are unknown; allow if they are known."""
    if context.view.pools is None:
        yield Violation(id="unwanted", reason=context.view.why_unknown, unknown=True)


# Size ---------------------------------------------------------------------------------------------------------------


def test_a_decompression_bomb_is_not_decompressed(start: Start) -> None:
    served = start()
    packed = gzip.compress(b" " * 100 * MIB)
    assert served.post(packed, headers={"Content-Encoding": "gzip"}).status == 415
    assert served.post().allowed


def pieces(size: int) -> Iterator[bytes]:
    for _ in range(size // 65536):
        yield b" " * 65536


def test_I2_a_large_body_is_rejected_by_its_content_length(start: Start) -> None:
    served = start()
    with served.socket() as client:
        client.sendall(
            b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20000000\r\n\r\n"
        )
        assert client.recv(1024).startswith(b"HTTP/1.1 413 ")
    assert served.post().allowed


@pytest.mark.parametrize("in_chunks", [True, False])
def test_I2_a_body_of_20_MB_is_rejected_in_any_encoding(start: Start, *, in_chunks: bool) -> None:
    served = start()
    answer = served.post(pieces(20 * MIB) if in_chunks else b" " * 20 * MIB)
    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    assert served.post().allowed
    assert served.metric("spotgate_rejected_total", reason="too large") == 1


def test_I2_a_review_of_two_maximal_objects_fits(start: Start) -> None:
    large = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "y" * 3 * MIB}}
    assert start().post(review(object=large, oldObject=large, operation="UPDATE")).allowed


def test_I2_concurrent_large_bodies_are_asked_to_retry(start: Start) -> None:
    served = start(limits=dataclasses.replace(SHORT, buffered_bytes=2 * MIB, receive=30))

    def in_pieces() -> Iterator[bytes]:
        yield review()[:100]
        time.sleep(0.1)
        yield review()[100:]

    with ExitStack() as held:
        for _ in range(3):
            client = held.enter_context(served.socket())
            client.sendall(
                b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 6000000\r\n\r\n"
            )
            client.sendall(b" " * MIB)
        eventually(lambda: served.metric("spotgate_shed_total", reason="many large requests") > 0)
        assert served.post().allowed, "small bodies are answered"
        assert served.post(in_pieces()).allowed, "chunked bodies are answered"
    eventually(lambda: served.post(review(object={"data": "x" * 1_500_000})).status == 200)


# Concurrency and timeouts -------------------------------------------------------------------------------------------


def test_L2_requests_over_the_limit_are_asked_to_retry_at_once(start: Start) -> None:
    state = Slow()
    served = start(
        bundle_of(deny_unknown, fresh_pools=True), state, limits=dataclasses.replace(SHORT, in_flight=3, fresh=20)
    )
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(served.post, path="/validate?timeout=25s") for _ in range(3)]
        for _ in waiting:
            assert state.asked.acquire(timeout=20)
        connection = served.connection()
        shed = served.post(over=connection)
        assert shed.status == 429
        assert shed.headers["retry-after"] == "1"
        assert "busy" in shed.json["error"]
        assert served.metric("spotgate_in_flight") == 3
        served.loop.call_soon_threadsafe(state.open.set)
        assert all(task.result().allowed for task in waiting)
        assert served.post(over=connection).allowed, "on the same connection"
        connection.close()
    assert served.metric("spotgate_shed_total") == 1
    assert served.metric("spotgate_in_flight") == 0


@pytest.mark.parametrize("timeout", ["600ms", "1s", "100ms"])
def test_H11_I3_state_later_than_the_callers_timeout_is_unknown(start: Start, timeout: str) -> None:
    served = start(bundle_of(deny_unknown, fresh_pools=True), Slow(), limits=dataclasses.replace(SHORT, receive=30))
    answer = served.post(path=f"/validate?timeout={timeout}")
    assert not answer.allowed
    assert "The node pools could not be read within" in answer.json["response"]["status"]["message"]
    assert served.metric("spotgate_unknown_total") == 1


def test_I3_a_failed_lookup_is_unknown(start: Start) -> None:
    class Broken(Known):
        async def fresh(self) -> ClusterView:
            raise RuntimeError("token abc123")

    served = start(bundle_of(deny_unknown, fresh_pools=True), Broken())
    answer = served.post()
    assert not answer.allowed
    assert "Reading the node pools failed" in answer.json["response"]["status"]["message"]
    assert served.log("reading the cluster failed")[0]["error"] == "RuntimeError"
    assert "abc123" not in served.text_of_log()


def test_state_is_not_refreshed_unless_a_policy_needs_it(start: Start) -> None:
    state = Slow()
    assert start(bundle_of(deny_unknown), state).post().allowed
    assert not state.asked.acquire(blocking=False)

"""The server cuts abusive connections, keeps the others, and answers after each abuse."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import random
import re
import socket
import ssl
import time
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING

import pytest
import uvloop

from tests.server.harness import PAIR, PATIENCE, SHORT, eventually, review
from webhook.runtime.limits import LIMITS
from webhook.server.http.connections import Acceptor
from webhook.server.http.metrics import Metrics
from webhook.server.http.peers import Peers
from webhook.server.tls.serving import ServingCertificate

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from tests.server.conftest import Start
    from tests.server.harness import Served

HEAD = b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"

# Longer than the others, so that only the tested deadline can cut the connection.
LONG = dataclasses.replace(SHORT, handshake=60, receive=60)


def is_cut(client: socket.socket) -> bool:
    """Wait for the server to end the connection."""
    client.settimeout(PATIENCE)
    try:
        while client.recv(4096):
            pass
    except ConnectionError:
        pass
    except ssl.SSLError:  # cut without a TLS close notification
        pass
    return True


def answers(served: Served) -> bool:
    """Return whether the server answers; a delayed client may be cut in tests with a short deadline."""
    try:
        return served.post().allowed
    except OSError:
        return False


def trickle(client: socket.socket, content: bytes) -> None:
    """Send byte by byte until the server cuts the connection."""
    try:
        for number in range(len(content)):
            client.sendall(content[number : number + 1])
            time.sleep(0.05)
    except (ConnectionError, ssl.SSLError):
        return
    pytest.fail("it was never cut")


# Deadlines ----------------------------------------------------------------------------------------------------------


def test_H12_a_client_that_sends_nothing_is_cut(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, handshake=0.3))
    with served.plain_socket() as client:
        assert is_cut(client)
    assert served.metric("spotgate_connections_cut_total", reason="handshake") == 1
    eventually(partial(answers, served))


def test_H12_a_client_that_does_not_end_its_handshake_is_cut(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, handshake=0.3))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = served.tls.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    with served.plain_socket() as client:
        client.sendall(outgoing.read()[:100])
        assert is_cut(client)
    eventually(partial(answers, served))


def test_H12_a_client_that_sends_its_head_byte_by_byte_is_cut(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, receive=0.3))
    with served.socket() as client:
        trickle(client, HEAD)
    assert served.metric("spotgate_connections_cut_total", reason="slow") == 1
    eventually(partial(answers, served))


def test_H12_a_client_that_sends_its_body_byte_by_byte_is_cut(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, receive=0.3))
    with served.socket() as client:
        client.sendall(HEAD)
        trickle(client, b" " * 1000)
    assert served.metric("spotgate_connections_cut_total", reason="slow") == 1
    eventually(partial(answers, served))


def test_H12_the_second_request_on_a_connection_has_the_same_deadline(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, receive=0.3))
    connection = served.connection()
    assert served.post(over=connection).allowed
    connection.sock.sendall(HEAD[:20])
    assert is_cut(connection.sock)
    connection.close()
    eventually(partial(answers, served))


def test_H12_a_pipelined_request_has_the_same_deadline(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, receive=0.3))
    body = review()
    first = HEAD.replace(b"1000", b"%d" % len(body)) + body
    with served.socket() as client:
        client.sendall(first + HEAD)
        assert is_cut(client)
    assert served.metric("spotgate_decisions_total") == 1
    assert served.metric("spotgate_connections_cut_total", reason="slow") == 1


def test_L1_an_idle_connection_outlives_the_request_deadline(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, receive=0.5))
    connection = served.connection()
    assert served.post(over=connection).allowed
    time.sleep(1.2)
    assert served.post(over=connection).allowed
    connection.close()


def test_L1_an_idle_connection_outlives_the_api_servers_idle_timeout() -> None:
    assert 90 < LIMITS.keep_alive <= 300


def test_L1_an_idle_connection_is_closed_eventually(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, keep_alive=0.3))
    connection = served.connection()
    assert served.post(over=connection).allowed
    assert is_cut(connection.sock)
    connection.close()


# Number -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("silent", ["plain_socket", "socket"])
def test_H12_idle_connections_lock_out_no_other_client(start: Start, silent: str) -> None:
    served = start(limits=dataclasses.replace(LONG, connections=10))
    with ExitStack() as stack:
        held = [stack.enter_context(getattr(served, silent)()) for _ in range(50)]
        assert served.post().allowed
        assert served.metric("spotgate_connections") <= 10
        assert served.metric("spotgate_connections_cut_total", reason="evicted") >= 40
        assert is_cut(held[0]), "the longest waiting client is cut first"
    assert served.post().allowed


def test_H12_an_active_connection_stays_open(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, connections=5))
    with ExitStack() as stack, closing(served.connection()) as connection:
        assert served.post(over=connection).allowed
        first = connection.sock
        for _ in range(30):
            stack.enter_context(served.socket())
            assert served.post(over=connection).allowed
        assert connection.sock is first


# Renewal ------------------------------------------------------------------------------------------------------------


def test_L6_connections_are_renewed_periodically(start: Start) -> None:
    served = start(limits=dataclasses.replace(LONG, recycle=0.2))
    connection = served.connection()
    answers = [served.post(over=connection)]
    while answers[-1].headers.get("connection") != "close":
        answers.append(served.post(over=connection))
        time.sleep(0.02)
    assert all(answer.allowed for answer in answers)
    connection.close()


def test_L6_connection_renewals_are_spread_over_time(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    jitters = iter([0.0, 1.0])
    monkeypatch.setattr(random, "uniform", lambda _least, _most: next(jitters))
    served = start(limits=LONG)
    with closing(served.connection()) as first, closing(served.connection()) as second:
        assert served.post(over=first).headers.get("connection") == "close"
        assert "connection" not in served.post(over=second).headers


# Traffic other than HTTP over TLS -----------------------------------------------------------------------------------


def plain_http(served: Served) -> None:
    with served.plain_socket() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert is_cut(client)


def truncated_tls(served: Served) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        served.tls.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    with served.plain_socket() as client:
        client.sendall(outgoing.read()[:50])
        client.shutdown(socket.SHUT_WR)
        assert is_cut(client)


def garbage(served: Served) -> None:
    with served.plain_socket() as client:
        client.sendall(b"\x16\x03\x01\xff\xff" + b"\x00" * 500)
        assert is_cut(client)


def tls_1_1(served: Served) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with served.plain_socket() as client, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(client)


def aborted_data(served: Served) -> None:
    with served.socket() as client:
        client.sendall(HEAD)
        raw = socket.socket(fileno=client.detach())
    raw.sendall(b"\x17\x03\x03\x40\x00broken")
    raw.close()


def reset(served: Served) -> None:
    client = served.plain_socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    client.close()


@pytest.mark.parametrize("abuse", [plain_http, truncated_tls, garbage, tls_1_1, aborted_data, reset])
def test_H13_I7_traffic_that_is_not_TLS_affects_no_other_client(start: Start, abuse: Callable[[Served], None]) -> None:
    served = start()
    connection = served.connection()
    assert served.post(over=connection).allowed
    for _ in range(3):
        abuse(served)
    assert served.post(over=connection).allowed
    connection.close()
    assert served.post().allowed
    eventually(lambda: served.metric("spotgate_connections") == 0)
    assert not served.log("unhandled error")


@pytest.mark.parametrize(
    "request_head",
    [
        b"NONSENSE\r\n\r\n",
        b"POST /validate\r\n\r\n",
        b"POST /validate HTTP/9.9\r\n\r\n",
        b"POST /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /validate HTTP/1.1\r\n" + b"".join(b"h%d: x\r\n" % n for n in range(1000)) + b"\r\n",
        b"POST /validate HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"\x00\x01\x02\x03\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_I7_malformed_HTTP_is_rejected_and_the_connection_closed(start: Start, request_head: bytes) -> None:
    served = start()
    with served.socket() as client:
        client.sendall(request_head)
        assert re.match(rb"HTTP/\d\.\d 4\d\d ", client.recv(65536))
        assert is_cut(client)
    assert served.post().allowed
    assert "Traceback" not in served.text_of_log()
    assert not served.log("connection failed")


def test_I7_a_protocol_upgrade_is_rejected(start: Start) -> None:
    served = start()
    with closing(served.connection()) as connection:
        headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
        for _ in range(2):
            assert served.post(headers=headers, over=connection).allowed
        assert served.post(over=connection).allowed


def test_I7_a_request_appended_to_a_body_is_a_second_request(start: Start) -> None:
    served = start()
    body = review()
    head = b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    with served.socket() as client:
        client.sendall(head + body + b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
        received = b""
        while received.count(b"HTTP/1.1 ") < 2:
            received += client.recv(65536)
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert b"HTTP/1.1 404 " in received


@pytest.mark.parametrize("turns", range(20))
def test_L3_a_client_that_connects_during_shutdown_is_disconnected(turns: int) -> None:
    async def end_after(turns: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(0)
            context = ServingCertificate(PAIR).context
            acceptor = Acceptor(listener, _unexpected, lambda: context, metrics=Metrics(), limits=SHORT, peers=Peers())
            accepting = asyncio.create_task(acceptor.accept())
            await asyncio.sleep(0.01)
            with socket.create_connection(listener.getsockname(), timeout=PATIENCE) as client:
                for _ in range(turns):
                    await asyncio.sleep(0)
                accepting.cancel()
                await asyncio.wait([accepting])
                await acceptor.close()
                assert await asyncio.to_thread(is_cut, client)

    uvloop.run(end_after(turns))
    gc.collect()  # an unclosed socket is a warning, and therefore an error


async def _unexpected(_: web.BaseRequest) -> web.StreamResponse:
    raise AssertionError

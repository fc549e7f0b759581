"""A load generator for an API server: creates with `dryRun=All` over keep-alive TLS connections to 127.0.0.1.

Each connection sends the next request when it has its answer. The request is built once, and answers are hardly parsed,
so that it takes little of the processor time that it shares with what it measures.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final, cast

import uvloop

if TYPE_CHECKING:
    from pathlib import Path

_HOST: Final = "127.0.0.1"

_DEADLINE: Final = 120.0
"""Seconds after which it gives up."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of it; times are in seconds."""

    seconds: float
    latencies: list[float]


@dataclass(frozen=True, slots=True)
class Creates:
    """Creates of one and the same object.

    Attributes:
        port: the API server's, on 127.0.0.1.
        authority: verifies its certificate.
        request: head and body, as sent.
    """

    port: int
    authority: Path
    request: bytes

    @classmethod
    def build(cls, port: int, authority: Path, *, path: str, token: str, body: bytes) -> Creates:
        """For this JSON object, at the path of its collection."""
        head = (
            f"POST {path}?dryRun=All HTTP/1.1\r\n"
            f"Host: {_HOST}:{port}\r\n"
            f"Authorization: Bearer {token}\r\n"
            "User-Agent: spotgate-bench\r\n"
            "Accept: application/json\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
            "\r\n"
        )
        return cls(port, authority, head.encode() + body)

    def send(self, *, connections: int, count: int) -> Loaded:
        """Send so many over so many connections. Ends the program if one fails."""
        return uvloop.run(self._send(connections, count))

    async def _send(self, connections: int, count: int) -> Loaded:
        loop = asyncio.get_running_loop()
        context = ssl.create_default_context(cafile=str(self.authority))
        done = loop.create_future()
        load = _Load(self.request, count, done)
        clients = [
            (await loop.create_connection(lambda: _Client(load), _HOST, self.port, ssl=context))[1]
            for _ in range(connections)
        ]
        started = perf_counter()
        for client in clients:
            client.send()
        try:
            await asyncio.wait_for(done, _DEADLINE)
        except TimeoutError:
            raise SystemExit(f"{load.to_receive} of {count} answers are missing after {_DEADLINE:.0f} s") from None
        seconds = perf_counter() - started
        for client in clients:
            client.close()
        return Loaded(seconds, load.latencies)


class _Load:
    """What all connections share: how much is left to do, and what was measured."""

    def __init__(self, request: bytes, count: int, done: asyncio.Future[None]) -> None:
        self.request = request
        self.to_send = self.to_receive = count
        self.latencies: list[float] = []
        self._done = done

    def received(self, seconds: float) -> None:
        self.latencies.append(seconds)
        self.to_receive -= 1
        if not self.to_receive:
            self._done.set_result(None)

    def failed(self, why: str) -> None:
        if not self._done.done():
            self._done.set_exception(SystemExit(why))


class _Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._received = bytearray()
        self._started = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self) -> None:
        """Send the next request, if one is left."""
        if not self._load.to_send:
            return
        self._load.to_send -= 1
        self._started = perf_counter()
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        # The answer is long enough to come in chunks, and JSON holds no line break of its own.
        if not received.endswith(b"\r\n0\r\n\r\n"):
            return
        if not received.startswith(b"HTTP/1.1 201 "):
            self._load.failed(f"the API server refused: {received.decode()}")
            return
        seconds = perf_counter() - self._started
        received.clear()
        self._load.received(seconds)
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.failed(f"the API server closed a connection: {exc or bytes(self._received)!r}")

    def close(self) -> None:
        self._transport.close()

"""A load generator for an API server: creates with `dryRun=All` over persistent TLS connections to 127.0.0.1.

Each connection sends the next request after it gets an answer. To save CPU time, which it shares with the servers, the
generator builds the request once and hardly parses the answers.
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
"""Seconds after which the generator gives up."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a load. Times are in seconds."""

    seconds: float
    latencies: list[float]


@dataclass(frozen=True, slots=True)
class Creates:
    """Requests that create the same object.

    Attributes:
        port: the port of the API server on 127.0.0.1.
        authority: the file with the CA of its certificate.
        request: the bytes of the request.
    """

    port: int
    authority: Path
    request: bytes

    @classmethod
    def build(cls, port: int, authority: Path, *, path: str, token: str, user: str, body: bytes) -> Creates:
        """Build the request for this JSON object and the path of its collection, as ``user`` unless it is empty."""
        impersonated = f"Impersonate-User: {user}\r\n" if user else ""
        head = (
            f"POST {path}?dryRun=All HTTP/1.1\r\n"
            f"Host: {_HOST}:{port}\r\n"
            f"Authorization: Bearer {token}\r\n"
            f"{impersonated}"
            "User-Agent: spotgate-bench\r\n"
            "Accept: application/json\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
            "\r\n"
        )
        return cls(port, authority, head.encode() + body)

    def send(self, *, connections: int, count: int) -> Loaded:
        """Send ``count`` requests over ``connections``. Exit the program if one fails."""
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
    """The state that all connections share: the remaining work, and the measurements."""

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
    """A connection to the API server."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._received = bytearray()
        self._started = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def send(self) -> None:
        """Send the next request, if any."""
        if not self._load.to_send:
            return
        self._load.to_send -= 1
        self._started = perf_counter()
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        # The answer is long enough to be chunked, and JSON contains no raw line breaks.
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

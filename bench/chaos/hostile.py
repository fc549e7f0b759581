"""Attack the webhook from 127.0.0.2: `python -m bench.chaos.hostile KIND SECONDS PORT...`.

This is a separate process, so that measurements of the webhook exclude its cost. It still competes for CPU time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from itertools import cycle
from typing import TYPE_CHECKING, Final

import orjson
import uvloop

from tests.builders import pod

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ADDRESS: Final = "127.0.0.2"
HALF_SENT: Final = 2_000
CLIENTS: Final = 8
BODY_BYTES: Final = 282 * 1024

_HEAD: Final = (
    "POST /validate?timeout=3s HTTP/1.1\r\n"
    "Host: spotgate\r\n"
    "Content-Type: application/json\r\n"
    "Content-Length: %d\r\n\r\n"
)


def _review() -> bytes:
    """Return a review of a Pod with about BODY_BYTES, from a user who claims to be in system:masters."""
    large = pod("hostile")
    # 27 bytes each.
    large["spec"]["nodeSelector"] = {f"hostile.example/{number:05}": "" for number in range(BODY_BYTES // 27)}
    body = orjson.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "1",
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "operation": "CREATE",
                "namespace": "default",
                "userInfo": {"username": "hostile", "groups": ["system:masters"]},
                "object": large,
            },
        }
    )
    return (_HEAD % len(body)).encode() + body


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, ssl=_context(), local_addr=(ADDRESS, 0))


async def half_sent(ports: list[int]) -> None:
    """Keep 2,000 connections open, each with an unfinished body."""
    ends = cycle(ports)
    at_once = asyncio.Semaphore(50)

    async def one() -> None:
        async with at_once:
            reader, writer = await _connect(next(ends))
        with contextlib.closing(writer.transport):
            writer.write((_HEAD % BODY_BYTES).encode() + b'{"kind": "AdmissionReview", "request": {')
            await reader.read()

    await asyncio.gather(*(_forever(one) for _ in range(HALF_SENT)))


async def reviews(ports: list[int]) -> None:
    """Send large reviews from eight clients without a pause."""
    ends, request = cycle(ports), _review()

    async def one() -> None:
        reader, writer = await _connect(next(ends))
        with contextlib.closing(writer.transport):
            while True:
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
                await reader.readexactly(int(length or 0))

    await asyncio.gather(*(_forever(one) for _ in range(CLIENTS)))


async def handshakes(ports: list[int]) -> None:
    """Open TLS connections from eight clients without a pause, and eight sockets that send nothing."""
    ends = cycle(ports)

    async def one() -> None:
        _, writer = await _connect(next(ends))
        writer.transport.abort()

    async def silent() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", next(ends), local_addr=(ADDRESS, 0))
        with contextlib.closing(writer.transport):
            await reader.read()

    await asyncio.gather(*(_forever(client) for _ in range(CLIENTS) for client in (one, silent)))


async def _forever(one: Callable[[], Awaitable[None]]) -> None:
    while True:
        with contextlib.suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await one()
        await asyncio.sleep(0.01)


KINDS: Final = {attack.__name__: attack for attack in (half_sent, reviews, handshakes)}


async def _run(kind: str, seconds: float, ports: list[int]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await KINDS[kind](ports)


if __name__ == "__main__":
    uvloop.run(_run(sys.argv[1], float(sys.argv[2]), [int(port) for port in sys.argv[3:]]))

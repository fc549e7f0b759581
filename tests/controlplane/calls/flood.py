"""Flood a webhook from one address for SECONDS: half-sent bodies, large Pods in a loop, handshakes.

python -m tests.controlplane.calls.flood PORT SECONDS [SOURCE]

Exits after SECONDS, and prints the number of completed actions as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import sys
from collections import Counter
from time import monotonic

HALF_SENT = 2000
LOOPING = 8
HANDSHAKING = 4
ANNOTATION = 282 * 1024
"""Bytes of the looped Pod's annotation, which no policy reads."""

_HEAD = "POST /{} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


def large_review() -> bytes:
    """Return a review of a Pod of 282 KiB."""
    gvk = {"group": "", "version": "v1"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "large", "namespace": "default", "annotations": {"a": "x" * ANNOTATION}},
        "spec": {"containers": [{"name": "main", "image": "example.com/image"}]},
    }
    request = {
        "uid": "flood",
        "kind": gvk | {"kind": "Pod"},
        "resource": gvk | {"resource": "pods"},
        "name": "large",
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "system:masters", "groups": ["system:masters"]},
        "object": pod,
        "oldObject": None,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


class Flood:
    """A flood of connections and requests, with the counts of what completed."""

    def __init__(self, port: int, seconds: float, source: str) -> None:
        self._port = port
        self._end = monotonic() + seconds
        self._source = source
        self.done: Counter[str] = Counter()
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    async def run(self) -> None:
        """Send everything at once, until the time is up."""
        body = large_review()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + self._end - monotonic()):
                await asyncio.gather(
                    *(self._half_send(body[: len(body) // 2], len(body)) for _ in range(HALF_SENT)),
                    *(self._loop(body) for _ in range(LOOPING)),
                    *(self._shake_hands() for _ in range(HANDSHAKING)),
                )

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        plain = socket.socket()
        plain.setblocking(False)  # noqa: FBT003
        try:
            plain.bind((self._source, 0))
            await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", self._port))
            return await asyncio.open_connection(sock=plain, ssl=self._tls, server_hostname="localhost")
        except BaseException:
            plain.close()
            raise

    async def _half_send(self, body: bytes, promised: int) -> None:
        await asyncio.sleep(1)  # the other clients connect first: later, few connections succeed
        while monotonic() < self._end:
            with contextlib.suppress(OSError):
                reader, writer = await self._connect()
                writer.write(_HEAD.format("mutate", promised).encode() + body[:1000])
                self.done["half sent"] += 1
                await reader.read()
                writer.close()
            await asyncio.sleep(0.5)

    async def _loop(self, body: bytes) -> None:
        request = _HEAD.format("validate?timeout=10s", len(body)).encode() + body
        while monotonic() < self._end:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                reader, writer = await self._connect()
                while monotonic() < self._end:
                    writer.write(request)
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                    await reader.readexactly(length)
                    self.done[f"answered {head[9:12].decode()}"] += 1
            await asyncio.sleep(0.01)

    async def _shake_hands(self) -> None:
        while monotonic() < self._end:
            with contextlib.suppress(OSError):
                _, writer = await self._connect()
                self.done["handshakes"] += 1
                writer.close()
            await asyncio.sleep(0)


if __name__ == "__main__":
    flood = Flood(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "127.0.0.2")
    asyncio.run(flood.run())
    print(json.dumps(flood.done))  # noqa: T201

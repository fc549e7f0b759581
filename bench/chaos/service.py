"""Replicas of spotgate behind a Service, as kube-proxy and the kubelet would run them.

Each connection goes to one ready replica, and breaks if the replica dies. There are no retries.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from typing import TYPE_CHECKING, Final

import aiohttp

from tests.controlplane.harness.clock import other_clock
from tests.controlplane.harness.forked import ForkedSpotgate
from tests.controlplane.harness.webhook import SPOTGATE, WebhookError, ports_in
from webhook.rehearse.controlplane.process import Process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

REPLICAS: Final = 3
"""The number of replicas in manifests/base."""

_PROBE_SECONDS: Final = 1.0
"""The period of readiness probes in manifests/base: a dead replica may get connections for this long."""

_START_SECONDS: Final = 60.0


class Replica:
    """A process of `spotgate serve`."""

    def __init__(self, number: int, directory: Path, flags: list[str], clock: str = "", *, hasty: bool = False) -> None:
        program = [str(SPOTGATE)]
        if clock:
            hastily = [sys.executable, "-m", "tests.controlplane.harness.hasty"]
            program = [*other_clock(clock), *(hastily if hasty else program)]
        command = [*program, "serve", *flags, "--listen=127.0.0.1:0", "--ops=127.0.0.1:0"]
        start = ForkedSpotgate if hasty and not clock else Process
        self.process = start(f"spotgate-{number}", command, directory / f"spotgate-{number}.log")
        self.ready = False
        self.port = self.ops_port = 0

    async def start(self) -> None:
        """Start the process, and wait until it is ready. Raise WebhookError if it doesn't become ready."""
        self.process.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                while (ports := ports_in(self.process.log)) is None:  # noqa: ASYNC110 - it is another process
                    await asyncio.sleep(0.1)
                self.port, self.ops_port = ports
                while not self.ready:
                    await self.probe()
                    await asyncio.sleep(0.1)
        if not self.ready:
            raise WebhookError(f"a replica is not ready:\n{self.process.tail()}")

    async def probe(self) -> None:
        """Update `ready` from the readiness endpoint."""
        timeout = aiohttp.ClientTimeout(total=1)
        try:
            url = f"http://127.0.0.1:{self.ops_port}/readyz"
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
                self.ready = response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            self.ready = False

    async def ended(self, seconds: float) -> None:
        """Wait until the process has exited. Raise WebhookError if it doesn't exit within this time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.process.exit_code is None:  # noqa: ASYNC110 - it is another process
                    await asyncio.sleep(0.1)
                return
        raise WebhookError(f"a replica does not exit:\n{self.process.tail()}")


class Service:
    """Replicas behind one port. With `hasty`, the replicas poll their files more often."""

    def __init__(self, directory: Path, flags: list[str], *, hasty: bool = False) -> None:
        self.replicas: list[Replica] = []
        self.port = 0
        self._directory, self._flags, self._hasty = directory, flags, hasty
        self._started: list[Replica] = []
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the Service and its replicas, and stop them after the block."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        probing = asyncio.create_task(self._probe())
        try:
            await asyncio.gather(*(self.add() for _ in range(REPLICAS)))
            yield
        finally:
            probing.cancel()
            server.close()
            for writer in self._connections.values():
                writer.transport.abort()
            await asyncio.gather(probing, *self._connections, return_exceptions=True)
            for replica in self._started:
                replica.process.kill()

    async def add(self, *flags: str, clock: str = "") -> Replica:
        """Start another replica, with additional flags or a wrong clock. It gets connections once it is ready."""
        number = len(self._started)
        replica = Replica(number, self._directory, [*self._flags, *flags], clock, hasty=self._hasty)
        self._started.append(replica)
        await replica.start()
        self.replicas.append(replica)
        return replica

    async def delete(self, replica: Replica) -> None:
        """Stop a replica like a deleted Pod: no new connections, SIGTERM, and at most its grace period."""
        self.replicas.remove(replica)
        os.kill(replica.process.pid, signal.SIGTERM)
        await replica.ended(40)

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(_PROBE_SECONDS)
            await asyncio.gather(*(replica.probe() for replica in self.replicas))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)
        with contextlib.closing(writer.transport):
            ready = [replica for replica in self.replicas if replica.ready]
            if not ready:
                writer.transport.abort()
                return
            await _relay(reader, writer, random.choice(ready).port)  # noqa: S311


class CuttableApiServer:
    """A relay to the API server that can cut or freeze its connections, like a network or a load balancer."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self._target = port
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Relay connections during the block, and then close them."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            self.cut()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def cut(self) -> None:
        """Abort every connection."""
        for writer in tuple(self._connections.values()):
            writer.transport.abort()

    def freeze(self) -> None:
        """Discard all further data of the current connections, but acknowledge it. New connections work."""
        self._thawed.clear()
        self._thawed = asyncio.Event()
        self._thawed.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)
        with contextlib.closing(writer.transport):
            await _relay(reader, writer, self._target, self._thawed)


async def _relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, thawed: asyncio.Event | None = None
) -> None:
    """Copy data in both directions between a connection and this port, until one side closes.

    Discard data while ``thawed`` isn't set.
    """
    try:
        target = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.transport.abort()
        return
    with contextlib.closing(target[1].transport):
        ways = ((reader, target[1]), (target[0], writer))
        copies = [asyncio.create_task(_copy(*way, thawed)) for way in ways]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copy in copies:
                copy.cancel()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, thawed: asyncio.Event | None) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            if thawed is None or thawed.is_set():
                writer.write(data)
                await writer.drain()

"""``--workers N``: N processes accept from one listening socket, and this one looks after them.

Whoever is free accepts, so load spreads by itself, and what waits to be accepted survives the death of a worker (with
SO_REUSEPORT it would die with it). The workers count into files of a private folder (prometheus_client's multiprocess
mode), which add up here; what they say of themselves comes as datagrams. One that can't send any more has lost its
supervisor, and stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from webhook.server.log import log
from webhook.server.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from multiprocessing.context import SpawnProcess

    from prometheus_client import Metric

    from webhook.server.lifecycle import Stop, Worker
    from webhook.server.limits import Limits

_HEARTBEAT: Final = 0.5
"""Seconds between two words of a worker."""

_GRACE: Final = 5.0
"""Seconds a worker may take longer to stop than its limits say."""

_BACKOFF: Final = (0.1, 10.0)
"""Seconds before a dead worker is replaced: the first time, and at most; doubled each time."""

_LONG_LIFE: Final = 60.0
"""Seconds after which a worker's death is not held against its successor."""

_MESSAGE: Final = 256 * 1024
"""Bytes of a worker's word, at most: more than the system takes for a datagram."""


class Supervisor:
    """Starts workers, hears them, replaces them when they die, and ends when they have ended.

    Args:
        target: what a worker runs, in a fresh interpreter; it gets the socket on which to `report`. Must be picklable.
        count: of workers.
        limits: how long a worker may be silent, and take to stop.
        folder: for the workers' counters; private to this process.

    Attributes:
        registry: the sum of the workers' counters.
    """

    def __init__(self, target: Callable[[socket.socket], None], count: int, limits: Limits, folder: str) -> None:
        self.registry = CollectorRegistry()
        self._restarts = Counter(
            "spotgate_worker_restarts", "Workers replaced because they died.", registry=self.registry
        )
        self._target = target
        self._count = count
        self._limits = limits
        self._statuses: dict[int, Status] = {}
        self._processes: dict[int, SpawnProcess] = {}
        # The children read it when they import prometheus_client; in this process that has happened.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        self.registry.register(_Counters(Path(folder)))

    def statuses(self) -> list[Status]:
        """The newest word of every worker that lives."""
        return list(self._statuses.values())

    async def run(self, stop: Stop) -> None:
        """Keep the workers running until told to stop, and until they have stopped."""
        async with asyncio.TaskGroup() as group:
            keepers = [group.create_task(self._keep(number, stop)) for number in range(self._count)]
            stopping = group.create_task(self._pass_on(stop))
            await asyncio.wait(keepers)
            stopping.cancel()

    async def _keep(self, number: int, stop: Stop) -> None:
        delay, longest = _BACKOFF
        while not stop.wanted.is_set():
            born = time.monotonic()
            exit_code = await self._live(number)
            if stop.wanted.is_set():
                return
            self._restarts.inc()
            if time.monotonic() - born > _LONG_LIFE:
                delay = _BACKOFF[0]
            log.error("worker died", worker=number, exit_code=exit_code, replaced_in_seconds=delay)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wanted.wait(), delay)
            delay = min(2 * delay, longest)

    async def _live(self, number: int) -> int | None:
        """One worker from birth to death; its exit code."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.settimeout(0)
        theirs.settimeout(0)
        process = multiprocessing.get_context("spawn").Process(
            target=self._target, args=(theirs,), name=f"spotgate-worker-{number}", daemon=True
        )
        process.start()
        theirs.close()
        self._processes[number] = process
        hearing = asyncio.create_task(self._hear(number, ours, process))
        try:
            await _death_of(process)
        finally:
            hearing.cancel()
            await asyncio.wait([hearing])
            ours.close()
            del self._processes[number]
            self._statuses.pop(number, None)
        process.join()
        return process.exitcode

    async def _hear(self, number: int, ours: socket.socket, process: SpawnProcess) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                # Starting takes as long as it takes: until its first word a worker is not ready anyway.
                async with asyncio.timeout(self._limits.silence if number in self._statuses else None):
                    message = await loop.sock_recv(ours, _MESSAGE)
            except TimeoutError:
                log.error("worker is silent", worker=number, seconds=self._limits.silence)
                process.kill()
                return
            self._statuses[number] = msgspec.msgpack.decode(message, type=Status)

    async def _pass_on(self, stop: Stop) -> None:
        """Tell the workers to stop, ever more firmly."""
        await stop.wanted.wait()
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.at_once.wait(), self._limits.drain + _GRACE)
        self._signal(signal.SIGINT)
        await asyncio.sleep(self._limits.finish + _GRACE)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            if process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)


class _Counters(Collector):
    """The sum of what the workers count into the files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Read them all."""
        # The library can't read a file that a worker has made just now: for a moment it is empty.
        files = [str(file) for file in self._folder.glob("*.db") if file.stat().st_size > 0]
        metrics: Iterable[Metric] = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
        return metrics


async def _death_of(process: SpawnProcess) -> None:
    loop = asyncio.get_running_loop()
    dead = asyncio.Event()
    loop.add_reader(process.sentinel, dead.set)
    try:
        await dead.wait()
    finally:
        loop.remove_reader(process.sentinel)


async def report(worker: Worker, channel: socket.socket, stop: Stop) -> None:
    """Tell the supervisor how the worker is, until cancelled; stop when there is none any more."""
    while True:
        try:
            channel.send(msgspec.msgpack.encode(worker.status()))
        except BlockingIOError:
            pass  # It is busy; the next word is newer anyway.
        except ConnectionError:
            log.error("the supervisor is gone")
            stop.gracefully()
            return
        await asyncio.sleep(_HEARTBEAT)

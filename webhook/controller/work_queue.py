"""Work on changed objects, like a workqueue of client-go: one task for each key, with pauses after failures."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

_AT_ONCE: Final = 32
"""The maximum number of concurrent requests. About 10 saturate an API server; more hide the latency of its webhooks."""
_AT_ONCE_OF_NAMESPACE: Final = 16
"""The maximum number of concurrent requests for one namespace, so that its Pods leave places for others."""
_FIRST_PAUSE: Final = 0.25
"""Seconds before the first retry. Doubled for each retry."""


class WorkQueue:
    """The keys that need work, and the places for requests.

    Args:
        pause_at_most: the maximum number of seconds before a retry.
    """

    def __init__(self, pause_at_most: float) -> None:
        self._pause_at_most = pause_at_most
        self._due: set[str] = set()
        self._running = False
        self._wake = asyncio.Event()
        self._at_work: set[str] = set()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._places_of = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(_AT_ONCE_OF_NAMESPACE))

    def add(self, key: str) -> None:
        """Note that a key may need work. Without `run`, which gets all keys, this is forgotten."""
        if self._running:
            self._due.add(key)
            self._wake.set()

    @asynccontextmanager
    async def place(self, namespace: str) -> AsyncIterator[None]:
        """Wait for a place for one request about an object in this namespace, and hold it."""
        async with self._places_of[namespace], self._places:
            yield

    async def run(self, keys: Iterable[str], work: Callable[[str], Awaitable[bool | None]]) -> None:
        """Work on these keys and on those that are added later, until cancelled.

        ``work`` returns None if nothing is left to do for the key. Otherwise, this method calls it again: immediately
        after True, and after a pause after False.
        """
        self._at_work.clear()
        self._places_of.clear()
        self._due = set(keys)
        self._wake.set()
        self._running = True
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._wake.wait()
                    self._wake.clear()
                    ready = self._due - self._at_work
                    self._due -= ready
                    self._at_work |= ready
                    for key in ready:
                        group.create_task(self._finish(key, work))
        finally:
            self._running = False

    async def _finish(self, key: str, work: Callable[[str], Awaitable[bool | None]]) -> None:
        pause = _FIRST_PAUSE
        while (done := await work(key)) is not None:
            if done:
                pause = _FIRST_PAUSE
            else:
                await asyncio.sleep(pause)
                pause = min(2 * pause, self._pause_at_most)
        self._at_work.remove(key)

"""A relay to the API server for the programs under test."""

from __future__ import annotations

import asyncio
import threading
from typing import Self

from bench.chaos.service import CuttableApiServer


class Relay:
    """A relay to the API server that runs on a thread and can cut or freeze its connections. Use it as a context manager."""

    def __init__(self, url: str) -> None:
        self._relay = CuttableApiServer(int(url.rpartition(":")[2]))
        self._running = self._relay.running()
        self._loop = asyncio.new_event_loop()

    @property
    def port(self) -> int:
        """Return the port of the relay."""
        return self._relay.port

    def __enter__(self) -> Self:
        self._loop.run_until_complete(self._running.__aenter__())
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._running.__aexit__(None, None, None))

    def cut(self) -> None:
        """Abort every connection."""
        self._loop.call_soon_threadsafe(self._relay.cut)

    def freeze(self) -> None:
        """Let every connection hang without a reset."""
        self._loop.call_soon_threadsafe(self._relay.freeze)

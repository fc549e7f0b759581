"""Responses of a fake API server, as `webhook.cluster` reads those of aiohttp."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable


class Answer:
    """A response whose body is this value as JSON, or these bytes."""

    def __init__(self, body: object) -> None:
        self._body = body if isinstance(body, bytes) else json.dumps(body).encode()

    @property
    def content(self) -> Self:
        return self

    async def read(self) -> bytes:
        return self._body

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._body


class Lines:
    """The response to a watch with these events. An exception ends it."""

    def __init__(self, events: Iterable[bytes | Exception]) -> None:
        self._events = iter(events)

    @property
    def content(self) -> Self:
        return self

    async def readline(self, *, max_line_length: int) -> bytes:
        event = next(self._events, b"")
        if isinstance(event, Exception):
            raise event
        assert len(event) <= max_line_length
        return event


class Silence(Lines):
    """The response to a watch without events."""

    def __init__(self) -> None:
        super().__init__(())

    async def readline(self, *, max_line_length: int) -> bytes:
        del max_line_length
        await asyncio.Event().wait()
        return b""

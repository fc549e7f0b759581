"""Write to the API server of a run."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cluster.api import JSON_TYPE, Api, ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from webhook.rehearse.inputs.resources import JSON

_TIMEOUT: Final = 60.0
_TOGETHER: Final = 16
"""The maximum number of concurrent requests."""

_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_AT_ONCE: Final = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
_PASSED: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})


class Writer:
    """A client for the writes of a run, with limited concurrency. Missing objects aren't an error."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._gate = asyncio.Semaphore(_TOGETHER)

    async def read(self, path: str) -> JSON:
        """Return an object. Raise ApiError."""
        value: JSON = msgspec.json.decode(await self._api.read(path, _TIMEOUT))
        return value

    async def create(self, path: str, value: JSON) -> None:
        """Create an object. Raise ApiError, including if the API server rejects it."""
        async with self._gate:
            await self._api.write("POST", path, value, _TIMEOUT)

    async def merge(self, path: str, change: JSON) -> None:
        """Merge a change into an object. Raise ApiError."""
        await self._write("PATCH", path, change, _MERGE)

    async def patch_status(self, path: str, status: JSON) -> None:
        """Patch the status of an object with a strategic merge: conditions merge by type. Raise ApiError."""
        await self._write("PATCH", f"{path}/status", {"status": status}, _STRATEGIC)

    async def delete(self, path: str, *, at_once: bool = False) -> None:
        """Delete an object with its grace period or, with ``at_once``, immediately. Raise ApiError."""
        await self._write("DELETE", path, _AT_ONCE if at_once else {})

    async def evict(self, path: str, name: str, grace: int | None) -> int:
        """Request the eviction of a Pod, with its own grace period or another. Return the HTTP status of the response.

        Raise ApiError.
        """
        body: JSON = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        if grace is not None:
            body["deleteOptions"] = {"gracePeriodSeconds": grace}
        return await self._write("POST", f"{path}/eviction", body)

    async def _write(self, method: str, path: str, body: dict[str, Any], media: str = JSON_TYPE) -> int:
        async with self._gate:
            try:
                await self._api.write(method, path, body, _TIMEOUT, media)
            except ApiError as error:
                if error.status not in _PASSED:
                    raise
                return error.status
        return HTTPStatus.OK


async def together(work: Iterable[Awaitable[object]]) -> None:
    """Run these awaitables concurrently, and wait for all of them."""
    await asyncio.gather(*work)

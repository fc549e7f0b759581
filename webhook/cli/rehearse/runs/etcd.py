"""Fill an etcd before its API server starts: ten thousand objects in seconds, with their UIDs, status and owners.

The API server reads JSON from etcd as it reads its own encoding, and converts and completes it.
"""

from __future__ import annotations

import asyncio
import base64
import time
from itertools import islice
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec

from webhook.cli.rehearse.inputs.resources import kind_of_object
from webhook.controlplane.control_plane import POLL_SECONDS, START_SECONDS, ControlPlaneError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.controlplane.control_plane import ControlPlane

Pairs = list[tuple[bytes, bytes]]
"""Keys and values."""

_BATCH: Final = 64
"""Writes of one transaction; etcd takes 128, and 1.5 MB."""

_CONNECTIONS: Final = 8
_PREFIX: Final = b"/registry/"


def pairs_of(objects: Iterable[JSON]) -> Pairs:
    """Return the key and value that etcd has of each object."""
    found = ((kind_of_object(each), each) for each in objects)
    return [(kind.key(each["metadata"]).encode(), msgspec.json.encode(each)) for kind, each in found if kind]


async def load(plane: ControlPlane, pairs: Iterable[tuple[bytes, bytes]]) -> None:
    """Write these to the etcd of a control plane, as soon as it answers. Raise ControlPlaneError."""
    async with aiohttp.ClientSession(plane.etcd_url) as session:
        await _wait(session, plane)
        rest = iter(pairs)

        async def write() -> None:
            while batch := list(islice(rest, _BATCH)):
                puts = [{"requestPut": {"key": _encoded(key), "value": _encoded(value)}} for key, value in batch]
                await _post(session, "/v3/kv/txn", {"success": puts})

        await asyncio.gather(*(write() for _ in range(_CONNECTIONS)))


async def dump(url: str) -> Pairs:
    """Return everything that an API server keeps there. Raise ControlPlaneError."""
    async with aiohttp.ClientSession(url) as session:
        last = _PREFIX[:-1] + bytes([_PREFIX[-1] + 1])
        answer = await _post(session, "/v3/kv/range", {"key": _encoded(_PREFIX), "range_end": _encoded(last)})
    return [(base64.b64decode(each["key"]), base64.b64decode(each["value"])) for each in answer.get("kvs", ())]


async def _wait(session: aiohttp.ClientSession, plane: ControlPlane) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            async with session.get("/health") as response:
                if response.ok:
                    return
        except aiohttp.ClientError:
            plane.expect_running()
        if time.monotonic() > deadline:
            raise ControlPlaneError(f"etcd does not answer after {START_SECONDS:.0f} s")
        await asyncio.sleep(POLL_SECONDS)


async def _post(session: aiohttp.ClientSession, path: str, body: JSON) -> JSON:
    async with session.post(path, data=msgspec.json.encode(body)) as response:
        text = await response.read()
        if not response.ok:
            raise ControlPlaneError(f"etcd refuses what it is to keep: {text[:300].decode(errors='replace')}")
        answer: JSON = msgspec.json.decode(text)
        return answer


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()

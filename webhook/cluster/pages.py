"""List one resource of an API server page by page: memory holds one page at a time, however many objects there are."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import msgspec

from webhook.cluster.api import ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

PAGE: Final = 500
"""Objects in one response, as kubectl asks for them."""


class ListMeta(msgspec.Struct):
    """Hold the metadata of a list."""

    resourceVersion: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ObjectPage(msgspec.Struct):
    """Describe one response: a part of the objects, as they came."""

    metadata: ListMeta
    items: list[msgspec.Raw]


async def pages(
    fetch: Callable[[str], Awaitable[bytes]], path: str, query: Mapping[str, str] | None = None, *, renew: bool = False
) -> AsyncIterator[ObjectPage]:
    """Yield all objects of a resource, `PAGE` at a time, in the order of namespaces and names.

    With ``renew``, go on behind the last object where the API server has forgotten the state that the first page showed
    (410, after some five minutes). Later pages are of a later state then, so nothing may be watched from here. Raise
    ApiError if they can't be listed.
    """
    asked = {"limit": str(PAGE), **(query or {})}
    while True:
        try:
            page = msgspec.json.decode(await fetch(f"{path}?{urlencode(asked)}"), type=ObjectPage)
        except ApiError as error:
            if not renew or error.status != HTTPStatus.GONE or error.go_on in {"", asked.get("continue")}:
                raise
            asked["continue"] = error.go_on
            continue
        yield page
        if not page.metadata.continue_:
            return
        asked["continue"] = page.metadata.continue_

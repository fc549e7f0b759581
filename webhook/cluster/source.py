"""List and watch one resource in one or all namespaces, with one page in memory at a time.

This module doesn't use `kubernetes.aio.watch`, which opens a client with a TLS context for each watch, and starts the
next watch without a pause.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec

from webhook.cluster.api import JSON_TYPE, TOO_LARGE, Api, ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping


_METADATA: Final = f"{JSON_TYPE};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = f"{JSON_TYPE};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

T = TypeVar("T")
ObjectKey: TypeAlias = tuple[str, str]
"""The namespace (empty if cluster-scoped) and name of an object."""


class ListedMetadata(msgspec.Struct):
    """The fields of an object's ``metadata`` that spotgate uses."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    resourceVersion: str = ""

    @property
    def key(self) -> ObjectKey:
        """Return the namespace and name of the object."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """All objects of a resource at one moment.

    Attributes:
        version: the API version of the list.
        resource_version: the resource version that a watch can start from.
        items: the part of each object to keep.
    """

    version: str
    resource_version: str
    items: dict[ObjectKey, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedResource(Generic[T]):
    """A resource, and the part of its objects that spotgate keeps.

    Attributes:
        versions: the supported API versions, the preferred one first.
        read: returns the part of an object to keep.
        namespace: the namespace to read; empty for all namespaces.
        fields: a field selector; empty for all objects.
        labels: a label selector; empty for all objects.
        metadata_only: whether to request only the metadata of objects.
        optional: whether some clusters don't have the resource.
    """

    group: str = ""
    versions: tuple[str, ...] = ("v1",)
    resource: str
    read: Callable[[ListedMetadata, msgspec.Raw], T]
    namespace: str = ""
    fields: str = ""
    labels: str = ""
    metadata_only: bool = False
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource

    async def list(self, api: Api, seconds: float) -> Listing[T] | None:
        """List all objects. Return None if the cluster doesn't have the resource. Raise ApiError on failure."""
        for version in self.versions:
            try:
                return await self._list(api, version, seconds)
            except ApiError as error:
                if not self.optional or not await self._lacks(api, version, error, seconds):
                    raise
        return None

    @asynccontextmanager
    async def watch(
        self, api: Api, version: str, since: str, *, seconds: float, silence: float
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Yield the lines of a watch that starts at ``since``. Each line is an event.

        The API server ends the watch after ``seconds``. After ``silence`` seconds without a line, the connection counts
        as lost. Raise ApiError if the resource can't be watched or the connection is lost.
        """
        start = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": since, "timeoutSeconds": int(seconds)}
        query = urlencode({**start, **self._selection})
        patience = aiohttp.ClientTimeout(sock_connect=silence, sock_read=silence)
        accept = _METADATA if self.metadata_only else JSON_TYPE
        async with api.get(f"{self._path(version)}?{query}", patience, accept) as response:
            yield response.content

    async def _list(self, api: Api, version: str, seconds: float) -> Listing[T]:
        items: dict[ObjectKey, T] = {}
        resource_version = ""
        accept = METADATA_LIST if self.metadata_only else JSON_TYPE
        try:
            path = self._path(version)
            async for page in pages(lambda url: api.read(url, seconds, accept), path, self._selection):
                resource_version = page.metadata.resourceVersion
                for raw in page.items or ():
                    metadata = metadata_of(raw)
                    items[metadata.key] = self.read(metadata, raw)
        except msgspec.MsgspecError as error:
            raise ApiError(f"the API server's answer is malformed: {error}") from error
        return Listing(version, resource_version, items)

    async def _lacks(self, api: Api, version: str, error: ApiError, seconds: float) -> bool:
        """Return whether the list failed because the cluster doesn't have this resource."""
        if error.status != HTTPStatus.FORBIDDEN:
            return error.status == HTTPStatus.NOT_FOUND
        # The API server returns 403 before 404. Discovery, which all users can read, distinguishes the two cases.
        try:
            served = await api.find(f"/apis/{self.group}/{version}", dict, seconds)
        except ApiError:
            return False
        return served is None or all(resource["name"] != self.resource for resource in served["resources"])

    @property
    def _selection(self) -> dict[str, str]:
        selectors = {"fieldSelector": self.fields, "labelSelector": self.labels}
        return {name: selector for name, selector in selectors.items() if selector}

    def _path(self, version: str) -> str:
        prefix = f"/apis/{self.group}" if self.group else "/api"
        namespace = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{prefix}/{version}{namespace}/{self.resource}"


def metadata_of(raw: msgspec.Raw) -> ListedMetadata:
    """Decode the ``metadata`` of an object. Raise `msgspec.MsgspecError` if it is malformed."""
    return msgspec.json.decode(raw, type=_Object).metadata


class _Object(msgspec.Struct):
    metadata: ListedMetadata


PAGE: Final = 500
"""The maximum number of objects in one response; kubectl uses the same number."""
_FEWER: Final = 4
"""How many times fewer objects to request if a page is too large to read."""


class ListMeta(msgspec.Struct):
    """The metadata of a list."""

    resourceVersion: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ObjectPage(msgspec.Struct):
    """One page of a list. The API server can send null for ``items`` if there are none."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


PAGE_SECONDS: Final = 30.0
"""The timeout of a response in seconds. A page of 500 Pods is several MB, and an overloaded API server is slow."""


async def pages(
    fetch: Callable[[str], Awaitable[bytes]], path: str, query: Mapping[str, str] | None = None, *, renew: bool = False
) -> AsyncIterator[ObjectPage]:
    """Yield all objects of a resource, at most `PAGE` at a time, in the order of namespaces and names.

    Request fewer if they are too large for one response. With ``renew``, continue after the last object if the continue
    token expires (410, after about five minutes). Later pages then show a later state, so don't start a watch from it.
    Raise ApiError if the objects can't be listed.
    """
    parameters, limit = dict(query or {}), PAGE
    while True:
        try:
            body = await fetch(f"{path}?{urlencode({'limit': limit, **parameters})}")
            page = msgspec.json.decode(body, type=ObjectPage)
        except ApiError as error:
            if error.status == TOO_LARGE and limit > 1:
                limit = max(1, limit // _FEWER)
                continue
            if not renew or error.status != HTTPStatus.GONE or error.continue_token in {"", parameters.get("continue")}:
                raise
            parameters["continue"] = error.continue_token
            continue
        yield page
        if not page.metadata.continue_:
            return
        limit = min(PAGE, 2 * limit)
        parameters["continue"] = page.metadata.continue_

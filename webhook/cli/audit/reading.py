"""Read a live cluster for an audit: gently, page by page, and never Secrets and ConfigMaps."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.cluster.api import JSON_TYPE, ApiError
from webhook.cluster.source import METADATA_LIST, pages
from webhook.context import Phase
from webhook.review import GroupVersionKind, GroupVersionResource, Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from webhook.cluster.api import Api
    from webhook.cluster.discovery import ServedResource
    from webhook.index import Index

ANSWER: Final = 30.0
"""Seconds for each answer: a page of 500 Pods is some MB, and an API server under load takes its time."""

_APART: Final = 0.05
"""Seconds between the starts of two requests: 20 a second, less than half of what kubectl allows itself."""

_PAUSES: Final = (1.0, 2.0, 4.0)
"""Seconds before each retry; after the last one the failure is final."""

_PASSING: Final = frozenset({0, 429, 500, 502, 503, 504})
"""No answer, or one that another try may better."""

_NEVER: Final = frozenset({("", "secrets"), ("", "configmaps")})
"""Never read, whatever a policy matches: who may list them has their contents."""

_FIRST: Final = (("", "pods"), ("apps", "replicasets"), ("batch", "jobs"))
"""Pods tell which workloads run where, and these two belong to others: they are read before their owners."""

PODS: Final = ("", "pods")
_RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"


class Reader:
    """Read from an API server one request at a time, not too fast, and try again what fails in passing."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._last = 0.0

    async def fetch(self, path: str, accept: str = JSON_TYPE) -> bytes:
        """Return the body of the response to a GET. Raise ApiError."""
        for pause in _PAUSES:
            try:
                return await self._fetch(path, accept)
            except ApiError as error:
                if error.status not in _PASSING:
                    raise
            await asyncio.sleep(pause)
        return await self._fetch(path, accept)

    async def _fetch(self, path: str, accept: str) -> bytes:
        await asyncio.sleep(max(0.0, self._last + _APART - monotonic()))
        self._last = monotonic()
        return await self._api.read(path, ANSWER, accept)

    async def objects(self, listed: Listed, namespaces: Iterable[str]) -> AsyncIterator[list[msgspec.Raw]]:
        """Yield the objects of a resource, a page at a time; without namespaces everywhere. Raise ApiError."""
        served = listed.served
        accept = METADATA_LIST if listed.metadata_only else JSON_TYPE
        query = {"fieldSelector": _RUNNING} if listed.key == PODS else {}
        for namespace in namespaces or ("",):
            try:
                found = pages(lambda path: self.fetch(path, accept), served.path_in(namespace), query, renew=True)
                async for page in found:
                    yield page.items
            except msgspec.MsgspecError as error:
                raise ApiError(f"the API server's answer makes no sense: {error}") from error


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a resource whose objects, or the pod templates in them, are judged, maybe by their metadata only."""

    served: ServedResource
    workload: bool
    metadata_only: bool

    @property
    def key(self) -> tuple[str, str]:
        """Return API group and plural."""
        return self.served.resource.group, self.served.resource.plural


def listed_resources(index: Index, served: Iterable[ServedResource], *, cluster_scoped: bool) -> list[Listed]:
    """Return the resources that a policy judges when an object is created, in the order in which they are read."""
    found = _listed(index, served, cluster_scoped=cluster_scoped)
    return sorted(found, key=lambda each: (_FIRST.index(each.key) if each.key in _FIRST else len(_FIRST), each.key))


def _listed(index: Index, served: Iterable[ServedResource], *, cluster_scoped: bool) -> Iterator[Listed]:
    pools = {(each.group, each.resource) for provider in index.providers.values() for each in provider.readers}
    for each in served:
        key = each.resource.group, each.resource.plural
        if "list" not in each.verbs or key in _NEVER or not (each.resource.namespaced or cluster_scoped):
            continue
        resource = GroupVersionResource(each.resource.group, each.version, each.resource.plural)
        request = Request(uid="", operation="CREATE", kind=GroupVersionKind(), resource=resource)
        route = index.route(Phase.VALIDATE, request)
        if route is None or not (route.direct or route.projected):
            continue
        any_size = all(each.of.any_size for each in route.direct)
        whole = bool(route.projected) or key in pools or key == PODS or not any_size
        yield Listed(served=each, workload=bool(route.projected), metadata_only=not whole)

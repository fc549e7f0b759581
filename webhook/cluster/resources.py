"""Define the resources that are read of a live cluster, and the part of each object that is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from webhook.capacity.providers.joins import sizes_in
from webhook.capacity.providers.nodes import Node
from webhook.capacity.providers.provider import readers_by_resource, sizers_by_resource
from webhook.cluster.api import ApiError
from webhook.cluster.source import WatchedResource
from webhook.cluster.view import namespace_labels, node_facts, version_of
from webhook.kube import disruption

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from webhook.capacity.providers.joins import Sizer
    from webhook.capacity.providers.pool import Pool, Size
    from webhook.capacity.providers.provider import Provider, ResourceReader
    from webhook.cluster.api import Api
    from webhook.cluster.source import ListedMetadata
    from webhook.cluster.view import NodeFacts
    from webhook.kube.disruption import DisruptionBudget


def all_pools(providers: Collection[Provider]) -> list[WatchedResource[Pool | tuple[Size, ...]]]:
    """Return the sources of node pools of every kind, and of their sizes. Many clusters lack some of them."""
    return [
        *(_pools(readers) for readers in readers_by_resource(providers).values() if readers.any.listed_in is None),
        *(_sizes(sizers) for sizers in sizers_by_resource(providers).values()),
    ]


def _pools(readers: ResourceReader) -> WatchedResource[Pool | tuple[Size, ...]]:
    def read(_: ListedMetadata, raw: msgspec.Raw) -> Pool:
        return readers.read(msgspec.json.decode(raw))

    kind = readers.any
    return WatchedResource(group=kind.group, versions=kind.versions, resource=kind.resource, read=read, optional=True)


def _sizes(sizers: tuple[Sizer, ...]) -> WatchedResource[Pool | tuple[Size, ...]]:
    def read(_: ListedMetadata, raw: msgspec.Raw) -> tuple[Size, ...]:
        return sizes_in(msgspec.json.decode(raw), sizers)

    kind = sizers[0]
    return WatchedResource(group=kind.group, versions=kind.versions, resource=kind.resource, read=read, optional=True)


def all_namespaces() -> WatchedResource[Mapping[str, str]]:
    """Return the source of the labels of each Namespace."""

    def read(metadata: ListedMetadata, _: msgspec.Raw) -> Mapping[str, str]:
        return namespace_labels(metadata.name, metadata.labels or {})

    return WatchedResource(resource="namespaces", read=read, metadata_only=True)


def all_nodes(providers: Collection[Provider]) -> WatchedResource[NodeFacts]:
    """Return the source of the facts that Nodes tell about their cluster."""

    def read(metadata: ListedMetadata, raw: msgspec.Raw) -> NodeFacts:
        return node_facts(metadata.labels or {}, msgspec.json.decode(raw, type=Node), providers)

    return WatchedResource(resource="nodes", read=read)


def all_budgets() -> WatchedResource[DisruptionBudget]:
    """Return the source of the PodDisruptionBudgets."""

    def read(_: ListedMetadata, raw: msgspec.Raw) -> DisruptionBudget:
        return disruption.decode_budget(raw)

    return WatchedResource(group=disruption.GROUP, resource=disruption.RESOURCE, read=read)


class _Version(msgspec.Struct):
    gitVersion: str


async def api_server_release(api: Api, seconds: float) -> str:
    """Read the API server's version as it writes it, such as ``v1.31.4-gke.100``. Raise ApiError on failure."""
    async with api.get("/version", aiohttp.ClientTimeout(total=seconds)) as response:
        return msgspec.json.decode(await response.read(), type=_Version).gitVersion


async def api_server_version(api: Api, seconds: float) -> tuple[int, int] | None:
    """Read the API server's (major, minor) version; return None if it is malformed. Raise ApiError on failure."""
    return version_of(await api_server_release(api, seconds))


def unread(source: WatchedResource[Any], problem: BaseException | None) -> str:
    """Return which resource could not be read, and why: ``nodes can't be read: 403 Forbidden: ...``."""
    match problem:
        case None:
            return f"{source} are not known yet"
        case ApiError():
            return f"{source} can't be read: {problem}"
    return f"{source} can't be read because of a bug in spotgate ({type(problem).__name__})"

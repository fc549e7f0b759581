"""What is read of a live cluster, and what is wanted of each object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from webhook.capacity.providers.provider import readers_by_resource, sizers_by_resource
from webhook.capacity.providers.sizes import sizes_in
from webhook.cluster.api import ApiError
from webhook.cluster.source import Source
from webhook.cluster.view import namespace_labels, node_facts, version_of
from webhook.kube import disruption

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from webhook.capacity.providers.pool import Pool, Size
    from webhook.capacity.providers.provider import Provider, ResourceReader
    from webhook.capacity.providers.sizes import Sizer
    from webhook.cluster.api import Api
    from webhook.cluster.source import ObjectMeta
    from webhook.cluster.view import NodeFacts
    from webhook.kube.disruption import DisruptionBudget


def all_pools(providers: Collection[Provider]) -> list[Source[Pool | tuple[Size, ...]]]:
    """Every kind of node pools, and of what says their size; many clusters do not have them."""
    return [
        *(_pools(readers) for readers in readers_by_resource(providers).values()),
        *(_sizes(sizers) for sizers in sizers_by_resource(providers).values()),
    ]


def _pools(readers: ResourceReader) -> Source[Pool | tuple[Size, ...]]:
    def read(_: ObjectMeta, raw: msgspec.Raw) -> Pool:
        return readers.read(msgspec.json.decode(raw))

    kind = readers.any
    return Source(group=kind.group, versions=kind.versions, resource=kind.resource, read=read, optional=True)


def _sizes(sizers: tuple[Sizer, ...]) -> Source[Pool | tuple[Size, ...]]:
    def read(_: ObjectMeta, raw: msgspec.Raw) -> tuple[Size, ...]:
        return sizes_in(msgspec.json.decode(raw), sizers)

    kind = sizers[0]
    return Source(group=kind.group, versions=kind.versions, resource=kind.resource, read=read, optional=True)


def all_namespaces() -> Source[Mapping[str, str]]:
    """The labels of each Namespace."""

    def read(metadata: ObjectMeta, _: msgspec.Raw) -> Mapping[str, str]:
        return namespace_labels(metadata.name, metadata.labels or {})

    return Source(resource="namespaces", read=read, metadata_only=True)


def all_nodes(providers: Collection[Provider]) -> Source[NodeFacts]:
    """What each Node says of its cluster."""

    def read(metadata: ObjectMeta, raw: msgspec.Raw) -> NodeFacts:
        version = msgspec.json.decode(raw, type=_Node).status.nodeInfo.kubeletVersion
        return node_facts(metadata.labels or {}, version, providers)

    return Source(resource="nodes", read=read)


def all_budgets() -> Source[DisruptionBudget]:
    """The PodDisruptionBudgets."""

    def read(_: ObjectMeta, raw: msgspec.Raw) -> DisruptionBudget:
        return disruption.decode_budget(raw)

    return Source(group=disruption.GROUP, resource=disruption.RESOURCE, read=read)


class _NodeInfo(msgspec.Struct):
    kubeletVersion: str = ""


class _NodeStatus(msgspec.Struct):
    nodeInfo: _NodeInfo = msgspec.field(default_factory=_NodeInfo)


class _Node(msgspec.Struct):
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _Version(msgspec.Struct):
    gitVersion: str


async def api_server_version(api: Api, seconds: float) -> tuple[int, int] | None:
    """(major, minor); None: it gives something else for a version. Raises `ApiError`."""
    async with api.get("/version", aiohttp.ClientTimeout(total=seconds)) as response:
        return version_of(msgspec.json.decode(await response.read(), type=_Version).gitVersion)


def unread(source: Source[Any], problem: BaseException | None) -> str:
    """Which resource could not be read, and why: ``nodes can't be read: 403 Forbidden: ...``."""
    match problem:
        case None:
            return f"{source} are not known yet"
        case ApiError():
            return f"{source} can't be read: {problem}"
    return f"{source} can't be read because of a bug in spotgate ({type(problem).__name__})"

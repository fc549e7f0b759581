"""Define the resources that are read of a live cluster, and the part of each object that is kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from webhook.capacity.providers.joins import sizes_in
from webhook.capacity.providers.nodes import Node
from webhook.capacity.providers.provider import readers_by_resource, sizers_by_resource
from webhook.cluster.api import ApiError
from webhook.cluster.source import WatchedResource
from webhook.cluster.view import namespace_labels, node_facts, version_of
from webhook.kube import disruption

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from webhook.capacity.providers.joins import Sizer
    from webhook.capacity.providers.pool import Pool, Size
    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.providers.reader import PoolReader
    from webhook.cluster.api import Api
    from webhook.cluster.view import NodeFacts
    from webhook.kube.disruption import DisruptionBudget


def all_pools(providers: Collection[Provider]) -> list[WatchedResource[Pool | tuple[Size, ...]]]:
    """Return the sources of node pools of every kind, and of their sizes. Many clusters lack some of them."""
    readers = [each for each in readers_by_resource(providers).values() if each.any.listed_in is None]
    return [
        *(_of_kind(each.any, each.read) for each in readers),
        *(_of_kind(sizers[0], partial(sizes_in, sizers=sizers)) for sizers in sizers_by_resource(providers).values()),
    ]


def _of_kind(
    kind: PoolReader | Sizer, read: Callable[[dict[str, Any]], Pool | tuple[Size, ...]]
) -> WatchedResource[Pool | tuple[Size, ...]]:
    return WatchedResource(
        group=kind.group,
        versions=kind.versions,
        resource=kind.resource,
        read=lambda _, raw: read(msgspec.json.decode(raw)),
        optional=True,
    )


def all_namespaces() -> WatchedResource[Mapping[str, str]]:
    """Return the source of the labels of each Namespace."""
    return WatchedResource(
        resource="namespaces", read=lambda each, _: namespace_labels(each.name, each.labels or {}), metadata_only=True
    )


def all_nodes(providers: Collection[Provider]) -> WatchedResource[NodeFacts]:
    """Return the source of the facts that Nodes tell about their cluster."""
    return WatchedResource(
        resource="nodes",
        read=lambda each, raw: node_facts(each.labels or {}, msgspec.json.decode(raw, type=Node), providers),
    )


def all_budgets() -> WatchedResource[DisruptionBudget]:
    """Return the source of the PodDisruptionBudgets."""
    return WatchedResource(
        group=disruption.GROUP, resource=disruption.RESOURCE, read=lambda _, raw: disruption.decode_budget(raw)
    )


class _Version(msgspec.Struct):
    gitVersion: str


async def api_server_release(api: Api, seconds: float) -> str:
    """Read the API server's version as it writes it, such as ``v1.31.4-gke.100``. Raise ApiError on failure."""
    version = await api.find("/version", _Version, seconds)
    return version.gitVersion if version is not None else ""


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

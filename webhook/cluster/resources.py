"""Define the resources that spotgate reads from a live cluster, and read them once."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.capacity.providers.joins import Sizer, join, sizes_in
from webhook.capacity.providers.nodes import Node
from webhook.capacity.providers.provider import Provider, readers_by_resource, sizers_by_resource
from webhook.capacity.view import ClusterView
from webhook.cluster.api import Api, ApiError
from webhook.cluster.source import ListedMetadata, Listing, ObjectKey, T, WatchedResource
from webhook.cluster.view import (
    by_namespace,
    labels_by_namespace,
    namespace_labels,
    node_facts,
    version_of,
    with_nodes,
)
from webhook.kube import disruption
from webhook.kube.references import KINDS, Reference, key_of, reference_from

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from webhook.capacity.providers.pool import Pool, Size
    from webhook.capacity.providers.reader import PoolReader
    from webhook.cluster.view import NodeFacts
    from webhook.kube.disruption import DisruptionBudget


def all_pools(providers: Collection[Provider]) -> list[WatchedResource[Pool | tuple[Size, ...]]]:
    """Return the sources of all kinds of node pools and of their sizes. Clusters lack some of these kinds."""
    readers = [reader for reader in readers_by_resource(providers).values() if reader.any.served]
    return [
        *(_of_kind(reader.any, reader.read) for reader in readers),
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


NAMESPACES: Final[WatchedResource[Mapping[str, str]]] = WatchedResource(
    resource="namespaces", read=lambda meta, _: namespace_labels(meta.name, meta.labels or {}), metadata_only=True
)
"""The source of the labels of each Namespace."""

BUDGETS: Final[WatchedResource[DisruptionBudget]] = WatchedResource(
    group=disruption.GROUP, resource=disruption.RESOURCE, read=lambda _, raw: disruption.decode_budget(raw)
)
"""The source of the PodDisruptionBudgets."""


def all_nodes(providers: Collection[Provider]) -> WatchedResource[NodeFacts]:
    """Return the source of the facts about each Node."""
    return WatchedResource(
        resource="nodes",
        read=lambda meta, raw: node_facts(meta.labels or {}, msgspec.json.decode(raw, type=Node), providers, meta.name),
    )


def _read_reference(kind: str, metadata: ListedMetadata, raw: msgspec.Raw) -> tuple[str, Reference]:
    return key_of(kind, *metadata.key), reference_from(msgspec.json.decode(raw))


REFERENCES: Final = [
    WatchedResource(
        group=group, versions=versions, resource=resource, read=partial(_read_reference, kind), optional=bool(group)
    )
    for kind, (group, versions, resource) in KINDS.items()
]
"""The sources of the objects that Pods name, each read with its key. Older clusters lack some of them."""


class _Version(msgspec.Struct):
    gitVersion: str = ""


async def api_server_release(api: Api, seconds: float) -> str:
    """Read the version string of the API server, such as ``v1.31.4-gke.100``. Raise ApiError on failure."""
    version = await api.find("/version", _Version, seconds)
    return version.gitVersion if version is not None else ""


async def api_server_version(api: Api, seconds: float) -> tuple[int, int] | None:
    """Read the API server's (major, minor) version; return None if it is malformed. Raise ApiError on failure."""
    return version_of(await api_server_release(api, seconds))


def unread(source: WatchedResource[Any], problem: BaseException | None) -> str:
    """Return a sentence about a resource that couldn't be read: ``nodes can't be read: 403 Forbidden: ...``."""
    match problem:
        case None:
            return f"{source} are not known yet"
        case ApiError():
            return f"{source} can't be read: {problem}"
    return f"{source} can't be read because of a bug in spotgate ({type(problem).__name__})"


class ReadErrors(dict[tuple[str, str], ApiError]):
    """The errors of resources that couldn't be read, by API group and plural."""

    @property
    def forbidden(self) -> list[tuple[str, str]]:
        """Return the resources that the user can't list."""
        return [resource for resource, error in self.items() if error.status == HTTPStatus.FORBIDDEN]

    @property
    def sentences(self) -> list[str]:
        """Return sentences such as ``nodes can't be read: 500 ...``.

        The last one is for all forbidden resources, because the API server gives the same reason for each.
        """
        named = {".".join(filter(None, reversed(resource))): error for resource, error in self.items()}
        refused = sorted(name for name, error in named.items() if error.status == HTTPStatus.FORBIDDEN)
        other = [f"{name} can't be read: {named[name]}" for name in sorted(named.keys() - refused)]
        return [*other, f"{', '.join(refused)} can't be read: {named[refused[-1]]}"] if refused else other

    def sentence(self, resource: tuple[str, str]) -> str:
        """Return the sentence about a resource, or an empty string if it was read."""
        if resource in self.forbidden:
            return self.sentences[-1]
        return "".join(ReadErrors({resource: self[resource]}).sentences) if resource in self else ""


async def read_cluster(
    api: Api, providers: Mapping[str, Provider], *, budgets: bool, seconds: float
) -> tuple[ClusterView, ReadErrors]:
    """Read the current state of the cluster. Return its view, and the errors of resources that can't be read.

    Raise ApiError immediately if the API server doesn't answer or rejects the credentials.
    """
    try:
        version = await api_server_version(api, seconds)
    except ApiError as error:
        if error.status in {0, HTTPStatus.UNAUTHORIZED}:
            raise
        version = None  # the version is optional
    errors = ReadErrors()

    async def items(source: WatchedResource[T]) -> dict[ObjectKey, T] | None:
        try:
            listing = await source.list(api, seconds)
        except ApiError as error:
            errors[source.group, source.resource] = error
            return None
        return {} if listing is None else listing.items

    pools = await asyncio.gather(*map(items, all_pools(providers.values())))
    why_unknown = f"{errors.sentences[0]}." if errors else ""
    namespaces, nodes = await asyncio.gather(items(NAMESPACES), items(all_nodes(providers.values())))
    budgets_by_key = await items(BUDGETS) if budgets else None
    references = await asyncio.gather(*(source.list(api, seconds) for source in REFERENCES), return_exceptions=True)
    joined = join(item for pool in pools for item in (pool or {}).values())
    view = ClusterView(
        pools=None if None in pools else joined.pools,
        templates=joined.templates,
        namespaces=labels_by_namespace(namespaces or {}),
        api_server=version,
        why_unknown=why_unknown,
        remedy="permit the user to list them (see the ClusterRole in manifests/base/rbac.yaml), or try again",
        budgets=None if budgets_by_key is None else by_namespace(budgets_by_key),
        # They are optional: unknown claims and volumes exclude no pool.
        references=dict(named for found in references if isinstance(found, Listing) for named in found.items.values()),
    )
    return with_nodes(view, (nodes or {}).values()), errors

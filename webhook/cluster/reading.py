"""Read a live cluster once, without watching it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from webhook.capacity.providers.joins import join
from webhook.cluster.api import ApiError
from webhook.cluster.resources import all_budgets, all_namespaces, all_nodes, all_pools, api_server_version, unread
from webhook.cluster.view import budgets_by_namespace, cluster_view, labels_by_namespace, summary_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.cluster.api import Api
    from webhook.cluster.protocol import ClusterView
    from webhook.cluster.source import ObjectKey, T, WatchedResource


@dataclass(frozen=True, slots=True)
class Reading:
    """Hold the result of reading a cluster.

    Attributes:
        failures: what could not be read, and why: ``nodes can't be read: 500 Internal Server Error: ...``
        forbidden: what may not be listed, by API group and plural.
    """

    view: ClusterView
    failures: tuple[str, ...]
    forbidden: Mapping[tuple[str, str], ApiError]

    @property
    def problems(self) -> tuple[str, ...]:
        """Say what is not known of the cluster, and why."""
        return (*self.failures, *refusals(self.forbidden))


def refusals(forbidden: Mapping[tuple[str, str], ApiError]) -> list[str]:
    """Return in one line what may not be listed, by API group and plural: the API server says the same of each."""
    errors = {".".join(filter(None, (plural, group))): error for (group, plural), error in forbidden.items()}
    names = sorted(errors)
    return [f"{', '.join(names)} can't be read: {errors[names[-1]]}"] if names else []


async def read_cluster(api: Api, providers: Mapping[str, Provider], *, budgets: bool, seconds: float) -> Reading:
    """Read the cluster as it is now.

    Raise ApiError if there is no answer, or the credentials are refused; nothing else was asked then.
    """
    try:
        version = await api_server_version(api, seconds)
    except ApiError as error:
        if error.status in {0, HTTPStatus.UNAUTHORIZED}:
            raise
        version = None  # whoever may not know it does without
    failures: list[str] = []
    forbidden: dict[tuple[str, str], ApiError] = {}

    async def items(source: WatchedResource[T]) -> dict[ObjectKey, T] | None:
        try:
            listing = await source.list(api, seconds)
        except ApiError as error:
            if error.status == HTTPStatus.FORBIDDEN:
                forbidden[source.group, source.resource] = error
            else:
                failures.append(unread(source, error))
            return None
        return {} if listing is None else listing.items

    pools = await asyncio.gather(*map(items, all_pools(providers.values())))
    problems = [*sorted(failures), *refusals(forbidden)]
    why_unknown = f"{problems[0]}." if problems else ""
    namespaces, nodes = await asyncio.gather(items(all_namespaces()), items(all_nodes(providers.values())))
    found = await items(all_budgets()) if budgets else None
    joined = join(item for each in pools for item in (each or {}).values())
    view = cluster_view(
        pools=None if None in pools else joined.pools,
        templates=joined.templates,
        namespaces=labels_by_namespace(namespaces or {}),
        nodes=summary_of((nodes or {}).values()),
        api_server=version,
        why_unknown=why_unknown,
        remedy="let the user list them (the ClusterRole in manifests/base/rbac.yaml), or try again",
        budgets=None if found is None else budgets_by_namespace(found),
    )
    return Reading(view, tuple(sorted(failures)), forbidden)

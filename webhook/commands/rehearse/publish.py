"""Rehearse the loss of each spot pool, and publish the results in a ConfigMap.

The webhook shows them (`webhook.server.rehearsals`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.exits import FINE, FOUND, CannotJudgeError
from webhook.cluster.api import ApiError
from webhook.cluster.connection import run_on_cluster
from webhook.cluster.discovery import ServedResource
from webhook.commands.audit.reports import apply_as
from webhook.kube.resources import Resource
from webhook.rules.context import utc_now
from webhook.server.rehearsals import KEY, PoolRehearsal, PublishedRehearsals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from webhook.cluster.api import Api
    from webhook.commands.rehearse.rehearsals import RehearseOptions
    from webhook.rehearse.inputs.nodes import RehearsedNode
    from webhook.rehearse.result import Rehearsal

_CONFIG_MAPS: Final = ServedResource(
    resource=Resource("", "ConfigMap", "configmaps", namespaced=True), version="v1", verbs=frozenset()
)


def publish(
    options: RehearseOptions,
    place: tuple[str, str],
    nodes: Iterable[RehearsedNode],
    rehearse: Callable[[str], Rehearsal],
) -> int:
    """Rehearse each loss on its own, show the results, publish them in a place, and return the exit code.

    Raise CannotJudgeError if a pool can't be rehearsed: then nothing is published.
    """
    pools: list[PoolRehearsal] = []
    for name in options.lose or spot_pools(nodes):
        rehearsal = rehearse(name)
        import_module(f"webhook.rehearse.output.{options.output}").show(rehearsal)
        lost = sum(len(window.nodes) for window in rehearsal.windows)
        summary = rehearsal.summary
        pending = int((summary.pending.max or 0) + (summary.missing.max or 0))
        pools.append(PoolRehearsal(name, lost, pending, int(summary.killed_early.max or 0)))
    published = PublishedRehearsals(utc_now().timestamp(), tuple(pools))
    run_on_cluster("rehearse", options, lambda api: _publish(api, place, published))
    most = options.max_pending
    return FOUND if most is not None and any(pool.pending > most for pool in pools) else FINE


def spot_pools(nodes: Iterable[RehearsedNode]) -> list[str]:
    """Return what `--lose` calls each pool with spot Nodes: its name, or the provider of Nodes that name no pool."""
    spot = [(node.pool_name, node.provider) for node in nodes if node.spot]
    return sorted({pool or f"provider:{provider.name}" for pool, provider in spot if provider is not None})


async def _publish(api: Api, place: tuple[str, str], published: PublishedRehearsals) -> None:
    namespace, name = place
    data = {KEY: msgspec.json.encode(published).decode()}
    try:
        await apply_as(name, api, _CONFIG_MAPS, namespace, {"data": data})
    except ApiError as error:
        raise CannotJudgeError(
            f"spotgate rehearse: --publish {namespace}/{name}: {error}; manifests/components/rehearsal has the "
            "ConfigMap, and the Role that may write it"
        ) from None

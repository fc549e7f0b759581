"""Rehearse the loss of each spot pool, and publish the results in the cluster as a ConfigMap and a PolicyReport.

The webhook shows the contents of the ConfigMap (`webhook.runtime.rehearsals`). The PolicyReport is for dashboards.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.exits import FINE, FOUND, CannotJudgeError
from webhook.base.terminal import counted
from webhook.cluster.api import Api, ApiError
from webhook.cluster.connection import run_on_cluster
from webhook.cluster.discovery import ServedResource, served_resources
from webhook.cluster.source import PAGE_SECONDS
from webhook.commands.shared.policy_reports import apply_as, find_report_kinds, report_fields
from webhook.formats.policyreport import report_result
from webhook.kube.resources import Resource
from webhook.rehearse.result import WorkloadKey
from webhook.report.report import without_empty
from webhook.rules.context import utc_now
from webhook.runtime.rehearsals import KEY, PoolRehearsal, PublishedRehearsals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from webhook.rehearse.inputs.nodes import RehearsedNode
    from webhook.rehearse.options import RehearseOptions
    from webhook.rehearse.result import Rehearsal, RehearsalSummary, WorkloadResult

JSON = dict[str, Any]

_CONFIG_MAPS: Final = ServedResource(
    resource=Resource("", "ConfigMap", "configmaps", namespaced=True), version="v1", verbs=frozenset()
)


def publish(
    options: RehearseOptions, place: tuple[str, str], pools: Iterable[str], rehearse: Callable[[list[str]], Rehearsal]
) -> int:
    """Rehearse the loss of each pool, show the results, publish them at ``place``, and return the exit code.

    Raise CannotJudgeError if a pool can't be rehearsed; then publish nothing.
    """
    results: list[JSON] = []
    rehearsals: list[PoolRehearsal] = []
    for name in pools:
        rehearsal = rehearse([name])
        import_module(f"webhook.rehearse.output.{options.output}").show(rehearsal)
        lost = sum(len(window.nodes) for window in rehearsal.windows)
        rehearsals.append(PoolRehearsal(name, lost, *_harm(rehearsal.summary)))
        results += list(_of_workloads(name, rehearsal)) or [_result(name, "pass", "leaves no Pod without room")]
    published = PublishedRehearsals(utc_now().timestamp(), tuple(rehearsals))
    run_on_cluster("rehearse", options, lambda api: _publish(api, place, published, results))
    most = options.max_pending
    return FOUND if most is not None and any(pool.pending > most for pool in rehearsals) else FINE


def spot_pools(nodes: Iterable[RehearsedNode]) -> list[str]:
    """Return the `--lose` name of each pool with spot Nodes: its name, or the provider if the Nodes name no pool."""
    spot = [(node.pool_name, node.provider) for node in nodes if node.spot]
    return sorted({pool or f"provider:{provider.name}" for pool, provider in spot if provider is not None})


def _of_workloads(pool: str, rehearsal: Rehearsal) -> Iterator[JSON]:
    """Yield a result for each affected workload."""
    for workload in rehearsal.workloads:
        pending, killed = _harm(workload)
        harms = [f"leaves {pending} of {counted(workload.replicas, 'Pod')} without room"] if pending else []
        harms += [f"kills {counted(killed, 'Pod')} early"] if killed else []
        if harms:
            yield _result(pool, "fail" if pending else "warn", " and ".join(harms), workload)


def _result(pool: str, verdict: str, effect: str, workload: WorkloadResult | None = None) -> JSON:
    about = {"policy": "rehearsal", "category": "Rehearsal"}
    severity = "info" if verdict == "pass" else "medium"
    properties, resources = {"pool": pool}, []
    if workload is not None:
        properties["reasons"] = "; ".join(map(str, workload.reasons))
        named = msgspec.to_builtins(workload)
        resources.append(without_empty({key: named[key] for key in WorkloadKey.__struct_encode_fields__}))
    return report_result(about, verdict, severity, f"losing {pool} {effect}", properties, resources)


def _harm(figures: RehearsalSummary | WorkloadResult) -> tuple[int, int]:
    """Return the number of Pods that don't run at the end, and of Pods killed early, in the worst run."""
    return int((figures.pending.max or 0) + (figures.missing.max or 0)), int(figures.killed_early.max or 0)


async def _publish(api: Api, place: tuple[str, str], published: PublishedRehearsals, results: list[JSON]) -> None:
    namespace, name = place
    data = {KEY: msgspec.json.encode(published).decode()}
    try:
        await apply_as(name, api, _CONFIG_MAPS, namespace, {"data": data})
        kinds = find_report_kinds(await served_resources(lambda path, accept: api.read(path, PAGE_SECONDS, accept)))
        if kinds is not None:
            await apply_as(name, api, kinds.namespaced, namespace, report_fields(results))
    except ApiError as error:
        raise CannotJudgeError(
            f"spotgate rehearse: --publish {namespace}/{name}: {error}; manifests/components/rehearsal has the "
            "ConfigMap, and the Role that may write it"
        ) from None

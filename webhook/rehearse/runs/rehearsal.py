"""Rehearse a reclaim in one or more runs, each on a new control plane."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.base.exits import CannotJudgeError
from webhook.base.terminal import complain
from webhook.capacity.providers.machines import ZONE_LABEL
from webhook.cluster.api import ApiError
from webhook.cluster.connection import connect
from webhook.cluster.view import version_of
from webhook.rehearse.controlplane.control_plane import ControlPlaneError
from webhook.rehearse.inputs.resources import KINDS, RehearsedKind, kind_of_object
from webhook.rehearse.result import Rehearsal
from webhook.rehearse.runs.cluster import Pairs, RunningCluster, pairs_of, start_rehearsal_cluster
from webhook.rehearse.runs.programs import OLDEST, find_programs
from webhook.rehearse.runs.quiet import Quiet
from webhook.rehearse.runs.reclaim import Reclaim
from webhook.rehearse.runs.substitutes import provision
from webhook.rehearse.runs.tally import RunOutcome, capacity_by_pool, outcome_of, summary_of, workload_results
from webhook.rehearse.runs.watching import Watches
from webhook.rehearse.runs.workloads import Workloads
from webhook.rehearse.runs.writing import Writer, together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.inputs.objects import Manifest
    from webhook.rehearse.inputs.selection import Loss
    from webhook.rehearse.inputs.snapshot import ClusterSnapshot
    from webhook.rehearse.options import RehearseOptions

NOT_SIMULATED: Final = (
    "autoscalers: workloads and node pools keep their size, except with --grow",
    "admission: only spotgate and the built-in plugins run; new Pods lack the changes of other webhooks",
)


def rehearse(snapshot: ClusterSnapshot, loss: Loss, options: RehearseOptions, runs: int) -> Rehearsal:
    """Return the effects of losing these Nodes. Raise CannotJudgeError if the control plane doesn't run.

    All runs start with the same Pods on the same Nodes, from the snapshot or from the first run's scheduler.
    """
    programs = find_programs(options.binaries, snapshot.source.version)
    outcomes: list[RunOutcome] = []
    contents = pairs_of(snapshot.existing)
    try:
        for number in range(runs):
            with start_rehearsal_cluster(contents, snapshot, programs, options) as cluster:
                outcome, contents = asyncio.run(_run(cluster, snapshot, loss, options, number))
                outcomes.append(outcome)
            if sys.stderr.isatty():
                complain(f"spotgate: run {number + 1} of {runs} is done")
    except (ControlPlaneError, ApiError) as error:
        raise CannotJudgeError(f"spotgate rehearse: {error}") from None
    notes = {*NOT_SIMULATED, *snapshot.not_simulated}
    version, scheduler = snapshot.source.version, programs.version
    if version and version_of(version) != version_of(f"v{scheduler}"):
        notes.add(
            f"Kubernetes {version}: the rehearsal runs scheduler {scheduler}; `spotgate rehearse "
            f"--prepare --kubeconfig FILE` gets the version of the cluster, {OLDEST[0]}.{OLDEST[1]} or later"
        )
    return Rehearsal(
        lost=loss.named,
        runs=runs,
        scheduler=scheduler,
        programs=str(programs.paths["kube-scheduler"].parent),
        not_simulated=tuple(sorted(notes.union(*(outcome.notes for outcome in outcomes)))),
        summary=summary_of(outcomes),
        workloads=workload_results(outcomes),
        windows=loss.windows,
        pools=capacity_by_pool(snapshot.nodes, loss.left_of(snapshot.nodes), outcomes[0]),
    )


async def _run(
    cluster: RunningCluster, snapshot: ClusterSnapshot, loss: Loss, options: RehearseOptions, number: int
) -> tuple[RunOutcome, Pairs]:
    """Do one run with its number as seed. Return its outcome and etcd's contents before the notice. Raise ApiError."""
    api = await connect(cluster.plane.credentials.kubeconfig("admin"))
    watches, writer = Watches(api), Writer(api)
    workloads = Workloads(watches, snapshot.bundle)
    left = loss.left_of(snapshot.nodes)
    zones = {node.name: node.labels.get(ZONE_LABEL, "") for node in (*snapshot.nodes, *left)}
    async with watches.running():
        quiet = Quiet(cluster, watches, workloads, partial(provision, writer, watches.claims, zones, set()))
        reclaim = Reclaim(writer, watches, quiet, workloads, startup=options.startup_seconds, seed=number)
        if watches.quotas:
            await quiet.count_quotas()  # the API server rejects Pods before the first count
        if not number:
            await _create(writer, snapshot.created)
        await reclaim.begin()
        contents = cluster.contents() if options.runs > 1 else []
        await reclaim.run(loss.windows, [(seconds, node.value) for seconds, node in loss.grown])
        outcome = outcome_of(reclaim, watches, loss.nodes, left)
        outcome.notes |= {f"{busy}: the rehearsal stopped waiting" for busy in quiet.abandoned}
        named = {pod.seen.spec.schedulerName or "" for pod in workloads.pods() if pod.seen.alive}
        for name in named - {"", *cluster.scheduler_names}:
            outcome.notes.add(f"scheduler {name}: the rehearsal doesn't run it, so its Pods stay pending")
        return outcome, contents


async def _create(writer: Writer, applied: Sequence[Manifest]) -> None:
    """Create the objects of these manifests. Raise CannotJudgeError."""

    async def create(manifest: Manifest, kind: RehearsedKind) -> None:
        try:
            await writer.create(kind.collection(manifest.value["apiVersion"], manifest.namespace), manifest.value)
        except ApiError as error:
            where = f"{manifest.file}:{manifest.line}" if manifest.line else manifest.file
            refused = f"the API server rejects {manifest.value['kind']} {manifest.name}"
            raise CannotJudgeError(f"{where}: {refused}: {error}") from None

    for kind in KINDS:  # in dependency order: a Pod needs its PriorityClass
        await together(create(manifest, kind) for manifest in applied if kind_of_object(manifest.value) is kind)

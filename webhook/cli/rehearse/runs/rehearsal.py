"""Rehearse a reclaim, as often as wanted, each time on a control plane of its own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aiohttp

from webhook.cli.exits import CannotJudgeError
from webhook.cli.rehearse.inputs.resources import KINDS, kind_of_object
from webhook.cli.rehearse.result import Rehearsal
from webhook.cli.rehearse.runs import etcd
from webhook.cli.rehearse.runs.cluster import start_rehearsal_cluster
from webhook.cli.rehearse.runs.programs import OLDEST
from webhook.cli.rehearse.runs.quiet import Quiet
from webhook.cli.rehearse.runs.reclaim import Reclaim
from webhook.cli.rehearse.runs.tally import Before, capacity_by_pool, outcome_of, summary_of, workload_results
from webhook.cli.rehearse.runs.volumes import keep_provisioning
from webhook.cli.rehearse.runs.watching import Watches
from webhook.cli.rehearse.runs.workloads import Workloads
from webhook.cluster.api import Api, ApiError
from webhook.cluster.view import version_of
from webhook.controlplane.control_plane import ControlPlaneError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from pathlib import Path

    from webhook.bundle import Bundle
    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.cli.rehearse.inputs.selection import Loss
    from webhook.cli.rehearse.inputs.snapshot import ClusterSnapshot
    from webhook.cli.rehearse.runs.cluster import RunningCluster
    from webhook.cli.rehearse.runs.programs import Programs
    from webhook.cli.rehearse.runs.tally import RunOutcome
    from webhook.manifests.objects import Manifest

_ANSWER: Final = 60.0
_TOGETHER: Final = 16

MODELLED: Final = (
    "seconds: the provider's window, whole grace periods, start-up and growth are computed, not waited for",
    "restarts: Pods of gangs, and of controllers that are not here, are made anew with their names once they are gone",
    "volumes: a provisioner makes them in the zone of the node that the scheduler chooses",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalOptions:
    """Hold the options of a rehearsal.

    Attributes:
        programs: those of the control plane.
        bundle: the policies of the webhook.
        serve_flags: of `spotgate serve`: its policies, and which cluster this is.
        scheduler_config: of the scheduler; None: the default.
        runs: how often.
        startup: seconds from a Pod's binding until it is ready, where nothing else is known.
        grown: Nodes that come, each with its second after the notice.
        say: says how far it is.
    """

    programs: Programs
    bundle: Bundle
    serve_flags: Sequence[str]
    scheduler_config: Path | None
    runs: int
    startup: float
    grown: Sequence[tuple[float, JSON]]
    say: Callable[[str], None]


def rehearse(snapshot: ClusterSnapshot, loss: Loss, options: RehearsalOptions) -> Rehearsal:
    """Return what happens when these Nodes are lost.

    All runs begin with the Pods where the first has them: where the snapshot has, or where the scheduler put them.

    Raises:
        CannotJudgeError: the API server refuses an object, or a component does not run.
    """
    outcomes: list[RunOutcome] = []
    notes = {*snapshot.not_simulated, *_other_version(snapshot, options.programs)}
    contents: etcd.Pairs | None = None
    try:
        for number in range(options.runs):
            with start_rehearsal_cluster(
                options.programs.paths,
                etcd.pairs_of(snapshot.stored, snapshot.custom_kinds) if contents is None else contents,
                bundle=options.bundle,
                serve_flags=options.serve_flags,
                state=snapshot.state,
                scheduler_config=options.scheduler_config,
            ) as cluster:
                run = _Run(cluster, options, number)
                if contents is None:
                    asyncio.run(run.prepare(snapshot))
                    contents = cluster.contents() if options.runs > 1 else []
                outcomes.append(asyncio.run(run.play(loss)))
                notes |= run.notes
            options.say(f"run {number + 1} of {options.runs} is done")
    except ControlPlaneError as error:
        raise CannotJudgeError(f"spotgate rehearse: {error}") from None
    except ApiError as error:
        raise CannotJudgeError(
            f"spotgate rehearse: the control plane refuses a step of the rehearsal: {error}"
        ) from None
    return Rehearsal(
        lost=loss.named,
        runs=options.runs,
        scheduler=options.programs.version,
        programs=options.programs.origin,
        not_simulated=tuple(sorted(notes)),
        modelled=MODELLED,
        summary=summary_of(outcomes),
        workloads=workload_results(outcomes),
        windows=loss.windows,
        pools=capacity_by_pool(
            snapshot,
            loss.nodes,
            [node for _, node in options.grown],
            options.bundle.providers,
            outcomes[0].requested,
        ),
        events=tuple(outcomes[0].events),
    )


def _other_version(snapshot: ClusterSnapshot, programs: Programs) -> Iterator[str]:
    if snapshot.version and version_of(snapshot.version) != version_of(f"v{programs.version}"):
        yield (
            f"Kubernetes {snapshot.version}, which the cluster has: the scheduler here is {programs.version}; "
            f"`spotgate rehearse --prepare --kubeconfig FILE` gets that of the cluster, from {OLDEST[0]}.{OLDEST[1]} on"
        )


class _Run:
    """One run on a control plane.

    Attributes:
        notes: what it could not rehearse.
    """

    def __init__(self, cluster: RunningCluster, options: RehearsalOptions, number: int) -> None:
        self.notes: set[str] = set()
        self._cluster = cluster
        self._options = options
        self._number = number

    async def prepare(self, snapshot: ClusterSnapshot) -> None:
        """Create what manifests describe, and wait until all that can run runs. Raises ApiError, ControlPlaneError."""
        async with self._connected() as (api, reclaim, _):
            await _create(api, snapshot)
            await reclaim.begin()

    async def play(self, loss: Loss) -> RunOutcome:
        """Play the reclaim. Raises ApiError, ControlPlaneError."""
        async with self._connected() as (_, reclaim, watches):
            await reclaim.begin()
            before = Before(watches, reclaim.quiet, reclaim.workloads, loss.nodes)
            await reclaim.play(loss.windows, self._options.grown)
            self._note_other_schedulers(watches)
            return outcome_of(before, reclaim, watches, reclaim.workloads)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[Api, Reclaim, Watches]]:
        """Yield a connection, a reclaim that can be played, and watches that are current."""
        api = await Api.connect(self._cluster.kubeconfig)
        watches = Watches()
        following: list[asyncio.Task[None]] = []
        async with aiohttp.ClientSession() as session:
            quiet = Quiet(self._cluster, watches, session)
            workloads = Workloads(watches, self._options.bundle)
            try:
                await asyncio.gather(*(each.list(api) for each in watches.all))
                following += [asyncio.create_task(each.follow(api)) for each in watches.all]
                following.append(asyncio.create_task(keep_provisioning(api, watches.claims)))
                yield (
                    api,
                    Reclaim(api, watches, quiet, workloads, startup=self._options.startup, seed=self._number),
                    watches,
                )
            finally:
                for each in following:
                    each.cancel()
                await asyncio.gather(*following, return_exceptions=True)
                self.notes |= {f"{each}: the rehearsal did not wait for it any longer" for each in quiet.impatient}
                await api.close()

    def _note_other_schedulers(self, watches: Watches) -> None:
        names = {pod.spec.schedulerName for pod in watches.pods if pod.lives} - {
            None,
            "",
            *self._cluster.scheduler_names,
        }
        self.notes |= {f"scheduler {name}: it is not here, so Pods that name it stay pending" for name in names}


async def _create(api: Api, snapshot: ClusterSnapshot) -> None:
    """Create what is to be applied. Raises CannotJudgeError."""
    gate = asyncio.Semaphore(_TOGETHER)

    async def create(value: JSON, written: Manifest | None) -> None:
        kind = kind_of_object(value)
        if kind is None:
            return
        path = kind.collection(value["apiVersion"], value["metadata"].get("namespace", ""))
        async with gate:
            try:
                await api.write("POST", path, value, _ANSWER)
            except ApiError as error:
                name = value["metadata"].get("name", "")
                where = "spotgate rehearse" if written is None else f"{written.file}:{written.line}"
                raise CannotJudgeError(f"{where}: the API server refuses {value['kind']} {name}: {error}") from None

    # In the order of kinds: a Pod needs its PriorityClass.
    for kind in KINDS:
        await asyncio.gather(
            *(
                create(value, written)
                for value, written in zip(snapshot.applied, snapshot.sources, strict=True)
                if kind_of_object(value) is kind
            )
        )

"""The result of a rehearsal: figures over its runs, and what the picture of its first run needs.

Nothing here knows how it came about, and nothing that draws it needs anything else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from typing import Any, Final, Literal

import msgspec

from webhook.capacity.providers.pool import Taint  # noqa: TC001 - msgspec reads the annotations
from webhook.documents.yaml_writer import dump

MODELLED: Final = (
    "seconds: the provider's window, whole grace periods, start-up and growth are computed, not waited for",
    "restarts: Pods of gangs, and of controllers that are not here, are created again by name once they are gone",
    "volumes: a provisioner makes them in the zone of the node that the scheduler chooses",
)
"""What no rehearsal waits for but computes, a sentence each."""

DrainedBy = Literal["eviction", "kubelet", "nobody"]
PodState = Literal["ready", "stopping", "starting", "pending"]


class Figure(msgspec.Struct, frozen=True):
    """A figure over the runs. It is None if the disruption controller can't count it, or it never happens."""

    min: float | None = None
    max: float | None = None

    @classmethod
    def over(cls, figures: list[float]) -> Figure:
        """Return the range of these figures, one for each run; unknown if one is not a number."""
        return cls() if any(map(math.isnan, figures)) else cls(round(min(figures), 3), round(max(figures), 3))

    def __str__(self) -> str:
        return self.words("unknown")

    def words(self, otherwise: str) -> str:
        """Return it for people, or what to say if there is no number."""
        if self.min is None or self.max is None:
            return otherwise
        return f"{self.min:g}" if self.min == self.max else f"{self.min:g}-{self.max:g}"


class Capacity(msgspec.Struct, frozen=True):
    """The capacity of a node pool.

    Attributes:
        nodes: its number of Nodes.
        allocatable: what they offer together, by resource, in whole units or bytes.
        requested: what the Pods on them request of that, in the first run.
    """

    nodes: int
    allocatable: Mapping[str, float]
    requested: Mapping[str, float]


class PoolCapacity(msgspec.Struct, frozen=True):
    """The capacity of a node pool before and after the reclaim; its name is empty if the Nodes name no pool."""

    name: str
    before: Capacity
    after: Capacity


class ReclaimWindow(msgspec.Struct, frozen=True):
    """The actions of a provider on a reclaimed node, in seconds after the notice.

    Attributes:
        provider: its title.
        nodes: the lost Nodes that it is about.
        cordon, drain: when the node is cordoned and drained.
        kill: when what still runs gets SIGKILL.
        removal: when the node is gone.
        drained_by: as in the provider's document.
        unevicted: the annotation of Pods that the drain skips; empty if it skips none.
        cordon_taint: the taint that cordons the nodes, and whose tolerance exempts Pods from the drain; None: they
            become unschedulable.
        tiers: the drain evicts ordinary Pods, DaemonSet Pods, and critical Pods one after the other.
        forced: what budgets and annotations hold back is deleted so early that its grace period ends with the window.
        assumes: what has to be true for all this; empty if nothing needs to be said.
    """

    provider: str
    nodes: tuple[str, ...]
    cordon: float
    drain: float
    kill: float
    removal: float
    drained_by: DrainedBy = "eviction"
    unevicted: str = ""
    cordon_taint: Taint | None = None
    tiers: bool = False
    forced: bool = False
    assumes: str = ""

    @property
    def moments(self) -> list[tuple[float, str]]:
        """Return what happens to the nodes, in order."""
        gone = [(self.removal, "gone")]
        if self.drained_by == "nobody":
            return gone
        drain = "drain" if self.drained_by == "eviction" else "shutdown"
        return [(self.cordon, "cordon"), (self.drain, drain), (self.kill, "SIGKILL"), *gone]


JOB_FAILED: Final = "the Job has failed"
INDEXES_FAILED: Final = "these indexes of the Job have failed for good"
NO_SCHEDULER: Final = "no scheduler here is named"
"""How these reasons of a workload begin."""


class WorkloadKey(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """The highest owner of a Pod, or the Pod itself if it has none."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return kind, namespace and name."""
        return (self.kind, self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class WorkloadResult(WorkloadKey, frozen=True, kw_only=True, rename="camel"):
    """The effects of a reclaim on one workload, with the figures of `-o json`.

    Attributes:
        replicas: its Pods that run before.
        lost: those on lost Nodes.
        moved: new Pods that run at the end.
        pending: Pods that do not, and did before.
        missing: Pods that it wants and that don't exist at the end, beyond those that it missed before.
        killed_early: Pods that get less than their grace period.
        lowest_ready: the fewest Pods that are ready at once.
        ready_again_seconds: after the notice, until as many Pods are ready as before; None if they never are.
        seconds_below_budget: how long fewer are healthy than its PodDisruptionBudget demands.
        work_lost_gpu_hours: what its GPUs have done since the last checkpoint, and is lost.
        budget: the name of that PodDisruptionBudget; empty if there is none.
        reasons: why Pods are pending, in the scheduler's words, and what else there is to say.
        down_seconds: how long no Pod is ready, if one was before; None if in the end none is.
        states: how many Pods are in each of `PodState` in the first run, with the second since which that holds.
        lost_on: the lost Nodes that its Pods were on.
        goes_with_nodes: it only loses Pods that nothing moves, as those of a DaemonSet.
    """

    replicas: int
    lost: int
    moved: Figure
    pending: Figure
    missing: Figure
    killed_early: Figure
    lowest_ready: Figure
    ready_again_seconds: Figure = Figure(0, 0)
    seconds_below_budget: Figure
    reasons: tuple[str, ...] = ()
    work_lost_gpu_hours: Figure
    budget: str = ""
    down_seconds: Figure = Figure(0, 0)
    states: tuple[tuple[float, tuple[int, ...]], ...] = ()
    lost_on: tuple[str, ...] = ()
    goes_with_nodes: bool = False

    @property
    def failed(self) -> bool:
        """Return whether it is a Job that has failed."""
        return self.has_reason(JOB_FAILED)

    @property
    def untouched(self) -> WorkloadResult:
        """Return the workload as a reclaim leaves it that doesn't touch it."""
        figures = dict.fromkeys(FIGURES, Figure(0, 0)) | {"lowest_ready": Figure(self.replicas, self.replicas)}
        return msgspec.structs.replace(self, lost=0, reasons=(), **figures)

    def has_reason(self, beginning: str) -> bool:
        """Return whether one of its reasons begins so."""
        return any(reason.startswith(beginning) for reason in self.reasons)


FIGURES: Final = tuple(field.name for field in msgspec.structs.fields(WorkloadResult) if field.type is Figure)
"""The figures of a workload that differ from run to run."""


class Fix(msgspec.Struct, frozen=True):
    """A change that would reduce the harm of a reclaim.

    Attributes:
        why: what is wrong, and what this changes.
        manifest: a new object, or the change of one as a merge patch.
        tried: whether a rehearsal with all fixes was better than one without this fix; None: not tried.
    """

    why: str
    manifest: Mapping[str, Any]
    tried: Literal["helps", "does not help"] | None = None

    @property
    def yaml(self) -> str:
        """Return the manifest as YAML."""
        return dump(self.manifest)


class RehearsalSummary(msgspec.Struct, frozen=True, rename="camel"):
    """The figures of all workloads together."""

    moved: Figure
    pending: Figure
    missing: Figure
    killed_early: Figure
    work_lost_gpu_hours: Figure


class FigureChange(msgspec.Struct, frozen=True):
    """A figure of one workload that is worse or better in every run.

    Attributes:
        kind, namespace, name: the workload.
        figure: its name in `-o json`.
        before, after: its range.
    """

    kind: str
    namespace: str
    name: str
    figure: str
    before: Figure
    after: Figure

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}: {self.figure} {self.before} -> {self.after}"


class RehearsalComparison(msgspec.Struct, frozen=True):
    """The figures that are worse or better than in another rehearsal.

    Attributes:
        base: what it is compared with.
        worse, better: the figures that differ by more than runs do.
    """

    base: str
    worse: tuple[FigureChange, ...]
    better: tuple[FigureChange, ...]


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a rehearsal.

    Attributes:
        lost: what was reclaimed: ``NodePool/gpu-spot``, ``zone a``.
        runs: how often it was rehearsed.
        scheduler: version of the scheduler.
        programs: the folder that it was run from.
        not_simulated: what the result leaves out, a sentence each.
        summary: the figures of all workloads.
        workloads: those that the reclaim touches, those with pending Pods first.
        fixes: what would reduce the harm.
        windows: what the providers do with the lost nodes.
        pools: capacity by pool.
        comparison: with another rehearsal, where that was asked for.
        fixed: the same with these fixes, where that was asked for.
    """

    lost: tuple[str, ...]
    runs: int
    scheduler: str
    programs: str = ""
    not_simulated: tuple[str, ...]
    summary: RehearsalSummary
    workloads: tuple[WorkloadResult, ...]
    fixes: tuple[Fix, ...] = ()
    windows: tuple[ReclaimWindow, ...] = ()
    pools: tuple[PoolCapacity, ...] = ()
    comparison: RehearsalComparison | None = None
    fixed: Rehearsal | None = None

    @property
    def sides(self) -> list[tuple[WorkloadResult, WorkloadResult | None]]:
        """Return each workload as it is and, where the fixes were tried, with them; not those that go with nodes."""
        before, after = (
            {workload.identity: workload for workload in side.workloads if not workload.goes_with_nodes}
            for side in (self, self.fixed or self)
        )
        if self.fixed is None:
            return [(workload, None) for workload in before.values()]
        return [
            (before.get(key, own.untouched), after.get(key, own.untouched)) for key, own in {**before, **after}.items()
        ]

"""The result of a rehearsal: figures over all runs, and the data for the drawing of the first run.

The classes depend on neither the code that runs rehearsals nor the code that shows them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence  # noqa: TC003 - msgspec reads the annotations
from typing import Any, Final, Literal

import msgspec

from webhook.capacity.providers.pool import Taint  # noqa: TC001 - msgspec reads the annotations
from webhook.controller.notice.steps import granted_seconds
from webhook.documents.yaml_writer import dump
from webhook.rehearse.reasons import Cause, HarmReason

MODELLED: Final = (
    "seconds: the provider's window, full grace periods, start-up, and growth are computed, not measured",
    "restarts: the rehearsal recreates Pods of gangs, and of controllers that it doesn't run, under the same names",
    "volumes: the rehearsal creates them in the zone of the node that the scheduler chooses",
)
"""The aspects that a rehearsal models instead of running them, one sentence each."""

BELOW_AT_MOST: Final = 600.0
"""The maximum of `seconds_below_budget`: a budget that isn't met at the end stays unmet until a person intervenes."""

DrainedBy = Literal["eviction", "kubelet", "nobody"]
PodState = Literal["ready", "stopping", "starting", "pending"]


class Figure(msgspec.Struct, frozen=True):
    """The range of a figure over the runs. The bounds are None if the figure is unknown or the event never happens."""

    min: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, value: float) -> Figure:
        """Return the figure of one run, which is unknown if it is NaN."""
        return cls() if math.isnan(value) else cls(value, value)

    @classmethod
    def over(cls, figures: Sequence[Figure]) -> Figure:
        """Return the range of the figures of several runs. The range is unknown if any figure is."""
        lows = [figure.min for figure in figures if figure.min is not None]
        highs = [figure.max for figure in figures if figure.max is not None]
        return cls(round(min(lows), 3), round(max(highs), 3)) if len(lows) == len(figures) else cls()

    def __str__(self) -> str:
        return self.words("unknown")

    def words(self, otherwise: str) -> str:
        """Return the range as text, or ``otherwise`` if it is unknown."""
        if self.min is None or self.max is None:
            return otherwise
        return f"{self.min:g}" if self.min == self.max else f"{self.min:g}-{self.max:g}"


class Capacity(msgspec.Struct, frozen=True):
    """The capacity of a node pool.

    Attributes:
        nodes: the number of Nodes.
        allocatable: the total allocatable resources of the Nodes, in whole units or bytes.
        requested: the total requests of the Pods on the Nodes, in the first run.
    """

    nodes: int
    allocatable: Mapping[str, float]
    requested: Mapping[str, float]


class PoolCapacity(msgspec.Struct, frozen=True):
    """The capacity of a node pool before and after the reclaim. The name is empty for Nodes without a pool label."""

    name: str
    before: Capacity
    after: Capacity


class ReclaimWindow(msgspec.Struct, frozen=True):
    """The actions of a provider on a reclaimed node, in seconds after the notice.

    Attributes:
        provider: the provider's title.
        nodes: the names of the lost Nodes.
        cordon, drain: when the provider cordons the node, and when it starts the drain.
        kill: when the remaining Pods get SIGKILL.
        removal: when the node is removed.
        drained_by: as in the provider document.
        notice: when the node shows the signal on which `spotgate controller` evicts Pods; None if that isn't before the
            drain.
        margin: the seconds before the removal by which a Pod that is evicted on this signal must have stopped.
        unevicted: the annotation of Pods that the drain skips; empty if it skips none.
        cordon_taint: the taint that cordons the nodes; Pods that tolerate it are exempt from the drain. If None, the
            nodes become unschedulable instead.
        tiers: whether the drain evicts ordinary, DaemonSet, and critical Pods in sequence.
        forced: whether the drain deletes Pods that budgets or annotations protect, early enough for their grace period.
        assumes: the assumptions of this timeline; empty if there are none.
    """

    provider: str
    nodes: tuple[str, ...]
    cordon: float
    drain: float
    kill: float
    removal: float
    drained_by: DrainedBy = "eviction"
    notice: float | None = None
    margin: int = 0
    unevicted: str = ""
    cordon_taint: Taint | None = None
    tiers: bool = False
    forced: bool = False
    assumes: str = ""

    @property
    def moments(self) -> list[tuple[float, str]]:
        """Return the events of the nodes in order, each with its second."""
        gone = [(self.removal, "gone")]
        if self.drained_by == "nobody":
            return gone
        drain = "drain" if self.drained_by == "eviction" else "shutdown"
        return [(self.cordon, "cordon"), (self.drain, drain), (self.kill, "SIGKILL"), *gone]

    def granted(self, now: float, own: float) -> int | None:
        """Return the grace period that an eviction on the signal grants at this second, in place of the Pod's own.

        Return None if the Pod isn't evicted then: the drain has begun, or the Pod has as much time without it.
        """
        if self.notice is None or now >= self.drain:
            return None
        return granted_seconds(self.removal - now, self.margin, own)


class WorkloadKey(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """The top-level owner of a Pod, or the Pod itself if it has no owner."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return the kind, namespace, and name."""
        return (self.kind, self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class WorkloadResult(WorkloadKey, frozen=True, kw_only=True, rename="camel"):
    """The effects of a reclaim on one workload, with the figures of `-o json`.

    Attributes:
        replicas: Pods that run before the reclaim.
        pending_before: additional Pods that are pending before the reclaim.
        lost: Pods on lost Nodes.
        moved: new Pods that run at the end.
        pending: additional Pods that are pending at the end.
        missing: additional Pods that don't exist at the end, although the workload wants them.
        killed_early: Pods that get less than their grace period.
        lowest_ready: the minimum number of Pods that are ready at the same time.
        ready_again_seconds: from the notice until as many Pods are ready as before; None if that never happens.
        seconds_below_budget: how long the workload has fewer healthy Pods than its PodDisruptionBudget requires.
        work_lost_gpu_hours: the GPU work since the last checkpoint that is lost.
        budget: the name of the PodDisruptionBudget; empty if there is none.
        reasons: why Pods are pending, in the scheduler's words, and other explanations.
        down_seconds: how long no Pod is ready, if one was ready before; None if none is ready at the end.
        states: the number of Pods in each `PodState` in the first run, each entry with the second of the change.
        lost_on: the lost Nodes that ran its Pods.
        grace_seconds, startup_seconds: the longest grace period of its lost Pods, and the start-up time of its Pods.
        goes_with_nodes: whether all lost Pods belong to their nodes, such as the Pods of a DaemonSet.
    """

    replicas: int
    pending_before: int = 0
    lost: int
    moved: Figure
    pending: Figure
    missing: Figure
    killed_early: Figure
    lowest_ready: Figure
    ready_again_seconds: Figure = Figure(0, 0)
    seconds_below_budget: Figure
    reasons: tuple[HarmReason, ...] = ()
    work_lost_gpu_hours: Figure
    budget: str = ""
    down_seconds: Figure = Figure(0, 0)
    states: tuple[tuple[float, tuple[int, ...]], ...] = ()
    lost_on: tuple[str, ...] = ()
    grace_seconds: float = 0
    startup_seconds: float = 0
    goes_with_nodes: bool = False

    @property
    def failed(self) -> bool:
        """Return whether the workload is a failed Job."""
        return self.has_reason(Cause.JOB_FAILED)

    @property
    def untouched(self) -> WorkloadResult:
        """Return the workload as if the reclaim didn't affect it."""
        figures = dict.fromkeys(FIGURES, Figure(0, 0)) | {"lowest_ready": Figure(self.replicas, self.replicas)}
        return msgspec.structs.replace(self, lost=0, reasons=(), **figures)

    def has_reason(self, cause: Cause) -> bool:
        """Return whether one of the reasons has this cause."""
        return any(reason.cause is cause for reason in self.reasons)


FIGURES: Final = tuple(field.name for field in msgspec.structs.fields(WorkloadResult) if field.type is Figure)
"""The figures of a workload that can vary from run to run."""


class Fix(msgspec.Struct, frozen=True):
    """A change that would reduce the harm of a reclaim.

    Attributes:
        why: the problem, and how this change helps.
        manifest: a new object, or a merge patch for an existing one.
        tried: whether a rehearsal with all fixes is better than one without this fix; None if untried.
    """

    why: str
    manifest: Mapping[str, Any]
    tried: Literal["helps", "does not help"] | None = None

    @property
    def yaml(self) -> str:
        """Return the manifest as YAML."""
        return dump(self.manifest)


class RehearsalSummary(msgspec.Struct, frozen=True, rename="camel"):
    """The total figures of all workloads."""

    moved: Figure
    pending: Figure
    missing: Figure
    killed_early: Figure
    work_lost_gpu_hours: Figure


class FigureChange(msgspec.Struct, frozen=True):
    """A figure of one workload that is worse or better in every run.

    Attributes:
        kind, namespace, name: the workload.
        figure: the name of the figure in `-o json`.
        before, after: the range of the figure.
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
        base: the name of the other rehearsal.
        worse, better: the figures whose ranges don't overlap.
    """

    base: str
    worse: tuple[FigureChange, ...]
    better: tuple[FigureChange, ...]


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a rehearsal.

    Attributes:
        lost: the reclaimed selections, such as ``NodePool/gpu-spot`` or ``zone a``.
        runs: the number of runs.
        scheduler: the version of the scheduler.
        programs: the folder that contains the scheduler.
        not_simulated: the aspects that the result ignores, one sentence each.
        summary: the total figures of all workloads.
        workloads: the affected workloads, starting with the most pending Pods.
        fixes: changes that would reduce the harm.
        windows: the actions of the providers on the lost nodes.
        pools: the capacity of each pool.
        comparison: the comparison with another rehearsal, if requested.
        fixed: the rehearsal with the fixes, if requested.
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
        """Return each workload without and, if they were tried, with the fixes. Omit those that go with nodes."""
        before, after = (
            {workload.identity: workload for workload in side.workloads if not workload.goes_with_nodes}
            for side in (self, self.fixed or self)
        )
        if self.fixed is None:
            return [(workload, None) for workload in before.values()]
        return [
            (before.get(key, own.untouched), after.get(key, own.untouched)) for key, own in {**before, **after}.items()
        ]

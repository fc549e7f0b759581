"""Make the figures of a rehearsal from what its runs have seen."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import structs

from webhook.base.terminal import counted
from webhook.rehearse.result import (
    FIGURES,
    INDEXES_FAILED,
    JOB_FAILED,
    NO_SCHEDULER,
    Capacity,
    Figure,
    PoolCapacity,
    RehearsalSummary,
    WorkloadResult,
)
from webhook.rehearse.runs.shortage import causes_of, shortage_of
from webhook.rehearse.runs.workloads import PodStage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from webhook.rehearse.inputs.nodes import RehearsedNode
    from webhook.rehearse.result import ReclaimEvent, WorkloadKey
    from webhook.rehearse.runs.reclaim import Reclaim
    from webhook.rehearse.runs.watching import SeenPod, Watches
    from webhook.rehearse.runs.workloads import KnownPod

_REASONS: Final = 5
"""Reasons of one workload: Pods that are alike are pending for the same."""


class WorkloadRun(msgspec.Struct):
    """Hold what one run has seen of a workload. Most fields are those of `WorkloadResult`.

    Attributes:
        seconds_below_budget: NaN if the disruption controller can't count its budget.
        budgets: the names of those that cover it.
        living: its Pods at the end.
        moves: a Pod is lost that does not go with its Node.
        waiting: the Pods for which the scheduler finds no node at the end, by its causes.
        lacks: what they lack, in short, with their number and the scheduler's sentence.
    """

    replicas: int = 0
    lost: int = 0
    moved: float = 0
    pending: float = 0
    missing: float = 0
    killed_early: float = 0
    lowest_ready: float = 0
    ready_again_seconds: float = 0
    down_seconds: float = 0
    seconds_below_budget: float = 0
    work_lost_gpu_hours: float = 0
    budgets: set[str] = set()
    living: int = 0
    moves: bool = False
    waiting: dict[tuple[str, ...], list[tuple[SeenPod, KnownPod]]] = {}
    lacks: dict[str, tuple[int, str]] = {}
    reasons: list[str] = []

    def add_reason(self, reason: str) -> None:
        """Add a reason, unless it is there or there are enough."""
        if reason and reason not in self.reasons and len(self.reasons) < _REASONS:
            self.reasons.append(reason)

    def explain_waiting(self, left: Collection[RehearsedNode], requested: Mapping[str, Counter[str]]) -> None:
        """Say what its waiting Pods lack, given the nodes that are left and what is requested there."""
        for causes, pods in self.waiting.items():
            needed = sum((known.requests for _, known in pods), Counter({"pods": len(pods)}))
            self.add_lack(
                shortage_of(causes, pods[0][0].spec, needed, left, requested), len(pods), _sentence_of(pods[-1][0])
            )

    def add_lack(self, lacks: str, pods: int, sentence: str) -> None:
        """Add what some Pods lack; of several runs the highest number counts."""
        self.lacks[lacks] = max(self.lacks.get(lacks, (0, "")), (pods, sentence))

    @property
    def harmed(self) -> bool:
        """Return whether the workload lacks Pods in the end, or has lost work."""
        return bool(self.pending > 0 or self.missing or self.killed_early or self.work_lost_gpu_hours)

    @property
    def touched(self) -> bool:
        """Return whether the reclaim does anything to the workload."""
        return bool(self.lost or self.moved or self.harmed)


class RunOutcome(msgspec.Struct):
    """Hold what one run has seen.

    Attributes:
        workloads: what it has seen of each.
        events: what happened when.
        before, after: what Pods request on each Node, by resource.
        notes: what it could not rehearse.
    """

    workloads: defaultdict[WorkloadKey, WorkloadRun]
    events: list[ReclaimEvent]
    before: defaultdict[str, Counter[str]]
    after: defaultdict[str, Counter[str]]
    notes: set[str] = set()


def outcome_of(played: Reclaim, watches: Watches, lost: Collection[str], left: Collection[RehearsedNode]) -> RunOutcome:
    """Return what a run has seen when some Nodes were lost and the others were left."""
    outcome = RunOutcome(defaultdict(WorkloadRun), played.events, defaultdict(Counter), defaultdict(Counter))
    living = {pod.metadata.uid: pod for pod in watches.pods.values() if pod.lives}
    every = played.workloads.known.values()
    waiting_gangs = {each.gang for each in every if each.uid in living and not each.node} - {None}
    killed_gangs = {each.gang for each in every if each.killed} - {None}
    for known in every:
        run = outcome.workloads[known.workload]
        _count_before(known, run, played, watches, is_lost=known.ran and known.node in lost)
        if known.broken or (known.ran and known.node in lost and not known.leaves):
            killed = known.killed or known.gang in killed_gangs
            run.work_lost_gpu_hours += known.work_if_killed if killed else known.work
        if (pod := living.get(known.uid)) is not None:
            _count_living(pod, known, run, waits=known.gang in waiting_gangs, gone=pod.node in lost)
            outcome.after[pod.node].update(known.requests)
        if known.ran:
            outcome.before[known.node].update(known.requests)
    missing = played.workloads.missing() - played.missing_before
    refusals = played.remaker.refused | {each.identity: why for each, _, why in played.workloads.refused()}
    blocked = {event.workload: event.text for event in reversed(played.events) if event.name == "blocked"}
    for workload, run in outcome.workloads.items():
        run.explain_waiting(left, outcome.after)
        if (seen := played.readiness.get(workload)) is not None:
            run.lowest_ready, run.ready_again_seconds, run.down_seconds = seen.lowest, seen.again, seen.down
        run.missing = missing[workload]
        if run.missing:
            run.add_reason(refusals.get(workload.identity, "") or _why_missing(workload, watches))
        if run.moves and run.living < run.replicas:
            run.add_reason(_why_not_made_again(workload, watches))
        # Otherwise it has only made the drain go step by step, as it is to.
        if run.lost and run.killed_early:
            run.add_reason(blocked.get(workload.identity, ""))
    return outcome


def _count_before(known: KnownPod, run: WorkloadRun, played: Reclaim, watches: Watches, *, is_lost: bool) -> None:
    """Count what a Pod was before the reclaim, and how long its budgets were not met."""
    run.replicas += known.ran
    run.pending -= known.before is PodStage.WAITING
    run.lost += is_lost
    run.killed_early += known.killed
    run.moves |= is_lost and not known.leaves
    for key in known.budgets if known.before is not PodStage.NEW else ():
        run.budgets.add(key[1])
        run.seconds_below_budget = max(run.seconds_below_budget, float(played.below[key]))
        if (seen := watches.budgets.get(key)) and (why := seen.status.uncountable):
            run.seconds_below_budget = math.nan
            run.add_reason(f"PodDisruptionBudget {key[1]} can't be counted: {why}")


def _count_living(pod: SeenPod, known: KnownPod, run: WorkloadRun, *, waits: bool, gone: bool) -> None:
    """Count whether a Pod moved or waits. A gang of which one Pod waits waits as a whole."""
    run.living += 1
    if not pod.node:
        run.pending += 1
        if sentence := _sentence_of(pod):
            run.waiting.setdefault(causes_of(sentence), []).append((pod, known))
        else:
            run.add_reason(f"{NO_SCHEDULER} {pod.spec.schedulerName}" if pod.spec.schedulerName else "not scheduled")
    elif gone:
        run.pending += 1
        run.add_reason(f"its spec.nodeName is {pod.node}, which is lost")
    elif waits:
        run.pending += 1
        run.add_reason("its gang does not run: it needs all of its Pods")
    elif not known.ran and not known.leaves:
        run.moved += 1


def _sentence_of(pod: SeenPod) -> str:
    """Return what the scheduler says of a Pod; empty if it says nothing."""
    scheduled = pod.condition("PodScheduled")
    return scheduled.message if scheduled is not None else ""


def _why_not_made_again(workload: WorkloadKey, watches: Watches) -> str:
    """Return why a workload has fewer Pods than before; empty if nothing says it."""
    job = watches.jobs.get((workload.namespace, workload.name)) if workload.kind == "Job" else None
    if job is not None and (failed := job.condition("Failed")) is not None:
        return f"{JOB_FAILED}: {failed.reason}: {failed.message}"
    if job is not None and job.status.failedIndexes:
        return f"{INDEXES_FAILED}: {job.status.failedIndexes}"
    return ""


def _why_missing(workload: WorkloadKey, watches: Watches) -> str:
    """Return why a workload has fewer Pods than it wants, where nothing has refused them."""
    if workload.kind == "Pod":
        return "nothing makes this Pod again"
    owner = watches.stateful_sets.get((workload.namespace, workload.name)) if workload.kind == "StatefulSet" else None
    if owner is not None and owner.spec.get("podManagementPolicy") != "Parallel":
        return "OrderedReady: the StatefulSet makes no further Pod until those that it has made are ready"
    return ""


def workload_results(outcomes: Sequence[RunOutcome]) -> tuple[WorkloadResult, ...]:
    """Return the workloads that the reclaim touches, with the figures of all runs."""
    results = []
    for workload in {key for outcome in outcomes for key in outcome.workloads}:
        runs = [outcome.workloads[workload] for outcome in outcomes]
        if not any(each.touched for each in runs):
            continue
        summed = WorkloadRun()
        for each in runs:
            for lacks, (pods, sentence) in each.lacks.items():
                summed.add_lack(lacks, pods, sentence)
        for lacks, (pods, sentence) in summed.lacks.items():
            summed.add_reason(f"{counted(pods, 'Pod')}: {lacks}. {sentence}")
        for reason in (reason for each in runs for reason in each.reasons):
            summed.add_reason(reason)
        figures: dict[str, Any] = {
            name: Figure.over([max(getattr(each, name), 0) for each in runs]) for name in FIGURES
        }
        results.append(
            WorkloadResult(
                **structs.asdict(workload),
                replicas=max(each.replicas for each in runs),
                lost=max(each.lost for each in runs),
                budget=", ".join(sorted(set().union(*(each.budgets for each in runs)))),
                down_seconds=Figure.over([each.down_seconds for each in runs]),
                goes_with_nodes=not any(run.harmed or run.moves or run.moved for run in runs),
                reasons=tuple(summed.reasons),
                **figures,
            )
        )
    return tuple(sorted(results, key=lambda each: (-(each.pending.max or 0), -each.lost, each.identity)))


def summary_of(outcomes: Sequence[RunOutcome]) -> RehearsalSummary:
    """Return the figures of all workloads together."""
    return RehearsalSummary(
        **{
            name: Figure.over(
                [sum(max(getattr(each, name), 0) for each in outcome.workloads.values()) for outcome in outcomes]
            )
            for name in RehearsalSummary.__struct_fields__
        }
    )


def capacity_by_pool(
    nodes: Sequence[RehearsedNode], lost: Collection[str], grown: Sequence[RehearsedNode], outcome: RunOutcome
) -> tuple[PoolCapacity, ...]:
    """Return the capacity of each pool before and after the loss of some Nodes and the growth by others."""
    left = [*(each for each in nodes if each.name not in lost), *grown]
    return tuple(
        PoolCapacity(
            name,
            any(each.spot for each in (*nodes, *grown) if each.pool_name == name),
            _capacity([each for each in nodes if each.pool_name == name], outcome.before),
            _capacity([each for each in left if each.pool_name == name], outcome.after),
        )
        for name in sorted({each.pool_name for each in (*nodes, *grown)})
    )


def _capacity(nodes: Sequence[RehearsedNode], requested: Mapping[str, Counter[str]]) -> Capacity:
    offered: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for node in nodes:
        offered.update(node.allocatable)
        asked.update(requested.get(node.name, {}))
    return Capacity(len(nodes), offered, asked)

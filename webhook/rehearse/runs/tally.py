"""Compute the figures of a rehearsal from the observations of its runs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec
from msgspec import structs

from webhook.base.terminal import counted
from webhook.rehearse.inputs.resources import JOB, POD, STATEFUL_SET
from webhook.rehearse.reasons import Cause, HarmReason
from webhook.rehearse.result import (
    FIGURES,
    Capacity,
    Figure,
    PodState,
    PoolCapacity,
    RehearsalSummary,
    WorkloadResult,
)
from webhook.rehearse.runs.shortage import causes_of, shortage_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from webhook.rehearse.inputs.nodes import RehearsedNode
    from webhook.rehearse.result import WorkloadKey
    from webhook.rehearse.runs.reclaim import Reclaim
    from webhook.rehearse.runs.watching import Watches
    from webhook.rehearse.runs.workloads import RehearsedPod

_REASONS: Final = 5
"""The maximum number of reasons of a workload."""

_HIGHEST: Final = ("replicas", "pending_before", "lost", "grace_seconds")
"""The fields of a result that are the highest of all runs."""


class WorkloadRun(msgspec.Struct):
    """The observations of one workload in one run.

    Attributes:
        replicas, pending_before, lost, states, lost_on, grace_seconds, startup_seconds: as in `WorkloadResult`.
        figures: the values of `FIGURES`; NaN if unknown.
        budgets: the names of the PodDisruptionBudgets that cover the workload.
        living: the number of Pods at the end.
        moves: whether a lost Pod doesn't belong to its Node.
        waiting: the unschedulable Pods at the end, by the scheduler's causes.
        reasons: the explanations, most important first; may contain duplicates and None.
    """

    replicas: int = 0
    pending_before: int = 0
    lost: int = 0
    figures: defaultdict[str, float] = msgspec.field(default_factory=lambda: defaultdict(float))
    budgets: set[str] = set()
    living: int = 0
    moves: bool = False
    waiting: dict[tuple[str, ...], list[RehearsedPod]] = {}
    states: tuple[tuple[float, tuple[int, ...]], ...] = ()
    lost_on: set[str] = set()
    grace_seconds: float = 0
    startup_seconds: float = 0
    reasons: list[HarmReason | None] = []

    @property
    def harm(self) -> tuple[float, ...]:
        """Return the harm to the workload at the end, the most severe figure first."""
        causes = [reason.cause for reason in self.reasons if reason is not None]
        failed = causes.count(Cause.JOB_FAILED) + causes.count(Cause.INDEXES_FAILED)
        figures = self.figures
        return failed, figures["pending"] + figures["missing"], figures["killed_early"], figures["work_lost_gpu_hours"]


class RunOutcome(msgspec.Struct):
    """The observations of one run.

    Attributes:
        workloads: the observations of each workload.
        notes: the events that the run couldn't rehearse.
        before, after: the requests of the Pods on each Node, by resource.
    """

    workloads: defaultdict[WorkloadKey, WorkloadRun]
    notes: set[str]
    before: Mapping[str, Counter[str]]
    after: Mapping[str, Counter[str]]


def outcome_of(reclaim: Reclaim, watches: Watches, lost: Collection[str], left: Sequence[RehearsedNode]) -> RunOutcome:
    """Return the outcome of a run, given the names of the lost Nodes and the remaining Nodes."""
    workloads: defaultdict[WorkloadKey, WorkloadRun] = defaultdict(WorkloadRun)
    before: defaultdict[str, Counter[str]] = defaultdict(Counter)
    requested: defaultdict[str, Counter[str]] = defaultdict(Counter)
    living = [pod for pod in reclaim.workloads.pods() if pod.seen.alive]
    waiting_gangs = {pod.gang for pod in living if not pod.node} - {None}
    killed_gangs = {pod.gang for pod in reclaim.workloads.known.values() if pod.killed} - {None}
    for pod in reclaim.workloads.known.values():
        run = workloads[pod.workload]
        is_lost = pod.ran and pod.node in lost
        before[pod.node].update(pod.requests if pod.ran else ())
        _count_before(pod, run, reclaim, watches, is_lost=is_lost)
        if pod.broken or (is_lost and not pod.leaves):
            killed = pod.killed or pod.gang in killed_gangs
            run.figures["work_lost_gpu_hours"] += pod.work_if_killed if killed else pod.work
    for pod in living:
        _count_living(pod, workloads[pod.workload], waits=pod.gang in waiting_gangs, gone=pod.seen.node in lost)
        requested[pod.seen.node].update(pod.requests)
    missing = reclaim.workloads.missing() - reclaim.missing_before
    refusals = reclaim.recreator.refused | {workload.identity: why for workload, _, why in reclaim.workloads.refused()}
    blocked = {pod.workload: pod.blocked for pod in reclaim.workloads.known.values() if pod.blocked}
    for workload, run in workloads.items():
        figures = run.figures
        states = [(at, tuple(pods[workload, state] for state in get_args(PodState))) for at, pods in reclaim.samples]
        run.states = tuple(next(same) for _, same in groupby(states, itemgetter(1)))
        names = ("lowest_ready", "ready_again_seconds", "down_seconds")
        figures |= zip(names, readiness_of(run.states), strict=True)
        run.startup_seconds = reclaim.workloads.startup(workload, reclaim.startup)
        figures["missing"] = missing[workload]
        figures["pending"] = max(figures["pending"], 0)
        alike = sorted(run.waiting.values(), key=len, reverse=True)
        run.reasons = [*(_why_pending(pods, left, requested) for pods in alike), *run.reasons]
        if missing[workload]:
            refusal = refusals.get(workload.identity, "")
            run.reasons.append(HarmReason(Cause.OTHER, refusal) if refusal else _why_missing(workload, watches))
        if run.moves and run.living < run.replicas:
            run.reasons.append(_why_not_recreated(workload, watches))
        # Otherwise, the budget only slowed down the drain, as intended.
        if run.lost and figures["killed_early"]:
            run.reasons.append(blocked.get(workload))
    return RunOutcome(workloads, {*reclaim.notes}, before, requested)


def readiness_of(states: Sequence[tuple[float, tuple[int, ...]]]) -> tuple[float, float, float]:
    """Return the lowest number of ready Pods, the second of full recovery, and the seconds without a ready Pod.

    ``states`` lists the number of Pods in each state, starting with ready, and the second of the change. The recovery
    or the outage is NaN if the workload never recovers. The outage is 0 if no Pod was ready at the notice.
    """
    (_, (before, *_)), again = states[0], 0.0
    for seconds, (ready, *_) in states:
        again = math.nan if ready < before else seconds if math.isnan(again) else again
    outage = sum(until - begin for (begin, (ready, *_)), (until, _) in pairwise(states) if not ready)
    down = outage if states[-1][1][0] else math.nan
    return min(ready for _, (ready, *_) in states), again, down if before else 0.0


def _count_before(pod: RehearsedPod, run: WorkloadRun, reclaim: Reclaim, watches: Watches, *, is_lost: bool) -> None:
    """Count the state of a Pod before the reclaim, and how long its budgets weren't met."""
    figures = run.figures
    run.replicas += pod.ran
    run.lost += is_lost
    run.lost_on |= {pod.node} if is_lost else set()
    run.grace_seconds = max(run.grace_seconds, float(pod.seen.grace_seconds) if is_lost else 0)
    run.moves |= is_lost and not pod.leaves
    run.pending_before += pod.waited
    figures["pending"] -= pod.waited
    figures["killed_early"] += pod.killed
    for key in pod.budgets if pod.ran or pod.waited else ():
        run.budgets.add(key[1])
        figures["seconds_below_budget"] = max(figures["seconds_below_budget"], float(reclaim.below[key]))
        if (budget := watches.budgets.get(key)) and (why := budget.status.uncountable):
            figures["seconds_below_budget"] = math.nan
            run.reasons.append(HarmReason(Cause.BUDGET_UNCOUNTABLE, why, key[1]))


def _count_living(pod: RehearsedPod, run: WorkloadRun, *, waits: bool, gone: bool) -> None:
    """Count a living Pod as moved or pending. If one Pod of a gang is pending, the whole gang is."""
    run.living += 1
    run.figures["pending"] += not pod.seen.node or gone or waits
    scheduler = pod.seen.spec.schedulerName
    if pod.seen.unscheduled and not pod.seen.node:
        run.waiting.setdefault(causes_of(pod.seen.unscheduled), []).append(pod)
    elif not pod.seen.node:
        run.reasons.append(HarmReason(Cause.NO_SCHEDULER if scheduler else Cause.NOT_SCHEDULED, scheduler or ""))
    elif gone:
        run.reasons.append(HarmReason(Cause.NODE_LOST, pod.seen.node))
    elif waits:
        run.reasons.append(HarmReason(Cause.GANG_WAITS))
    else:
        run.figures["moved"] += not pod.ran and not pod.leaves


def _why_pending(
    pods: Sequence[RehearsedPod], left: Sequence[RehearsedNode], requested: Mapping[str, Counter[str]]
) -> HarmReason:
    """Return the missing resource of pending Pods on the remaining nodes, and the scheduler's message."""
    last = pods[-1].seen
    lack = shortage_of(last.spec, sum((pod.requests for pod in pods), Counter()), left, requested)
    return HarmReason(Cause.OTHER, f"{counted(len(pods), 'Pod')}: {f'{lack}. ' if lack else ''}{last.unscheduled}")


def _why_not_recreated(workload: WorkloadKey, watches: Watches) -> HarmReason | None:
    """Return why a workload has fewer Pods than before, or None if the reason is unknown."""
    job = watches.owners[JOB].get((workload.namespace, workload.name)) if workload.kind == JOB.kind else None
    if job is None:
        return None
    if (failed := job.status.condition("Failed")).type:
        return HarmReason(Cause.JOB_FAILED, f"{failed.reason}: {failed.message}")
    return HarmReason(Cause.INDEXES_FAILED, job.status.failedIndexes) if job.status.failedIndexes else None


def _why_missing(workload: WorkloadKey, watches: Watches) -> HarmReason | None:
    """Return why a workload has fewer Pods than it wants, if the API server hasn't rejected any."""
    if workload.kind == POD.kind:
        return HarmReason(Cause.BARE)
    sets = watches.owners[STATEFUL_SET] if workload.kind == STATEFUL_SET.kind else {}
    owner = sets.get((workload.namespace, workload.name))
    if owner is not None and owner.spec.get("podManagementPolicy") != "Parallel":
        return HarmReason(Cause.ORDERED)
    return None


def workload_results(outcomes: Sequence[RunOutcome]) -> tuple[WorkloadResult, ...]:
    """Return the workloads that the reclaim affects, with the figures of all runs."""
    results = []
    for workload in {key for outcome in outcomes for key in outcome.workloads}:
        runs = [outcome.workloads[workload] for outcome in outcomes]
        changed = any(run.figures["moved"] or any(run.harm) for run in runs)
        if not (changed or any(run.lost for run in runs)):
            continue
        figures: dict[str, Any] = {name: Figure.over([run.figures[name] for run in runs]) for name in FIGURES}
        results.append(
            WorkloadResult(
                **structs.asdict(workload),
                **{name: max(getattr(run, name) for run in runs) for name in _HIGHEST},
                startup_seconds=runs[0].startup_seconds,
                budget=", ".join(sorted(set().union(*(run.budgets for run in runs)))),
                states=runs[0].states,
                lost_on=tuple(sorted(runs[0].lost_on)),
                goes_with_nodes=not (changed or any(run.moves for run in runs)),
                reasons=tuple(dict.fromkeys(filter(None, max(runs, key=lambda run: run.harm).reasons)))[:_REASONS],
                **figures,
            )
        )
    return tuple(sorted(results, key=lambda result: (-(result.pending.max or 0), -result.lost, result.identity)))


def summary_of(outcomes: Sequence[RunOutcome]) -> RehearsalSummary:
    """Return the total figures of all workloads."""
    return RehearsalSummary(
        **{
            name: Figure.over([sum(run.figures[name] for run in outcome.workloads.values()) for outcome in outcomes])
            for name in RehearsalSummary.__struct_fields__
        }
    )


def capacity_by_pool(
    before: Sequence[RehearsedNode], after: Sequence[RehearsedNode], outcome: RunOutcome
) -> tuple[PoolCapacity, ...]:
    """Return the capacity of each pool before and after a run."""
    return tuple(
        PoolCapacity(pool, _capacity(pool, before, outcome.before), _capacity(pool, after, outcome.after))
        for pool in sorted({node.pool_name for node in (*before, *after)})
    )


def _capacity(pool: str, nodes: Sequence[RehearsedNode], requested: Mapping[str, Counter[str]]) -> Capacity:
    own = [node for node in nodes if node.pool_name == pool]
    offered: Counter[str] = sum((Counter(node.allocatable) for node in own), Counter())
    return Capacity(len(own), offered, sum((requested.get(node.name, Counter()) for node in own), Counter()))

"""Make the figures of a rehearsal from what its runs have seen."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import structs

from webhook.cli.rehearse.inputs.resources import requests_of
from webhook.cli.rehearse.result import (
    FIGURES,
    JOB_FAILED,
    NO_SCHEDULER,
    Capacity,
    Figure,
    PoolCapacity,
    RehearsalSummary,
    WorkloadResult,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from webhook.cli.rehearse.inputs.nodes import RehearsedNode
    from webhook.cli.rehearse.result import ReclaimEvent, WorkloadKey
    from webhook.cli.rehearse.runs.reclaim import Reclaim
    from webhook.cli.rehearse.runs.watching import SeenPod, Watches
    from webhook.cli.rehearse.runs.workloads import Workloads

_HOUR: Final = 3600
_REASONS: Final = 5
"""Reasons of one workload: Pods that are alike are pending for the same."""


class WorkloadRun(msgspec.Struct):
    """Hold what one run has seen of a workload; the fields are those of `WorkloadResult`.

    ``seconds_below_budget`` is NaN if the disruption controller can't count its budget.
    """

    replicas: int = 0
    lost: int = 0
    moved: float = 0
    pending: float = 0
    killed_early: float = 0
    lowest_ready: float = 0
    seconds_below_budget: float = 0
    work_lost_gpu_hours: float = 0
    budget: str = ""
    reasons: list[str] = []

    def add_reason(self, reason: str) -> None:
        """Add a reason, unless it is there or there are enough."""
        if reason and reason not in self.reasons and len(self.reasons) < _REASONS:
            self.reasons.append(reason)

    @property
    def touched(self) -> bool:
        """Return whether the reclaim does anything to the workload."""
        return bool(self.lost or self.moved or self.pending > 0 or self.killed_early or self.work_lost_gpu_hours)


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
    before: Mapping[str, Counter[str]]
    after: Mapping[str, Counter[str]]
    notes: set[str] = set()


class Before:
    """Hold the Pods as they were before the reclaim.

    Args:
        watches: the cluster at that moment.
        workloads: knows whose they are.
        lost: the names of the lost Nodes.
    """

    def __init__(self, watches: Watches, workloads: Workloads, lost: Collection[str]) -> None:
        living = [(pod, workloads.of(pod)) for pod in watches.pods.values() if pod.lives]
        self.running = {known.uid: known for pod, known in living if pod.node}
        self.waiting = [known for pod, known in living if not pod.node]
        self.lost = [known for known in self.running.values() if known.node in lost]
        self.requested = _requested(pod for pod, _ in living)
        self.budgets: dict[WorkloadKey, set[tuple[str, str]]] = defaultdict(set)
        for pod, known in living:
            self.budgets[known.workload].update(watches.covering(pod))


def outcome_of(before: Before, played: Reclaim, watches: Watches) -> RunOutcome:
    """Return what a run has seen."""
    runs: defaultdict[WorkloadKey, WorkloadRun] = defaultdict(WorkloadRun)
    for known in before.running.values():
        runs[known.workload].replicas += 1
    for known in before.lost:
        runs[known.workload].lost += 1
    for known in before.waiting:
        runs[known.workload].pending -= 1
    for known in played.workloads.known.values():
        runs[known.workload].killed_early += known.killed
    for workload, number in played.lowest.items():
        runs[workload].lowest_ready = number
    after = [pod for pod in watches.pods.values() if pod.lives]
    _count_pods(before, runs, after, played.workloads)
    _count_budgets(before, played, watches, runs)
    _count_lost_work(before, played, runs)
    _say_what_is_not_made_again(before, runs, after, played.workloads, watches)
    blocked = {event.workload: event.text for event in reversed(played.events) if event.name == "blocked"}
    for workload, run in runs.items():
        # Otherwise it has only made the drain go step by step, as it is to.
        if run.lost and run.killed_early:
            run.add_reason(blocked.get(workload.identity, ""))
    return RunOutcome(runs, played.events, before.requested, _requested(after))


def _count_pods(
    before: Before, runs: Mapping[WorkloadKey, WorkloadRun], after: Iterable[SeenPod], workloads: Workloads
) -> None:
    """Count who moved and who waits. A gang of which one Pod waits waits as a whole."""
    waiting_gangs = {workloads.of(pod).gang for pod in after if not pod.node} - {None}
    for pod in after:
        known = workloads.of(pod)
        run = runs[known.workload]
        if not pod.node:
            run.pending += 1
            run.add_reason(_why_pending(pod))
        elif known.gang in waiting_gangs:
            run.pending += 1
            run.add_reason("its gang does not run: it needs all of its Pods")
        elif known.uid not in before.running and not known.leaves:
            run.moved += 1


def _why_pending(pod: SeenPod) -> str:
    scheduled = pod.condition("PodScheduled")
    if scheduled is None or not scheduled.message:
        return f"{NO_SCHEDULER} {pod.spec.schedulerName}" if pod.spec.schedulerName else "not scheduled"
    return scheduled.message


def _count_budgets(before: Before, played: Reclaim, watches: Watches, runs: Mapping[WorkloadKey, WorkloadRun]) -> None:
    for workload, keys in before.budgets.items():
        run = runs[workload]
        run.budget = ", ".join(sorted(name for _, name in keys))
        run.seconds_below_budget = max((float(played.below[key]) for key in keys), default=0)
        for key in keys:
            if (seen := watches.budgets.get(key)) and (why := seen.status.uncountable):
                run.seconds_below_budget = math.nan
                run.add_reason(f"PodDisruptionBudget {key[1]} can't be counted: {why}")


def _count_lost_work(before: Before, played: Reclaim, runs: Mapping[WorkloadKey, WorkloadRun]) -> None:
    stopped = {known.uid: known for known in before.lost if not known.leaves}
    for members in played.broken.values():
        stopped |= {known.uid: known for known in members}
    killed_gangs = {known.gang for known in played.workloads.known.values() if known.killed} - {None}
    for known in stopped.values():
        killed = known.killed or known.gang in killed_gangs
        seconds = known.unsaved_if_killed if killed else known.unsaved
        runs[known.workload].work_lost_gpu_hours += known.gpus * seconds / _HOUR


def _say_what_is_not_made_again(
    before: Before,
    runs: Mapping[WorkloadKey, WorkloadRun],
    after: Iterable[SeenPod],
    workloads: Workloads,
    watches: Watches,
) -> None:
    there = Counter(workloads.of(pod).workload for pod in after)
    for workload in {known.workload for known in before.lost if not known.leaves}:
        run = runs[workload]
        if there[workload] >= run.replicas:
            continue
        job = watches.jobs.get((workload.namespace, workload.name)) if workload.kind == "Job" else None
        failed = job.condition("Failed") if job is not None else None
        if failed is not None:
            run.add_reason(f"{JOB_FAILED}: {failed.reason}: {failed.message}")
        elif workload.kind == "Pod":
            run.add_reason("nothing makes this Pod again")


def workload_results(outcomes: Sequence[RunOutcome]) -> tuple[WorkloadResult, ...]:
    """Return the workloads that the reclaim touches, with the figures of all runs."""
    results = []
    for workload in {key for outcome in outcomes for key in outcome.workloads}:
        runs = [outcome.workloads[workload] for outcome in outcomes]
        if not any(each.touched for each in runs):
            continue
        summed = WorkloadRun()
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
                budget=next((each.budget for each in runs if each.budget), ""),
                reasons=tuple(summed.reasons),
                **figures,
            )
        )
    return tuple(sorted(results, key=lambda each: (-(each.pending.max or 0), -(each.lost or 0), each.identity)))


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
    nodes: Iterable[RehearsedNode], lost: Collection[str], grown: Sequence[RehearsedNode], outcome: RunOutcome
) -> tuple[PoolCapacity, ...]:
    """Return the capacity of each pool before and after the reclaim.

    Args:
        nodes: those before it.
        lost: the names of the lost Nodes.
        grown: the Nodes that came.
        outcome: what one run has seen.
    """
    pools: dict[str, tuple[list[RehearsedNode], list[RehearsedNode]]] = defaultdict(lambda: ([], []))
    for node in nodes:
        pools[node.pool_name][0].append(node)
        if node.name not in lost:
            pools[node.pool_name][1].append(node)
    for node in grown:
        pools[node.pool_name][1].append(node)
    return tuple(
        PoolCapacity(
            name,
            any(each.spot for each in (*before, *after)),
            _capacity(before, outcome.before),
            _capacity(after, outcome.after),
        )
        for name, (before, after) in sorted(pools.items())
    )


def _capacity(nodes: Sequence[RehearsedNode], requested: Mapping[str, Counter[str]]) -> Capacity:
    offered: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for node in nodes:
        offered.update(node.allocatable)
        asked.update(requested.get(node.name, {}))
    return Capacity(len(nodes), offered, asked)


def _requested(pods: Iterable[SeenPod]) -> dict[str, Counter[str]]:
    """Return what Pods request on each Node, by resource."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        if pod.node:
            found[pod.node].update(requests_of(pod.spec))
            found[pod.node]["pods"] += 1
    return found

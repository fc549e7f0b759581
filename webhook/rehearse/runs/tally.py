"""Compute the figures of a rehearsal, and the reasons for harm, from the observations of its runs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, get_args

import msgspec
from msgspec import structs

from webhook.base.terminal import counted
from webhook.capacity.providers.pool import Taint
from webhook.kube.affinity import Tristate, admits, terms_of
from webhook.kube.tolerations import HARD_EFFECTS, tolerates
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
from webhook.report.report import alike

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from webhook.kube.pod import PodSpec
    from webhook.rehearse.inputs.nodes import RehearsedNode
    from webhook.rehearse.result import WorkloadKey
    from webhook.rehearse.runs.reclaim import Reclaim
    from webhook.rehearse.runs.watching import Watches
    from webhook.rehearse.runs.workloads import RehearsedPod

_STATES: Final = get_args(PodState)
_UNITS: Final = {"cpu": ("CPU", "CPUs", 1.0), "memory": ("GiB of memory", "GiB of memory", 2.0**30)}
"""The singular, the plural, and the size of the unit of a resource."""
_NAMED_POOLS: Final = 2
_REASONS: Final = 5
"""The maximum number of reasons of a workload."""


class RunOutcome(msgspec.Struct):
    """The observations of one run.

    Attributes:
        workloads: the result of each workload, with figures of this run alone and with all reasons.
        notes: the events that the run couldn't rehearse.
        before, after: the requests of the Pods on each Node, by resource.
    """

    workloads: dict[WorkloadKey, WorkloadResult]
    notes: set[str]
    before: Mapping[str, Counter[str]]
    after: Mapping[str, Counter[str]]


def outcome_of(reclaim: Reclaim, watches: Watches, lost: Collection[str], left: Sequence[RehearsedNode]) -> RunOutcome:
    """Return the outcome of a run, given the names of the lost Nodes and the remaining Nodes."""
    run = _Run(reclaim, watches, lost, left)
    known = reclaim.workloads.known.values()
    workloads = {
        workload: run.result_of(workload, pods) for workload, pods in alike(known, attrgetter("workload")).items()
    }
    before: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pod in known:
        before[pod.node].update(pod.requests if pod.ran else ())
    return RunOutcome(workloads, {*reclaim.notes}, before, run.requested)


class _Run:
    """The state at the end of a run.

    Attributes:
        requested: the requests of the living Pods on each Node, by resource.
    """

    def __init__(
        self, reclaim: Reclaim, watches: Watches, lost: Collection[str], left: Sequence[RehearsedNode]
    ) -> None:
        self._reclaim = reclaim
        self._watches = watches
        self._lost = lost
        self._left = left
        self._living = {pod for pod in reclaim.workloads.pods() if pod.seen.alive}
        # If one Pod of a gang is pending, the whole gang is.
        waiting = {pod.gang for pod in self._living if not pod.node} - {None}
        self._pending = {pod for pod in self._living if not pod.node or pod.seen.node in lost or pod.gang in waiting}
        self._killed_gangs = {pod.gang for pod in reclaim.workloads.known.values() if pod.killed} - {None}
        self._missing = reclaim.workloads.missing() - reclaim.missing_before
        refused = {workload.identity: why for workload, _, why in reclaim.workloads.refused()}
        self._refusals = reclaim.recreator.refused | refused
        self.requested: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for pod in self._living:
            self.requested[pod.seen.node].update(pod.requests)

    def result_of(self, workload: WorkloadKey, pods: Sequence[RehearsedPod]) -> WorkloadResult:
        """Return the result of a workload with these Pods, existing or not."""
        lost = {pod for pod in pods if pod.ran and pod.node in self._lost}
        living = [pod for pod in pods if pod in self._living]
        pending = [pod for pod in living if pod in self._pending]
        waited = sum(pod.waited for pod in pods)
        stopped = [pod for pod in pods if pod.broken or (pod in lost and not pod.leaves)]
        budgets = sorted({key for pod in pods if pod.ran or pod.waited for key in pod.budgets})
        uncountable = [*self._uncountable(budgets)]
        below = math.nan if uncountable else max((float(self._reclaim.below[key]) for key in budgets), default=0.0)
        looks = ((at, tuple(seen[workload, state] for state in _STATES)) for at, seen in self._reclaim.samples)
        states = tuple(next(same) for _, same in groupby(looks, itemgetter(1)))
        lowest_ready, ready_again, down = readiness_of(states)
        result = WorkloadResult(
            **structs.asdict(workload),
            replicas=sum(pod.ran for pod in pods),
            pending_before=waited,
            lost=len(lost),
            moved=Figure.of(sum(not (pod.ran or pod.leaves) for pod in living if pod not in self._pending)),
            pending=Figure.of(max(len(pending) - waited, 0)),
            missing=Figure.of(self._missing[workload]),
            killed_early=Figure.of(sum(pod.killed for pod in pods)),
            lowest_ready=Figure.of(lowest_ready),
            ready_again_seconds=Figure.of(ready_again),
            seconds_below_budget=Figure.of(below),
            work_lost_gpu_hours=Figure.of(sum(map(self._work_lost, stopped))),
            budget=", ".join(sorted({name for _, name in budgets})),
            down_seconds=Figure.of(down),
            states=states,
            lost_on=tuple(sorted({pod.node for pod in lost})),
            grace_seconds=float(max((pod.seen.grace_seconds for pod in lost), default=0)),
            startup_seconds=self._reclaim.workloads.startup(workload, self._reclaim.startup),
            goes_with_nodes=all(pod.leaves for pod in lost),
        )
        reasons = [*self._why_pending(pending), *uncountable, *map(self._why_not_placed, pending)]
        if self._missing[workload]:
            refusal = self._refusals.get(workload.identity, "")
            reasons.append(HarmReason(Cause.OTHER, refusal) if refusal else _why_missing(workload, self._watches))
        if not result.goes_with_nodes and len(living) < result.replicas:
            reasons.append(_why_not_recreated(workload, self._watches))
        # Otherwise, the budget only slowed down the drain, as intended.
        if lost and result.killed_early.max:
            reasons.append(next((pod.blocked for pod in reversed(pods) if pod.blocked), None))
        return structs.replace(result, reasons=tuple(dict.fromkeys(filter(None, reasons))))

    def _work_lost(self, pod: RehearsedPod) -> float:
        return pod.work_if_killed if pod.killed or pod.gang in self._killed_gangs else pod.work

    def _uncountable(self, budgets: Iterable[tuple[str, str]]) -> Iterator[HarmReason | None]:
        """Yield the budgets that the disruption controller can't count."""
        for key in budgets:
            if (budget := self._watches.budgets.get(key)) and (why := budget.status.uncountable):
                yield HarmReason(Cause.BUDGET_UNCOUNTABLE, why, key[1])

    def _why_pending(self, pending: Iterable[RehearsedPod]) -> Iterator[HarmReason]:
        """Yield the missing resource of Pods that wait for the same causes, and the scheduler's message."""
        waiting = [pod for pod in pending if pod.seen.unscheduled and not pod.node]
        groups = alike(waiting, lambda pod: causes_of(pod.seen.unscheduled)).values()
        for pods in sorted(groups, key=len, reverse=True):
            last = pods[-1].seen
            requests = sum((pod.requests for pod in pods), Counter[str]())
            lack = shortage_of(last.spec, requests, self._left, self.requested)
            explained = f"{lack}. {last.unscheduled}" if lack else last.unscheduled
            yield HarmReason(Cause.OTHER, f"{counted(len(pods), 'Pod')}: {explained}")

    def _why_not_placed(self, pod: RehearsedPod) -> HarmReason | None:
        """Return why a pending Pod doesn't run, or None if the scheduler says it."""
        scheduler = pod.seen.spec.schedulerName
        if not pod.node and pod.seen.unscheduled:
            return None
        if not pod.node:
            return HarmReason(Cause.NO_SCHEDULER, scheduler) if scheduler else HarmReason(Cause.NOT_SCHEDULED)
        return HarmReason(Cause.NODE_LOST, pod.node) if pod.node in self._lost else HarmReason(Cause.GANG_WAITS)


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


def causes_of(sentence: str) -> tuple[str, ...]:
    """Return the causes in the scheduler's message, without numbers of nodes and without cordoned nodes.

    ``0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable. preemption: ...`` has one cause.
    """
    _, _, parts = sentence.partition(" nodes are available: ")
    parts, _, _ = parts.partition(". ")  # the rest is about preemption and claims
    causes = {part.partition(" ")[2].rstrip(".").removeprefix("node(s) ") for part in parts.split(", ") if part}
    return tuple(sorted(causes - {"were unschedulable"}))


def shortage_of(
    spec: PodSpec,
    needed: Mapping[str, float],
    nodes: Iterable[RehearsedNode],
    requested: Mapping[str, Counter[str]],
) -> str:
    """Return the first resource that similar Pods lack on the nodes that admit them, or an empty string.

    Args:
        spec: the spec of one of the Pods.
        needed: the total requests of the Pods.
        nodes: the remaining nodes.
        requested: the requests of the Pods on each node.
    """
    admitting = [node for node in nodes if _admits(node, spec)]
    free: Counter[str] = Counter()
    for node in admitting:
        free.update(Counter(node.allocatable))
        free.subtract(requested.get(node.name, Counter()))
    pools = sorted({node.pool_name or node.name for node in admitting})
    where = " and ".join(pools) if len(pools) <= _NAMED_POOLS else f"{len(pools)} pools"
    for name in sorted(needed) if admitting else ():
        one, several, size = _UNITS.get(name, (name, name, 1.0))
        if (number := (needed[name] - free[name]) / size) > 0:
            has = "has" if len(pools) == 1 else "have"
            return f"{where} {has} {number:.3g} {one if number == 1 else several} too few"
    return ""


def _admits(node: RehearsedNode, spec: PodSpec) -> bool:
    """Return whether the node's labels and taints admit the Pod."""
    taints = msgspec.convert(node.value["spec"].get("taints") or [], list[Taint])
    return admits(terms_of(spec), node.labels) is not Tristate.NO and all(
        taint.effect not in HARD_EFFECTS or any(tolerates(toleration, taint) for toleration in spec.tolerations or ())
        for taint in taints
    )


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
    ordered = owner is not None and owner.spec.get("podManagementPolicy") != "Parallel"
    return HarmReason(Cause.ORDERED) if ordered else None


def workload_results(outcomes: Sequence[RunOutcome]) -> tuple[WorkloadResult, ...]:
    """Return the workloads that the reclaim affects, with the figures of all runs and the reasons of the worst run."""
    results = []
    firsts = {key: result for outcome in reversed(outcomes) for key, result in outcome.workloads.items()}
    for workload, first in firsts.items():
        runs = [outcome.workloads.get(workload, first.untouched) for outcome in outcomes]
        changed = any(run.moved.max or any(_harm(run)) for run in runs)
        if not (changed or any(run.lost for run in runs)):
            continue
        figures = {name: Figure.over([getattr(run, name) for run in runs]) for name in FIGURES}
        goes_with_nodes = not changed and all(run.goes_with_nodes for run in runs)
        reasons = max(runs, key=_harm).reasons[:_REASONS]
        results.append(structs.replace(first, goes_with_nodes=goes_with_nodes, reasons=reasons, **figures))
    return tuple(sorted(results, key=lambda result: (-(result.pending.max or 0), -result.lost, result.identity)))


def _harm(run: WorkloadResult) -> tuple[float, ...]:
    """Return the harm to a workload at the end of a run, the most severe figure first."""
    failed = run.has_reason(Cause.JOB_FAILED) or run.has_reason(Cause.INDEXES_FAILED)
    unplaced = (run.pending.max or 0) + (run.missing.max or 0)
    return failed, unplaced, run.killed_early.max or 0, run.work_lost_gpu_hours.max or 0


def summary_of(outcomes: Sequence[RunOutcome]) -> RehearsalSummary:
    """Return the total figures of all workloads."""
    totals = {
        name: [Figure.of(sum(getattr(run, name).max for run in outcome.workloads.values())) for outcome in outcomes]
        for name in RehearsalSummary.__struct_fields__
    }
    return RehearsalSummary(**{name: Figure.over(figures) for name, figures in totals.items()})


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

"""Make the figures of a rehearsal from what its runs have seen."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from webhook.cli.rehearse.inputs.nodes import pool_of_node
from webhook.cli.rehearse.inputs.selection import is_spot
from webhook.cli.rehearse.result import (
    JOB_FAILED,
    NO_SCHEDULER,
    Figure,
    PoolCapacity,
    RehearsalSummary,
    WorkloadResult,
)
from webhook.cli.rehearse.runs.workloads import requests_of
from webhook.kube.quantity import amount_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from webhook.capacity.providers.provider import Provider
    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.cli.rehearse.inputs.snapshot import ClusterSnapshot
    from webhook.cli.rehearse.result import ReclaimEvent
    from webhook.cli.rehearse.runs.quiet import Quiet
    from webhook.cli.rehearse.runs.reclaim import Reclaim
    from webhook.cli.rehearse.runs.watching import SeenPod, Watches
    from webhook.cli.rehearse.runs.workloads import WorkloadKey, Workloads

_HOUR: Final = 3600
_REASONS: Final = 5
"""Reasons of one workload: Pods that are alike are pending for the same."""


@dataclass(slots=True)
class RunOutcome:
    """Hold what one run has seen, by workload.

    Attributes:
        replicas, lost, moved, pending, killed, lowest: numbers of Pods.
        below: seconds that a budget of its was not met; NaN if the disruption controller can't count it.
        hours: GPU-hours of work that are lost.
        budgets: the PodDisruptionBudget of each.
        reasons: what there is to say.
        events: what happened when.
        requested: what Pods request on each pool's Nodes, by resource, before and after.
    """

    replicas: Counter[WorkloadKey] = field(default_factory=Counter)
    lost: Counter[WorkloadKey] = field(default_factory=Counter)
    moved: Counter[WorkloadKey] = field(default_factory=Counter)
    pending: Counter[WorkloadKey] = field(default_factory=Counter)
    killed: Counter[WorkloadKey] = field(default_factory=Counter)
    lowest: dict[WorkloadKey, int] = field(default_factory=dict)
    below: dict[WorkloadKey, float] = field(default_factory=dict)
    hours: dict[WorkloadKey, float] = field(default_factory=dict)
    budgets: dict[WorkloadKey, str] = field(default_factory=dict)
    reasons: dict[WorkloadKey, list[str]] = field(default_factory=lambda: defaultdict(list))
    events: list[ReclaimEvent] = field(default_factory=list)
    requested: tuple[dict[str, Counter[str]], dict[str, Counter[str]]] = ({}, {})


class Before:
    """The Pods as they were before the reclaim.

    Args:
        watches: the cluster at that moment.
        quiet: knows their budgets.
        workloads: knows whose they are.
        lost: the names of the lost Nodes.
    """

    def __init__(self, watches: Watches, quiet: Quiet, workloads: Workloads, lost: Collection[str]) -> None:
        living = [pod for pod in watches.pods if pod.lives]
        self.running = {pod.metadata.uid: workloads.of(pod) for pod in living if pod.node}
        self.waiting = Counter(workloads.of(pod).workload for pod in living if not pod.node)
        self.lost = [known for known in self.running.values() if known.node in lost]
        self.requested = _requested(living)
        self.budgets: dict[WorkloadKey, set[tuple[str, str]]] = defaultdict(set)
        for pod in living:
            self.budgets[workloads.of(pod).workload].update(quiet.covering(pod))


def outcome_of(before: Before, played: Reclaim, watches: Watches, workloads: Workloads) -> RunOutcome:
    """Return what a run has seen."""
    outcome = RunOutcome(lowest=played.lowest, events=played.events)
    outcome.replicas.update(known.workload for known in before.running.values())
    outcome.lost.update(known.workload for known in before.lost)
    outcome.killed.update(played.known[uid].workload for uid in played.killed)
    after = [pod for pod in watches.pods if pod.lives]
    _count_pods(before, outcome, after, workloads)
    outcome.requested = (before.requested, _requested(after))
    _count_budgets(before, played, watches, outcome)
    _count_lost_work(before, played, outcome)
    _say_what_is_not_made_again(before, outcome, after, watches, workloads)
    for event in played.events:
        for workload in outcome.lost:
            # Otherwise it has only made the drain go step by step, as it is to.
            if event.name == "blocked" and workload.identity == event.workload and outcome.killed[workload]:
                _add(outcome.reasons[workload], event.text)
    return outcome


def _count_pods(before: Before, outcome: RunOutcome, after: Iterable[SeenPod], workloads: Workloads) -> None:
    """Count who moved and who waits. A gang of which one Pod waits waits as a whole."""
    waiting_gangs = {workloads.of(pod).gang for pod in after if not pod.node} - {None}
    for pod in after:
        known = workloads.of(pod)
        if not pod.node:
            outcome.pending[known.workload] += 1
            _add(outcome.reasons[known.workload], _why_pending(pod))
        elif known.gang in waiting_gangs:
            outcome.pending[known.workload] += 1
            _add(outcome.reasons[known.workload], "its gang does not run: it needs all of its Pods")
        elif known.uid not in before.running and not known.leaves:
            outcome.moved[known.workload] += 1
    outcome.pending.subtract(before.waiting)


def _why_pending(pod: SeenPod) -> str:
    scheduled = pod.condition("PodScheduled")
    if scheduled is None or not scheduled.message:
        return f"{NO_SCHEDULER} {pod.spec.schedulerName}" if pod.spec.schedulerName else "not scheduled"
    return scheduled.message


def _count_budgets(before: Before, played: Reclaim, watches: Watches, outcome: RunOutcome) -> None:
    for workload, keys in before.budgets.items():
        if not keys:
            continue
        outcome.budgets[workload] = ", ".join(sorted(name for _, name in keys))
        outcome.below[workload] = max(float(played.below[key]) for key in keys)
        for key in keys:
            if (seen := watches.budgets.items.get(key)) and (why := seen.status.uncountable):
                outcome.below[workload] = math.nan
                _add(outcome.reasons[workload], f"PodDisruptionBudget {key[1]} can't be counted: {why}")


def _count_lost_work(before: Before, played: Reclaim, outcome: RunOutcome) -> None:
    stopped = {known.uid: known for known in before.lost if not known.leaves}
    for members in played.broken.values():
        stopped |= {known.uid: known for known in members}
    killed_gangs = {played.known[uid].gang for uid in played.killed} - {None}
    for uid, known in stopped.items():
        killed = uid in played.killed or known.gang in killed_gangs
        seconds = known.unsaved_if_killed if killed else known.unsaved
        hours = known.gpus * seconds / _HOUR
        outcome.hours[known.workload] = outcome.hours.get(known.workload, 0.0) + hours


def _say_what_is_not_made_again(
    before: Before, outcome: RunOutcome, after: Iterable[SeenPod], watches: Watches, workloads: Workloads
) -> None:
    there = Counter(workloads.of(pod).workload for pod in after)
    for workload in outcome.lost:
        if there[workload] >= outcome.replicas[workload] or all(
            known.leaves for known in before.lost if known.workload == workload
        ):
            continue
        job = watches.jobs.items.get((workload.namespace, workload.name)) if workload.kind == "Job" else None
        failed = job.condition("Failed") if job is not None else None
        if failed is not None:
            _add(outcome.reasons[workload], f"{JOB_FAILED}: {failed.reason}: {failed.message}")
        elif workload.kind == "Pod":
            _add(outcome.reasons[workload], "nothing makes this Pod again")


def _add(reasons: list[str], reason: str) -> None:
    if reason and reason not in reasons and len(reasons) < _REASONS:
        reasons.append(reason)


def workload_results(runs: Sequence[RunOutcome]) -> tuple[WorkloadResult, ...]:
    """Return the workloads that the reclaim touches, with the figures of all runs."""
    touched = {
        workload
        for run in runs
        for workload in (
            *run.lost,
            *run.moved,
            *(+run.pending),
            *run.killed,
            *(each for each, hours in run.hours.items() if hours),
        )
    }
    results = []
    for workload in sorted(touched):

        def over(figure: Callable[[RunOutcome], float], runs: Sequence[RunOutcome] = runs) -> Figure:
            return Figure.over([max(figure(run), 0) for run in runs])

        reasons: list[str] = []
        for run in runs:
            for reason in run.reasons.get(workload, ()):
                _add(reasons, reason)
        results.append(
            WorkloadResult(
                api_version=workload.api_version,
                kind=workload.kind,
                namespace=workload.namespace,
                name=workload.name,
                replicas=max(run.replicas[workload] for run in runs),
                lost=max(run.lost[workload] for run in runs),
                moved=over(lambda run, key=workload: run.moved[key]),  # type: ignore[misc]
                pending=over(lambda run, key=workload: run.pending[key]),  # type: ignore[misc]
                killed_early=over(lambda run, key=workload: run.killed[key]),  # type: ignore[misc]
                lowest_ready=over(lambda run, key=workload: run.lowest.get(key, 0)),  # type: ignore[misc]
                seconds_below_budget=over(lambda run, key=workload: run.below.get(key, 0.0)),  # type: ignore[misc]
                reasons=tuple(reasons),
                work_lost_gpu_hours=over(lambda run, key=workload: round(run.hours.get(key, 0.0), 3)),  # type: ignore[misc]
                budget=next((run.budgets[workload] for run in runs if workload in run.budgets), ""),
            )
        )
    return tuple(sorted(results, key=lambda each: (-(each.pending.max or 0), -(each.lost or 0), each.identity)))


def summary_of(runs: Sequence[RunOutcome]) -> RehearsalSummary:
    """Return the figures of all workloads together."""
    return RehearsalSummary(
        moved=Figure.over([run.moved.total() for run in runs]),
        pending=Figure.over([(+run.pending).total() for run in runs]),
        killed_early=Figure.over([run.killed.total() for run in runs]),
        work_lost_gpu_hours=Figure.over([round(sum(run.hours.values()), 3) for run in runs]),
    )


def capacity_by_pool(
    snapshot: ClusterSnapshot,
    lost: Collection[str],
    grown: Sequence[JSON],
    providers: Mapping[str, Provider],
    requested: tuple[Mapping[str, Counter[str]], Mapping[str, Counter[str]]],
) -> tuple[PoolCapacity, ...]:
    """Return the capacity of each pool before and after the reclaim.

    Args:
        snapshot: the cluster before it.
        lost: the names of the lost Nodes.
        grown: the Nodes that came.
        providers: by name.
        requested: what Pods request on each Node, before and after.
    """
    pools: dict[str, list[JSON]] = defaultdict(list)
    for node in (*snapshot.nodes, *grown):
        found = pool_of_node(node["metadata"]["labels"], providers)
        pools[found[0] if found else ""].append(node)
    new = {node["metadata"]["name"] for node in grown}
    results = []
    for name, nodes in sorted(pools.items()):
        before = [node for node in nodes if node["metadata"]["name"] not in new]
        after = [node for node in nodes if node["metadata"]["name"] not in lost]
        results.append(
            PoolCapacity(
                name=name,
                spot=any(is_spot(node, snapshot.pools, providers) for node in nodes),
                before=len(before),
                after=len(after),
                allocatable_before=_offered(before),
                allocatable_after=_offered(after),
                requested_before=_sum(requested[0], before),
                requested_after=_sum(requested[1], after),
            )
        )
    return tuple(results)


def _offered(nodes: Iterable[JSON]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for node in nodes:
        for resource, amount in node["status"]["allocatable"].items():
            total[resource] += float(amount_of(amount) or 0)  # type: ignore[assignment]
    return dict(total)


def _sum(requested: Mapping[str, Counter[str]], nodes: Iterable[JSON]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for node in nodes:
        total.update(requested.get(node["metadata"]["name"], {}))
    return dict(total)


def _requested(pods: Iterable[SeenPod]) -> dict[str, Counter[str]]:
    """Return what Pods request on each Node, by resource."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        if pod.node:
            resources = {
                name
                for each in pod.spec.containers
                if each.resources is not None
                for name in (each.resources.requests or each.resources.limits or {})
            }
            for name in resources:
                found[pod.node][name] += requests_of(pod.spec.containers, name)  # type: ignore[assignment]
            found[pod.node]["pods"] += 1
    return found

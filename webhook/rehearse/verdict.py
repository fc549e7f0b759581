"""Summarize the effects of a reclaim in one sentence, from the worst run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.base.terminal import counted
from webhook.base.text import listed
from webhook.rehearse.reasons import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.rehearse.result import Rehearsal, WorkloadResult

_KIND: Final = re.compile(r"\b[A-Z]\w*/")
_NAMED: Final = 6
"""The maximum number of nodes or workloads to name; more are only counted."""
_BOTH: Final = 2


def verdict_of(result: Rehearsal) -> str:
    """Return the verdict as a sentence."""
    return f"Losing {_KIND.sub('', ', '.join(result.lost))}: {effects_of(result)}."


def effects_of(result: Rehearsal) -> str:
    """Return the verdict without the lost nodes and without a period."""
    workloads = [workload for workload in result.workloads if not workload.goes_with_nodes]
    pods = sum(map(_affected, workloads))
    failures = [*_failures(workloads)]
    summary = result.summary
    good = not (summary.pending.max or summary.missing.max or failures)
    effects = ["its only Pod moves" if pods == 1 else f"all {pods} Pods move"] if good else []
    if not pods:
        effects = ["no Pod has to move"]
    for figure, one, several in (
        (summary.pending, "stays pending", "stay pending"),
        (summary.missing, "is not recreated", "are not recreated"),
        (summary.killed_early, "is killed before it finishes", "are killed before they finish"),
    ):
        if number := int(figure.max or 0):
            share = "" if effects else f" of {counted(pods, 'Pod')}"
            effects.append(f"{number}{share} {one if number == 1 else several}")
    harm = [*failures, *_outages(workloads)]
    if hours := summary.work_lost_gpu_hours.max:
        harm.append(f"{hours:g} GPU-hours of work are lost")
    if good and len(effects) == 1 and not harm:
        harm = ["and nothing is down"]
    return ", ".join(effects + harm)


def nodes_of(result: Rehearsal) -> str:
    """Return the number of lost nodes and, if they are few, their names."""
    nodes = sorted(node for window in result.windows for node in window.nodes)
    names = f" ({', '.join(nodes)})" if len(nodes) <= _NAMED else ""
    return f"{counted(len(nodes), 'node')} lost{names}"


def expected_of(result: Rehearsal) -> str:
    """Return the Pods that are expected to stop with their nodes, or an empty string if there are none."""
    workloads = [workload for workload in result.workloads if workload.goes_with_nodes]
    pods = counted(sum(workload.lost for workload in workloads), "Pod")
    names = listed((f"{workload.kind} {workload.name}" for workload in workloads), _NAMED)
    return f"Expected: {pods} of DaemonSets or static Pods stop with the nodes: {names}" if workloads else ""


def _affected(workload: WorkloadResult) -> int:
    """Return how many Pods the reclaim affects, on lost nodes or on others."""
    unplaced = (workload.pending.max or 0) + (workload.missing.max or 0)
    return max(workload.lost, int(unplaced), int(workload.killed_early.max or 0))


def _failures(workloads: Sequence[WorkloadResult]) -> Iterator[str]:
    """Yield the Jobs that fail, completely or partly."""
    failed = [workload.name for workload in workloads if workload.failed]
    if failed:
        yield f"Job {failed[0]} fails" if len(failed) == 1 else f"{len(failed)} Jobs fail"
    for workload in workloads:
        if workload.has_reason(Cause.INDEXES_FAILED):
            yield f"indexes of Job {workload.name} fail"


def _outages(workloads: Sequence[WorkloadResult]) -> Iterator[str]:
    """Yield the services without a ready Pod, and for how long. Jobs and bare Pods don't count as services."""
    services = [service for service in workloads if service.kind != "Pod" and "Job" not in service.kind]
    unending = [service.name for service in services if service.down_seconds.max is None]
    if unending:
        yield f"{_and_others(unending)} {'stays' if len(unending) == 1 else 'stay'} down"
    down = sorted((service.down_seconds.max, service.name) for service in services if service.down_seconds.max)
    if down:
        names = [name for _, name in reversed(down)]
        verb = "is down for" if len(names) == 1 else "are down for up to"
        yield f"{_and_others(names)} {verb} {down[-1][0]:g} s"


def _and_others(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) <= _BOTH else f"{names[0]} and {len(names) - 1} others"

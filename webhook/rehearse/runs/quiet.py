"""Wait until the scheduler and controllers are idle, between two events of the rehearsal's clock."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Final

from webhook.rehearse.controlplane.control_plane import fetch
from webhook.rehearse.inputs.resources import DAEMON_SET, DEPLOYMENT, JOB, STATEFUL_SET
from webhook.rehearse.runs.watching import READY, STOPPED, SeenPod, Watches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.rehearse.runs.clock import Action
    from webhook.rehearse.runs.cluster import RunningCluster
    from webhook.rehearse.runs.workloads import Workloads

_STILL: Final = 0.4
"""Seconds without a change after which no more events are in flight."""

_COUNTED: Final = 0.5
"""Extra seconds for the quota controller to catch up on events after a pause."""

_POLL: Final = 0.05
_AT_MOST: Final = 40.0
"""The timeout of one wait in seconds; the Job controller recreates Pods after 10, 20, and 40 s."""

LONGEST_RUN: Final = 900.0
"""The timeout of one run in seconds: ten times the duration of a run with 10,000 Pods."""

_QUEUE: Final = re.compile(r'^scheduler_pending_pods\{queue="(active|backoff)"\} (\S+)$', re.MULTILINE)
_JUDGED: Final = frozenset({"Unschedulable", "SchedulingGated"})


class Quiet:
    """A wait until the scheduler's queues are empty and the controllers have converged. It provisions volumes.

    Attributes:
        abandoned: the components that were still busy after a timeout.
    """

    def __init__(self, cluster: RunningCluster, watches: Watches, workloads: Workloads, provision: Action) -> None:
        self._cluster = cluster
        self._watches = watches
        self._workloads = workloads
        self._provision = provision
        self.abandoned: set[str] = set()
        self._held: set[str] | None = None
        self._end = time.monotonic() + LONGEST_RUN

    @property
    def over(self) -> bool:
        """Return whether the run has reached its timeout."""
        return time.monotonic() > self._end

    async def wait(self) -> None:
        """Wait until the components are idle. On timeout, add the busy one to `abandoned`. Raise ControlPlaneError."""
        deadline = time.monotonic() + _AT_MOST
        self._watches.changed = time.monotonic()
        while True:
            await asyncio.sleep(_POLL)
            await self._provision()
            reasons = chain(self._busy_pods(), self._busy_owners(), self._busy_budgets())
            expected = (busy for busy in reasons if busy not in self.abandoned)
            busy = "changes" if self._changes() else next(expected, "") or await self._queued()
            if not busy and not self._changes():
                return
            if time.monotonic() > deadline:
                self.abandoned.add(busy)
                return
            self._cluster.plane.expect_running()

    async def count_quotas(self) -> bool:
        """Recount the usage of quotas if Pods have ended. Call this only while no Pod is being created.

        Return whether the usage has changed. Raise ControlPlaneError.
        """
        held = {pod.metadata.uid for pod in self._watches.pods.values() if not pod.finished}
        ended, self._held = self._held is None or self._held - held, held
        if not ended:
            return False
        before = [quota.status.used for quota in self._watches.quotas.values()]
        self._cluster.count_quotas(pause=False)
        await asyncio.sleep(_COUNTED)
        await self.wait()
        self._cluster.count_quotas(pause=True)
        return [quota.status.used for quota in self._watches.quotas.values()] != before

    def _changes(self) -> bool:
        return time.monotonic() - self._watches.changed < _STILL

    def _busy_pods(self) -> Iterator[str]:
        for pod in self._watches.pods.values():
            name = "/".join(pod.metadata.key)
            if pod.alive and not pod.node and not self._is_judged(pod):
                yield f"Pod {name} waits for the scheduler"
            if pod.terminating and STOPPED in pod.annotations:
                yield f"Pod {name} is being deleted"
            is_to_be_ready = pod.node and pod.alive and READY in pod.annotations
            if is_to_be_ready and not (pod.ready or pod.status.condition("DisruptionTarget").type):
                yield f"Pod {name} is getting ready"

    def _busy_owners(self) -> Iterator[str]:
        watches = self._watches
        counted = chain(*(watches.owners[kind].values() for kind in (DEPLOYMENT, DAEMON_SET, STATEFUL_SET)))
        yield from (f"{owner.metadata.name} has not been reconciled" for owner in counted if not owner.is_observed)
        refusals = watches.refusals
        pods: defaultdict[str, list[SeenPod]] = defaultdict(list)
        for pod in watches.pods.values():
            if reference := pod.metadata.controller:
                pods[reference.uid].append(pod)
        for _, kind, owner in self._workloads.pod_owners():
            children, refused = pods[owner.metadata.uid], owner.metadata.uid in refusals
            living, wanted = sum(pod.alive for pod in children), owner.pods_wanted
            if kind is STATEFUL_SET:  # it creates the next Pod only when the previous one is ready or gone
                busy = not refused and len(children) < wanted and all(pod.ready for pod in children)
            elif kind is JOB:
                stopping = any(pod.terminating and not pod.finished for pod in children)
                busy = not (refused or stopping) and living < wanted
            else:
                busy = living != wanted and not owner.status.condition("ReplicaFailure").type
            if busy:
                yield f"{kind.kind} {owner.metadata.name} has {living} of {wanted} Pods"

    def _is_judged(self, pod: SeenPod) -> bool:
        has_scheduler = (pod.spec.schedulerName or "default-scheduler") in self._cluster.scheduler_names
        return not has_scheduler or pod.status.condition("PodScheduled").reason in _JUDGED

    def _busy_budgets(self) -> Iterator[str]:
        for key, quota in self._watches.quotas.items():
            if quota.spec.get("hard", {}).keys() != quota.status.hard.keys():
                yield f"ResourceQuota {key[1]} has not been counted"
        healthy = Counter(key for pod in self._workloads.pods() if pod.seen.ready for key in pod.budgets)
        for key, budget in self._watches.budgets.items():
            counted = budget.is_observed and budget.status.currentHealthy == healthy[key]
            if not counted and not budget.status.uncountable:
                yield f"PodDisruptionBudget {key[1]} has not been counted"

    async def _queued(self) -> str:
        text = await asyncio.to_thread(fetch, self._cluster.metrics, self._cluster.plane.credentials.authority)
        queued = {name: float(number) for name, number in _QUEUE.findall(text or "")}
        if not queued:
            return "the scheduler doesn't respond"
        return "Pods wait for the scheduler" if any(queued.values()) else ""

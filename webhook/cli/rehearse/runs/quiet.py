"""Wait until the real components have nothing left to do: between two events of the rehearsal's clock."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import aiohttp

from webhook.cli.rehearse.runs.watching import READY, STOPPED
from webhook.kube.disruption import budget_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.cli.rehearse.runs.cluster import RunningCluster
    from webhook.cli.rehearse.runs.watching import SeenBudget, SeenOwner, SeenPod, Watches
    from webhook.kube.disruption import DisruptionBudget

_STILL: Final = 0.4
"""Seconds without any change after which what is on its way has arrived."""

_POLL: Final = 0.05
_AT_MOST: Final = 40.0
"""Seconds; a Job makes a Pod anew after 10, 20, 40 s."""

_QUEUE: Final = re.compile(r'^scheduler_pending_pods\{queue="(active|backoff)"\} (\S+)$', re.MULTILINE)
_JUDGED: Final = frozenset({"Unschedulable", "SchedulingGated"})


class Quiet:
    """Tells when the scheduler's queues are empty and every controller has what it wants.

    Args:
        cluster: the control plane.
        watches: what it has.
        session: for the scheduler's metrics.
    """

    def __init__(self, cluster: RunningCluster, watches: Watches, session: aiohttp.ClientSession) -> None:
        self._cluster = cluster
        self._watches = watches
        self._session = session
        self.impatient: set[str] = set()
        self._compiled: dict[tuple[str, str], DisruptionBudget] = {}
        self._covering: dict[str, tuple[tuple[str, str], ...]] = {}

    async def wait(self) -> None:
        """Wait for it. What never gets quiet is in `impatient` afterwards. Raises ControlPlaneError."""
        deadline = time.monotonic() + _AT_MOST
        self._watches.changed = time.monotonic()
        while True:
            await asyncio.sleep(_POLL)
            busy = "changes" if time.monotonic() - self._watches.changed < _STILL else self._unexpected()
            if not busy:
                busy = await self._queued()
                if not busy and time.monotonic() - self._watches.changed >= _STILL:
                    return
            if time.monotonic() > deadline:
                self.impatient.add(busy)
                return
            self._cluster.plane.expect_running()

    def _unexpected(self) -> str:
        """Return what has not come to rest, except what was already waited for in vain. Return "" if all has."""
        return next((each for each in self._busy() if each not in self.impatient), "")

    def _busy(self) -> Iterator[str]:
        """Yield what has not come to rest."""
        pods: dict[str, list[SeenPod]] = {}
        for pod in self._watches.pods:
            if reference := pod.controller:
                pods.setdefault(reference.uid, []).append(pod)
        yield from self._busy_pods()
        yield from self._busy_owners(pods)
        yield from self._budgets()

    def _busy_pods(self) -> Iterator[str]:
        for pod in self._watches.pods:
            if pod.lives and not pod.node and not self._is_judged(pod):
                yield f"Pod {'/'.join(pod.metadata.key)} waits for the scheduler"
            if pod.terminating and _stopped(pod):
                yield f"Pod {'/'.join(pod.metadata.key)} is being deleted"
            if pod.node and pod.lives and _made_ready(pod) and not (pod.ready or pod.condition("DisruptionTarget")):
                yield f"Pod {'/'.join(pod.metadata.key)} is getting ready"

    def _busy_owners(self, pods: Mapping[str, list[SeenPod]]) -> Iterator[str]:
        for owner in (*self._watches.deployments, *self._watches.daemon_sets, *self._watches.stateful_sets):
            if owner.status.observedGeneration < owner.metadata.generation:
                yield f"{owner.metadata.name} has not been looked at"
        for owner in (*self._watches.replica_sets, *self._watches.replication_controllers):
            wanted = 1 if owner.spec.replicas is None else owner.spec.replicas
            living = sum(each.lives for each in pods.get(owner.metadata.uid, ()))
            if living != wanted and owner.condition("ReplicaFailure") is None:
                yield f"ReplicaSet {owner.metadata.name} has {living} of {wanted} Pods"
        for owner in self._watches.stateful_sets:
            yield from _stateful_set(owner, pods.get(owner.metadata.uid, []))
        for owner in self._watches.jobs:
            yield from _job(owner, pods.get(owner.metadata.uid, []))

    def _is_judged(self, pod: SeenPod) -> bool:
        if (pod.spec.schedulerName or "default-scheduler") not in self._cluster.scheduler_names:
            return True
        scheduled = pod.condition("PodScheduled")
        return scheduled is not None and scheduled.reason in _JUDGED

    def covering(self, pod: SeenPod) -> tuple[tuple[str, str], ...]:
        """Return namespace and name of the budgets that cover a Pod."""
        found = self._covering.get(pod.metadata.uid)
        if found is None:
            if len(self._compiled) != len(self._watches.budgets.items):
                self._compiled = {each.metadata.key: _compiled(each) for each in self._watches.budgets}
            found = tuple(
                key
                for key, budget in self._compiled.items()
                if key[0] == pod.metadata.namespace and budget.covers(pod.metadata.labels)
            )
            self._covering[pod.metadata.uid] = found
        return found

    def _budgets(self) -> Iterator[str]:
        healthy = Counter(key for pod in self._watches.pods if pod.ready for key in self.covering(pod))
        for seen in self._watches.budgets:
            key = seen.metadata.key
            if seen.status.uncountable:
                continue
            if seen.status.observedGeneration < seen.metadata.generation or seen.status.currentHealthy != healthy[key]:
                yield f"PodDisruptionBudget {key[1]} has not been counted"

    async def _queued(self) -> str:
        try:
            async with self._session.get(self._cluster.metrics, ssl=False) as response:
                text = await response.text()
        except aiohttp.ClientError:
            return "the scheduler does not answer"
        queued = {name: float(number) for name, number in _QUEUE.findall(text)}
        if not queued:
            return "the scheduler has not begun"
        return "Pods wait for the scheduler" if any(queued.values()) else ""


def _compiled(budget: SeenBudget) -> DisruptionBudget:
    """Return the budget with its selector."""
    return budget_from({"metadata": {"name": budget.metadata.name}, "spec": budget.spec})


def _stopped(pod: SeenPod) -> bool:
    return STOPPED in pod.metadata.annotations


def _made_ready(pod: SeenPod) -> bool:
    return READY in pod.metadata.annotations


def _stateful_set(owner: SeenOwner, pods: list[SeenPod]) -> Iterator[str]:
    """Yield what a StatefulSet lacks. It makes no Pod before the last is ready, or gone."""
    wanted = 1 if owner.spec.replicas is None else owner.spec.replicas
    if len(pods) < wanted and all(each.ready for each in pods):
        yield f"StatefulSet {owner.metadata.name} has {len(pods)} of {wanted} Pods"


def _job(owner: SeenOwner, pods: list[SeenPod]) -> Iterator[str]:
    if owner.spec.suspend or owner.condition("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"):
        return
    wanted = 1 if owner.spec.parallelism is None else owner.spec.parallelism
    if owner.spec.completions is not None:
        wanted = min(wanted, owner.spec.completions - owner.status.succeeded)
    living = sum(each.lives for each in pods)
    if living < wanted and not any(each.terminating and not each.finished for each in pods):
        yield f"Job {owner.metadata.name} has {living} of {wanted} Pods"

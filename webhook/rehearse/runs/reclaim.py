"""Simulate a reclaim on a control plane, with a simulated clock.

The clock stops while the real components work. The modelled events (the provider's window, grace periods, start-up,
growth) have computed times; the next event waits until the components are idle.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.exits import CannotJudgeError
from webhook.kube.notice import EVICT, ON_RECLAIM
from webhook.rehearse.reasons import Cause, HarmReason
from webhook.rehearse.result import BELOW_AT_MOST, PodState, ReclaimWindow, WorkloadKey
from webhook.rehearse.runs.clock import Clock, Rank
from webhook.rehearse.runs.drain import Drain
from webhook.rehearse.runs.quiet import LONGEST_RUN, Quiet
from webhook.rehearse.runs.substitutes import Recreator
from webhook.rehearse.runs.watching import READY, STOPPED, Watches
from webhook.rehearse.runs.writing import Writer, together

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from webhook.rehearse.inputs.resources import JSON
    from webhook.rehearse.runs.watching import SeenPod
    from webhook.rehearse.runs.workloads import RehearsedPod, Workloads

_READY: Final = {"metadata": {"annotations": {READY: ""}}}
_STOPPED: Final = {"metadata": {"annotations": {STOPPED: ""}}}

_SIGTERM, _SIGKILL = 143, 137
"""The exit codes of containers that these signals end: 128 plus the signal number."""

_DISRUPTED: Final = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
_NOT_READY: Final = {"type": "Ready", "status": "False", "reason": "NodeShutdown"}
_SHUTTING_DOWN: Final = {"conditions": [_DISRUPTED, _NOT_READY]}


class Reclaim:
    """A reclaim on a control plane.

    Attributes:
        samples: the number of Pods by workload and state, each with the second of the observation.
        below: the seconds for which each budget wasn't met, at most `BELOW_AT_MOST`.
        missing_before: the missing Pods of each workload before the reclaim.
        recreator: recreates Pods that no controller here recreates.
        startup: the seconds from the binding of a Pod until it is ready, for workloads without a measurement.
        notes: the events that it couldn't rehearse.
        workloads: the Pods with their workloads.
    """

    def __init__(
        self, writer: Writer, watches: Watches, quiet: Quiet, workloads: Workloads, *, startup: float, seed: int
    ) -> None:
        self.samples: list[tuple[float, Counter[tuple[WorkloadKey, PodState]]]] = []
        self.below: Counter[tuple[str, str]] = Counter()
        self.missing_before: Counter[WorkloadKey] = Counter()
        self.notes: set[str] = set()
        self.workloads = workloads
        self.recreator = Recreator(writer, workloads)
        self._writer = writer
        self._watches = watches
        self._quiet = quiet
        self.startup = startup
        self._random = random.Random(seed)  # noqa: S311 - the order of a drain is no secret
        self._clock = Clock()
        self._lost: dict[str, ReclaimWindow] = {}
        self._broken: set[tuple[str, ...]] = set()
        self._bound: set[RehearsedPod] = set()
        self._stopping: set[RehearsedPod] = set()

    async def begin(self) -> None:
        """Bring the cluster to a stable state before the notice: start and stop Pods without delay.

        Raise CannotJudgeError if the cluster doesn't settle in time.
        """
        while True:
            await self._wait()
            if self._quiet.over:
                raise CannotJudgeError(
                    f"spotgate rehearse: the cluster doesn't become stable within {LONGEST_RUN:g} s: "
                    f"{', '.join(sorted(self._quiet.abandoned)[:3]) or 'Pods start and stop again and again'}"
                )
            bound, stopping = self._take_new()
            if not (bound or stopping):
                break
            await together(self._stop(pod) for pod in stopping)
            if stopping:
                await self._wait()  # free the resources before ready Pods cause their controllers to create more
            await together(self._make_ready(pod) for pod in bound)
        for pod in self.workloads.pods():
            pod.ran = pod.seen.alive and bool(pod.seen.node)
            pod.waited = pod.seen.alive and not pod.ran
        self.missing_before = self.workloads.missing()

    async def run(self, windows: Sequence[ReclaimWindow], grown: Iterable[tuple[float, JSON]]) -> None:
        """Run the reclaim to its end. Add each new Node at its second."""
        self._observe_states()
        self._drain = Drain()
        for window in windows:
            self._lost |= dict.fromkeys(window.nodes, window)
            if window.drained_by != "nobody":
                for node in window.nodes:
                    self._clock.at(window.cordon, Rank.CORDON, partial(self._cordon, f"/api/v1/nodes/{node}", window))
                self._clock.at(window.drain, Rank.DRAIN, partial(self._start_drain, window))
            if window.notice is not None:
                self._clock.at(window.notice, Rank.DRAIN, partial(self._start_notice, window))
            self._clock.at(window.kill, Rank.KILL, partial(self._kill, window))
            self._clock.at(window.removal, Rank.REMOVE, partial(self._remove, window))
        for seconds, new in grown:
            self._clock.at(seconds, Rank.GROW, partial(self._writer.create, "/api/v1/nodes", new))
        while (moment := self._clock.next) is not None and not self._quiet.over:
            self._pass_to(moment)
            for rank, actions in self._clock.due():
                # A pending deletion would delete the new Pod with the same name. Budgets must be up to date.
                if rank in {Rank.RECREATE, Rank.EVICT}:
                    await self._quiet.wait()
                await together(action() for action in actions)
            await self._settle()
        if self._clock.next is not None:
            self.notes.add(
                f"events later than {self._clock.now:g} s after the notice: the run timed out after {LONGEST_RUN:g} s"
            )
        self._pass_to(self._clock.now + BELOW_AT_MOST)

    def _pass_to(self, seconds: float) -> None:
        """Advance the clock, and add the time for which budgets aren't met."""
        for key, budget in self._watches.budgets.items():
            if budget.status.currentHealthy < budget.status.desiredHealthy:
                below = self.below[key] + seconds - self._clock.now
                self.below[key] = min(below, BELOW_AT_MOST)  # type: ignore[assignment]
        self._clock.now = seconds

    def _pods_on(self, window: ReclaimWindow) -> list[RehearsedPod]:
        return [pod for pod in self.workloads.pods() if pod.seen.node in window.nodes]

    # -- between two events ---------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Wait until the components are idle, handle the changes, and schedule the next eviction attempt."""
        await self._wait()
        self._notice()
        allowed = filter(self._is_allowed, self._drain.in_turn(self._clock.now, self.workloads.pods()))
        if (attempt := self._drain.next_attempt(self._clock.now, allowed)) is not None:
            self._clock.at(attempt, Rank.EVICT, self._evict)
        self._observe_states()

    async def _wait(self) -> None:
        """Wait until the components are idle, and again after a recount of quotas."""
        await self._quiet.wait()
        if self._watches.quotas and await self._quiet.count_quotas():
            await self.recreator.retry()
            await self._quiet.wait()

    def _take_new(self) -> tuple[list[RehearsedPod], list[RehearsedPod]]:
        """Return the Pods that were bound and the Pods that were deleted since the last call."""
        pods = self.workloads.pods()
        bound = [pod for pod in pods if pod.seen.starting and pod not in self._bound]
        stopping = [pod for pod in pods if pod.seen.terminating and pod not in self._stopping]
        self._bound.update(bound)
        self._stopping.update(stopping)
        return bound, stopping

    def _notice(self) -> None:
        """Schedule the next events of Pods that were bound or deleted since the last call."""
        now = self._clock.now
        bound, stopping = self._take_new()
        for pod in bound:
            window = self._lost.get(pod.seen.node)
            if window is None or now < window.kill:
                seconds = self.workloads.startup(pod.workload, self.startup)
                self._clock.at(now + seconds, Rank.READY, partial(self._make_ready, pod))
        for pod in stopping:
            if pod.evicted is None:  # deleted with its gang, or preempted by a Pod of higher priority
                pod.evicted = now
            self._stop_in_time(pod, pod.grace if pod.seen.node else 0)

    def _stop_in_time(self, pod: RehearsedPod, seconds: float) -> None:
        """Schedule the Pod to stop after these seconds, unless it is killed earlier."""
        window = self._lost.get(pod.seen.node)
        if window is None or self._clock.now + seconds <= window.kill:
            self._clock.at(self._clock.now + seconds, Rank.STOP, partial(self._stop, pod))

    def _observe_states(self) -> None:
        pods = Counter((pod.workload, pod.state) for pod in self.workloads.pods() if not pod.seen.finished)
        self.samples.append((self._clock.now, pods))

    # -- the provider's steps -------------------------------------------------------------------------------------

    async def _cordon(self, path: str, window: ReclaimWindow) -> None:
        spec: JSON = {"unschedulable": True}
        if window.cordon_taint is not None:
            taints = (await self._writer.read(path))["spec"].get("taints") or []
            spec = {"taints": [*taints, msgspec.to_builtins(window.cordon_taint)]}
        await self._writer.merge(path, {"spec": spec})

    async def _start_notice(self, window: ReclaimWindow) -> None:
        """Start to evict the Pods that ask for it, as `spotgate controller` does until the drain."""
        asking = [pod for pod in self._pods_on(window) if pod.seen.labels.get(ON_RECLAIM) == EVICT and not pod.leaves]
        if asking:
            self._drain.begin(window, asking)
            self._clock.at(self._clock.now, Rank.EVICT, self._evict)

    async def _start_drain(self, window: ReclaimWindow) -> None:
        pods = self._pods_on(window)
        if window.drained_by != "eviction":
            await together(self._shut_down(pod) for pod in pods if pod.seen.alive and not pod.leaves)
            return
        self._drain.begin(window, pods)
        self._clock.at(self._clock.now, Rank.EVICT, self._evict)
        for pod in pods:
            if window.forced and not self._drain.why_exempt(pod):
                at = max(window.kill - pod.grace, self._clock.now)
                self._clock.at(at, Rank.DRAIN, partial(self._delete, pod))

    async def _delete(self, pod: RehearsedPod) -> None:
        """Delete a Pod that wasn't evicted, as late as its grace period allows."""
        if self.workloads.exists(pod) and pod.seen.alive:
            await self._evicted(pod)
            await self._writer.delete(pod.seen.path)

    async def _shut_down(self, pod: RehearsedPod) -> None:
        """Stop a Pod as in a graceful node shutdown: not ready immediately, Failed at the end of its grace period."""
        await self._writer.patch_status(pod.seen.path, _SHUTTING_DOWN)
        self._stop_in_time(pod, pod.grace)
        await self._evicted(pod)

    async def _evicted(self, pod: RehearsedPod) -> None:
        pod.evicted = self._clock.now
        await self._break_gang(pod)

    async def _evict(self) -> None:
        """Try to evict the Pods that are due, as far as their budgets allow it at this second."""
        if self._drain.tried == self._clock.now:
            return
        self._drain.tried = self._clock.now
        left = list(self._drain.in_turn(self._clock.now, self.workloads.pods()))
        self._random.shuffle(left)
        while any(evicted := await asyncio.gather(*map(self._evict_one, left))):
            left = [pod for pod, gone in zip(left, evicted, strict=True) if not gone]
            await self._quiet.wait()
            self._notice()

    def _is_allowed(self, pod: RehearsedPod) -> bool:
        """Return whether an eviction may succeed: no refusal yet, or the budget now allows a disruption.

        Before the drain, it must also give the Pod more time.
        """
        window, now = self._lost[pod.seen.node], self._clock.now
        if now < window.drain and window.granted(now, pod.grace) is None:
            return False
        allowed = [self._watches.budgets[key].status.disruptionsAllowed for key in pod.budgets]
        return not pod.blocked or (len(allowed) <= 1 and all(allowed))

    async def _evict_one(self, pod: RehearsedPod) -> bool:
        """Try to evict a Pod. Return whether the eviction succeeded."""
        if not (self.workloads.exists(pod) and pod.seen.alive):
            return False
        if self._drain.held_until(pod.seen) > self._clock.now:
            pod.blocked = pod.blocked or HarmReason(Cause.UNEVICTED, self._lost[pod.seen.node].unevicted)
            return False
        if not self._is_allowed(pod):
            return False
        granted = self._lost[pod.seen.node].granted(self._clock.now, pod.grace)
        status: int = HTTPStatus.CONFLICT  # the Eviction API refuses Pods with more than one budget
        if len(pod.budgets) <= 1:
            status = await self._writer.evict(pod.seen.path, pod.seen.metadata.name, granted)
        if status == HTTPStatus.OK:
            pod.grace = granted or pod.grace
            await self._evicted(pod)
        elif status != HTTPStatus.NOT_FOUND:
            names = ", ".join(name for _, name in pod.budgets)
            pod.blocked = pod.blocked or HarmReason(Cause.BUDGET_BLOCKS, budget=names)
        return status == HTTPStatus.OK

    async def _kill(self, window: ReclaimWindow) -> None:
        """Kill the Pods that still run on the nodes."""
        victims = [pod for pod in self._pods_on(window) if not pod.seen.finished]
        for pod in victims:
            late = pod.grace - (self._clock.now - pod.evicted if pod.evicted is not None else 0)
            if late > 0 and not pod.leaves:
                pod.killed = True
                if pod.evicted is None:
                    pod.blocked = pod.blocked or self._drain.why_left(pod)
        # If the machine disappears, its kubelet can't report an exit code.
        code = _SIGKILL if window.drained_by == "kubelet" or window.kill < window.removal else None
        await together(self._fail(pod, code) for pod in victims)
        for pod in victims:
            await self._break_gang(pod)

    async def _fail(self, pod: RehearsedPod, code: int | None) -> None:
        self._stopping.add(pod)
        await self._writer.patch_status(pod.seen.path, _killed(pod.seen, code))
        await self._writer.merge(pod.seen.path, _STOPPED)

    async def _remove(self, window: ReclaimWindow) -> None:
        """Delete the Nodes, then their Pods, as the Pod garbage collector does."""
        await together(self._writer.delete(f"/api/v1/nodes/{node}", at_once=True) for node in window.nodes)
        await self._quiet.wait()  # the scheduler may still be binding Pods that tolerate the cordon
        await together(self._writer.delete(pod.seen.path, at_once=True) for pod in self._pods_on(window))

    # -- Pods and gangs -------------------------------------------------------------------------------------------

    async def _make_ready(self, pod: RehearsedPod) -> None:
        if self.workloads.exists(pod) and pod.seen.alive:
            await self._writer.merge(pod.seen.path, _READY)

    async def _stop(self, pod: RehearsedPod) -> None:
        """Stop a Pod. A Pod that wasn't deleted becomes Failed, as on a node shutdown."""
        if not self.workloads.exists(pod) or pod.seen.finished:
            return
        if pod.seen.terminating:
            await self._writer.merge(pod.seen.path, _STOPPED)
        else:
            await self._fail(pod, _SIGTERM)

    async def _break_gang(self, lost: RehearsedPod) -> None:
        """Delete the other Pods of a gang, and schedule the recreation of all of them. The gang's work is lost.

        Pods that are already stopping count as members.
        """
        if lost.gang is None or lost.gang in self._broken:
            return
        self._broken.add(lost.gang)
        pods = self.workloads.pods()
        members = [pod for pod in pods if pod.gang == lost.gang and pod.seen.status.phase != "Succeeded"]
        for pod in members:
            pod.broken = bool(pod.seen.node)
        originals = await self.recreator.originals(members)
        for pod in members:
            if pod.seen.alive and pod is not lost:
                await self._writer.delete(pod.seen.path)
        end = self._clock.now + max((pod.grace for pod in members), default=0.0)
        if (window := self._lost.get(lost.node)) is not None:
            end = min(end, max(window.removal, self._clock.now))
        self._clock.at(end, Rank.RECREATE, partial(self.recreator.recreate, originals))


def _killed(pod: SeenPod, code: int | None) -> JSON:
    """Return the status of a Pod whose containers exited with this code, or with an unknown code if None."""
    status: JSON = {"phase": "Failed", "reason": "Terminated", "message": "the Node was reclaimed", **_SHUTTING_DOWN}
    if code is not None:
        ended = {"ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": code, "reason": "Error"}}}
        status["containerStatuses"] = [
            {"name": container.name, "image": container.image, "imageID": "", **ended}
            for container in pod.spec.containers
        ]
    return status

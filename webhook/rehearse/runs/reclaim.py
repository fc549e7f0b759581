"""Play a reclaim on a control plane, by a clock of its own.

What the real components do takes as long as it takes, and no time on this clock. What is modelled (the provider's
window, grace periods, start-up, growth) is an event at a computed second; the next one comes when the components are
quiet.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from webhook.base.exits import CannotJudgeError
from webhook.cluster.api import ApiError
from webhook.rehearse.result import ReclaimEvent
from webhook.rehearse.runs.clock import Clock, Rank
from webhook.rehearse.runs.drain import Drain
from webhook.rehearse.runs.kubelet import SHUTTING_DOWN, SIGKILL, SIGTERM, killed
from webhook.rehearse.runs.quiet import LONGEST_RUN
from webhook.rehearse.runs.readiness import Readiness
from webhook.rehearse.runs.remaking import Remaker
from webhook.rehearse.runs.stand_ins import AT_ONCE, cordon, originals
from webhook.rehearse.runs.watching import READY, STOPPED
from webhook.rehearse.runs.workloads import PodStage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping, Sequence

    from webhook.cluster.api import Api
    from webhook.rehearse.inputs.resources import JSON
    from webhook.rehearse.result import ReclaimEventName, ReclaimWindow, WorkloadKey
    from webhook.rehearse.runs.quiet import Quiet
    from webhook.rehearse.runs.watching import SeenPod, Watches
    from webhook.rehearse.runs.workloads import KnownPod, Workloads

_MERGE: Final = "application/merge-patch+json"
_STATUS: Final = "application/strategic-merge-patch+json"
_ANSWER: Final = 60.0
_POLL: Final = 0.05

AFTERWARDS: Final = 600.0
"""Seconds for which the cluster is looked at when nothing more happens: what is not well then stays so."""

_TOGETHER: Final = 16
"""Writes on their way at the same time."""

_READY: Final = {"metadata": {"annotations": {READY: ""}}}
_STOPPED: Final = {"metadata": {"annotations": {STOPPED: ""}}}


class Reclaim:
    """Play a reclaim on a control plane.

    Attributes:
        events: what has happened.
        readiness: how many Pods of each workload are ready.
        below: the seconds that each budget was not met.
        missing_before: the Pods that workloads missed already before the reclaim.
        remaker: has Pods made again.
        notes: what it could not rehearse.
        workloads: tells whose a Pod is, and what has happened to it.
    """

    def __init__(
        self, api: Api, watches: Watches, quiet: Quiet, workloads: Workloads, *, startup: float, seed: int
    ) -> None:
        self.events: list[ReclaimEvent] = []
        self.readiness: dict[WorkloadKey, Readiness] = {}
        self.below: Counter[tuple[str, str]] = Counter()
        self.missing_before: Counter[WorkloadKey] = Counter()
        self.notes: set[str] = set()
        self.workloads = workloads
        self.remaker = Remaker(api, watches, workloads)
        self._api = api
        self._watches = watches
        self._quiet = quiet
        self._startup = startup
        self._random = random.Random(seed)  # noqa: S311 - the order of a drain is no secret
        self._clock = Clock()
        self._drain = Drain()
        self._lost: dict[str, ReclaimWindow] = {}
        self._broken: set[tuple[str, ...]] = set()
        self._gate = asyncio.Semaphore(_TOGETHER)

    async def begin(self) -> None:
        """Bring the cluster to rest before anything is lost: what can run runs, what stops has stopped, all at once."""
        while True:
            await self._rest()
            if self._quiet.over:
                raise CannotJudgeError(
                    f"spotgate rehearse: the cluster does not come to rest within {LONGEST_RUN:g} s: "
                    f"{', '.join(sorted(self._quiet.impatient)[:3]) or 'Pods start and stop again and again'}"
                )
            if stopping := [
                known for pod, known in self._pods() if pod.terminating and known.stage < PodStage.STOPPING
            ]:
                for known in stopping:
                    known.stage = PodStage.STOPPING
                await _all(self._stop(known) for known in stopping)
                continue  # what they leave is free before a Pod that gets ready has others made
            bound = [known for pod, known in self._pods() if _is_bound(pod, known)]
            if not bound:
                break
            for known in bound:
                known.stage = PodStage.PLACED
            await _all(self._make_ready(known) for known in bound)
        self.events.clear()
        for pod, known in self._pods():
            if pod.lives:
                known.stage = known.before = PodStage.PLACED if pod.node else PodStage.WAITING
        self.missing_before = self.workloads.missing()

    async def play(self, windows: Sequence[ReclaimWindow], grown: Iterable[tuple[float, JSON]]) -> None:
        """Play the reclaim to its end, with the Nodes that come in their second."""
        self._observe_ready()
        self._drain = Drain()
        for window in windows:
            self._lost |= dict.fromkeys(window.nodes, window)
            self._say_of_nodes("notice", window.nodes)
            if window.drained_by != "nobody":
                self._clock.at(window.cordon, Rank.CORDON, partial(self._cordon, window))
                self._clock.at(window.drain, Rank.DRAIN, partial(self._start_drain, window))
            self._clock.at(window.kill, Rank.KILL, partial(self._kill, window))
            self._clock.at(window.removal, Rank.REMOVE, partial(self._remove, window))
        for seconds, new in grown:
            self._clock.at(seconds, Rank.GROW, partial(self._grow, new))
        while (then := self._clock.next) is not None and not self._quiet.over:
            self._pass_to(then)
            for rank, together in self._clock.due():
                # What is on its way to delete a Pod would delete the new one of that name. Budgets have to be counted.
                if rank in {Rank.ANEW, Rank.EVICT}:
                    await self._quiet.wait()
                await _all(each() for each in together)
            await self._settle()
        if self._clock.next is not None:
            self.notes.add(
                f"what comes later than {self._clock.now:g} s after the notice: the run has taken {LONGEST_RUN:g} s"
            )
        # A budget that is not met now is not met until somebody does something.
        self._pass_to(self._clock.now + AFTERWARDS)

    def _pass_to(self, seconds: float) -> None:
        """Move the clock, and count how long budgets are not met."""
        for key, budget in self._watches.budgets.items():
            if budget.status.currentHealthy < budget.status.desiredHealthy:
                self.below[key] += seconds - self._clock.now  # type: ignore[assignment]
        self._clock.now = seconds

    def _pods(self) -> list[tuple[SeenPod, KnownPod]]:
        """Return the Pods that are there."""
        return [(pod, self.workloads.of(pod)) for pod in self._watches.pods.values()]

    def _pods_on(self, window: ReclaimWindow) -> list[tuple[SeenPod, KnownPod]]:
        return [(pod, known) for pod, known in self._pods() if pod.node in window.nodes]

    def _say(self, name: ReclaimEventName, pod: KnownPod, text: str = "") -> None:
        self.events.append(ReclaimEvent(self._clock.now, name, pod.node, pod.name, pod.workload.identity, text))

    def _say_of_nodes(self, name: ReclaimEventName, nodes: Iterable[str]) -> None:
        self.events.extend(ReclaimEvent(self._clock.now, name, node) for node in nodes)

    async def _write(self, method: str, path: str, body: Mapping[str, Any], media: str = "application/json") -> int:
        """Send a request, and return its status. That something has gone in the meantime is no problem."""
        async with self._gate:
            try:
                await self._api.write(method, path, body, _ANSWER, media)
            except ApiError as error:
                if error.status in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}:
                    return error.status
                raise
        return HTTPStatus.OK

    # -- what components do between two events --------------------------------------------------------------------

    async def _settle(self) -> None:
        """Wait until the components are quiet, note what comes of it, and plan the next attempt to evict."""
        await self._rest()
        self._notice()
        allowed = [each for each in self._drain.in_turn(self._clock.now, self._pods()) if self._is_allowed(each[1])]
        if (attempt := self._drain.next_attempt(self._clock.now, allowed)) is not None:
            self._clock.at(attempt, Rank.EVICT, self._evict)
        self._observe_ready()

    async def _rest(self) -> None:
        """Wait until the components are quiet, also once quotas are counted."""
        await self._quiet.wait()
        if self._watches.quotas and await self._quiet.count_quotas():
            await self.remaker.ask_again()
            await self._quiet.wait()

    def _notice(self) -> None:
        """Plan what becomes of Pods that were bound or told to stop since the last time."""
        now = self._clock.now
        for pod, known in self._pods():
            if _is_bound(pod, known) and not (pod.node in self._lost and now >= self._lost[pod.node].kill):
                known.stage = PodStage.PLACED
                self._say("placed", known)
                seconds = self.workloads.startup(known.workload, self._startup)
                self._clock.at(now + seconds, Rank.READY, partial(self._make_ready, known))
            elif pod.terminating and known.stage < PodStage.STOPPING:
                known.stage = PodStage.STOPPING
                if known.evicted is None:
                    known.evicted = now
                    if pod.node:
                        self._say("evicted", known, "not by the drain: for its gang, or for a Pod of higher priority")
                end = now + (known.grace if pod.node else 0)
                if pod.node not in self._lost or end <= self._lost[pod.node].kill:
                    self._clock.at(end, Rank.STOP, partial(self._stop, known))
            elif pod.lives and not pod.node and known.stage < PodStage.WAITING:
                known.stage = PodStage.WAITING
                scheduled = pod.condition("PodScheduled")
                self._say("pending", known, scheduled.message if scheduled is not None else "")

    def _observe_ready(self) -> None:
        ready = Counter(known.workload for pod, known in self._pods() if pod.ready)
        for workload in {each.workload for each in self.workloads.known.values()}:
            number = ready[workload]
            self.readiness.setdefault(workload, Readiness(number, number, number)).look(number, self._clock.now)

    # -- the provider's steps -------------------------------------------------------------------------------------

    async def _cordon(self, window: ReclaimWindow) -> None:
        self._say_of_nodes("cordon", window.nodes)
        await _all(cordon(self._api, node, window.cordon_taint) for node in window.nodes)

    async def _start_drain(self, window: ReclaimWindow) -> None:
        self._say_of_nodes("drain", window.nodes)
        if window.evicts:
            self._drain.begin(window, self._pods_on(window))
            self._clock.at(self._clock.now, Rank.EVICT, self._evict)
            for pod, known in self._pods_on(window):
                if window.forced and not self._drain.why_exempt(pod, known):
                    at = max(window.kill - known.grace, self._clock.now)
                    self._clock.at(at, Rank.DRAIN, partial(self._delete, known))
        else:
            pods = [(pod, known) for pod, known in self._pods_on(window) if pod.lives and not known.leaves]
            await _all(self._shut_down(pod, known, window) for pod, known in pods)

    async def _delete(self, known: KnownPod) -> None:
        """Delete a Pod that nobody has evicted, as late as its grace period allows."""
        pod = self._pod(known)
        if pod is not None and pod.lives:
            known.evicted = self._clock.now
            self._say("evicted", known, "the drain deletes it, as its time is up")
            await self._write("DELETE", pod.path, {})
            await self._break_gang(known)

    async def _shut_down(self, pod: SeenPod, known: KnownPod, window: ReclaimWindow) -> None:
        """Stop a Pod as a kubelet does whose node shuts down: not ready at once, failed when its grace is over."""
        known.evicted = self._clock.now
        self._say("evicted", known, "the kubelet stops it, as its node shuts down")
        await self._write("PATCH", f"{pod.path}/status", SHUTTING_DOWN, _STATUS)
        if (end := self._clock.now + known.grace) <= window.kill:
            self._clock.at(end, Rank.STOP, partial(self._fail, known))
        await self._break_gang(known)

    async def _fail(self, known: KnownPod) -> None:
        """Have a Pod end that its kubelet has stopped: its controller sees it only now."""
        pod = self._pod(known)
        if pod is not None and pod.lives:
            self._say("stopped", known)
            await self._kill_one(pod, known, SIGTERM)

    async def _evict(self) -> None:
        """Attempt to evict each Pod whose turn it is, as far as budgets allow that in this second."""
        if self._drain.tried == self._clock.now:
            return
        self._drain.tried = self._clock.now
        left = [known for _, known in self._drain.in_turn(self._clock.now, self._pods())]
        self._random.shuffle(left)
        while any(evicted := await asyncio.gather(*map(self._evict_one, left))):
            left = [known for known, gone in zip(left, evicted, strict=True) if not gone]
            await self._quiet.wait()
            self._notice()

    def _is_allowed(self, known: KnownPod) -> bool:
        """Return whether an eviction that was refused would not be refused again."""
        allowed = [self._watches.budgets[key].status.disruptionsAllowed for key in known.budgets]
        return not known.blocked or (len(allowed) <= 1 and all(allowed))

    async def _evict_one(self, known: KnownPod) -> bool:
        """Evict a Pod. Return whether that was allowed."""
        pod = self._pod(known)
        if pod is None or not pod.lives:
            return False
        if self._drain.held_until(pod) > self._clock.now:
            self._block(known, f"{self._lost[pod.node].unevicted} keeps the drain from evicting it")
            return False
        if not self._is_allowed(known):
            return False
        metadata = {"name": known.name, "namespace": known.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        several = len(known.budgets) > 1  # the Eviction API refuses Pods with more than one budget
        status = HTTPStatus.CONFLICT if several else await self._write("POST", f"{pod.path}/eviction", body)
        if status == HTTPStatus.OK:
            known.evicted = self._clock.now
            self._say("evicted", known)
            await self._break_gang(known)
        elif status != HTTPStatus.NOT_FOUND:
            names = ", ".join(name for _, name in known.budgets)
            self._block(known, f"PodDisruptionBudget {names} allows no disruption")
        return status == HTTPStatus.OK

    def _block(self, known: KnownPod, why: str) -> None:
        if not known.blocked:
            known.blocked = True
            self._say("blocked", known, why)

    async def _kill(self, window: ReclaimWindow) -> None:
        """Kill all that still runs on the nodes."""
        victims = [(pod, known) for pod, known in self._pods_on(window) if not pod.finished]
        for pod, known in victims:
            late = known.grace - (self._clock.now - known.evicted if known.evicted is not None else 0)
            if late > 0 and not known.leaves:
                known.killed = True
                self._say("killed", known, f"{late:g} s before its grace period ends")
                if known.evicted is None and (why := self._drain.why_left(pod, known)):
                    self._block(known, why)
        # A kubelet that goes with its machine tells of no exit code.
        code = SIGKILL if window.drained_by == "kubelet" or window.kill < window.removal else None
        await _all(self._kill_one(pod, known, code) for pod, known in victims)
        for _, known in victims:
            await self._break_gang(known)

    async def _kill_one(self, pod: SeenPod, known: KnownPod, code: int | None) -> None:
        known.stage = PodStage.STOPPING
        await self._write("PATCH", f"{pod.path}/status", killed(pod, code), _STATUS)
        await self._write("PATCH", pod.path, _STOPPED, _MERGE)

    async def _remove(self, window: ReclaimWindow) -> None:
        """Delete the Nodes and then, as the garbage collector of Pods does, what was on them."""
        self._say_of_nodes("removed", window.nodes)
        await _all(self._write("DELETE", f"/api/v1/nodes/{node}", AT_ONCE) for node in window.nodes)
        await self._quiet.wait()  # the scheduler still places Pods there that tolerate the cordon
        await _all(self._write("DELETE", pod.path, AT_ONCE) for pod, _ in self._pods_on(window))

    async def _grow(self, node: JSON) -> None:
        self._say_of_nodes("grown", [node["metadata"]["name"]])
        await self._write("POST", "/api/v1/nodes", node)

    # -- Pods, and gangs of them ----------------------------------------------------------------------------------

    async def _make_ready(self, known: KnownPod) -> None:
        pod = self._pod(known)
        if pod is not None and pod.lives:
            await self._write("PATCH", pod.path, _READY, _MERGE)
            self._say("ready", known)

    async def _stop(self, known: KnownPod) -> None:
        pod = self._pod(known)
        if pod is not None and not pod.finished:
            if pod.node:
                self._say("stopped", known)
            await self._write("PATCH", pod.path, _STOPPED, _MERGE)

    async def _break_gang(self, lost: KnownPod) -> None:
        """Stop the other Pods of a gang: its work is lost, and its controller makes all of them anew.

        Those that are stopping already are of it, too.
        """
        if lost.gang is None or lost.gang in self._broken:
            return
        self._broken.add(lost.gang)
        members = [
            (pod, known) for pod, known in self._pods() if known.gang == lost.gang and pod.status.phase != "Succeeded"
        ]
        for pod, known in members:
            known.broken = bool(pod.node)
        anew = await originals(self._api, (pod for pod, _ in members))
        for pod, known in members:
            if pod.lives and known is not lost:
                await self._write("DELETE", pod.path, {})
        end = self._clock.now + max((known.grace for _, known in members), default=0.0)
        if (window := self._lost.get(lost.node)) is not None:
            end = min(end, max(window.removal, self._clock.now))
        self._clock.at(end, Rank.ANEW, partial(self.remaker.recreate, anew))

    def _pod(self, known: KnownPod) -> SeenPod | None:
        """Return the Pod as it is now. Return None if it is gone."""
        found = self._watches.pods.get((known.namespace, known.name))
        return found if found is not None and found.metadata.uid == known.uid else None


def _is_bound(pod: SeenPod, known: KnownPod) -> bool:
    """Return whether a Pod is bound to a Node and nobody has planned yet when it is ready."""
    waits = pod.lives and not pod.ready and pod.status.phase == "Pending"
    return bool(pod.node) and waits and known.stage < PodStage.PLACED


async def _all(work: Iterable[Awaitable[object]]) -> None:
    await asyncio.gather(*work)

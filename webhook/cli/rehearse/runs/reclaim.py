"""Play a reclaim on a control plane, by a clock of its own.

What the real components do takes as long as it takes, and no time on this clock. What is modelled (the provider's
window, grace periods, start-up, growth) is an event at a computed second; the next one comes when the components are
quiet.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from webhook.cli.rehearse.result import ReclaimEvent
from webhook.cli.rehearse.runs.restarts import AT_ONCE, originals, recreate
from webhook.cli.rehearse.runs.watching import READY, STOPPED
from webhook.cluster.api import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.cli.rehearse.result import ReclaimEventName, ReclaimWindow
    from webhook.cli.rehearse.runs.quiet import Quiet
    from webhook.cli.rehearse.runs.watching import SeenBudget, SeenPod, Watches
    from webhook.cli.rehearse.runs.workloads import KnownPod, WorkloadKey, Workloads
    from webhook.cluster.api import Api

_MERGE: Final = "application/merge-patch+json"
_STATUS: Final = "application/strategic-merge-patch+json"
_ANSWER: Final = 60.0
_POLL: Final = 0.05
_ANEW: Final = 10
"""The rank of what is made anew, among what happens in one second: the last."""

AFTERWARDS: Final = 600.0
"""Seconds for which the cluster is looked at when nothing more happens: what is not well then stays so."""

_TOGETHER: Final = 16
"""Writes on their way at the same time."""

_READY: Final = {"metadata": {"annotations": {READY: ""}}}
_STOPPED: Final = {"metadata": {"annotations": {STOPPED: ""}}}
_KILLED: Final = {
    "status": {
        "phase": "Failed",
        "reason": "Terminated",
        "message": "the Node was reclaimed",
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}],
    }
}
_SHUTTING_DOWN: Final = {
    "status": {
        "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"},
            {"type": "Ready", "status": "False", "reason": "NodeShutdown"},
        ]
    }
}
_EVICTION: Final = {"apiVersion": "policy/v1", "kind": "Eviction"}


class Reclaim:
    """A reclaim that is being played.

    Attributes:
        events: what has happened.
        evicted: when Pods were told to stop, by UID.
        killed: UIDs of Pods that were killed before their grace period was over.
        broken: the gangs that have lost a Pod.
        lowest: the fewest ready Pods of each workload so far.
        below: the seconds that each budget was not met.
        known: every Pod that was ever seen, by UID.
        quiet: tells when the components have nothing left to do.
        workloads: tells whose a Pod is.
    """

    def __init__(
        self, api: Api, watches: Watches, quiet: Quiet, workloads: Workloads, *, startup: float, seed: int
    ) -> None:
        self.events: list[ReclaimEvent] = []
        self.evicted: dict[str, float] = {}
        self.killed: set[str] = set()
        self.broken: dict[tuple[str, ...], list[KnownPod]] = {}
        self.lowest: dict[WorkloadKey, int] = {}
        self.below: Counter[tuple[str, str]] = Counter()
        self.known: dict[str, KnownPod] = {}
        self._api = api
        self._watches = watches
        self.quiet = quiet
        self.workloads = workloads
        self._startup = startup
        self._random = random.Random(seed)  # noqa: S311 - the order of a drain is no secret
        self._due: list[tuple[float, int, int, Callable[[], Awaitable[None]]]] = []
        self._order = itertools.count()
        self._now = 0.0
        self._starting: set[str] = set()
        self._stopping: set[str] = set()
        self._draining: dict[str, ReclaimWindow] = {}
        self._lost: dict[str, ReclaimWindow] = {}
        self._blocked: dict[str, tuple[tuple[str, str], ...]] = {}
        self._said_blocked: set[str] = set()
        self._said_pending: set[str] = set()
        self._gate = asyncio.Semaphore(_TOGETHER)

    async def begin(self) -> None:
        """Bring the cluster to rest before anything is lost: what can run runs, what stops has stopped, all at once."""
        while True:
            await self.quiet.wait()
            bound = [pod for pod in self._watches.pods if self._is_new(pod)]
            stopping = [pod for pod in self._watches.pods if pod.terminating and pod.metadata.uid not in self._stopping]
            if not bound and not stopping:
                break
            self._starting.update(pod.metadata.uid for pod in bound)
            self._stopping.update(pod.metadata.uid for pod in stopping)
            await self._all(self._make_ready(pod.metadata.uid) for pod in bound)
            await self._all(self._stop(pod.metadata.uid) for pod in stopping)
        for pod in self._watches.pods:
            known = self.workloads.of(pod)
            self.known[known.uid] = known
            self._said_pending.add(known.uid)

    async def play(self, windows: Sequence[ReclaimWindow], grown: Iterable[tuple[float, JSON]]) -> None:
        """Play it to its end.

        Args:
            windows: the lost Nodes, and what happens to them when.
            grown: Nodes that come, each with its second.
        """
        self._observe_ready()
        for window in windows:
            self._lost |= dict.fromkeys(window.nodes, window)
            for node in window.nodes:
                self._say("notice", node=node)
            self._at(window.cordon, 1, lambda window=window: self._cordon(window))  # type: ignore[misc]
            self._at(window.drain, 2, lambda window=window: self._drain(window))  # type: ignore[misc]
            self._at(window.kill, 8, lambda window=window: self._kill(window))  # type: ignore[misc]
            self._at(window.removal, 9, lambda window=window: self._remove(window))  # type: ignore[misc]
        for seconds, new in grown:
            self._at(seconds, 5, lambda new=new: self._grow(new))  # type: ignore[misc]
        while self._due:
            self._pass_to(self._due[0][0])
            while self._due and self._due[0][0] == self._now:
                same = self._due[0][1]
                together = []
                while self._due and self._due[0][:2] == (self._now, same):
                    together.append(heapq.heappop(self._due)[3])
                if same == _ANEW:  # what is on its way to delete a Pod would delete the new one of that name
                    await self.quiet.wait()
                await self._all(each() for each in together)
            await self._settle()
        # A budget that is not met now is not met until somebody does something.
        self._pass_to(self._now + AFTERWARDS)

    def _at(self, seconds: float, rank: int, action: Callable[[], Awaitable[None]]) -> None:
        heapq.heappush(self._due, (seconds, rank, next(self._order), action))

    def _pass_to(self, seconds: float) -> None:
        """Move the clock, and count how long budgets are not met."""
        for budget in self._watches.budgets:
            if budget.status.currentHealthy < budget.status.desiredHealthy:
                self.below[budget.metadata.key] += seconds - self._now  # type: ignore[assignment]
        self._now = seconds

    def _say(self, name: ReclaimEventName, pod: KnownPod | None = None, *, node: str = "", text: str = "") -> None:
        if pod is None:
            self.events.append(ReclaimEvent(self._now, name, node=node, text=text))
        else:
            where = node or pod.node
            self.events.append(ReclaimEvent(self._now, name, where, pod.name, pod.workload.identity, text))

    async def _all(self, work: Iterable[Awaitable[None]]) -> None:
        await asyncio.gather(*work)

    async def _write(self, method: str, path: str, body: Mapping[str, Any], media: str = "application/json") -> int:
        """Send it; return the status. That something has gone in the meantime is no problem."""
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
        """Wait until the components are quiet, and note what comes of it. Drain on as far as budgets allow."""
        while True:
            await self.quiet.wait()
            self._notice()
            if not await self._evict():
                break
        self._observe_ready()

    def _notice(self) -> None:
        """Plan what becomes of Pods that were bound or told to stop since the last time."""
        for pod in list(self._watches.pods):
            known = self.workloads.of(pod)
            self.known.setdefault(known.uid, known)
            if self._is_new(pod) and not self._is_lost_now(pod):
                self._starting.add(known.uid)
                self._say("placed", known, node=pod.node)
                seconds = self.workloads.startup(known.workload, self._startup)
                self._at(self._now + seconds, 3, lambda uid=known.uid: self._make_ready(uid))  # type: ignore[misc]
            elif pod.terminating and known.uid not in self._stopping:
                self._stopping.add(known.uid)
                if pod.node and known.uid not in self.evicted:
                    self._say("evicted", known, text="not by the drain: for its gang, or for a Pod of higher priority")
                self.evicted.setdefault(known.uid, self._now)
                self._at(self._now + (known.grace if pod.node else 0), 4, lambda uid=known.uid: self._stop(uid))  # type: ignore[misc]
            elif pod.lives and not pod.node and known.uid not in self._said_pending:
                scheduled = pod.condition("PodScheduled")
                self._said_pending.add(known.uid)
                self._say("pending", known, text=scheduled.message if scheduled is not None else "")

    def _is_new(self, pod: SeenPod) -> bool:
        return (
            bool(pod.node)
            and pod.lives
            and not pod.ready
            and pod.metadata.uid not in self._starting
            and pod.status.phase == "Pending"
        )

    def _is_lost_now(self, pod: SeenPod) -> bool:
        return pod.node in self._lost and self._now >= self._lost[pod.node].kill

    def _observe_ready(self) -> None:
        ready = Counter(self.workloads.of(pod).workload for pod in self._watches.pods if pod.ready)
        for workload in {each.workload for each in self.known.values()}:
            self.lowest[workload] = min(ready[workload], self.lowest.get(workload, ready[workload]))

    # -- the provider's steps -------------------------------------------------------------------------------------

    async def _cordon(self, window: ReclaimWindow) -> None:
        for node in window.nodes:
            self._say("cordon", node=node)
        await self._all(self._unschedulable(node) for node in window.nodes)

    async def _unschedulable(self, node: str) -> None:
        await self._write("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}}, _MERGE)

    async def _drain(self, window: ReclaimWindow) -> None:
        for node in window.nodes:
            self._say("drain", node=node)
        if window.evicts:
            self._draining |= dict.fromkeys(window.nodes, window)
        else:
            pods = [pod for pod in self._watches.pods if pod.node in window.nodes and pod.lives]
            await self._all(self._shut_down(pod, window) for pod in pods)

    async def _shut_down(self, pod: SeenPod, window: ReclaimWindow) -> None:
        """Stop a Pod as a kubelet does whose node shuts down: not ready at once, failed when its grace is over."""
        known = self.workloads.of(pod)
        if known.leaves:
            return
        self.evicted[known.uid] = self._now
        self._say("evicted", known, text="the kubelet stops it, as its node shuts down")
        await self._write("PATCH", f"{_path(pod)}/status", _SHUTTING_DOWN, _STATUS)
        if (end := self._now + known.grace) <= window.kill:
            self._at(end, 4, lambda uid=known.uid: self._fail(uid))  # type: ignore[misc]
        await self._break_gang(known)

    async def _fail(self, uid: str) -> None:
        """Have a Pod end that its kubelet has stopped: its controller sees it only now."""
        pod = self._pod(uid)
        if pod is not None and pod.lives:
            self._say("stopped", self.known[uid])
            await self._kill_one(pod)

    async def _evict(self) -> bool:
        """Evict what budgets allow of the Nodes that are drained. Return whether there was any."""
        budgets = {each.metadata.key: each for each in self._watches.budgets}
        pods = [
            pod
            for pod in self._watches.pods
            if pod.node in self._draining
            and self._now < self._draining[pod.node].kill
            and pod.lives
            and not self.workloads.of(pod).leaves
            and not self._still_blocked(pod, budgets)
        ]
        self._random.shuffle(pods)
        done = await asyncio.gather(*(self._evict_one(pod) for pod in pods))
        return any(done)

    def _still_blocked(self, pod: SeenPod, budgets: Mapping[tuple[str, str], SeenBudget]) -> bool:
        blocked = self._blocked.get(pod.metadata.uid)
        if blocked is None:
            return False
        return len(blocked) > 1 or any(
            key in budgets and budgets[key].status.disruptionsAllowed == 0 for key in blocked
        )

    async def _evict_one(self, pod: SeenPod) -> bool:
        metadata, known = pod.metadata, self.workloads.of(pod)
        path = f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/eviction"
        body = {**_EVICTION, "metadata": {"name": metadata.name, "namespace": metadata.namespace}}
        covering = self.quiet.covering(pod)
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR
        if len(covering) < 2:  # noqa: PLR2004 - the Eviction API refuses Pods with more than one budget
            status = await self._write("POST", path, body)
        if status == HTTPStatus.OK:
            self.evicted[known.uid] = self._now
            self._say("evicted", known)
            await self._break_gang(known)
            return True
        if status != HTTPStatus.NOT_FOUND:
            self._blocked[known.uid] = covering
            if known.uid not in self._said_blocked:
                self._said_blocked.add(known.uid)
                names = ", ".join(name for _, name in covering)
                self._say("blocked", known, text=f"PodDisruptionBudget {names} allows no disruption")
        return False

    async def _break_gang(self, lost: KnownPod) -> None:
        """Stop the other Pods of a gang: its work is lost, and its controller makes all of them anew.

        Those that are stopping already are of it, too.
        """
        if lost.gang is None or lost.gang in self.broken:
            return
        members = [
            pod
            for pod in self._watches.pods
            if self.workloads.of(pod).gang == lost.gang and pod.status.phase != "Succeeded"
        ]
        self.broken[lost.gang] = [self.workloads.of(pod) for pod in members if pod.node]
        anew = await originals(self._api, members)
        for pod in members:
            if pod.lives and pod.metadata.uid != lost.uid:
                await self._write("DELETE", _path(pod), {})
        grace = max((self.workloads.of(pod).grace for pod in members), default=0.0)
        window = self._lost.get(lost.node)
        end = self._now + grace if window is None else min(self._now + grace, max(window.removal, self._now))
        self._at(end, _ANEW, lambda: self._recreate(anew))

    async def _recreate(self, objects: Sequence[JSON]) -> None:
        """Make Jobs and Pods anew, and wait until the watches tell of the Jobs: before, nothing seems to be missing."""
        jobs = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in objects if each["kind"] == "Job"}
        before = {key: job.metadata.uid for key, job in self._watches.jobs.items.items() if key in jobs}
        await recreate(self._api, objects)
        async with asyncio.timeout(_ANSWER):
            while any(  # noqa: ASYNC110 - what the watches have is looked at everywhere else
                (job := self._watches.jobs.items.get(key)) is None or job.metadata.uid == before.get(key)
                for key in jobs
            ):
                await asyncio.sleep(_POLL)

    async def _make_ready(self, uid: str) -> None:
        pod = self._pod(uid)
        if pod is None or not pod.lives:
            return
        await self._write("PATCH", _path(pod), _READY, _MERGE)
        if uid in self.known:
            self._say("ready", self.known[uid], node=pod.node)

    async def _stop(self, uid: str) -> None:
        pod = self._pod(uid)
        if pod is None or pod.finished:
            return
        if pod.node and uid in self.known:
            self._say("stopped", self.known[uid])
        await self._write("PATCH", _path(pod), _STOPPED, _MERGE)

    async def _kill(self, window: ReclaimWindow) -> None:
        """SIGKILL for all that still runs there."""
        victims = [pod for pod in self._watches.pods if pod.node in window.nodes and not pod.finished]
        for pod in victims:
            known = self.workloads.of(pod)
            late = known.grace - (self._now - self.evicted.get(known.uid, self._now))
            if late > 0 and not known.leaves:
                self.killed.add(known.uid)
                self._say("killed", known, text=f"{late:g} s before its grace period ends")
        await self._all(self._kill_one(pod) for pod in victims)
        for pod in victims:
            await self._break_gang(self.workloads.of(pod))

    async def _kill_one(self, pod: SeenPod) -> None:
        self._stopping.add(pod.metadata.uid)
        await self._write("PATCH", f"{_path(pod)}/status", _KILLED, _STATUS)
        await self._write("PATCH", _path(pod), _STOPPED, _MERGE)

    async def _remove(self, window: ReclaimWindow) -> None:
        """Delete the Nodes and, as the garbage collector of Pods does, what was on them."""
        gone = [pod for pod in self._watches.pods if pod.node in window.nodes]
        await self._all(self._delete(_path(pod)) for pod in gone)
        for node in window.nodes:
            self._say("removed", node=node)
            self._draining.pop(node, None)
        await self._all(self._delete(f"/api/v1/nodes/{node}") for node in window.nodes)

    async def _delete(self, path: str) -> None:
        await self._write("DELETE", path, AT_ONCE)

    async def _grow(self, node: JSON) -> None:
        self._say("grown", node=node["metadata"]["name"])
        await self._write("POST", "/api/v1/nodes", node)

    def _pod(self, uid: str) -> SeenPod | None:
        known = self.known.get(uid)
        if known is not None:
            found = self._watches.pods.items.get((known.namespace, known.name))
            return found if found is not None and found.metadata.uid == uid else None
        return next((each for each in self._watches.pods if each.metadata.uid == uid), None)


def _path(pod: SeenPod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"

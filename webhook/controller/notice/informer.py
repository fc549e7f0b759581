"""Take the steps of all Pods: one PATCH that annotates a Pod, and one Eviction if the Pod asks for it.

All state is in the objects of the cluster: a Pod with the annotation is informed, and a terminating Pod is evicted.
Each write requires the version of the Pod that its step was decided for, so that another leader repeats nothing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Final

import structlog

from webhook.cluster.api import NO_ANSWER, Api, ApiError
from webhook.controller.notice.objects import NotifiedNode, NotifiedPod, read_node
from webhook.controller.notice.steps import Evict, Inform, NoticeStep, lasting, next_step
from webhook.controller.work_queue import WorkQueue
from webhook.kube.notice import RECLAIM_AT
from webhook.rules.context import utc_now
from webhook.runtime.metrics import MetricsOf

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from prometheus_client import CollectorRegistry
    from structlog.typing import FilteringBoundLogger

    from webhook.capacity.providers.provider import Provider
    from webhook.runtime.metrics import Value

_EVENTS_AT_ONCE: Final = 2
"""The maximum number of concurrent Events, so that they don't delay the other writes."""
_TIMEOUT: Final = 5.0
_PAUSE_AT_MOST: Final = 8.0
"""Seconds between the retries of a step, at most."""
_UNDECIDED: Final = frozenset({NO_ANSWER, HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND})
"""The status codes that refuse nothing: no answer, or a Pod that has changed, maybe by this write."""
_NAME_AT_MOST: Final = 253
_MERGE: Final = "application/merge-patch+json"

log: FilteringBoundLogger = structlog.get_logger()


class Informer:
    """A controller that tells Pods of notices while its process is the leader.

    Args:
        leads: returns whether this process leads.
    """

    def __init__(
        self, api: Api, providers: Collection[Provider], registry: CollectorRegistry, leads: Callable[[], bool]
    ) -> None:
        self._api = api
        self._providers = providers
        self._leads = leads
        self._waiting: dict[str, float] = {}  # since when each Pod with a notice waits for its time
        metrics = MetricsOf("notice", registry, self._gauges)
        self._notices, self._evictions = metrics.counters["reclaim_notices"], metrics.counters["reclaim_evictions"]
        self._informed = metrics.histograms["reclaim_informed_seconds"]
        for result in ("granted", "blocked", "failed"):
            self._evictions.labels(result)
        self._nodes: dict[str, NotifiedNode] = {}
        self._pods: dict[str, NotifiedPod] = {}
        self._on_node: defaultdict[str, set[str]] = defaultdict(set)
        self._written: dict[str, str] = {}  # the version of each Pod that the last write replaced
        self._refused: set[str] = set()  # the Pods whose Eviction was refused
        self._evicted: set[str] = set()  # the Pods whose Eviction was granted; the watch shows their end later
        self._queue = WorkQueue(_PAUSE_AT_MOST)
        self._events = asyncio.Semaphore(_EVENTS_AT_ONCE)

    def _gauges(self) -> dict[str, Value]:
        now = monotonic()
        oldest = now - min(self._waiting.values(), default=now)
        return {"reclaim_oldest_wait_seconds": oldest, "reclaim_leader": self._leads()}

    def take_node(self, before: NotifiedNode | None, after: NotifiedNode | None) -> None:
        """Handle a change of one Node that the watch reports."""
        if before is not None and after is None:
            del self._nodes[before.name]
        elif after is not None:
            known = self._nodes.get(after.name)
            self._nodes[after.name] = after if known is None else lasting(known, after)
            if known is None:
                self._notices.labels(after.notice.provider or "none").inc()
                log.info("notice", node=after.name, signal=after.notice.signal, removal=rfc_3339(after.notice.removal))
        for uid in self._on_node[(after or before).name]:  # type: ignore[union-attr] # one of them exists
            self._look_at(uid)

    def take_pod(self, before: NotifiedPod | None, after: NotifiedPod | None) -> None:
        """Handle a change of one Pod that the watch reports."""
        if before is not None:
            del self._pods[before.uid]
            self._on_node[before.node].discard(before.uid)
            if after is None or after.uid != before.uid:
                self._written.pop(before.uid, None)
                self._refused.discard(before.uid)
                self._evicted.discard(before.uid)
                self._waiting.pop(before.uid, None)
        if after is not None:
            self._pods[after.uid] = after
            self._on_node[after.node].add(after.uid)
            self._look_at(after.uid)

    def _look_at(self, uid: str) -> None:
        if isinstance(self._step(uid), Inform):
            self._waiting.setdefault(uid, monotonic())
        else:
            self._waiting.pop(uid, None)
        self._queue.add(uid)

    def _step(self, uid: str) -> NoticeStep | None:
        """Return the next step for a Pod, or None if it is gone, or if the watch doesn't show the last write yet."""
        pod = self._pods.get(uid)
        if pod is None or self._written.get(uid) == pod.version:
            return None
        node = self._nodes.get(pod.node)
        step = next_step(pod, node.notice if node else None, utc_now(), refused=uid in self._refused)
        return None if isinstance(step, Evict) and uid in self._evicted else step

    async def lead(self) -> None:
        """Tell Pods of notices while this process leads, until cancelled."""
        log.info("leading", duty="notice")
        async with asyncio.TaskGroup() as group:
            await self._queue.run(self._pods, partial(self._work_on, group))

    async def _work_on(self, group: asyncio.TaskGroup, uid: str) -> bool | None:
        """Take the next step of one Pod. Return None if none is due, and False if it must be decided again."""
        if self._step(uid) is None:
            return None
        async with self._queue.place(self._pods[uid].namespace):
            # Decide again: while the Pod waited for its place, it may have changed, and it has less time.
            step = self._step(uid)
            if step is None or not self._leads():
                return False
            pod = self._pods[uid]
            written = await self._take(pod, step)
        if written and isinstance(step, Inform):
            group.create_task(self._record(pod, step.removal))
        return written

    async def _take(self, pod: NotifiedPod, step: NoticeStep) -> bool:
        """Take one step. Return False if it failed and must be repeated if it is still due."""
        try:
            if isinstance(step, Evict):
                await self._evict(pod, step.grace)
            elif isinstance(step, Inform):
                await self._annotate(pod, rfc_3339(step.removal))
            elif not await self._is_reclaimed(pod.node):
                await self._annotate(pod, None)
            else:
                return False  # the watch of Nodes is late
        except ApiError as error:
            if error.status not in _UNDECIDED | {HTTPStatus.TOO_MANY_REQUESTS}:
                where = f"{pod.namespace}/{pod.name}"
                log.warning("step failed", pod=where, step=type(step).__name__, problem=str(error))
            return False
        except Exception as error:  # noqa: BLE001 - a Pod that spotgate can't handle must not stop the others
            log.warning("step failed", pod=f"{pod.namespace}/{pod.name}", problem=f"a bug in spotgate: {error!r}")
            return False
        if pod.uid in self._pods:
            self._written[pod.uid] = pod.version
        if isinstance(step, Inform):
            self._informed.observe(monotonic() - self._waiting.pop(pod.uid, monotonic()))
        return True

    async def _annotate(self, pod: NotifiedPod, text: str | None) -> None:
        """Write the annotation, or remove it."""
        identity = {"uid": pod.uid, "resourceVersion": pod.version}
        patch = {"metadata": {**identity, "annotations": {RECLAIM_AT: text}}}
        await self._api.write("PATCH", pod.path, patch, _TIMEOUT, _MERGE)

    async def _evict(self, pod: NotifiedPod, grace: int) -> None:
        preconditions = {"uid": pod.uid, "resourceVersion": pod.version}
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": pod.namespace, "name": pod.name},
            "deleteOptions": {"gracePeriodSeconds": grace, "preconditions": preconditions},
        }
        try:
            await self._api.write("POST", f"{pod.path}/eviction", eviction, _TIMEOUT)
        except ApiError as error:
            if error.status not in _UNDECIDED:
                self._refused.add(pod.uid)
                blocked = error.status == HTTPStatus.TOO_MANY_REQUESTS
                self._evictions.labels("blocked" if blocked else "failed").inc()
            raise
        self._evicted.add(pod.uid)
        self._evictions.labels("granted").inc()

    async def _is_reclaimed(self, node: str) -> bool:
        """Return whether a Node has a notice now. The watch of Nodes can be later than the one of Pods."""
        return read_node(await self._api.read(f"/api/v1/nodes/{node}", _TIMEOUT), self._providers) is not None

    async def _record(self, pod: NotifiedPod, removal: datetime) -> None:
        """Write an Event. Its name keeps another leader from repeating it."""
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        now = rfc_3339(utc_now())
        event = {
            "metadata": {
                "namespace": pod.namespace,
                "name": f"{pod.name}.{pod.uid}.{int(removal.timestamp()):x}"[-_NAME_AT_MOST:].lstrip("-."),
            },
            "involvedObject": about,
            "type": "Warning",
            "reason": "ReclaimNotice",
            "message": f"The machine of Node {pod.node} is removed at {rfc_3339(removal)}",
            "source": {"component": "spotgate"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        async with self._events:
            try:
                await self._api.write("POST", f"/api/v1/namespaces/{pod.namespace}/events", event, _TIMEOUT)
            except ApiError as error:
                log.info("event not written", pod=f"{pod.namespace}/{pod.name}", problem=str(error))


def rfc_3339(time: datetime) -> str:
    """Return a time in UTC as Kubernetes writes it, in whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")

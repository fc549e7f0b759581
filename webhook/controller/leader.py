"""Assign each gated Pod with one PATCH that places the Pod, labels it, and removes its scheduling gate."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from webhook.capacity.placement.floor import ASSIGNED_LABEL, DELETION_COST, FLOOR_GATE, ON_DEMAND_COST
from webhook.cluster.api import ApiError
from webhook.controller.ledger import ON_DEMAND, RELEASE
from webhook.engine.engine import decide
from webhook.model.review import GroupVersionKind, GroupVersionResource, Request, UserInfo
from webhook.rules.context import ASSUMED_VERSION, Context, Phase, utc_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from webhook.capacity.view import ClusterView
    from webhook.cluster.api import Api
    from webhook.controller.ledger import Assignment, Ledger
    from webhook.controller.metrics import ControllerMetrics
    from webhook.controller.pods import FloorPod
    from webhook.engine.index import Index

_SELECTING: Final = ("/spec/nodeSelector", "/spec/affinity")
_PLACING: Final = (*_SELECTING, "/spec/tolerations")
"""The fields that the API server allows clients to change in a gated Pod."""
_AT_ONCE: Final = 32
"""The maximum number of concurrent PATCHes. About 10 saturate an API server; more hide the latency of its webhooks."""
_TIMEOUT: Final = 5.0
_PAUSE_SECONDS: Final = 0.25
"""Seconds before a retry after a lost response or a changed Pod. Doubled for each retry."""
_PAUSE_AT_MOST: Final = 4.0
_REFUSALS: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY})
"""The status codes after which the same PATCH would fail again."""
_CHANGED: Final = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND})
"""The status codes for a Pod that has changed (maybe by this PATCH) or is deleted. The watch shows which."""
_INAPPLICABLE: Final = "the server rejected our request due to an error in our request"
"""The text of a 422 for a JSON Patch that removes a missing field: the gate is already removed."""
_UNAUTHORIZED: Final = 'is forbidden: User "'
"""The text of a 403 from RBAC instead of admission: the API server is starting, or the installation is incomplete."""
_PATCH_TYPE: Final = "application/json-patch+json"

log: FilteringBoundLogger = structlog.get_logger()


class Leader:
    """A controller that assigns Pods while its process is the leader.

    Args:
        view: returns the newest view of the cluster.
    """

    def __init__(
        self, api: Api, index: Index, view: Callable[[], ClusterView], ledger: Ledger, metrics: ControllerMetrics
    ) -> None:
        self._api = api
        self._index = index
        self._view = view
        self._ledger = ledger
        self._metrics = metrics
        self._changed: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._at_work: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)

    def take(self, before: FloorPod | None, after: FloorPod | None) -> None:
        """Handle a change of one Pod that the watch reports."""
        self._look_at(self._ledger.replace(before, after))

    def _look_at(self, owner: str) -> None:
        self._changed[owner] = None
        self._wake.set()

    async def lead(self, leads: Callable[[], bool]) -> None:
        """Assign Pods while ``leads`` returns True, until cancelled."""
        log.info("leading")
        self._ledger.reset()
        self._at_work.clear()
        self._changed = dict.fromkeys(self._ledger.owners)
        self._wake.set()
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wake.wait()
                self._wake.clear()
                for owner in self._changed.keys() - self._at_work.keys():
                    del self._changed[owner]
                    self._at_work[owner] = group.create_task(self._work_on(owner, leads))

    async def _work_on(self, owner: str, leads: Callable[[], bool]) -> None:
        """Assign the Pods of one ReplicaSet until none is due. Only one task at a time does this for a ReplicaSet."""
        pause = _PAUSE_SECONDS
        while due := self._ledger.due(owner):
            if leads() and all(await asyncio.gather(*(self._assign(pod, leads) for pod in due))):
                pause = _PAUSE_SECONDS
            else:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _PAUSE_AT_MOST)
        del self._at_work[owner]

    async def _assign(self, assignment: Assignment, leads: Callable[[], bool]) -> bool:
        """Send one assignment. Return False if it failed and must be retried."""
        pod, capacity = assignment.pod, assignment.capacity
        async with self._places:
            if not leads() or not self._ledger.send(assignment):
                return True
            try:
                await self._patch(pod, self._operations(pod, capacity))
            except ApiError as error:
                self._failed(assignment, error)
                return False
        waited = self._ledger.confirm(pod)
        self._metrics.waited.observe(waited)
        return True

    def _failed(self, assignment: Assignment, error: ApiError) -> None:
        pod = assignment.pod
        changed = error.status in _CHANGED or _INAPPLICABLE in str(error)
        refused = error.status in _REFUSALS and not changed and _UNAUTHORIZED not in str(error)
        if not changed:
            where, event = f"{pod.namespace}/{pod.name}", "assignment refused" if refused else "assignment failed"
            log.warning(event, pod=where, to=assignment.capacity, problem=str(error))
        if refused:
            self._ledger.refuse(pod)
        else:
            self._ledger.reopen(pod)

    def _operations(self, pod: FloorPod, capacity: str) -> list[dict[str, Any]]:
        """Return the JSON Patch of an assignment. The API server rejects it if the Pod has changed."""
        gate = pod.gates.index(FLOOR_GATE)
        operations: list[dict[str, Any]] = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": pod.version},
            {"op": "remove", "path": f"/spec/schedulingGates/{gate}"},
        ]
        if capacity == RELEASE:
            return operations
        placing = [operation for operation in self._decide(pod, capacity) if operation["path"].startswith(_PLACING)]
        if not any(operation["path"].startswith(_SELECTING) for operation in placing):
            where = f"{pod.namespace}/{pod.name}"
            log.warning("no policy places the Pod: it is only released", pod=where, to=capacity)
            return operations
        metadata = msgspec.json.decode(pod.raw)["metadata"]
        marks = [("labels", ASSIGNED_LABEL, capacity)]
        if capacity == ON_DEMAND and DELETION_COST not in (metadata.get("annotations") or {}):
            marks.append(("annotations", DELETION_COST, ON_DEMAND_COST))
        for member, key, value in marks:
            if not metadata.get(member):
                operations.append({"op": "add", "path": f"/metadata/{member}", "value": {}})
            operations.append({"op": "add", "path": f"/metadata/{member}/{key.replace('/', '~1')}", "value": value})
        return [*placing, *operations]

    def _decide(self, pod: FloorPod, capacity: str) -> list[dict[str, Any]]:
        """Return the patch operations of the webhook's policies for a Pod with this assignment."""
        request = Request(
            uid=pod.uid,
            operation="CREATE",
            kind=GroupVersionKind("", "v1", "Pod"),
            resource=GroupVersionResource("", "v1", "pods"),
            name=pod.name,
            namespace=pod.namespace,
            object=msgspec.Raw(pod.raw),
            user_info=UserInfo("system:serviceaccount:kube-system:replicaset-controller"),
        )
        view = self._view()
        context = Context(
            phase=Phase.MUTATE,
            now=utc_now(),
            api_server=view.api_server or ASSUMED_VERSION,
            oldest_kubelet=view.oldest_kubelet or ASSUMED_VERSION,
            view=view,
            assigned=capacity,
        )
        decision = decide(request, self._index, context)
        for failure in decision.failures:
            log.error("policy failed", pod=f"{pod.namespace}/{pod.name}", problem=str(failure), where=failure.where)
        return [operation.as_json() for operation in decision.patch]

    async def _patch(self, pod: FloorPod, operations: list[dict[str, Any]]) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        async with self._api.send("PATCH", path, operations, _TIMEOUT, _PATCH_TYPE) as response:
            await response.read()

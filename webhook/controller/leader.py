"""Assign each gated Pod with one PATCH that places the Pod, labels it, and removes its scheduling gate."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from webhook.capacity.placement.floor import (
    ASSIGNED_LABEL,
    DELETION_COST,
    FLOOR_ANNOTATION,
    FLOOR_GATE,
    ON_DEMAND_COST,
)
from webhook.cluster.api import TOO_LARGE, ApiError
from webhook.controller.ledger import ON_DEMAND, RELEASE, Assignment, Ledger
from webhook.controller.pods import WITHOUT_GATE, WITHOUT_GATE_TYPE, FloorPod, decode_pod, floor_pod
from webhook.controller.work_queue import WorkQueue
from webhook.engine.engine import decide
from webhook.model.review import GroupVersionKind, GroupVersionResource, Request, UserInfo
from webhook.rules.context import ASSUMED_VERSION, Context, Phase, utc_now
from webhook.runtime.metrics import MetricsOf

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry
    from structlog.typing import FilteringBoundLogger

    from webhook.capacity.view import ClusterView
    from webhook.cluster.api import Api, Body
    from webhook.engine.index import Index
    from webhook.runtime.metrics import Value

_SELECTING: Final = ("/spec/nodeSelector", "/spec/affinity")
_PLACING: Final = (*_SELECTING, "/spec/tolerations")
"""The fields that the API server allows clients to change in a gated Pod."""
_FLOOR: Final = f"/metadata/annotations/{FLOOR_ANNOTATION.replace('/', '~1')}"
_POD_AT_MOST: Final = 2 * 1024 * 1024
"""Bytes of a Pod that is placed: the webhook decides about objects up to this size. A larger one is only released. So
the 32 concurrent requests take at most 128 MiB, two copies of each Pod."""
_TIMEOUT: Final = 5.0
_PAUSE_AT_MOST: Final = 4.0
"""Seconds between the retries of an assignment, at most."""
_REFUSALS: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY, TOO_LARGE})
"""The status codes after which the same PATCH would fail again."""
_CHANGED: Final = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND})
"""The status codes for a Pod that has changed (maybe by this PATCH) or is deleted. The watch shows which."""
_PATIENCE: Final = 10.0
"""Seconds after which a leader without permission to assign Pods gives up, so that the webhook gates no more Pods. No
tenant can cause this, unlike the other reasons why a Pod waits."""
_PATCH_TYPE: Final = "application/json-patch+json"

log: FilteringBoundLogger = structlog.get_logger()


class Leader:
    """A controller that assigns Pods while its process is the leader.

    Args:
        view: returns the newest view of the cluster.
        leads: returns whether this process leads.
    """

    def __init__(
        self,
        api: Api,
        index: Index,
        view: Callable[[], ClusterView],
        ledger: Ledger,
        registry: CollectorRegistry,
        leads: Callable[[], bool],
    ) -> None:
        self._api = api
        self._index = index
        self._view = view
        self._ledger = ledger
        self._leads = leads
        self._waited = MetricsOf("floor", registry, self._gauges).histograms["floor_gate_seconds"]
        self._owners = WorkQueue(_PAUSE_AT_MOST)

    def take(self, before: FloorPod | None, after: FloorPod | None) -> None:
        """Handle a change of one Pod that the watch reports."""
        self._owners.add(self._ledger.replace(before, after))

    def _gauges(self) -> dict[str, Value]:
        ledger = self._ledger
        leads = self._leads()
        return {"floor_pods": ledger.tally(), "floor_oldest_gate_seconds": ledger.oldest(), "floor_leader": leads}

    async def lead(self) -> None:
        """Assign Pods while this process leads, until cancelled."""
        log.info("leading")
        self._ledger.reset()
        await self._owners.run(self._ledger.owners, self._work_on)

    async def _work_on(self, owner: str) -> bool | None:
        """Assign the due Pods of one ReplicaSet. Return None if there are none, and False if some must be retried."""
        due = self._ledger.due(owner)
        if not due:
            return None
        return self._leads() and all(await asyncio.gather(*map(self._assign, due)))

    async def _assign(self, assignment: Assignment) -> bool:
        """Send one assignment. Return False if it failed and must be retried. Raise ApiError to end the leadership."""
        pod, capacity = assignment.pod, assignment.capacity
        async with self._owners.place(pod.namespace):
            try:
                patch: Body = {"metadata": {"uid": pod.uid}, "spec": WITHOUT_GATE}
                if capacity != RELEASE:
                    stored = await self._api.read(pod.path, _TIMEOUT, at_most=_POD_AT_MOST)
                    patch = self._operations(pod, capacity, stored)
                if not self._leads() or not self._ledger.send(assignment):
                    return True
                media_type = WITHOUT_GATE_TYPE if capacity == RELEASE else _PATCH_TYPE
                await self._api.write("PATCH", pod.path, patch, _TIMEOUT, media_type)
            except ApiError as error:
                self._failed(assignment, error)
                return False
            except Exception as error:  # noqa: BLE001 - a Pod that spotgate can't handle must not stop the others
                self._failed(assignment, ApiError(f"a bug in spotgate: {error!r}", HTTPStatus.BAD_REQUEST))
                return False
        self._waited.observe(self._ledger.confirm(pod))
        return True

    def _failed(self, assignment: Assignment, error: ApiError) -> None:
        pod = assignment.pod
        # RBAC forbids it while the API server starts, or if the installation is incomplete.
        if error.by_rbac and self._ledger.oldest() > _PATIENCE:
            raise error
        # If a test of the patch failed, the Pod, its floor, or its gate has changed.
        changed = error.status in _CHANGED or error.patch_failed
        refused = error.status in _REFUSALS and not changed and not error.by_rbac
        if not changed:
            where, event = f"{pod.namespace}/{pod.name}", "assignment refused" if refused else "assignment failed"
            log.warning(event, pod=where, to=assignment.capacity, problem=str(error))
        if refused:
            self._ledger.refuse(pod)
        else:
            self._ledger.reopen(pod, conflict=changed and error.status != HTTPStatus.NOT_FOUND)

    def _operations(self, pod: FloorPod, capacity: str, raw: bytes) -> list[dict[str, Any]]:
        """Return the JSON Patch of an assignment. The API server rejects it if the Pod's floor or gate has changed.

        ``raw`` is the stored Pod. Raise ApiError if it isn't the Pod of the assignment.
        """
        stored = decode_pod(raw)
        metadata, current = stored.metadata, floor_pod(stored)
        if current is None or current.uid != pod.uid or not current.gated:
            raise ApiError.refused(HTTPStatus.NOT_FOUND, "the Pod no longer waits")
        if (current.owner, current.floor) != (pod.owner, pod.floor) or metadata.annotations is None:
            raise ApiError.refused(HTTPStatus.CONFLICT, "the owner or the floor of the Pod has changed")
        gate = f"/spec/schedulingGates/{stored.gates.index(FLOOR_GATE)}"
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "test", "path": _FLOOR, "value": metadata.annotations[FLOOR_ANNOTATION]},
            {"op": "test", "path": f"{gate}/name", "value": FLOOR_GATE},
            {"op": "remove", "path": gate},
        ]
        decided = self._decide(pod, capacity, raw)
        placing = [operation for operation in decided if operation["path"].startswith(_PLACING)]
        if not any(operation["path"].startswith(_SELECTING) for operation in placing):
            where = f"{pod.namespace}/{pod.name}"
            log.warning("no policy places the Pod: it is only released", pod=where, to=capacity)
            return operations
        if not metadata.labels:
            operations.append({"op": "add", "path": "/metadata/labels", "value": {}})
        marks = [("labels", ASSIGNED_LABEL, capacity)]
        if capacity == ON_DEMAND and DELETION_COST not in metadata.annotations:
            marks.append(("annotations", DELETION_COST, ON_DEMAND_COST))
        for member, key, value in marks:
            operations.append({"op": "add", "path": f"/metadata/{member}/{key.replace('/', '~1')}", "value": value})
        return [*operations, *placing]

    def _decide(self, pod: FloorPod, capacity: str, raw: bytes) -> list[dict[str, Any]]:
        """Return the patch operations of the webhook's policies for a Pod with this assignment."""
        request = Request(
            uid=pod.uid,
            operation="CREATE",
            kind=GroupVersionKind("", "v1", "Pod"),
            resource=GroupVersionResource("", "v1", "pods"),
            name=pod.name,
            namespace=pod.namespace,
            object=msgspec.Raw(raw),
            user_info=UserInfo("system:serviceaccount:kube-system:replicaset-controller"),
        )
        context = Context(phase=Phase.MUTATE, now=utc_now(), assigned=capacity)
        decision = decide(request, self._index, context.seeing(self._view(), ASSUMED_VERSION))
        for failure in decision.failures:
            log.error("policy failed", pod=f"{pod.namespace}/{pod.name}", problem=str(failure), where=failure.where)
        return [operation.as_json() for operation in decision.patch]

"""Watch the current Pods, owners, budgets, quotas, and claims of a control plane."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from webhook.cluster.api import Api, ApiError
from webhook.cluster.mirror import Mirror, Pace
from webhook.cluster.source import WatchedResource
from webhook.kube.pod import ObjectMeta, OwnerReference, Pod
from webhook.rehearse.inputs.resources import BUDGET, CLAIM, DAEMON_SET, DEPLOYMENT, POD_OWNERS, QUOTA

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


T = TypeVar("T")
READY: Final = "rehearse.spotgate.dev/ready"
STOPPED: Final = "rehearse.spotgate.dev/stopped"
"""The Pod annotations that tell KWOK to make a Pod ready, or to stop it. See stages.yaml."""

_PACE: Final = Pace(first=0.2, answer=60)
"""The timeout allows for a list of 10,000 Pods on a busy machine."""

_ENDED: Final = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")
"""The conditions of a Job that creates no more Pods."""

_COMBINED: Final = "(combined from similar events): "
_POLL: Final = 0.05


class SeenReference(OwnerReference, frozen=True):
    """An owner reference with the UID."""

    uid: str = ""


class SeenMetadata(ObjectMeta):
    """The metadata that a rehearsal reads. The resource version makes every update compare as a change."""

    uid: str = ""
    generation: int = 0
    resourceVersion: str = ""
    deletionTimestamp: str | None = None
    ownerReferences: list[SeenReference] | None = None  # type: ignore[assignment]

    @property
    def key(self) -> tuple[str, str]:
        """Return the namespace and name."""
        return self.namespace, self.name

    @property
    def controller(self) -> SeenReference | None:
        """Return the owner reference of the controller, or None."""
        return next((owner for owner in self.ownerReferences or () if owner.controller), None)


class SeenCondition(msgspec.Struct):
    """A condition of a status."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    lastTransitionTime: datetime | None = None


_NO_CONDITION: Final = SeenCondition("")


class SeenStatus(msgspec.Struct):
    """The status fields that a rehearsal reads, of a Pod, workload, budget, or quota."""

    phase: str = ""
    conditions: list[SeenCondition] = []
    observedGeneration: int = 0
    succeeded: int = 0
    failedIndexes: str = ""
    startTime: datetime | None = None
    currentHealthy: int = 0
    desiredHealthy: int = 0
    disruptionsAllowed: int = 0
    hard: dict[str, Any] = {}
    used: dict[str, Any] = {}

    def condition(self, *names: str) -> SeenCondition:
        """Return the first condition of these types, or an empty condition if there is none."""
        return next((condition for condition in self.conditions if condition.type in names), _NO_CONDITION)

    @property
    def uncountable(self) -> str:
        """Return why the disruption controller can't compute the expected Pods, or an empty string if it can."""
        return next((condition.message for condition in self.conditions if condition.reason == "SyncFailed"), "")


class SeenEvent(msgspec.Struct):
    """An event about a Pod that a controller couldn't create."""

    involvedObject: SeenReference
    message: str = ""


class SeenPod(Pod):
    """A Pod in its current state."""

    metadata: SeenMetadata
    status: SeenStatus = msgspec.field(default_factory=SeenStatus)

    @property
    def node(self) -> str:
        """Return the name of the Pod's Node, or an empty string if the Pod isn't bound."""
        return self.spec.nodeName or ""

    @property
    def terminating(self) -> bool:
        """Return whether the Pod has a deletion timestamp."""
        return self.metadata.deletionTimestamp is not None

    @property
    def finished(self) -> bool:
        """Return whether the Pod has succeeded or failed."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def alive(self) -> bool:
        """Return whether the Pod is neither terminating nor finished."""
        return not (self.terminating or self.finished)

    @property
    def ready(self) -> bool:
        """Return whether the Pod is ready and not terminating."""
        return self.alive and self.status.condition("Ready").status == "True"

    @property
    def starting(self) -> bool:
        """Return whether the Pod is bound to a Node and doesn't run yet."""
        return bool(self.node) and self.alive and not self.ready and self.status.phase == "Pending"

    @property
    def unscheduled(self) -> str:
        """Return the scheduler's message about the Pod, or an empty string."""
        return self.status.condition("PodScheduled").message

    @property
    def path(self) -> str:
        """Return the API path of the Pod."""
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"


class SeenObject(msgspec.Struct):
    """A workload, budget, quota, or claim in its current state."""

    metadata: SeenMetadata
    spec: dict[str, Any] = {}
    status: SeenStatus = msgspec.field(default_factory=SeenStatus)

    @property
    def is_observed(self) -> bool:
        """Return whether the controller has observed the current generation."""
        return self.status.observedGeneration >= self.metadata.generation

    @property
    def pods_wanted(self) -> int:
        """Return how many Pods the workload currently wants: a Job, or an object with replicas."""
        if "parallelism" not in self.spec:
            return int(self.spec.get("replicas", 1))
        if self.spec.get("suspend") or self.status.condition(*_ENDED).type:
            return 0
        wanted: int = self.spec["parallelism"]
        if "completions" not in self.spec:
            return wanted
        bounds = (part.split("-") for part in self.status.failedIndexes.split(",") if part)  # as in 0,3-5
        failed = sum(int(bound[-1]) - int(bound[0]) + 1 for bound in bounds)
        return min(wanted, int(self.spec["completions"]) - self.status.succeeded - failed)


class Watches:
    """The watches of a rehearsal.

    Attributes:
        changed: the time of the last change, by the monotonic clock.
    """

    def __init__(self, api: Api) -> None:
        self.changed = time.monotonic()
        self._api = api
        self._mirrors: list[Mirror[Any]] = []
        self.pods = self._watch("", "pods", SeenPod)
        self.budgets = self._watch(BUDGET.group, BUDGET.plural, SeenObject)
        self.quotas = self._watch(QUOTA.group, QUOTA.plural, SeenObject)
        self.claims = self._watch(CLAIM.group, CLAIM.plural, SeenObject)
        kinds = (DEPLOYMENT, DAEMON_SET, *POD_OWNERS)
        self.owners = {kind: self._watch(kind.group, kind.plural, SeenObject) for kind in kinds}
        self._refusals = self._watch("", "events", SeenEvent, "reason=FailedCreate")

    @property
    def refusals(self) -> dict[str, str]:
        """Return why controllers couldn't create a Pod, by the UID of the Pod's owner."""
        return {event.involvedObject.uid: event.message.removeprefix(_COMBINED) for event in self._refusals.values()}

    def _watch(self, group: str, resource: str, type_: type[T], fields: str = "") -> dict[tuple[str, str], T]:
        decoder = msgspec.json.Decoder(type_)
        source = WatchedResource(group=group, resource=resource, fields=fields, read=lambda _, raw: decoder.decode(raw))
        mirror = Mirror(self._api, source, _PACE, self._touch)
        self._mirrors.append(mirror)
        return mirror.items

    def _touch(self) -> None:
        self.changed = time.monotonic()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while the block runs, starting with complete lists. Close the connection afterwards.

        Raise ApiError if a list takes too long.
        """
        following = [asyncio.create_task(mirror.run()) for mirror in self._mirrors]
        try:
            deadline = time.monotonic() + _PACE.answer
            while unknown := [mirror for mirror in self._mirrors if not mirror.known]:
                if time.monotonic() > deadline:
                    raise ApiError(f"{unknown[0].source} can't be watched: {unknown[0].problem}")
                await asyncio.sleep(_POLL)
            yield
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
            await self._api.close()

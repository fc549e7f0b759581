"""What a control plane has at the moment: Pods, their owners and budgets, kept current by watches."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import aiohttp
import msgspec

from webhook.cluster.api import ApiError
from webhook.kube.pod import PodSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.cluster.api import Api


class _Named(Protocol):
    metadata: SeenMetadata


T = TypeVar("T", bound="_Named")
READY: Final = "rehearse.spotgate.dev/ready"
STOPPED: Final = "rehearse.spotgate.dev/stopped"
"""Annotations of Pods by which the clock tells KWOK (stages.yaml) that they are ready, and that they have stopped."""

_PAGE: Final = 1000
_ANSWER: Final = 60.0
"""Seconds for a list: ten thousand Pods on a busy machine."""


class SeenReference(msgspec.Struct):
    """A reference to an owner, with its UID."""

    kind: str
    name: str
    apiVersion: str = ""
    uid: str = ""
    controller: bool | None = None

    @property
    def group_kind(self) -> tuple[str, str]:
        """Group and kind."""
        return self.apiVersion.rpartition("/")[0], self.kind


class SeenMetadata(msgspec.Struct):
    """The metadata that is looked at."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    ownerReferences: list[SeenReference] = []

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


class SeenCondition(msgspec.Struct):
    """A condition of a status."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    lastTransitionTime: str | None = None


class SeenPodStatus(msgspec.Struct):
    """The status of a Pod."""

    phase: str = ""
    conditions: list[SeenCondition] = []
    startTime: str | None = None


class SeenSchedulingGroup(msgspec.Struct):
    """The PodGroup that a Pod is scheduled with."""

    podGroupName: str = ""


class SeenPodSpec(PodSpec):
    """The spec of a Pod, with what only a rehearsal reads."""

    schedulingGroup: SeenSchedulingGroup | None = None


class SeenPod(msgspec.Struct):
    """A Pod as it is now."""

    metadata: SeenMetadata
    spec: SeenPodSpec
    status: SeenPodStatus = msgspec.field(default_factory=SeenPodStatus)

    @property
    def node(self) -> str:
        """Return the name of the Node that it is bound to, or an empty string."""
        return self.spec.nodeName or ""

    @property
    def terminating(self) -> bool:
        """Return whether it has been told to stop."""
        return self.metadata.deletionTimestamp is not None

    @property
    def finished(self) -> bool:
        """Return whether it has run to its end."""
        return self.status.phase in {"Succeeded", "Failed"}

    @property
    def lives(self) -> bool:
        """Return whether it runs or is to run."""
        return not (self.terminating or self.finished)

    def condition(self, name: str) -> SeenCondition | None:
        """Return a condition by its type."""
        return next((each for each in self.status.conditions if each.type == name), None)

    @property
    def ready(self) -> bool:
        """Return whether it is ready and is to go on."""
        found = self.condition("Ready")
        return self.lives and found is not None and found.status == "True"

    @property
    def controller(self) -> SeenReference | None:
        """Return the owner that manages it."""
        return next((each for each in self.metadata.ownerReferences if each.controller), None)


class SeenOwnerSpec(msgspec.Struct):
    """Say how many Pods a workload wants."""

    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    backoffLimit: int | None = None


class SeenOwnerStatus(msgspec.Struct):
    """Say what the controller of a workload has seen."""

    observedGeneration: int = 0
    succeeded: int = 0
    conditions: list[SeenCondition] = []


class SeenOwner(msgspec.Struct):
    """A workload as it is now."""

    metadata: SeenMetadata
    spec: SeenOwnerSpec = msgspec.field(default_factory=SeenOwnerSpec)
    status: SeenOwnerStatus = msgspec.field(default_factory=SeenOwnerStatus)

    def condition(self, *names: str) -> SeenCondition | None:
        """Return the first of these conditions that holds."""
        return next((each for each in self.status.conditions if each.type in names and each.status == "True"), None)


class SeenBudgetStatus(msgspec.Struct):
    """Hold what the disruption controller counts."""

    observedGeneration: int = 0
    currentHealthy: int = 0
    desiredHealthy: int = 0
    disruptionsAllowed: int = 0
    expectedPods: int = 0
    conditions: list[SeenCondition] = []

    @property
    def uncountable(self) -> str:
        """Say why the disruption controller can't tell how many Pods there should be; empty if it can."""
        return next((each.message for each in self.conditions if each.reason == "SyncFailed"), "")


class SeenBudget(msgspec.Struct):
    """A PodDisruptionBudget as it is now."""

    metadata: SeenMetadata
    spec: dict[str, Any]
    status: SeenBudgetStatus = msgspec.field(default_factory=SeenBudgetStatus)


class SeenClaim(msgspec.Struct):
    """A PersistentVolumeClaim as it is now."""

    metadata: SeenMetadata
    spec: dict[str, Any]


class Watched(Generic[T]):
    """The objects of one resource, as far as its watch has told."""

    def __init__(self, path: str, type_: type[T], changed: Callable[[], None]) -> None:
        self.path = path
        self.items: dict[tuple[str, str], T] = {}
        self._changed = changed
        self._page = msgspec.json.Decoder(_page_of(type_))
        self._item = msgspec.json.Decoder(type_)
        self._version = ""

    def __iter__(self) -> Iterator[T]:
        return iter(self.items.values())

    async def list(self, api: Api) -> None:
        """Read everything anew. Raises ApiError."""
        items: dict[tuple[str, str], T] = {}
        after = ""
        while True:
            path = f"{self.path}?limit={_PAGE}{after}"
            async with api.get(path, aiohttp.ClientTimeout(total=_ANSWER)) as response:
                page = self._page.decode(await response.read())
            items |= {each.metadata.key: each for each in page.items}
            if not page.metadata.continue_:
                break
            after = f"&continue={page.metadata.continue_}"
        self.items, self._version = items, page.metadata.resourceVersion
        self._changed()

    async def follow(self, api: Api) -> None:
        """Keep current until cancelled."""
        while True:
            try:
                await self._watch(api)
            except ApiError:
                await asyncio.sleep(0.2)
                await self.list(api)

    async def _watch(self, api: Api) -> None:
        path = f"{self.path}?watch=1&resourceVersion={self._version}&allowWatchBookmarks=true"
        async with api.get(path, aiohttp.ClientTimeout(total=None)) as response:
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(line)

    def _take(self, line: bytes) -> None:
        event = _events.decode(line)
        if event.type == "ERROR":
            raise ApiError("the watch ended")
        if event.type == "BOOKMARK":
            return
        item = self._item.decode(event.object)
        if event.type == "DELETED":
            self.items.pop(item.metadata.key, None)
        else:
            self.items[item.metadata.key] = item
        self._changed()


class _ListMeta(msgspec.Struct):
    resourceVersion: str = ""
    continue_: str = msgspec.field(default="", name="continue")


def _page_of(type_: type[T]) -> Any:  # noqa: ANN401 - a type that is made here
    return msgspec.defstruct("Page", [("items", list[type_]), ("metadata", _ListMeta)])  # type: ignore[valid-type]


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


_events: Final = msgspec.json.Decoder(_WatchEvent)


class Watches:
    """All that a rehearsal watches.

    Attributes:
        changed: when anything did last, by the machine's clock.
    """

    def __init__(self) -> None:
        self.changed = time.monotonic()
        self.pods = Watched("/api/v1/pods", SeenPod, self._touch)
        self.budgets = Watched("/apis/policy/v1/poddisruptionbudgets", SeenBudget, self._touch)
        self.deployments = Watched("/apis/apps/v1/deployments", SeenOwner, self._touch)
        self.replica_sets = Watched("/apis/apps/v1/replicasets", SeenOwner, self._touch)
        self.replication_controllers = Watched("/api/v1/replicationcontrollers", SeenOwner, self._touch)
        self.stateful_sets = Watched("/apis/apps/v1/statefulsets", SeenOwner, self._touch)
        self.daemon_sets = Watched("/apis/apps/v1/daemonsets", SeenOwner, self._touch)
        self.jobs = Watched("/apis/batch/v1/jobs", SeenOwner, self._touch)
        self.claims = Watched("/api/v1/persistentvolumeclaims", SeenClaim, self._touch)

    def _touch(self) -> None:
        self.changed = time.monotonic()

    @property
    def all(self) -> tuple[Watched[Any], ...]:
        """All of them."""
        return (
            self.pods,
            self.budgets,
            self.deployments,
            self.replica_sets,
            self.replication_controllers,
            self.stateful_sets,
            self.daemon_sets,
            self.jobs,
            self.claims,
        )

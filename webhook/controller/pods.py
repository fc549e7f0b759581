"""Read the Pods that the duties watch, such as those of workloads with an on-demand floor, and the labels of Nodes."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.floor import ASSIGNED_LABEL, FLOOR_ANNOTATION, FLOOR_GATE, Floor, parse_floor
from webhook.cluster.source import ListedMetadata, WatchedResource
from webhook.kube.pod import OwnerReference, SchedulingGate

if TYPE_CHECKING:
    from collections.abc import Mapping


_MARK: Final = FLOOR_ANNOTATION.encode()
"""A text that every relevant Pod contains: the annotation and the gate have the same name."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})

WITHOUT_GATE: Final = {"schedulingGates": [{"$patch": "delete", "name": FLOOR_GATE}]}
"""The ``spec`` of a patch that only removes the gate. No other change of the Pod conflicts with it."""
WITHOUT_GATE_TYPE: Final = "application/strategic-merge-patch+json"


class WatchedPod(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a Pod that every duty keeps. Duties add no text of any length, so that a Pod takes at most 2 KiB.

    Attributes:
        created: when the Pod was created.
        node: the name of the Pod's Node; empty if the Pod isn't bound.
        alive: whether the Pod is neither terminating nor finished.
    """

    namespace: str
    name: str
    uid: str
    created: datetime
    node: str
    alive: bool

    @property
    def path(self) -> str:
        """Return the path of the Pod in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


class FloorPod(WatchedPod, frozen=True, kw_only=True):
    """One Pod of a workload with a floor.

    Attributes:
        owner: the namespace and UID of the ReplicaSet. The namespace excludes owners in other namespaces.
        floor: the floor; None if there is no valid one, so that the Pod is only released.
        gated: whether the Pod waits for the controller.
        assigned: the value of the assignment label: ``on-demand``, ``spot``, or empty.
    """

    owner: str
    floor: Floor | None
    gated: bool
    assigned: str


class _Owner(OwnerReference, frozen=True):
    uid: str = ""


class StoredMetadata(msgspec.Struct):
    """The metadata that the controller reads."""

    name: str
    namespace: str
    uid: str
    resourceVersion: str
    creationTimestamp: datetime
    deletionTimestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[_Owner] | None = None

    @property
    def controller(self) -> _Owner | None:
        """Return the managing owner, or None if there is none."""
        return next((owner for owner in self.ownerReferences or () if owner.controller), None)


class _Spec(msgspec.Struct):
    nodeName: str | None = None
    schedulingGates: list[SchedulingGate] | None = None
    terminationGracePeriodSeconds: int | None = None


class _Status(msgspec.Struct):
    phase: str = ""


class StoredPod(msgspec.Struct):
    """The parts of a Pod that the controller reads."""

    metadata: StoredMetadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def gates(self) -> list[str]:
        """Return the names of the scheduling gates."""
        return [gate.name for gate in self.spec.schedulingGates or ()]

    @property
    def alive(self) -> bool:
        """Return whether the Pod is neither terminating nor finished."""
        return self.metadata.deletionTimestamp is None and self.status.phase not in _ENDED


decode_pod: Final = msgspec.json.Decoder(StoredPod).decode


def read_pod(_: ListedMetadata, raw: msgspec.Raw) -> FloorPod | None:
    """Return the parts of a Pod that floors depend on, or None if the Pod has neither a floor nor the gate."""
    text = bytes(raw)
    if _MARK not in text:
        return None
    return floor_pod(decode_pod(text))


def floor_pod(pod: StoredPod) -> FloorPod | None:
    """Return the parts of a Pod that floors depend on, or None if the Pod has neither a floor nor the gate."""
    metadata, gated, owner = pod.metadata, FLOOR_GATE in pod.gates, pod.metadata.controller
    counted = owner is not None and owner.group_kind == "ReplicaSet.apps"
    floor = parse_floor((metadata.annotations or {}).get(FLOOR_ANNOTATION, "")) if counted else None
    if floor is None and not gated:
        return None
    return FloorPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        created=metadata.creationTimestamp,
        owner=f"{metadata.namespace}/{owner.uid if owner is not None else ''}",
        floor=floor,
        gated=gated,
        assigned=(metadata.labels or {}).get(ASSIGNED_LABEL, ""),
        node=pod.spec.nodeName or "",
        alive=pod.alive,
    )


ALL_PODS: Final = WatchedResource(resource="pods", read=read_pod)
"""The source of the Pods of workloads with a floor."""

NODE_LABELS: Final[WatchedResource[Mapping[str, str]]] = WatchedResource(
    resource="nodes", read=lambda metadata, _: metadata.labels or {}, metadata_only=True
)
"""The source of the labels of each Node."""

"""Read Pods of workloads with an on-demand floor, and the labels of Nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.floor import ASSIGNED_LABEL, FLOOR_ANNOTATION, FLOOR_GATE, Floor, parse_floor
from webhook.cluster.source import WatchedResource
from webhook.kube.pod import OwnerReference, SchedulingGate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.cluster.source import ListedMetadata

_MARK: Final = FLOOR_ANNOTATION.encode()
"""A text that every relevant Pod contains: the annotation and the gate have the same name."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class FloorPod(msgspec.Struct, frozen=True, kw_only=True):
    """One Pod of a workload with a floor.

    Attributes:
        owner: the namespace and UID of the ReplicaSet. The namespace excludes owners in other namespaces.
        floor: the floor; None if there is no valid one, so that the Pod is only released.
        gates: the names of the scheduling gates.
        assigned: the value of the assignment label: ``on-demand``, ``spot``, or empty.
        node: the name of the Pod's Node; empty if the Pod isn't bound.
        alive: whether the Pod is neither terminating nor finished.
        raw: the whole Pod as JSON while it has the gate; else empty.
    """

    namespace: str
    name: str
    uid: str
    version: str
    created: str
    owner: str
    floor: Floor | None
    gates: tuple[str, ...]
    assigned: str
    node: str
    alive: bool
    raw: bytes

    @property
    def gated(self) -> bool:
        """Return whether the Pod waits for the controller."""
        return FLOOR_GATE in self.gates


class _Owner(OwnerReference, frozen=True):
    uid: str = ""


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    creationTimestamp: str = ""
    deletionTimestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[_Owner] | None = None


class _Spec(msgspec.Struct):
    nodeName: str | None = None
    schedulingGates: list[SchedulingGate] | None = None


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


_decoder: Final = msgspec.json.Decoder(_Pod)


def read_pod(_: ListedMetadata, raw: msgspec.Raw) -> FloorPod | None:
    """Return the parts of a Pod that floors depend on, or None if the Pod has neither a floor nor the gate."""
    text = bytes(raw)
    if _MARK not in text:
        return None
    pod = _decoder.decode(text)
    metadata, spec = pod.metadata, pod.spec
    gates = tuple(gate.name for gate in spec.schedulingGates or ())
    owner = next((reference for reference in metadata.ownerReferences or () if reference.controller), None)
    counted = owner is not None and owner.group_kind == "ReplicaSet.apps"
    floor = parse_floor((metadata.annotations or {}).get(FLOOR_ANNOTATION, "")) if counted else None
    if floor is None and FLOOR_GATE not in gates:
        return None
    return FloorPod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        version=metadata.resourceVersion,
        created=metadata.creationTimestamp,
        owner=f"{metadata.namespace}/{owner.uid if owner is not None else ''}",
        floor=floor,
        gates=gates,
        assigned=(metadata.labels or {}).get(ASSIGNED_LABEL, ""),
        node=spec.nodeName or "",
        alive=metadata.deletionTimestamp is None and pod.status.phase not in _ENDED,
        raw=text if FLOOR_GATE in gates else b"",
    )


def all_pods() -> WatchedResource[FloorPod | None]:
    """Return the source of the Pods of workloads with a floor."""
    return WatchedResource(resource="pods", read=read_pod)


def node_labels() -> WatchedResource[Mapping[str, str]]:
    """Return the source of the labels of each Node."""
    return WatchedResource(resource="nodes", read=lambda metadata, _: metadata.labels or {}, metadata_only=True)

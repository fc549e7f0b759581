"""Do what the controllers do that are not here: make the Pods of a gang anew, and the volumes that claims wait for."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.providers.machines import ZONE_LABEL
from webhook.rehearse.inputs.resources import JOB
from webhook.rehearse.inputs.snapshot import PROVISIONER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.capacity.providers.pool import Taint
    from webhook.cluster.api import Api
    from webhook.rehearse.inputs.resources import JSON
    from webhook.rehearse.runs.watching import SeenObject, SeenPod

_ANSWER: Final = 60.0
_MERGE: Final = "application/merge-patch+json"
AT_ONCE: Final = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
"""The options of a DELETE that waits for nobody."""

_OWN: Final = frozenset({"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "finalizers"})
_OF_A_NODE: Final = frozenset({"nodeName", "ephemeralContainers"})
_OF_A_JOB: Final = ("controller-uid", "batch.kubernetes.io/controller-uid")
OURS: Final = "rehearse.spotgate.dev/"
CONTROLLED_HERE: Final = frozenset(
    {("apps", "ReplicaSet"), ("", "ReplicationController"), ("apps", "StatefulSet"), ("apps", "DaemonSet")}
)
"""Group and kind of the owners whose controllers make a lost Pod again; those of Jobs may give up."""

_PAUSE: Final = 0.1
_SELECTED: Final = "volume.kubernetes.io/selected-node"
_WANTED: Final = "volume.kubernetes.io/storage-provisioner"


async def originals(api: Api, members: Iterable[SeenPod]) -> list[JSON]:
    """Return the Jobs of these Pods, and the Pods that no controller here makes, as they were first created."""
    paths: dict[str, None] = {}
    for pod in members:
        owner, namespace = pod.controller, pod.metadata.namespace
        if owner is not None and (owner.group, owner.kind) == (JOB.group, JOB.kind):
            paths[f"{JOB.collection('batch/v1', namespace)}/{owner.name}"] = None
        elif owner is None or (owner.group, owner.kind) not in CONTROLLED_HERE:
            paths[pod.path] = None
    return [_as_created(msgspec.json.decode(await api.read(path, _ANSWER))) for path in paths]


async def cordon(api: Api, node: str, taint: Taint | None) -> None:
    """Keep new Pods off a Node, by a taint or by none."""
    path = f"/api/v1/nodes/{node}"
    spec: JSON = {"unschedulable": True}
    if taint is not None:
        there = msgspec.json.decode(await api.read(path, _ANSWER))["spec"].get("taints") or []
        spec = {"taints": [*there, msgspec.to_builtins(taint)]}
    await api.write("PATCH", path, {"spec": spec}, _ANSWER, _MERGE)


def _as_created(value: JSON) -> JSON:
    metadata = {key: each for key, each in value["metadata"].items() if key not in _OWN}
    metadata["annotations"] = {
        key: text for key, text in metadata.get("annotations", {}).items() if not key.startswith(OURS)
    }
    spec = {key: each for key, each in value["spec"].items() if key not in _OF_A_NODE}
    if value["kind"] == JOB.kind:
        spec.pop("selector", None)
        for labels in (metadata.get("labels", {}), spec["template"].get("metadata", {}).get("labels", {})):
            for key in _OF_A_JOB:
                labels.pop(key, None)
    return {"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": metadata, "spec": spec}


@contextlib.contextmanager
def provisioning(api: Api, claims: Mapping[tuple[str, str], SeenObject]) -> Iterator[None]:
    """Make the volumes that claims wait for, while the block runs: the scheduler holds Pods until theirs are there."""

    async def provision() -> None:
        made: set[str] = set()
        while True:
            for claim in list(claims.values()):
                annotations, uid = claim.metadata.annotations or {}, claim.metadata.uid
                if not claim.spec.get("volumeName") and _WANTED in annotations and uid not in made:
                    made.add(uid)
                    zone = await _zone_of(api, annotations[_SELECTED]) if _SELECTED in annotations else ""
                    await api.write("POST", "/api/v1/persistentvolumes", _volume(claim, zone), _ANSWER)
            await asyncio.sleep(_PAUSE)

    task = asyncio.create_task(provision())
    try:
        yield
    finally:
        task.cancel()


async def _zone_of(api: Api, node: str) -> str:
    value = msgspec.json.decode(await api.read(f"/api/v1/nodes/{node}", _ANSWER))
    return str(value["metadata"].get("labels", {}).get(ZONE_LABEL, ""))


def _volume(claim: SeenObject, zone: str) -> JSON:
    name = f"rehearsed-{claim.metadata.uid}"
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    reference |= {"namespace": claim.metadata.namespace, "name": claim.metadata.name, "uid": claim.metadata.uid}
    requirement = {"key": ZONE_LABEL, "operator": "In", "values": [zone]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": claim.spec.get("resources", {}).get("requests", {}),
            "accessModes": claim.spec.get("accessModes", []),
            "storageClassName": claim.spec.get("storageClassName") or "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": reference,
            "csi": {"driver": PROVISIONER, "volumeHandle": name},
            **(affinity if zone else {}),
        },
    }

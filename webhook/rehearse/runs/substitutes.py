"""Replace the controllers that a rehearsal doesn't run: recreate their Pods, and provision volumes.

Also retry Pods that a quota has rejected.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeAlias

from webhook.capacity.providers.machines import ZONE_LABEL
from webhook.cluster.api import ApiError
from webhook.rehearse.inputs.resources import BY_NAME, CONTROLLED_HERE, JOB, JSON, POD
from webhook.rehearse.inputs.snapshot import PROVISIONER
from webhook.rehearse.result import WorkloadKey
from webhook.rehearse.runs.writing import Writer, together

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from webhook.rehearse.runs.watching import SeenObject
    from webhook.rehearse.runs.workloads import RehearsedPod, Workloads

_BATCH: Final = 1.0
"""Seconds for which the Job controller batches changes: SyncJobBatchPeriod in pkg/controller/job/job_controller.go."""

_OWN: Final = frozenset({"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "finalizers"})
_OF_A_NODE: Final = frozenset({"nodeName", "ephemeralContainers"})
_OF_A_JOB: Final = ("controller-uid", "batch.kubernetes.io/controller-uid")
OURS: Final = "rehearse.spotgate.dev/"
_SELECTED: Final = "volume.kubernetes.io/selected-node"
_WANTED: Final = "volume.kubernetes.io/storage-provisioner"

Original: TypeAlias = tuple[WorkloadKey, JSON]
"""A workload, and its Job or Pod as it was first created."""


class Recreator:
    """A replacement for the controllers that a rehearsal doesn't run.

    Attributes:
        refused: the API server's message for rejected Jobs and Pods, by workload identity.
    """

    def __init__(self, writer: Writer, workloads: Workloads) -> None:
        self.refused: dict[tuple[str, str, str], str] = {}
        self._writer = writer
        self._workloads = workloads
        self._left: list[Original] = []

    async def originals(self, members: Iterable[RehearsedPod]) -> list[Original]:
        """Return the Jobs of these Pods, and the Pods that no controller here creates, as they were first created."""
        paths: dict[str, WorkloadKey] = {}
        for pod in members:
            owner = pod.seen.controller
            kind = BY_NAME.get((owner.group, owner.kind)) if owner is not None else None
            if owner is not None and kind is JOB:
                collection = JOB.collection(JOB.api_version, pod.seen.metadata.namespace)
                paths[f"{collection}/{owner.name}"] = pod.workload
            elif kind not in CONTROLLED_HERE:
                paths[pod.seen.path] = pod.workload
        return [(workload, _as_created(await self._writer.read(path))) for path, workload in paths.items()]

    async def recreate(self, originals: Sequence[Original]) -> None:
        """Delete the remains of these Jobs and Pods, and recreate them. Raise ApiError."""
        for workload, value in originals:
            kind = JOB if value["kind"] == JOB.kind else POD
            namespace, name = value["metadata"]["namespace"], value["metadata"]["name"]
            collection = kind.collection(value["apiVersion"], namespace)
            await self._writer.delete(f"{collection}/{name}", at_once=True)
            if kind is JOB:  # there is no garbage collector
                selector = f"labelSelector=batch.kubernetes.io/job-name={name}"
                await self._writer.delete(f"{POD.collection('v1', namespace)}?{selector}", at_once=True)
            try:
                await self._writer.create(collection, value)
            except ApiError as error:
                if error.status != HTTPStatus.FORBIDDEN:
                    raise
                self._left.append((workload, value))
                self.refused[workload.identity] = str(error)

    async def retry(self) -> None:
        """Retry rejected Pods. Controllers back off, but reconcile an object immediately when it changes."""
        pod_owners, left = [path for _, path, _ in self._workloads.refused()], self._left
        if pod_owners or left:
            self._left = []
            change = {"metadata": {"annotations": {f"{OURS}asked": str(time.monotonic())}}}
            await together(self._writer.merge(path, change) for path in pod_owners)
            await asyncio.sleep(_BATCH)
            await self.recreate(left)


def _as_created(value: JSON) -> JSON:
    metadata = {key: member for key, member in value["metadata"].items() if key not in _OWN}
    metadata["annotations"] = {
        key: text for key, text in metadata.get("annotations", {}).items() if not key.startswith(OURS)
    }
    spec = {key: member for key, member in value["spec"].items() if key not in _OF_A_NODE}
    if value["kind"] == JOB.kind:
        spec.pop("selector", None)
        for labels in (metadata.get("labels", {}), spec["template"].get("metadata", {}).get("labels", {})):
            for key in _OF_A_JOB:
                labels.pop(key, None)
    return {"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": metadata, "spec": spec}


async def provision(
    writer: Writer, claims: Mapping[tuple[str, str], SeenObject], zones: Mapping[str, str], provisioned: set[str]
) -> None:
    """Create the volumes of waiting claims, each in the zone of the Node that the scheduler selected.

    ``zones`` contains the zone of each Node, and ``provisioned`` the UIDs of claims that already have a volume.
    """
    for claim in list(claims.values()):
        annotations, uid = claim.metadata.annotations or {}, claim.metadata.uid
        if not claim.spec.get("volumeName") and _WANTED in annotations and uid not in provisioned:
            provisioned.add(uid)
            volume = _volume(claim, zones.get(annotations.get(_SELECTED, ""), ""))
            await writer.create("/api/v1/persistentvolumes", volume)


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

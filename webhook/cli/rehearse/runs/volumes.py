"""Volumes that a provisioner would make: modelled, in the zone of the node that the scheduler has chosen."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.providers.machines import ZONE_LABEL
from webhook.cli.rehearse.inputs.snapshot import PROVISIONER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.cli.rehearse.runs.watching import SeenObject
    from webhook.cluster.api import Api

_ANSWER: Final = 60.0
_PAUSE: Final = 0.1
_SELECTED: Final = "volume.kubernetes.io/selected-node"
_WANTED: Final = "volume.kubernetes.io/storage-provisioner"
_MADE: Final = "rehearse.spotgate.dev/provisioned"


@contextlib.contextmanager
def provisioning(api: Api, claims: Mapping[tuple[str, str], SeenObject]) -> Iterator[None]:
    """Make the volumes that claims wait for, while the block runs: the scheduler holds Pods until theirs are there."""

    async def provision() -> None:
        while True:
            await _provision(api, claims)
            await asyncio.sleep(_PAUSE)

    task = asyncio.create_task(provision())
    try:
        yield
    finally:
        task.cancel()


async def _provision(api: Api, claims: Mapping[tuple[str, str], SeenObject]) -> None:
    for claim in list(claims.values()):
        annotations = claim.metadata.annotations or {}
        if claim.spec.get("volumeName") or _WANTED not in annotations or _MADE in annotations:
            continue
        zone = await _zone_of(api, annotations[_SELECTED]) if _SELECTED in annotations else ""
        await api.write("POST", "/api/v1/persistentvolumes", _volume(claim, zone), _ANSWER)
        path = f"/api/v1/namespaces/{claim.metadata.namespace}/persistentvolumeclaims/{claim.metadata.name}"
        made = {"metadata": {"annotations": {_MADE: ""}}}
        await api.write("PATCH", path, made, _ANSWER, "application/merge-patch+json")


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

"""Provision volumes for claims in place of a CSI provisioner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.capacity.providers.machines import ZONE_LABEL
from webhook.rehearse.inputs.snapshot import PROVISIONER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.rehearse.inputs.resources import JSON
    from webhook.rehearse.runs.watching import SeenObject
    from webhook.rehearse.runs.writing import Writer

_SELECTED: Final = "volume.kubernetes.io/selected-node"
_WANTED: Final = "volume.kubernetes.io/storage-provisioner"


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

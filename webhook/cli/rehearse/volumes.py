"""Volumes that a provisioner would make: modelled, in the zone of the node that the scheduler has chosen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec

from webhook.capacity.providers.machines import ZONE_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.cli.rehearse.resources import JSON
    from webhook.cli.rehearse.watching import SeenClaim
    from webhook.cluster.api import Api

_ANSWER: Final = 60.0
_PAUSE: Final = 0.1
_SELECTED: Final = "volume.kubernetes.io/selected-node"
_WANTED: Final = "volume.kubernetes.io/storage-provisioner"
_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
_MADE: Final = "rehearse.spotgate.dev/provisioned"
_PROVISIONER: Final = "rehearse.spotgate.dev"


async def keep_provisioning(api: Api, claims: Iterable[SeenClaim]) -> None:
    """Make the volumes that claims wait for, until cancelled: the scheduler holds a Pod until its volume is there."""
    while True:
        await _provision(api, claims)
        await asyncio.sleep(_PAUSE)


async def _provision(api: Api, claims: Iterable[SeenClaim]) -> None:
    waiting = [
        each
        for each in claims
        if not each.spec.get("volumeName")
        and _WANTED in each.metadata.annotations
        and _MADE not in each.metadata.annotations
    ]
    for claim in waiting:
        node = claim.metadata.annotations.get(_SELECTED, "")
        zone = await _zone_of(api, node) if node else ""
        await api.write("POST", "/api/v1/persistentvolumes", _volume(claim, zone), _ANSWER)
        path = f"/api/v1/namespaces/{claim.metadata.namespace}/persistentvolumeclaims/{claim.metadata.name}"
        made = {"metadata": {"annotations": {_MADE: ""}}}
        await api.write("PATCH", path, made, _ANSWER, "application/merge-patch+json")


def storage_classes_for(objects: Iterable[JSON]) -> Iterator[JSON]:
    """Yield the StorageClasses that claims name, or leave to the default, and that are not among the objects."""
    names: set[str] = set()
    there: set[str] = set()
    default = False
    for each in objects:
        if each["kind"] == "StorageClass":
            there.add(each["metadata"]["name"])
            default = default or (each["metadata"].get("annotations") or {}).get(_DEFAULT) == "true"
        elif each["kind"] == "PersistentVolumeClaim" and not each["spec"].get("volumeName"):
            names.add(each["spec"].get("storageClassName") or "")
        elif each["kind"] == "StatefulSet":
            names |= {
                (claim.get("spec") or {}).get("storageClassName") or ""
                for claim in each["spec"].get("volumeClaimTemplates") or ()
            }
    for name in sorted(names - there):
        if name or not default:
            yield {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name or "rehearsed", "annotations": {} if name else {_DEFAULT: "true"}},
                "provisioner": _PROVISIONER,
                "volumeBindingMode": "WaitForFirstConsumer",
            }


async def _zone_of(api: Api, node: str) -> str:
    async with api.get(f"/api/v1/nodes/{node}", aiohttp.ClientTimeout(total=_ANSWER)) as response:
        value = msgspec.json.decode(await response.read())
    return str(value["metadata"].get("labels", {}).get(ZONE_LABEL, ""))


def _volume(claim: SeenClaim, zone: str) -> JSON:
    name = f"rehearsed-{claim.metadata.uid}"
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    reference |= {"namespace": claim.metadata.namespace, "name": claim.metadata.name, "uid": claim.metadata.uid}
    requirement = {"key": ZONE_LABEL, "operator": "In", "values": [zone]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": _PROVISIONER}},
        "spec": {
            "capacity": claim.spec.get("resources", {}).get("requests", {}),
            "accessModes": claim.spec.get("accessModes", []),
            "storageClassName": claim.spec.get("storageClassName") or "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": reference,
            "csi": {"driver": _PROVISIONER, "volumeHandle": name},
            **(affinity if zone else {}),
        },
    }

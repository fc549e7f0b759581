"""StorageClasses that claims want and nobody has given: their volumes are made while the rehearsal runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.cli.rehearse.inputs.resources import JSON

PROVISIONER: Final = "rehearse.spotgate.dev"
_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"


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
                "provisioner": PROVISIONER,
                "volumeBindingMode": "WaitForFirstConsumer",
            }

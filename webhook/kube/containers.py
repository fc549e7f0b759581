"""Facts about a Pod that are spread over its containers and volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.globs import Globs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.kube.pod import Container, Pod, PodSpec, ResourceQuantity, Volume

OS_LABEL: Final = "kubernetes.io/os"
ARCH_LABEL: Final = "kubernetes.io/arch"
WINDOWS: Final = "windows"
DEVICE_CLASS_RESOURCES: Final = "deviceclass.resource.kubernetes.io/*"
"""Requests for devices of a DeviceClass, for which Kubernetes makes a ResourceClaim: k8s.io/api/resource/v1."""

_DEVICE_CLASSES: Final = Globs((DEVICE_CLASS_RESOURCES,))
_PLACEHOLDERS: Final = frozenset("${")
"""How placeholders begin: ``${GPUS}``, ``{{ .Values.gpus }}``. No quantity does."""

_NO_FOLDERS: Final = frozenset({"Socket", "CharDevice", "BlockDevice"})
"""Types of a hostPath that hold no files."""


class PlacedContainer(msgspec.Struct, frozen=True):
    """A container and its place in the Pod: ``members`` is initContainers, containers, or ephemeralContainers."""

    members: str
    index: int
    container: Container

    @property
    def field(self) -> str:
        """Return the field path: ``spec.initContainers[0]``."""
        return f"spec.{self.members}[{self.index}]"

    @property
    def sidecar(self) -> bool:
        """Return whether this is a restartable init container, which runs and stops with the ordinary ones."""
        return self.members == "initContainers" and self.container.restartPolicy == "Always"


def containers(pod: Pod) -> Iterator[PlacedContainer]:
    """Yield every container of a Pod: init, ordinary and ephemeral ones."""
    for members in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(getattr(pod.spec, members) or ()):
            yield PlacedContainer(members, index, container)


def quantities_of(spec: PodSpec) -> list[tuple[str, ResourceQuantity]]:
    """Return the names and quantities of all resources that the containers and the Pod itself request or limit.

    Kubernetes 1.37 accepts CPU, memory and huge pages at Pod level, and no devices.
    """
    quantities: list[tuple[str, ResourceQuantity]] = []
    for resources in (spec.resources, *[container.resources for container in spec.all_containers]):
        if resources is not None:
            quantities += (resources.limits or {}).items()
            quantities += (resources.requests or {}).items()
    return quantities


def requested_of(spec: PodSpec, resources: Globs) -> frozenset[str]:
    """Return the matching resources of which the Pod requests, or is limited to, more than zero."""
    quantities = quantities_of(spec)
    return frozenset(name for name, quantity in quantities if resources.match(name) and not is_zero(quantity))


def claims_devices(spec: PodSpec) -> bool:
    """Return whether the Pod requests devices by a ResourceClaim, or by a resource for which Kubernetes creates one."""
    return bool(spec.resourceClaims) or bool(requested_of(spec, _DEVICE_CLASSES))


def may_request_devices(spec: PodSpec) -> bool:
    """Return whether the quantity of an extended resource is a placeholder: it may be 0 or more."""
    return any("/" in name and str(quantity)[:1] in _PLACEHOLDERS for name, quantity in quantities_of(spec))


def is_zero(quantity: str | float) -> bool:
    """Return whether a quantity (``0``, ``0.0``, ``0k``, ``0e3``) is zero: no digit follows its leading zeros."""
    first = str(quantity).lstrip("+-0.")[:1]
    return not first.isdigit() and first not in _PLACEHOLDERS


def declares_port(pod: Pod) -> bool:
    """Return whether a container declares a port."""
    return any(placed.container.ports for placed in containers(pod))


def is_windows(pod: Pod) -> bool:
    """Return whether the Pod says that it runs on Windows."""
    spec = pod.spec
    if spec.os is not None and spec.os.name == WINDOWS:
        return True
    return spec.nodeSelector is not None and spec.nodeSelector.get(OS_LABEL) == WINDOWS


def without_pre_stop(pod: Pod) -> tuple[int, ...]:
    """Return the indexes in ``spec.containers`` of containers without a preStop hook."""
    return tuple(
        index
        for index, container in enumerate(pod.spec.containers)
        if container.lifecycle is None or container.lifecycle.preStop is None
    )


def writable_claim(pod: Pod) -> str:
    """Return the name of a volume that is a writable PersistentVolumeClaim. Return an empty string if there is none."""
    claims = [
        volume.name
        for volume in pod.spec.volumes or ()
        if volume.persistentVolumeClaim is not None and not volume.persistentVolumeClaim.readOnly
    ]
    mounts = _mounts(pod) if claims else {}
    return next((name for name in claims if name in mounts), "")


def on_the_node(pod: Pod) -> Iterator[tuple[int, Volume, tuple[str, ...]]]:
    """Yield the written volumes that are lost with the node, each with its index and its mount paths.

    Volumes in memory, devices and sockets do not count.
    """
    volumes = pod.spec.volumes or ()
    if not any(volume.hostPath is not None or volume.emptyDir is not None for volume in volumes):
        return
    mounts = _mounts(pod)
    for index, volume in enumerate(volumes):
        host_path, empty_dir = volume.hostPath, volume.emptyDir
        if host_path is not None:
            keeps = host_path.type not in _NO_FOLDERS
        else:
            keeps = empty_dir is not None and not empty_dir.medium
        if keeps and volume.name in mounts:
            yield index, volume, tuple(mounts[volume.name])


def _mounts(pod: Pod) -> dict[str, list[str]]:
    """Return the paths at which running containers mount each volume writable."""
    mounts: dict[str, list[str]] = {}
    for placed in containers(pod):
        if placed.members == "initContainers" and not placed.sidecar:
            continue
        for mount in placed.container.volumeMounts or ():
            if not mount.readOnly:
                mounts.setdefault(mount.name, []).append(mount.mountPath)
    return mounts

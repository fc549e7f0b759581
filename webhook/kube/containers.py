"""Read facts about a Pod from all its containers and volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from webhook.base.globs import Globs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.kube.pod import Container, Pod, PodSpec, ResourceQuantity, Volume

Quantities: TypeAlias = "list[tuple[str, ResourceQuantity]]"
"""The name and quantity of each resource request and limit."""

OS_LABEL: Final = "kubernetes.io/os"
ARCH_LABEL: Final = "kubernetes.io/arch"
WINDOWS: Final = "windows"
DEVICE_CLASS_RESOURCES: Final = "deviceclass.resource.kubernetes.io/*"
"""Resources that name a DeviceClass. Kubernetes creates a ResourceClaim for such requests: k8s.io/api/resource/v1."""

_DEVICE_CLASSES: Final = Globs((DEVICE_CLASS_RESOURCES,))
_PLACEHOLDERS: Final = frozenset("${")
"""The first characters of placeholders: ``${GPUS}``, ``{{ .Values.gpus }}``. A quantity never starts with them."""

_NO_FOLDERS: Final = frozenset({"Socket", "CharDevice", "BlockDevice"})
"""The hostPath types that don't store files."""


class PlacedContainer(msgspec.Struct, frozen=True):
    """A container and its position. ``members`` is initContainers, containers, or ephemeralContainers."""

    members: str
    index: int
    container: Container

    @property
    def field(self) -> str:
        """Return the field path: ``spec.initContainers[0]``."""
        return f"spec.{self.members}[{self.index}]"

    @property
    def sidecar(self) -> bool:
        """Return whether this is a sidecar: a restartable init container, which runs alongside the app containers."""
        return self.members == "initContainers" and self.container.restartPolicy == "Always"


def containers(pod: Pod) -> Iterator[PlacedContainer]:
    """Yield every container of a Pod: init, app, and ephemeral containers."""
    for members in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(getattr(pod.spec, members) or ()):
            yield PlacedContainer(members, index, container)


def quantities_of(spec: PodSpec) -> Quantities:
    """Return the resource requests and limits of the Pod and its containers.

    At the Pod level, Kubernetes 1.37 accepts CPU, memory, and huge pages, but not devices.
    """
    quantities: Quantities = []
    for resources in (spec.resources, *[container.resources for container in spec.all_containers]):
        if resources is not None:
            quantities += (resources.limits or {}).items()
            quantities += (resources.requests or {}).items()
    return quantities


def requested_of(quantities: Quantities, resources: Globs) -> frozenset[str]:
    """Return the matching resources with a nonzero request or limit."""
    return frozenset([name for name, quantity in quantities if resources.match(name) and not is_zero(quantity)])


def device_classes_of(quantities: Quantities) -> frozenset[str]:
    """Return the device classes that are requested as resources, for which Kubernetes creates a ResourceClaim."""
    return frozenset(name.partition("/")[2] for name in requested_of(quantities, _DEVICE_CLASSES))


def may_request_devices(quantities: Quantities) -> bool:
    """Return whether the quantity of an extended resource is a placeholder, whose value may be nonzero."""
    return any("/" in name and str(quantity)[:1] in _PLACEHOLDERS for name, quantity in quantities)


def is_zero(quantity: str | float) -> bool:
    """Return whether a quantity (``0``, ``0.0``, ``0k``, ``0e3``) is zero: no digit follows its leading zeros."""
    first = str(quantity).lstrip("+-0.")[:1]
    return not first.isdigit() and first not in _PLACEHOLDERS


def declares_port(pod: Pod) -> bool:
    """Return whether a container declares a port."""
    return any(container.ports for container in pod.spec.all_containers)


def is_windows(pod: Pod) -> bool:
    """Return whether the Pod selects Windows, with ``spec.os`` or its nodeSelector."""
    spec = pod.spec
    if spec.os is not None and spec.os.name == WINDOWS:
        return True
    return spec.nodeSelector is not None and spec.nodeSelector.get(OS_LABEL) == WINDOWS


def without_pre_stop(pod: Pod) -> tuple[int, ...]:
    """Return the indexes in ``spec.containers`` of the containers without a preStop hook."""
    return tuple(
        index
        for index, container in enumerate(pod.spec.containers)
        if container.lifecycle is None or container.lifecycle.preStop is None
    )


def writable_claim(pod: Pod) -> str:
    """Return the name of a PersistentVolumeClaim volume that a container can write to, or an empty string."""
    claims = [
        volume.name
        for volume in pod.spec.volumes or ()
        if volume.persistentVolumeClaim is not None and not volume.persistentVolumeClaim.readOnly
    ]
    mounts = _mounts(pod) if claims else {}
    return next((name for name in claims if name in mounts), "")


def on_the_node(pod: Pod) -> Iterator[tuple[int, Volume, tuple[str, ...]]]:
    """Yield each writable volume that is lost with its node, with its index and its mount paths.

    Skip memory-backed volumes, devices, and sockets.
    """
    volumes = pod.spec.volumes or ()
    if not any(volume.hostPath is not None or volume.emptyDir is not None for volume in volumes):
        return
    mounts = _mounts(pod)
    for index, volume in enumerate(volumes):
        host_path, empty_dir = volume.hostPath, volume.emptyDir
        if host_path is not None:
            on_disk = host_path.type not in _NO_FOLDERS
        else:
            on_disk = empty_dir is not None and not empty_dir.medium
        if on_disk and volume.name in mounts:
            yield index, volume, tuple(mounts[volume.name])


def _mounts(pod: Pod) -> dict[str, list[str]]:
    """Return the writable mount paths of each volume. Skip init containers that run to completion."""
    mounts: dict[str, list[str]] = {}
    for placed in containers(pod):
        if placed.members == "initContainers" and not placed.sidecar:
            continue
        for mount in placed.container.volumeMounts or ():
            if not mount.readOnly:
                mounts.setdefault(mount.name, []).append(mount.mountPath)
    return mounts

"""Walk over a Pod's containers, and read facts from all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from webhook.base.globs import Globs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.kube.pod import Container, Pod, PodSpec, Resources

OS_LABEL: Final = "kubernetes.io/os"
ARCH_LABEL: Final = "kubernetes.io/arch"
WINDOWS: Final = "windows"
DEVICE_CLASS_RESOURCES: Final = "deviceclass.resource.kubernetes.io/*"
"""Requests for devices of a DeviceClass, for which Kubernetes makes a ResourceClaim: k8s.io/api/resource/v1."""

_DEVICE_CLASSES: Final = Globs((DEVICE_CLASS_RESOURCES,))
_PLACEHOLDERS: Final = frozenset("${")
"""How placeholders begin: ``${GPUS}``, ``{{ .Values.gpus }}``. No quantity does."""


class PlacedContainer(msgspec.Struct, frozen=True):
    """Hold a container and its place in the Pod."""

    members: Literal["initContainers", "containers", "ephemeralContainers"]
    index: int
    container: Container

    @property
    def field(self) -> str:
        """Return the field path: ``spec.initContainers[0]``."""
        return f"spec.{self.members}[{self.index}]"

    @property
    def sidecar(self) -> bool:
        """Return whether this is a restartable init container, which runs and stops beside the ordinary ones."""
        return self.members == "initContainers" and self.container.restartPolicy == "Always"


def containers(pod: Pod) -> Iterator[PlacedContainer]:
    """Yield every container of a Pod: init, ordinary and ephemeral ones."""
    for index, container in enumerate(pod.spec.initContainers or ()):
        yield PlacedContainer("initContainers", index, container)
    for index, container in enumerate(pod.spec.containers):
        yield PlacedContainer("containers", index, container)
    for index, container in enumerate(pod.spec.ephemeralContainers or ()):
        yield PlacedContainer("ephemeralContainers", index, container)


def resources_of(spec: PodSpec) -> list[Resources]:
    """Return the resources of each container, and the Pod-level resources.

    Kubernetes 1.37 accepts CPU, memory and huge pages at Pod level, and no devices.
    """
    members = [*spec.containers, *(spec.initContainers or ()), *(spec.ephemeralContainers or ())]
    resources = [container.resources for container in members if container.resources is not None]
    return resources if spec.resources is None else [*resources, spec.resources]


def requested_of(pod: Pod, resources: Globs) -> frozenset[str]:
    """Return the resources with such a name of which the Pod requests, or is limited to, more than zero."""
    return _requested(pod.spec, resources)


def claims_devices(spec: PodSpec) -> bool:
    """Return whether the Pod asks for devices by a ResourceClaim, or by a request for which Kubernetes makes one."""
    return bool(spec.resourceClaims) or bool(_requested(spec, _DEVICE_CLASSES))


def may_request_devices(spec: PodSpec) -> bool:
    """Return whether a placeholder is the quantity of an extended resource: it may be 0, and it may be more."""
    return any(
        "/" in name and str(quantity)[:1] in _PLACEHOLDERS
        for wanted in resources_of(spec)
        for quantities in (wanted.limits, wanted.requests)
        for name, quantity in (quantities or {}).items()
    )


def _requested(spec: PodSpec, resources: Globs) -> frozenset[str]:
    return frozenset(
        name
        for wanted in resources_of(spec)
        for quantities in (wanted.limits, wanted.requests)
        for name, quantity in (quantities or {}).items()
        if resources.match(name) and not is_zero(quantity)
    )


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

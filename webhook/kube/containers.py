"""Walk over a Pod's containers, and read facts from all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.globs import Globs
    from webhook.kube.pod import Container, Pod

OS_LABEL: Final = "kubernetes.io/os"
ARCH_LABEL: Final = "kubernetes.io/arch"
WINDOWS: Final = "windows"


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


def requested_of(pod: Pod, resources: Globs) -> frozenset[str]:
    """Return the resources with such a name of which a container requests, or is limited to, more than zero."""
    return frozenset(
        name
        for placed in containers(pod)
        if (wanted := placed.container.resources) is not None
        for quantities in (wanted.limits, wanted.requests)
        for name, quantity in (quantities or {}).items()
        if resources.match(name) and not is_zero(quantity)
    )


def is_zero(quantity: str | float) -> bool:
    """Return whether a quantity (``0``, ``0.0``, ``0k``, ``0e3``) is zero: no digit follows its leading zeros."""
    return not str(quantity).lstrip("+-0.")[:1].isdigit()


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

"""Where a Pod keeps what it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.kube.containers import containers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.kube.pod import Pod, Volume

_NO_FOLDERS: Final = frozenset({"Socket", "CharDevice", "BlockDevice"})
"""Types of a hostPath in which nothing is kept."""


def writable_claim(pod: Pod) -> str:
    """The name of a volume that is a PersistentVolumeClaim and can be written to; empty where there is none."""
    for volume in pod.spec.volumes or ():
        claim = volume.persistentVolumeClaim
        if claim is not None and not claim.readOnly and any(_mounts(pod, volume.name)):
            return volume.name
    return ""


def on_the_node(pod: Pod) -> Iterator[tuple[int, Volume, tuple[str, ...]]]:
    """Volumes that vanish with the node, and are written to: each with its index and where it is mounted.

    Not those in memory, devices and sockets; not an emptyDir that an init container fills, which will do so again.
    """
    for index, volume in enumerate(pod.spec.volumes or ()):
        host_path, empty_dir = volume.hostPath, volume.emptyDir
        if host_path is not None:
            keeps = host_path.type not in _NO_FOLDERS
        else:
            keeps = empty_dir is not None and not empty_dir.medium and not _filled(pod, volume.name)
        if keeps and (mounts := tuple(_mounts(pod, volume.name))):
            yield index, volume, mounts


def _mounts(pod: Pod, name: str) -> Iterator[str]:
    """Where containers that run see the volume, and can write."""
    for placed in containers(pod):
        if placed.members == "initContainers" and not placed.sidecar:
            continue
        for mount in placed.container.volumeMounts or ():
            if mount.name == name and not mount.readOnly:
                yield mount.mountPath


def _filled(pod: Pod, name: str) -> bool:
    """Does an ordinary init container see the volume?"""
    return any(
        mount.name == name
        for placed in containers(pod)
        if placed.members == "initContainers" and not placed.sidecar
        for mount in placed.container.volumeMounts or ()
    )

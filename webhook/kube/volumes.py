"""Find where a Pod keeps what it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.kube.containers import containers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.kube.pod import Pod, Volume

_NO_FOLDERS: Final = frozenset({"Socket", "CharDevice", "BlockDevice"})
"""Types of a hostPath that hold no files."""


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

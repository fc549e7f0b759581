"""Define the plan of ReclaimNotice for one Pod, and build its violations.

Mutation and validation share the plan, so they can't disagree.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.target import KEEP_ANNOTATION, KEEP_RECLAIM_NOTICE
from webhook.kube.containers import PlacedContainer, containers
from webhook.kube.notice import DIRECTORY, FILE, ON_RECLAIM, RECLAIM_AT, VOLUME
from webhook.kube.pod import Container, DownwardApi, DownwardFile, FieldRef, Pod, Volume, VolumeMount
from webhook.model.decision import Violation, warning
from webhook.rules.targeting import NOT_MUTATED, pod_noun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.kube.edit import PodEditor
    from webhook.rules.subject import Subject

ANNOTATION_FIELD: Final = f"metadata.annotations['{RECLAIM_AT}']"
NOTICE_VOLUME: Final = Volume(name=VOLUME, downwardAPI=DownwardApi([DownwardFile(FILE, FieldRef(ANNOTATION_FIELD))]))
_PLACES: Final = (f"{DIRECTORY}/", f"{DIRECTORY.removeprefix('/var')}/")  # in most images, /var/run is a link to /run
NOTICE_MOUNT: Final = VolumeMount(VOLUME, DIRECTORY, readOnly=True)


class NoticePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that a Pod's action needs, and what prevents them.

    Attributes:
        action: inform or evict.
        labeled: the Pod has the label.
        wrong: the index of a volume with the name of the notice's volume and other contents, or None.
        declared: the Pod has the volume.
        unmounted: the containers that get the mount.
        taken: the containers with another mount in its place, each with the index of that mount.
    """

    action: str
    labeled: bool
    wrong: int | None
    declared: bool
    unmounted: tuple[PlacedContainer, ...]
    taken: tuple[tuple[PlacedContainer, int], ...]

    @classmethod
    def of(cls, pod: Pod, action: str) -> NoticePlan:
        """Return the plan for a Pod. Init containers that end before the app containers start get no mount."""
        index, volume = next(
            ((index, volume) for index, volume in enumerate(pod.spec.volumes or ()) if volume.name == VOLUME),
            (None, None),
        )
        wrong = None if volume is None or _has_notice(volume) else index
        running = [placed for placed in containers(pod) if placed.members == "containers" or placed.sidecar]
        places = [] if wrong is not None else [(placed, _mount_in_place(placed.container)) for placed in running]
        return cls(
            action=action,
            labeled=ON_RECLAIM in pod.labels,
            wrong=wrong,
            declared=volume is not None,
            unmounted=tuple(placed for placed, place in places if place is None),
            taken=tuple(
                (placed, place)
                for placed, place in places
                if place is not None and (placed.container.volumeMounts or ())[place].name != VOLUME
            ),
        )

    def apply(self, editor: PodEditor) -> None:
        """Add the volume, its mounts, and the label, as far as they are missing."""
        if self.unmounted and not self.declared:
            editor.add_volume(NOTICE_VOLUME)
        for placed in self.unmounted:
            editor.add_mount(placed, NOTICE_MOUNT)
        if not self.labeled:
            editor.add_label(ON_RECLAIM, self.action)

    def violations(self, subject: Subject) -> Iterator[Violation]:
        """Yield what prevents the changes, and the changes that are missing."""
        keep = f"annotate {pod_noun(subject)} with `{KEEP_ANNOTATION}: {KEEP_RECLAIM_NOTICE}`"
        if self.wrong is not None:
            yield warning(
                id="volume-taken",
                reason=f"volume `{VOLUME}` doesn't contain the deadline of the node",
                field=f"spec.volumes[{self.wrong}]",
                detail=f"spotgate needs this name for a volume that shows annotation {RECLAIM_AT} as the file "
                f"`{FILE}`.",
                fix=f"rename the volume, or {keep}",
            )
        for placed, index in self.taken:
            path = (placed.container.volumeMounts or ())[index].mountPath
            yield warning(
                id="path-taken",
                reason=f"`{placed.container.name}` can't read its node's deadline: another mount is at {path[:80]}",
                field=f"{placed.field}.volumeMounts[{index}].mountPath",
                detail=f"The deadline is in {DIRECTORY}/{FILE}. spotgate doesn't change your mounts, and can't mount "
                "into a read-only volume.",
                fix=f"mount your volume elsewhere, or {keep}",
            )
        if self.unmounted or not self.labeled:
            missing = f"label {ON_RECLAIM}: {self.action}"
            if self.unmounted:
                names = ", ".join(f"`{placed.container.name}`" for placed in self.unmounted)
                missing = f"the file with the deadline of the node for {names}"
            yield warning(
                id="not-injected",
                reason=f"{missing} is missing",
                field=f"{self.unmounted[0].field}.volumeMounts" if self.unmounted else "metadata.labels",
                detail=f"The action at a reclaim is `{self.action}`. {NOT_MUTATED}",
                fix=f"recreate the Pod, or {keep}",
            )


def _has_notice(volume: Volume) -> bool:
    """Return whether the volume has the file with the deadline. It may have further files."""
    files = volume.downwardAPI.items or () if volume.downwardAPI is not None else ()
    return any(
        file.path == FILE and file.fieldRef is not None and file.fieldRef.fieldPath == ANNOTATION_FIELD
        for file in files
    )


def _mount_in_place(container: Container) -> int | None:
    """Return the index of the container's mount of the notice, or of a mount that leaves no place for it, or None.

    A runtime mounts a shorter path first, and creates the directory in it, as it does for the ServiceAccount's token.
    It can't create one in a read-only volume.
    """
    for index, mount in enumerate(container.volumeMounts or ()):
        path = posixpath.normpath(f"/{mount.mountPath.lstrip('/')}") + "/"
        within = any(path.startswith(place) for place in _PLACES)
        above = any(place.startswith(path) for place in _PLACES)
        if mount.name == VOLUME or within or (above and mount.readOnly):
            return index
    return None

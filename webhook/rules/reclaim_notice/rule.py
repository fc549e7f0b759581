"""ReclaimNotice: a Pod knows the deadline of its node, and can use all of the time until then.

Intent
    Most providers announce a reclaim before they drain the node, and Pods learn nothing until the drain: an application
    can't see the labels of its Node. A file tells it, or an early eviction gives it a longer grace period.
Reads
    Pods, on CREATE: label ``spotgate.dev/on-reclaim``, annotation ``spotgate.dev/keep``, volumes, and mounts. For Pods
    without the label that target spot (`capacity.placement.target`): the same label of the namespace; otherwise, the
    policy's ``action`` for the Pod's class (label ``spotgate.dev/workload-class``, restart policy, GPU requests, owner,
    and ports). The Pod's own label works on any node, because the Node annotation ``spotgate.dev/reclaim-at`` does.
Writes
    For ``inform`` and ``evict``, if missing: a downward API volume with the Pod's annotation
    ``spotgate.dev/reclaim-at``, which ``spotgate controller`` sets; its read-only mount in each app container and
    sidecar that has no mount there; the label, because the controller watches only Pods that have it.
Finds
    unknown-action, volume-taken, path-taken, not-injected
Source
    https://kubernetes.io/docs/concepts/storage/volumes/#downwardapi (the kubelet updates the file, except with
    ``subPath``); https://docs.coreweave.com/products/cks/nodes/spot-node-pools (the time before the drain).
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.target import KEEP_ANNOTATION, KEEP_RECLAIM_NOTICE, NotTargeting, kept_fields
from webhook.capacity.placement.workload_class import CLASSES, class_of
from webhook.kube.containers import PlacedContainer, containers
from webhook.kube.notice import ACTIONS, DIRECTORY, EVICT, FILE, INFORM, NONE, ON_RECLAIM, RECLAIM_AT, VOLUME
from webhook.kube.pod import Container, DownwardApi, DownwardFile, FieldRef, Pod, Volume, VolumeMount
from webhook.model.decision import Outcome, Violation, warning
from webhook.policy.errors import did_you_mean
from webhook.policy.match import PODS_CREATE
from webhook.rules.protocol import Concern, Keys, PolicyKind, SpecWarning, hint_for
from webhook.rules.reclaim_notice.spec import ReclaimNoticeSpec
from webhook.rules.targeting import NOT_MUTATED, Targeting, pod_noun

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.kube.edit import PodEditor
    from webhook.kube.templates import Workload
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject

ANNOTATION_FIELD: Final = f"metadata.annotations['{RECLAIM_AT}']"
NOTICE_VOLUME: Final = Volume(name=VOLUME, downwardAPI=DownwardApi([DownwardFile(FILE, FieldRef(ANNOTATION_FIELD))]))
_PLACES: Final = (f"{DIRECTORY}/", f"{DIRECTORY.removeprefix('/var')}/")  # in most images, /var/run is a link to /run
NOTICE_MOUNT: Final = VolumeMount(VOLUME, DIRECTORY, readOnly=True)
_CONTAINERS: Final = '.spec["containers", "initContainers"][]?'
_LONGEST: Final = 63  # of a label's value; in a file, it can be longer


class ReclaimNotice(msgspec.Struct, frozen=True, kw_only=True):
    """The compiled rule."""

    spec: ReclaimNoticeSpec
    targeting: Targeting

    def concern(self, _group: str, _resource: str) -> Concern:
        """Return the label, and the fields that make a Pod target spot: the label of its namespace applies to these."""
        return self.targeting.concern() | Concern(labels=Keys(frozenset({ON_RECLAIM})))

    def mutate(self, subject: Subject, editor: PodEditor, context: Context) -> None:
        """Add the volume, its mounts, and the label, as far as they are missing."""
        if (plan := _plan(subject, self._action(subject, context))) is not None:
            plan.apply(editor)

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:
        """Yield a violation for an unknown label value, or those of the plan."""
        action = self._action(subject, context)
        if action not in ACTIONS:
            own, shown = ON_RECLAIM in subject.pod.labels, action[:_LONGEST]
            whose = "the label" if own else "the namespace's label"
            yield warning(
                id="unknown-action",
                reason=f"{whose} {ON_RECLAIM} has the unknown value `{shown}`{did_you_mean(shown, ACTIONS)}",
                field=f'metadata.labels["{ON_RECLAIM}"]' if own else "",
                detail=f"The label has no effect. Known values: {', '.join(ACTIONS)}.",
                fix="set one of the known values, or remove the label",
            )
        elif (plan := _plan(subject, action)) is not None:
            yield from plan.violations(subject)

    def _action(self, subject: Subject, context: Context) -> str:
        """Return the action, or an unknown value of the label of the Pod or its namespace."""
        pod, trace = subject.pod, subject.trace
        if (own := pod.labels.get(ON_RECLAIM)) is not None:
            trace.say("action %s: its label", own[:_LONGEST])
            return own
        inherited = (context.view.namespaces.get(subject.pod_namespace) or {}).get(ON_RECLAIM)
        if inherited is None and {*self.spec.action.values()} <= {NONE}:
            trace.skip("no action: neither a label nor the policy asks for one")
            return NONE
        target = self.targeting.target(subject, context.view)
        if isinstance(target, NotTargeting) and not target.chosen:
            trace.skip("no action: %s", target.because)
            return NONE
        if inherited is not None:
            trace.say("action %s: the label of its namespace", inherited)
            return inherited
        name, because = class_of(pod, gpu=target.gpu is True, known=self.spec.action)
        action = self.spec.action.get(name, NONE)
        trace.say("action %s of class %s: %s", action, name, because)
        return action


def _plan(subject: Subject, action: str) -> NoticePlan | None:
    """Return the plan for a Pod with this action, or None if the Pod stays unchanged. The trace records why."""
    if action not in {INFORM, EVICT}:
        return None
    if KEEP_RECLAIM_NOTICE in kept_fields(subject.pod):
        subject.trace.say("unchanged: annotation %s", KEEP_ANNOTATION)
        return None
    return NoticePlan.of(subject.pod, action)


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


def _lint(spec: ReclaimNoticeSpec, _workloads: Collection[Workload]) -> Iterator[SpecWarning]:
    """Yield a warning for each class with a misspelled name."""
    for name in spec.action:
        if hint := hint_for(name, CLASSES):
            yield SpecWarning(("action", name), f"is the action of a new class{hint}")


KIND: Final = PolicyKind(
    name="ReclaimNotice",
    spec=ReclaimNoticeSpec,
    writes=(
        # If the volume or the mount is the only item, ignore the whole list: Git has no empty list.
        f'.spec | select(.volumes // [] | all(.name == "{VOLUME}")) | .volumes',
        f'.spec.volumes[]? | select(.name == "{VOLUME}")',
        f'{_CONTAINERS} | select(.volumeMounts // [] | all(.name == "{VOLUME}")) | .volumeMounts',
        f'{_CONTAINERS} | .volumeMounts[]? | select(.name == "{VOLUME}")',
        f'.metadata.labels["{ON_RECLAIM}"]',
    ),
    not_exported="it changes Pods",
    compile=lambda spec, facts: ReclaimNotice(spec=spec, targeting=Targeting.of_policy(spec, facts)),
    lint=_lint,
    rules=lambda _: (PODS_CREATE,),
    template_outcome=Outcome.WARN,
)

"""Find spotgate keys without effect: misspelled, a label instead of an annotation, or on the wrong object.

No other check rejects a ``spotgate.dev/...`` key without effect. A key on a Deployment doesn't reach the Pods, so they
aren't placed on spot. The finding's field is the place of the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.capacity.placement.constraints import NODE_POOL_ANNOTATION
from webhook.capacity.placement.floor import ASSIGNED_LABEL, FLOOR_ANNOTATION
from webhook.capacity.placement.target import CAPACITY_LABEL, KEEP_ANNOTATION
from webhook.capacity.placement.workload_class import CLASS_LABEL
from webhook.kube.notice import ON_RECLAIM, RECLAIM_AT
from webhook.model.decision import Violation, warning
from webhook.policy.errors import did_you_mean
from webhook.policy.terms import BREAK_GLASS
from webhook.rules.reserved_labels.places import PREFIX, KeyPlace, MetadataMember, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.rules.subject import Subject

_OF_PODS: Final[Mapping[str, MetadataMember]] = {
    CAPACITY_LABEL: "labels",
    CLASS_LABEL: "labels",
    NODE_POOL_ANNOTATION: "annotations",
    KEEP_ANNOTATION: "annotations",
    FLOOR_ANNOTATION: "annotations",
    ON_RECLAIM: "labels",
    ASSIGNED_LABEL: "labels",  # the controller writes it
    RECLAIM_AT: "annotations",  # as above
}
"""Keys that have an effect on Pods, with their member of the metadata."""
_MEMBERS: Final[Mapping[str, MetadataMember]] = {**_OF_PODS, BREAK_GLASS: "annotations"}
"""All known keys: those of Pods, and break-glass, which has an effect on the applied object."""
_SINGULAR: Final[Mapping[MetadataMember, str]] = {"labels": "label", "annotations": "annotation"}


def own_violations(places: Iterable[KeyPlace], *, creating: bool) -> Iterator[Violation]:
    """Yield a violation for each spotgate key that the request changes and that has no effect at its place.

    ``creating``: the request creates the Pod. Later, the controller annotates it.
    """
    for place in places:
        role, keys, before = place.role, place.keys, place.before
        if role is None:
            continue
        for key in sorted([key for key in keys if key.startswith(PREFIX)]):
            if key in role.on_pods or (key in before and before[key] == keys[key]):
                continue
            field = f'{place.field}["{key}"]'
            if key == ASSIGNED_LABEL and role.pod and not role.applied:
                yield _of_the_controller(field)
            elif key == RECLAIM_AT and role.pod and creating:
                yield _preset(field)
            elif key not in _MEMBERS:
                yield _unknown(key, place.member, field)
            elif role.name and (_MEMBERS[key] != place.member or not (role.pod if key in _OF_PODS else role.applied)):
                yield _misplaced(key, role, place.member, field)


def selector_violations(subject: Subject) -> Iterator[Violation]:
    """Yield a violation if the selector of a workload with a floor mentions the label of the controller.

    The controller labels each Pod. The workload would disown it and create another one, in an endless loop.
    """
    floored = subject.template and FLOOR_ANNOTATION in subject.pod.annotations
    if floored and ASSIGNED_LABEL in str(subject.workload.spec.selector):  # only keys of labels contain a slash
        yield _of_the_controller("spec.selector", outside=True)


def _of_the_controller(field: str, *, outside: bool = False) -> Violation:
    reason = f"only `spotgate controller` can set label {ASSIGNED_LABEL}"
    detail = "A workload that selects by this label disowns its Pods when the controller sets it, and creates others."
    return Violation(id="reserved", reason=reason, field=field, outside=outside, detail=detail, fix="remove the label")


def _preset(field: str) -> Violation:
    reason = f"only `spotgate controller` can set annotation {RECLAIM_AT}, when a node is reclaimed"
    detail = "The Pod would start with a false deadline, and stop its work."
    return Violation(id="reserved", reason=reason, field=field, detail=detail, fix="remove the annotation")


def _unknown(key: str, member: MetadataMember, field: str) -> Violation:
    labels, annotations = (", ".join(name for name, kind in _MEMBERS.items() if kind == wanted) for wanted in _SINGULAR)
    return warning(
        id="unknown-spotgate-key",
        reason=f"{_SINGULAR[member]} {key} has no effect{did_you_mean(key, _MEMBERS)}",
        field=field,
        detail=f"spotgate reads the labels {labels}, and the annotations {annotations}.",
        fix=f"correct the {_SINGULAR[member]}, or remove it",
    )


def _misplaced(key: str, role: Role, member: MetadataMember, field: str) -> Violation:
    right = _MEMBERS[key]
    effective = ("its Pods" if role.pods else "Pods") if key in _OF_PODS else "the object that you apply"
    why = f"has no effect on {role.name}, only on {effective}"
    if right != member:
        why = f"has no effect: it must be {'a label' if right == 'labels' else 'an annotation'}"
    of_pods = " and ".join(f"`{path}.{right}`" for path in role.pods)
    applied = f"`metadata.{right}`" + ("" if role.applied else " of the object that you apply")
    where = "" if key in {ASSIGNED_LABEL, RECLAIM_AT} else of_pods if key in _OF_PODS else applied
    return warning(
        id="misplaced-spotgate-key",
        reason=f"{_SINGULAR[member]} {key} {why}",
        field=field,
        fix=f"move the {_SINGULAR[member]} to {where}" if where else f"remove the {_SINGULAR[member]}",
    )

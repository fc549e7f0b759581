"""Find spotgate's own keys where they have no effect: misspelt, a label for an annotation, or on the wrong object.

Nothing else rejects a ``spotgate.dev/...`` key that has no effect, and one on a Deployment does not reach its Pods:
they are not placed on spot. The finding is where the key is written.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from webhook.capacity.placement.floor import ASSIGNED_LABEL, FLOOR_ANNOTATION
from webhook.capacity.placement.target import CAPACITY_LABEL, KEEP_ANNOTATION, NODE_POOL_ANNOTATION
from webhook.capacity.placement.workload_class import CLASS_LABEL
from webhook.documents import field_path
from webhook.kube.filling import mapping
from webhook.kube.pod import Pod
from webhook.kube.templates import TEMPLATES_AT_MOST
from webhook.model.decision import Outcome, Violation
from webhook.policy.errors import did_you_mean
from webhook.policy.terms import BREAK_GLASS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from webhook.kube.templates import Workload
    from webhook.rules.subject import Subject

PODS: Final = "pods"
PREFIX: Final = "spotgate.dev/"

MetadataMember = Literal["labels", "annotations"]


_OF_PODS: Final[Mapping[str, MetadataMember]] = {
    CAPACITY_LABEL: "labels",
    CLASS_LABEL: "labels",
    NODE_POOL_ANNOTATION: "annotations",
    KEEP_ANNOTATION: "annotations",
    FLOOR_ANNOTATION: "annotations",
    ASSIGNED_LABEL: "labels",  # which the controller writes
}
"""Keys that have an effect on Pods, and the member of their metadata."""
_MEMBERS: Final[Mapping[str, MetadataMember]] = {**_OF_PODS, BREAK_GLASS: "annotations"}
"""All known keys: those of Pods, and break-glass, which acts on the object that is applied."""
_SINGULAR: Final[Mapping[MetadataMember, str]] = {"labels": "label", "annotations": "annotation"}


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the metadata that carries keys.

    Attributes:
        name: the object as messages name it: "the Deployment itself".
        pods: field paths of its Pods' metadata; empty if it has no Pods.
        pod: the metadata is that of a Pod, or of what becomes one.
        applied: the metadata is that of the object of the request.
    """

    name: str
    pods: tuple[str, ...] = ("metadata",)
    pod: bool = False
    applied: bool = False


_POD: Final = _Place(name="the Pod", pod=True, applied=True)
_NOTHING: Final = Pod()


def _template(*pods: str) -> _Place:
    return _Place(name="a pod template", pods=pods, pod=True)


def own_keys_of_pod(subject: Subject) -> Iterator[Violation]:
    """Yield a violation for each key that the request adds to a Pod or template without effect."""
    place = _template(subject.field("metadata")) if subject.template else _POD
    pod, old = subject.pod, subject.old_pod or _NOTHING
    yield from _without_effect(place, "labels", pod.labels, old.labels)
    yield from _without_effect(place, "annotations", pod.annotations, old.annotations)


def own_keys_of_object(
    kind: str, workload: Workload | None, value: Mapping[str, Any], old: Mapping[str, Any]
) -> Iterator[Violation]:
    """Yield a violation for each key without effect on a node pool or workload, outside its pod templates."""
    there = {member: mapping(value, "metadata", member) for member in _SINGULAR}
    if workload is not None:
        yield from _carried(workload, value, old)
    if not any(key.startswith(PREFIX) for keys in there.values() for key in keys):
        return
    pods = tuple(path.metadata for path in workload.paths) if workload is not None else ()
    on_pods = _keys_of_pods(workload, value) if workload is not None else ()
    place = _Place(name=f"the {kind} itself", pods=pods, applied=True)
    for member, keys in there.items():
        yield from _without_effect(place, member, keys, mapping(old, "metadata", member), on_pods=on_pods)


def own_keys_of_namespace(value: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Violation]:
    """Yield a violation for each label that nothing reads, such as a misspelt capacity label, on a Namespace."""
    labels, before = (mapping(each, "metadata", "labels") for each in (value, old))
    for key in sorted(key for key in labels if key.startswith(PREFIX) and key not in _MEMBERS):
        if before.get(key) != labels[key]:
            yield _unknown(key, "labels", f'metadata.labels["{key}"]')


def _carried(workload: Workload, value: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Violation]:
    """Yield a violation for each key without effect in labels that the workload gives to Pods or other objects."""
    for carried in workload.labels:
        pods = tuple(path.metadata for path in workload.paths)
        place = _template(*pods) if carried.resource == PODS else _Place(name=f"its {carried.resource}", pods=pods)
        before = {each.identity: each.value for each in carried.path.find(old)}
        for found in islice(carried.path.find(value), TEMPLATES_AT_MOST):
            there = before.get(found.identity, {})
            yield from _without_effect(place, "labels", found.value, there, path=found.path)


def _keys_of_pods(workload: Workload, value: Mapping[str, Any]) -> set[str]:
    """Return the keys of labels and annotations in the pod templates, where they have their effect."""
    keys: set[str] = set()
    for found in islice(workload.templates(value), TEMPLATES_AT_MOST):
        keys.update(*(mapping(found.value, "metadata", member) for member in _SINGULAR))
    for carried in workload.labels:
        if carried.resource == PODS:
            keys.update(*(found.value for found in islice(carried.path.find(value), TEMPLATES_AT_MOST)))
    return keys


def _without_effect(
    place: _Place,
    member: MetadataMember,
    values: Mapping[str, Any],
    before: Mapping[str, Any],
    *,
    path: tuple[str | int, ...] = (),
    on_pods: Collection[str] = (),
) -> Iterator[Violation]:
    """Yield a violation for each of spotgate's keys that the request changes and that has no effect there.

    ``path`` is the path of the values; empty if they are this member of the metadata.
    """
    path = path or ("metadata", member)
    for key in sorted([key for key in values if key.startswith(PREFIX)]):
        if key in on_pods or (key in before and before[key] == values[key]):
            continue
        where = f'{field_path(path)}["{key}"]'
        if key not in _MEMBERS:
            yield _unknown(key, member, where)
        elif _MEMBERS[key] != member or not (place.pod if key in _OF_PODS else place.applied):
            yield _misplaced(key, place, member, where)


def _unknown(key: str, member: MetadataMember, field: str) -> Violation:
    labels, annotations = (", ".join(each for each, kind in _MEMBERS.items() if kind == wanted) for wanted in _SINGULAR)
    return Violation(
        id="unknown-spotgate-key",
        reason=f"{_SINGULAR[member]} {key} has no effect{did_you_mean(key, _MEMBERS)}",
        field=field,
        detail=f"spotgate reads the labels {labels}, and the annotations {annotations}.",
        fix="mend its name, or remove it",
        outcome=Outcome.WARN,
    )


def _misplaced(key: str, place: _Place, member: MetadataMember, field: str) -> Violation:
    right = _MEMBERS[key]
    if right != member:
        why = f"has no effect: it must be {'a label' if right == 'labels' else 'an annotation'}"
    elif key in _OF_PODS:
        why = f"has no effect on {place.name}, only on {'its Pods' if place.pods else 'Pods'}"
    else:
        why = f"has no effect on {place.name}, only on the object that is applied"
    of_pods = " and ".join(f"`{each}.{right}`" for each in place.pods)
    applied = f"`metadata.{right}`" + ("" if place.applied else " of the object that is applied")
    where = of_pods if key in _OF_PODS else applied
    return Violation(
        id="misplaced-spotgate-key",
        reason=f"{_SINGULAR[member]} {key} {why}",
        field=field,
        fix=f"move it to {where}" if where else "remove it",
        outcome=Outcome.WARN,
    )

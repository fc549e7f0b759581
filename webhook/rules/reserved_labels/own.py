"""Find spotgate's own keys where they have no effect: misspelt, a label for an annotation, or on the wrong object.

Nothing else rejects a ``spotgate.dev/...`` key that has no effect, and one on a Deployment does not reach its Pods:
they are not placed on spot. The finding is where the key is written.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from webhook.capacity.placement.target import CAPACITY_LABEL, KEEP_ANNOTATION, NODE_POOL_ANNOTATION
from webhook.capacity.placement.workload_class import CLASS_LABEL
from webhook.decision import Outcome, Violation
from webhook.documents import field_path
from webhook.kube.pod import Pod
from webhook.kube.templates import TEMPLATES_AT_MOST
from webhook.policy.errors import did_you_mean
from webhook.policy.terms import BREAK_GLASS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from webhook.kube.templates import Workload
    from webhook.subject import Subject

PODS: Final = "pods"
PREFIX: Final = "spotgate.dev/"

MetadataMember = Literal["labels", "annotations"]


class _Key(msgspec.Struct, frozen=True):
    """Hold the place where a key has an effect: a member of the metadata, on Pods or on the applied object."""

    member: MetadataMember
    on_pods: bool


_KEYS: Final[Mapping[str, _Key]] = {
    CAPACITY_LABEL: _Key("labels", on_pods=True),
    CLASS_LABEL: _Key("labels", on_pods=True),
    NODE_POOL_ANNOTATION: _Key("annotations", on_pods=True),
    KEEP_ANNOTATION: _Key("annotations", on_pods=True),
    BREAK_GLASS: _Key("annotations", on_pods=False),
}
_SINGULAR: Final[Mapping[MetadataMember, str]] = {"labels": "label", "annotations": "annotation"}


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the metadata that carries keys.

    Attributes:
        name: the object as a phrase: "the Deployment itself".
        pods: where its Pods' metadata is, as a phrase; empty if it has no Pods.
        pod: it is a Pod, or becomes one.
        applied: it is the object of the request itself.
    """

    name: str
    pods: tuple[str, ...] = ("metadata",)
    pod: bool = False
    applied: bool = False

    def suits(self, key: _Key) -> bool:
        """Return whether the key has an effect here, in the right member."""
        return self.pod if key.on_pods else self.applied


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
    metadata, before = mapping(value.get("metadata")), mapping(old.get("metadata"))
    there = {member: mapping(metadata.get(member)) for member in _SINGULAR}
    if workload is not None:
        yield from _carried(workload, value, old)
    if not any(key.startswith(PREFIX) for keys in there.values() for key in keys):
        return
    pods = tuple(path.metadata for path in workload.paths) if workload is not None else ()
    on_pods = _keys_of_pods(workload, value) if workload is not None else ()
    place = _Place(name=f"the {kind} itself", pods=pods, applied=True)
    for member, keys in there.items():
        yield from _without_effect(place, member, keys, mapping(before.get(member)), on_pods=on_pods)


def own_keys_of_namespace(value: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Violation]:
    """Yield a violation for each label that nothing reads, such as a misspelt capacity label, on a Namespace."""
    labels, before = (mapping(mapping(each.get("metadata")).get("labels")) for each in (value, old))
    for key in sorted(key for key in labels if key.startswith(PREFIX) and key not in _KEYS):
        if before.get(key) != labels[key]:
            yield _unknown(key, "labels", f'metadata.labels["{key}"]')


def mapping(value: object) -> dict[str, Any]:
    """Return the JSON object, or an empty one if the value is not an object."""
    return value if isinstance(value, dict) else {}


def _carried(workload: Workload, value: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Violation]:
    """Return the keys in labels that the workload gives to Pods or to other objects it makes."""
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
        metadata = mapping(found.value.get("metadata"))
        keys.update(mapping(metadata.get("labels")), mapping(metadata.get("annotations")))
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
        known = _KEYS.get(key)
        where = f'{field_path(path)}["{key}"]'
        if known is None:
            yield _unknown(key, member, where)
        elif known.member != member or not place.suits(known):
            yield _misplaced(key, known, place, member, where)


def _unknown(key: str, member: MetadataMember, field: str) -> Violation:
    labels, annotations = (
        ", ".join(each for each, known in _KEYS.items() if known.member == kind) for kind in ("labels", "annotations")
    )
    return Violation(
        id="unknown-spotgate-key",
        reason=f"{_SINGULAR[member]} {key} has no effect{did_you_mean(key, _KEYS)}",
        field=field,
        detail=f"spotgate reads the labels {labels}, and the annotations {annotations}.",
        fix="mend its name, or remove it",
        outcome=Outcome.WARN,
    )


def _misplaced(key: str, known: _Key, place: _Place, member: MetadataMember, field: str) -> Violation:
    if known.member != member:
        why = f"has no effect: it must be {'a label' if known.member == 'labels' else 'an annotation'}"
    elif known.on_pods:
        why = f"has no effect on {place.name}, only on {'its Pods' if place.pods else 'Pods'}"
    else:
        why = f"has no effect on {place.name}, only on the object that is applied"
    of_pods = " and ".join(f"`{each}.{known.member}`" for each in place.pods)
    applied = f"`metadata.{known.member}`" + ("" if place.applied else " of the object that is applied")
    where = of_pods if known.on_pods else applied
    return Violation(
        id="misplaced-spotgate-key",
        reason=f"{_SINGULAR[member]} {key} {why}",
        field=field,
        fix=f"move it to {where}" if where else "remove it",
        outcome=Outcome.WARN,
    )

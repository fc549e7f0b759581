"""List the maps of labels and annotations that an object has, or gives to other objects."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from webhook.base.bounds import OverBoundError
from webhook.base.field_paths import field_path
from webhook.kube.filling import mapping
from webhook.kube.pod import Pod
from webhook.kube.pod_decoding import pod_from_template
from webhook.kube.templates import TEMPLATES_AT_MOST, Workload
from webhook.model.review import GroupVersionKind, MalformedObjectError
from webhook.policy.match import is_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from webhook.capacity.providers.reader import PoolReader
    from webhook.rules.subject import Subject

PODS: Final = "pods"
PREFIX: Final = "spotgate.dev/"

MetadataMember = Literal["labels", "annotations"]
MEMBERS: Final[tuple[MetadataMember, ...]] = ("labels", "annotations")

_BINDING: Final = GroupVersionKind("", "v1", "Binding")
_NO_POD: Final = Pod()


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """The role of a place for spotgate keys.

    Attributes:
        name: the name of the object in messages, such as "the Deployment itself"; empty if all known keys are allowed.
        pods: the field paths of its Pods' metadata; empty if it has no Pods.
        pod: the place is the metadata of a Pod or pod template.
        applied: the place is the metadata of the object of the request.
        on_pods: the keys that its Pods have too.
    """

    name: str = ""
    pods: tuple[str, ...] = ("metadata",)
    pod: bool = False
    applied: bool = False
    on_pods: Collection[str] = ()


_POD: Final = Role(name="the Pod", pod=True, applied=True)
_NAMESPACE: Final = Role()


class KeyPlace(msgspec.Struct, frozen=True):
    """A map of labels or annotations.

    Attributes:
        field: the field path in the subject.
        keys: the map; ``before`` is the map before the request.
        resource: the plural name of the resource that has or gets the keys.
        member: the type of the keys.
        role: the role for spotgate keys; None to skip them.
    """

    field: str
    keys: Mapping[str, Any]
    before: Mapping[str, Any]
    resource: str = PODS
    member: MetadataMember = "labels"
    role: Role | None = None


def places_of(
    subject: Subject,
    reader: PoolReader | None,
    workload: Workload | None,
    is_reserved: Callable[[Mapping[str, Any]], object],
) -> list[KeyPlace]:
    """Return the places of a subject.

    Args:
        subject: the object or pod template.
        reader: the reader of the object, if it is a node pool.
        workload: the kind of the object, if it has pod templates.
        is_reserved: returns a true value if labels have a reserved key.
    """
    request = subject.request
    if request.kind == _BINDING:  # the API server copies its labels to the Pod
        return [KeyPlace("metadata.labels", mapping(subject.object, "metadata", "labels"), {})]
    if subject.template or (request.resource.resource == PODS and not request.resource.group):
        template = Role(name="a pod template", pods=(subject.field("metadata"),), pod=True)
        return _of_pod(subject, template if subject.template else _POD)
    value, old = subject.object or {}, subject.old_object or {}
    pods = tuple(path.metadata for path in workload.paths) if workload is not None else ()
    places = list(_carried(subject, workload, pods)) if workload is not None else []
    role: Role | None = None
    if reader is not None or workload is not None:
        on_pods = _keys_of_pods(subject, workload, places) if workload is not None else ()
        role = Role(name=f"the {request.kind.kind} itself", pods=pods, applied=True, on_pods=on_pods)
    elif is_namespace(request):
        role = _NAMESPACE
    resource = request.resource.resource
    for member in MEMBERS if role is not _NAMESPACE else MEMBERS[:1]:
        keys, before = mapping(value, "metadata", member), mapping(old, "metadata", member)
        places.append(KeyPlace(f"metadata.{member}", keys, before, resource, member, role))
    if reader is not None and (labels := reader.labels) is not None:
        places.append(KeyPlace(labels.field, mapping(labels(value)), mapping(labels(old)), resource))
    if workload is not None:
        places += _unreadable(subject, workload, is_reserved)
    return places


def _of_pod(subject: Subject, role: Role) -> list[KeyPlace]:
    new, old = subject.pod, subject.old_pod or _NO_POD
    return [
        KeyPlace("metadata.labels", new.labels, old.labels, role=role),
        KeyPlace("metadata.annotations", new.annotations, old.annotations, member="annotations", role=role),
    ]


def _carried(subject: Subject, workload: Workload, pods: tuple[str, ...]) -> Iterator[KeyPlace]:
    """Yield the labels that a workload gives to Pods or other objects, outside its pod templates."""
    for carried in workload.labels:
        before = {item.identity: item.value for item in carried.path.find(subject.old_object)}
        items = list(islice(carried.path.find(subject.object), TEMPLATES_AT_MOST + 1))
        if len(items) > TEMPLATES_AT_MOST and not subject.labels_only:
            reason = f"there are more than {TEMPLATES_AT_MOST} maps of labels, which is the maximum"
            raise OverBoundError(carried.path.text, reason)
        of_pods = carried.resource == PODS
        role = Role(name="a pod template" if of_pods else f"its {carried.resource}", pods=pods, pod=of_pods)
        for item in items:
            old_value = before.get(item.identity, {})
            yield KeyPlace(field_path(item.path), item.value, old_value, carried.resource, role=role)


def _keys_of_pods(subject: Subject, workload: Workload, carried: Iterable[KeyPlace]) -> set[str]:
    """Return the keys of labels and annotations in the pod templates, where they have an effect.

    Return an empty set if the object has no spotgate keys.
    """
    value = subject.object or {}
    keys: set[str] = set()
    if any(key.startswith(PREFIX) for member in MEMBERS for key in mapping(value, "metadata", member)):
        for template in islice(workload.templates(value), TEMPLATES_AT_MOST):
            keys.update(*(mapping(template.value, "metadata", member) for member in MEMBERS))
        keys.update(*(place.keys for place in carried if place.resource == PODS))
    return keys


def _unreadable(
    subject: Subject, workload: Workload, is_reserved: Callable[[Mapping[str, Any]], object]
) -> Iterator[KeyPlace]:
    """Yield the labels of templates that have reserved keys and can't be parsed as Pods."""
    for template in islice(workload.templates(subject.object or {}), TEMPLATES_AT_MOST):  # more are denied
        labels = mapping(template.value, "metadata", "labels")
        if is_reserved(labels) and (subject.labels_only or _is_unread(template.value)):
            templates = workload.templates(subject.old_object or {})
            old = next((other.value for other in templates if other.identity == template.identity), {})
            yield KeyPlace(template.field("metadata.labels"), labels, mapping(old, "metadata", "labels"))


def _is_unread(template: dict[str, Any]) -> bool:
    try:
        pod_from_template(template, "")
    except MalformedObjectError:
        return True
    except OverBoundError:
        pass
    return False

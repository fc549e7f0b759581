"""Build the subject of a rule: the object of a request, or the future Pod of one of its pod templates."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property, reduce
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec.structs import replace

from webhook.base.bounds import ANNOTATIONS, DECODED_AT_MOST, LABELS, Bound, Counts, OverBoundError, expect_decodable
from webhook.kube.defaults import complete_pod
from webhook.kube.filling import mapping
from webhook.kube.pod import MIRROR_ANNOTATION, ObjectMeta, Pod
from webhook.kube.pod_decoding import decode_pod, pod_from_template
from webhook.kube.references import Reference, with_runtime_class
from webhook.kube.templates import TEMPLATES_AT_MOST, Workload, pod_of
from webhook.kube.workload import WorkloadFields, workload_fields_of
from webhook.model.patch import Operation, apply_all
from webhook.model.review import NODES, MalformedObjectError, Request, decode_object, decoded, is_null

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.kube.layouts import FoundTemplate
    from webhook.model.decision import Trace


class Subject:
    """The input of a rule: the object of the request. Fields are decoded on first use.

    Attributes:
        at_most: the bytes of memory that the decoded object may take.
        operation: the operation of the request; CREATE for a pod template.
        template: the subject is a pod template, presented as its future Pod.
        path: the path of the pod template in the object; empty for the object itself.
        pod_template: the pod template; None for the object itself.
        unchanged: the request doesn't change the pod template, only the number of its replicas.
        labels_only: the object exceeds a bound, so rules see only its labels and annotations.
        memo: a cache that all rules share for this subject.
        changes: the changes of mutating policies to the pod template, which `shown` applies.
    """

    template = False
    unchanged = False
    labels_only = False
    path: tuple[str | int, ...] = ()
    pod_template: FoundTemplate | None = None

    def __init__(self, request: Request, trace: Trace, at_most: int = DECODED_AT_MOST) -> None:
        """Build the subject for the object of a request."""
        self.at_most = at_most
        self.request = request
        self.trace = trace
        self.operation = request.operation
        self.memo: dict[object, Any] = {}
        self.changes: list[Operation] = []

    @cached_property
    def metadata(self) -> SubjectMetadata:
        """Return the object's metadata, on DELETE the old object's, without a map that exceeds its bound."""
        return bounded_metadata(self.request.old_object if is_null(self.request.object) else self.request.object)

    @cached_property
    def pod(self) -> Pod:
        """Return the Pod, or the future Pod of the template."""
        return decode_pod(self.request.object)

    @property
    def pod_namespace(self) -> str:
        """Return the namespace of the Pod. A new Pod may get it only from the request."""
        return self.pod.metadata.namespace if self.template else self.request.namespace

    @property
    def is_mirror_pod(self) -> bool:
        """Return whether a node created the Pod as a mirror Pod. Any user can set the annotation."""
        request = self.request
        is_pod = (request.resource.group, request.path) == ("", "pods") and not is_null(request.object)
        by_node = NODES in (request.user_info.groups or ())
        return is_pod and by_node and MIRROR_ANNOTATION in self.pod.annotations

    @cached_property
    def old_pod(self) -> Pod | None:
        """Return the Pod before the request; None on CREATE."""
        return None if is_null(self.request.old_object) else decode_pod(self.request.old_object)

    @cached_property
    def object(self) -> dict[str, Any] | None:
        """Return the object of the request; None on DELETE."""
        return self._decoded(self.request.object)

    @cached_property
    def old_object(self) -> dict[str, Any] | None:
        """Return the object before the request; None on CREATE."""
        return self._decoded(self.request.old_object)

    def _decoded(self, raw: msgspec.Raw) -> dict[str, Any] | None:
        return None if is_null(raw) else decode_object(raw, self.at_most)

    @cached_property
    def workload(self) -> WorkloadFields:
        """Return the workload's fields outside its pod templates."""
        return workload_fields_of(self.request.object)

    @cached_property
    def old_workload(self) -> WorkloadFields:
        """Return the workload's fields outside its pod templates, before the request."""
        return workload_fields_of(self.request.old_object)

    @property
    def shown(self) -> dict[str, Any] | None:
        """Return the object as plain JSON."""
        return self.object

    def holder(self, path: tuple[str | int, ...]) -> Mapping[str, Any]:
        """Return the object's map at a path, which is the beginning of the pod template's path; empty for a list."""
        return mapping(reduce(lambda value, step: value[step], path, cast("Any", self.object)))  # type: ignore[no-any-return]

    def field(self, text: str) -> str:
        """Convert a field path in the subject to a field path in the object of the request."""
        return text

    def labels(self) -> Iterator[Mapping[str, str]]:
        """Yield the labels that object selectors match: the object's and the old object's. Yield none on CONNECT."""
        for metadata in self._metadata if self.operation != "CONNECT" else ():
            yield metadata.labels or {}

    @cached_property
    def _metadata(self) -> list[SubjectMetadata]:
        both = (self.request.object, self.request.old_object)
        return [decode_metadata(raw) for raw in both if not is_null(raw)]


class TemplateSubject(Subject):
    """The future Pod of a pod template in an object. All templates of the object share its other fields."""

    template = True

    def __init__(
        self, whole: Subject, pod: Pod, old_pod: Pod | None, pod_template: FoundTemplate, *, unchanged: bool
    ) -> None:
        super().__init__(whole.request, whole.trace)
        self.operation = "CREATE"
        self.object, self.old_object = whole.object, whole.old_object
        self.pod, self.old_pod = pod, old_pod
        self.pod_template: FoundTemplate = pod_template
        self.path = pod_template.path
        self.unchanged = unchanged
        self._whole = whole

    @property
    def metadata(self) -> SubjectMetadata:
        """Return the metadata of the object that contains the template."""
        return self._whole.metadata

    @property
    def workload(self) -> WorkloadFields:
        """Return the fields of the object outside its pod templates."""
        return self._whole.workload

    @property
    def old_workload(self) -> WorkloadFields:
        """Return these fields before the request."""
        return self._whole.old_workload

    @property
    def shown(self) -> dict[str, Any]:
        """Return the template as a Pod with its defaults and all injected changes, as plain JSON."""
        value = msgspec.to_builtins(self.pod_template.value)  # a copy, because other rules read the object
        metadata = self.pod.metadata
        owners = msgspec.to_builtins(metadata.ownerReferences)
        own = {"namespace": metadata.namespace, "ownerReferences": owners}
        pod = {**value, "apiVersion": "v1", "kind": "Pod", "metadata": {**(value.get("metadata") or {}), **own}}
        pod = apply_all(self.changes, pod)
        complete_pod(pod)
        return pod

    def field(self, text: str) -> str:
        """Convert a field path in the Pod to a field path in the object of the request."""
        return self.pod_template.field(text)

    def labels(self) -> Iterator[Mapping[str, str]]:
        """Yield the labels of the Pod."""
        yield self.pod.labels


class LabelsSubject(Subject):
    """An object that exceeds a bound, with only the labels and annotations that are within their bounds.

    An object that was decoded before the bound was exceeded stays complete.
    """

    labels_only = True

    def __init__(self, whole: Subject) -> None:
        super().__init__(whole.request, whole.trace)
        new, old = (bounded_metadata(raw) for raw in (self.request.object, self.request.old_object))
        self.metadata = old if is_null(self.request.object) else new
        self._metadata = [new, old]
        self.pod, self.old_pod = _pod_with(new), _pod_with(old)
        self.object = whole.__dict__.get("object") or {"metadata": {"labels": new.labels}}
        self.old_object = whole.__dict__.get("old_object") or {"metadata": {"labels": old.labels}}


_template_encoder: Final = msgspec.json.Encoder(order="deterministic")


def template_subjects(
    whole: Subject, workload: Workload, references: Mapping[str, Reference], *, recounting: bool
) -> Iterator[tuple[FoundTemplate, Subject | MalformedObjectError | None]]:
    """Yield each pod template with the subject of its future Pod.

    Yield None for a template that an UPDATE doesn't change, and the error for a template that can't be parsed as a Pod.

    Args:
        whole: the subject of the object that contains the templates.
        workload: the kind of the object.
        references: the objects that Pods name.
        recounting: also yield a subject for unchanged templates if their replicas may become too few.

    Raises:
        OverBoundError: there are too many templates, or their Pods exceed a bound.
    """
    templates = _find_templates(workload, whole.object)
    old_templates = [] if whole.old_object is None else _find_templates(workload, whole.old_object)
    recounted = recounting and bool(old_templates) and _has_fewer_replicas(whole)
    before = {template.identity: template.value for template in old_templates}
    # Compare contents, not indexes: when a template without a name is removed, the next ones get other indexes.
    known = {_template_encoder.encode(template.value) for template in old_templates}
    counts = Counts()
    for template in templates:
        unchanged = bool(old_templates) and _template_encoder.encode(template.value) in known
        if unchanged and not recounted:
            yield template, None
            continue
        try:
            merged = replace(template, value=with_runtime_class(template.value, references))
            pod = pod_of(merged, workload, whole.request, counts)
        except MalformedObjectError as error:
            yield template, error
            continue
        old_pod = _parse_old_template(before.get(template.identity))
        yield template, TemplateSubject(whole, pod, old_pod, template, unchanged=unchanged)


def _find_templates(workload: Workload, value: dict[str, Any] | None) -> list[FoundTemplate]:
    templates = list(islice(workload.templates(value or {}), TEMPLATES_AT_MOST + 1))
    if len(templates) > TEMPLATES_AT_MOST:
        reason = f"there are more than {TEMPLATES_AT_MOST} pod templates, which is the maximum"
        raise OverBoundError(workload.paths[-1].text, reason)
    return templates


def _has_fewer_replicas(whole: Subject) -> bool:
    """Return whether the request lowers the number of replicas, or raises it from zero.

    Otherwise, a workload with too few replicas had too few before the request.
    """
    before, after = whole.old_workload.replicas, whole.workload.replicas
    return before is not None and after is not None and (after < before or before == 0 < after)


def _parse_old_template(template: object) -> Pod | None:
    """Return the Pod of the old template, or None if the template is missing or can't be parsed."""
    with suppress(MalformedObjectError, OverBoundError):
        return pod_from_template(template, "") if template is not None else None
    return None


def _pod_with(metadata: SubjectMetadata) -> Pod:
    return Pod(metadata=ObjectMeta(labels=metadata.labels, annotations=metadata.annotations))


class SubjectMetadata(msgspec.Struct):
    """The labels and annotations of an object of any kind."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _RawMetadata(msgspec.Struct):
    labels: msgspec.Raw = msgspec.Raw(b"null")
    annotations: msgspec.Raw = msgspec.Raw(b"null")


class _WithRawMetadata(msgspec.Struct):
    metadata: _RawMetadata = msgspec.field(default_factory=_RawMetadata)


_raw_metadata_decoder: Final = msgspec.json.Decoder(_WithRawMetadata)
_map_decoder: Final = msgspec.json.Decoder(dict[str, str] | None)

_METADATA_AT_MOST: Final = DECODED_AT_MOST // 8
"""Bytes of memory for the labels, and for the annotations. Kubernetes accepts 256 KiB of annotations."""


def decode_metadata(raw: msgspec.Raw) -> SubjectMetadata:
    """Return the labels and annotations of an object of any kind.

    Raises:
        MalformedObjectError: the metadata can't be parsed.
        OverBoundError: the labels or annotations exceed a bound.
    """
    parts = _raw_metadata(raw)
    return SubjectMetadata(_decode_map(parts.labels, LABELS), _decode_map(parts.annotations, ANNOTATIONS))


def bounded_metadata(raw: msgspec.Raw) -> SubjectMetadata:
    """Return the labels and annotations of an object of any kind, without a map that exceeds its bound.

    Raises:
        MalformedObjectError: the metadata can't be parsed.
    """
    metadata = SubjectMetadata()
    if not is_null(raw):
        parts = _raw_metadata(raw)
        with suppress(OverBoundError):
            metadata.labels = _decode_map(parts.labels, LABELS)
        with suppress(OverBoundError):
            metadata.annotations = _decode_map(parts.annotations, ANNOTATIONS)
    return metadata


def _raw_metadata(raw: msgspec.Raw) -> _RawMetadata:
    return decoded(_raw_metadata_decoder, raw).metadata


def _decode_map(raw: msgspec.Raw, bound: Bound) -> dict[str, str] | None:
    expect_decodable(raw, _METADATA_AT_MOST, bound.field)
    members: dict[str, str] | None = decoded(_map_decoder, raw, bound.field)
    if members is not None and len(members) > bound.at_most:
        raise OverBoundError.of(bound, len(members))
    return members

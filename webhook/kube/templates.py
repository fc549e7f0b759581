"""Find the pod templates in workloads, as WorkloadTemplates documents describe them."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.base.field_paths import field_path
from webhook.kube.layouts import FoundTemplate, LaidOutPod, Layout
from webhook.kube.pod import COMPLETING, OwnerReference, Pod
from webhook.kube.pod_decoding import pod_from_template
from webhook.model.review import MalformedObjectError, Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.base.bounds import Counts

TEMPLATES_AT_MOST: Final = 128
"""The maximum number of pod templates, or of label maps, in one object. Each takes 0.3 ms with 100 node pools; the
largest RayClusters have about ten worker groups."""

_SEGMENT: Final = re.compile(r"([A-Za-z][A-Za-z0-9]*|\*)((?:\[\*\])?)")


class TemplatePath:
    """The field path of pod templates, such as ``spec.workerGroupSpecs[*].template``.

    Attributes:
        layout: the paths of the Pod's fields, if the object has no pod template there.

    Raise ValueError if the text is not a template path.
    """

    __slots__ = ("layout", "segments", "text")

    def __init__(self, text: str, layout: Layout | None = None) -> None:
        segments: list[str] = []
        for part in text.split("."):
            match = _SEGMENT.fullmatch(part)
            if match is None:
                raise ValueError(f"{text!r} is not a template path: {part!r} is neither a field, 'field[*]' nor '*'")
            segments.append(match[1])
            if match[2]:
                segments.append("[*]")
        self.text = text
        self.layout = layout
        self.segments = tuple(segments)

    @property
    def members(self) -> Iterator[str]:
        """Return the field names in the path."""
        return (segment for segment in self.segments if segment not in {"*", "[*]"})

    @property
    def metadata(self) -> str:
        """Return the path of the Pods' labels and annotations, in the same notation."""
        return ".".join(map(str, (self.layout or Layout()).metadata_of((self.text,))))

    def find(self, value: object) -> Iterator[FoundTemplate]:
        """Yield every template in an object, with its path and identity."""
        layout = self.layout
        places = self._walk(value, 0, (), ())
        return places if layout is None else filter(None, (layout.pod(value, place) for place in places))

    def _walk(
        self, value: object, depth: int, path: tuple[str | int, ...], identity: tuple[str | int, ...]
    ) -> Iterator[FoundTemplate]:
        if depth == len(self.segments):
            if isinstance(value, dict):
                yield FoundTemplate(path, identity, value)
            return
        segment = self.segments[depth]
        if segment == "[*]":
            for index, item in enumerate(value if isinstance(value, list) else ()):
                yield from self._walk(item, depth + 1, (*path, index), (*identity, _name_of(item, index)))
        elif segment == "*":
            for key, item in value.items() if isinstance(value, dict) else ():
                yield from self._walk(item, depth + 1, (*path, key), (*identity, key))
        elif isinstance(value, dict) and segment in value:
            yield from self._walk(value[segment], depth + 1, (*path, segment), (*identity, segment))


def _name_of(item: object, index: int) -> str | int:
    """Return the name of a list item, which doesn't change if the list is reordered, or its index if it has no name."""
    if isinstance(item, dict):
        for key in ("name", "groupName"):
            if isinstance(name := item.get(key), str):
                return name
    return index


class CarriedLabels(msgspec.Struct, frozen=True):
    """A map of labels in a workload that its controller copies to objects of this resource (plural name)."""

    path: TemplatePath
    resource: str


class Workload(msgspec.Struct, frozen=True):
    """A kind of workload, and the paths of its pod templates.

    Attributes:
        pod_owner: the controller of its Pods, if it isn't the workload itself.
        labels: the maps of labels that its controller copies, in addition to those of the templates.
        restart_policy: the restart policy of Pods whose template doesn't have one for Pods that run to completion.
    """

    group: str
    kind: str
    resource: str
    paths: tuple[TemplatePath, ...]
    pod_owner: OwnerReference | None = None
    labels: tuple[CarriedLabels, ...] = ()
    namespaced: bool = True
    restart_policy: str | None = None

    def templates(self, value: Mapping[str, Any]) -> Iterator[FoundTemplate]:
        """Yield each pod template in an object of this kind once."""
        paths: set[tuple[str | int, ...]] = set()
        for template in chain.from_iterable(path.find(value) for path in self.paths):
            if template.path not in paths:
                paths.add(template.path)
                yield template

    def merged_with(self, other: Workload) -> Workload:
        """Return the kind with the templates and labels of both. The other's values have priority."""
        paths = {path.text: path for path in (*self.paths, *other.paths)}
        labels = {(carried.path.text, carried.resource): carried for carried in (*self.labels, *other.labels)}
        return replace(
            self,
            paths=tuple(paths.values()),
            pod_owner=other.pod_owner or self.pod_owner,
            labels=tuple(labels.values()),
            restart_policy=other.restart_policy or self.restart_policy,
        )


def pod_of(template: FoundTemplate, workload: Workload, request: Request, counts: Counts | None = None) -> Pod:
    """Return the Pod that a pod template creates, with the owner that the workload's Pods have.

    Raises:
        MalformedObjectError: the template isn't a valid Pod.
        OverBoundError: the Pod is larger than a bound.
    """
    is_laid_out = isinstance(template, LaidOutPod)
    try:
        pod = pod_from_template(template.value, "" if is_laid_out else field_path(template.path), counts)
    except MalformedObjectError as error:
        raise MalformedObjectError(error.problem, template.field(error.field)) if is_laid_out else error from None
    if pod.spec.restartPolicy not in COMPLETING:
        pod.spec.restartPolicy = workload.restart_policy or pod.spec.restartPolicy
    pod.metadata.namespace = "" if isinstance(template, LaidOutPod) and template.layout.elsewhere else request.namespace
    itself = OwnerReference(kind=request.kind.kind, apiVersion=request.kind.api_version)
    pod.metadata.ownerReferences = [replace(workload.pod_owner or itself, name=request.name, controller=True)]
    return pod

"""Find the pod templates inside workloads, as the WorkloadTemplates documents say."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.documents import field_path
from webhook.kube.pod import OwnerReference, pod_from_template

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.bounds import Counts
    from webhook.kube.pod import Pod
    from webhook.review import Request

TEMPLATES_AT_MOST: Final = 128
"""Pod templates, or maps of labels, in one object. Each takes 0.3 ms with 100 node pools; the largest RayClusters have
about ten worker groups."""

_SEGMENT: Final = re.compile(r"([A-Za-z][A-Za-z0-9]*|\*)((?:\[\*\])?)")


class TemplatePath:
    """Find the templates at a field path such as ``spec.workerGroupSpecs[*].template``.

    Raises:
        ValueError: the text is not a template path.
    """

    __slots__ = ("_segments", "text")

    def __init__(self, text: str) -> None:
        segments: list[str] = []
        for part in text.split("."):
            found = _SEGMENT.fullmatch(part)
            if found is None:
                raise ValueError(f"{text!r} is not a template path: {part!r} is neither a field, 'field[*]' nor '*'")
            segments.append(found[1])
            if found[2]:
                segments.append("[*]")
        self.text = text
        self._segments = tuple(segments)

    @property
    def members(self) -> Iterator[str]:
        """Return the fields that the path names."""
        return (each for each in self._segments if each not in {"*", "[*]"})

    def find(self, value: object) -> Iterator[FoundTemplate]:
        """Yield every template in an object, with its path and its identity."""
        yield from self._walk(value, 0, (), ())

    def _walk(
        self, value: object, depth: int, path: tuple[str | int, ...], identity: tuple[str | int, ...]
    ) -> Iterator[FoundTemplate]:
        if depth == len(self._segments):
            if isinstance(value, dict):
                yield FoundTemplate(path, identity, value)
            return
        segment = self._segments[depth]
        if segment == "[*]":
            for index, item in enumerate(value if isinstance(value, list) else ()):
                yield from self._walk(item, depth + 1, (*path, index), (*identity, _name_of(item, index)))
        elif segment == "*":
            for key, item in value.items() if isinstance(value, dict) else ():
                yield from self._walk(item, depth + 1, (*path, key), (*identity, key))
        elif isinstance(value, dict) and segment in value:
            yield from self._walk(value[segment], depth + 1, (*path, segment), (*identity, segment))


def _name_of(item: object, index: int) -> str | int:
    """Return what tells a list item from its siblings: its name, if it has one, so that reordering does not matter."""
    if isinstance(item, dict):
        for key in ("name", "groupName"):
            if isinstance(name := item.get(key), str):
                return name
    return index


class FoundTemplate(msgspec.Struct, frozen=True):
    """Hold a pod template of an object: its path, its identity among the templates, and its plain value."""

    path: tuple[str | int, ...]
    identity: tuple[str | int, ...]
    value: dict[str, Any]


class CarriedLabels(msgspec.Struct, frozen=True):
    """Describe a map of labels in a workload that ends up on other objects, of this resource (plural name)."""

    path: TemplatePath
    resource: str


class Workload(msgspec.Struct, frozen=True):
    """Describe a kind of workload and where its templates are.

    Attributes:
        pod_owner: the controller of its Pods, if that is not the workload itself.
        labels: the labels that its Pods get beside those of its templates.
    """

    group: str
    kind: str
    resource: str
    paths: tuple[TemplatePath, ...]
    pod_owner: OwnerReference | None = None
    labels: tuple[CarriedLabels, ...] = ()

    def templates(self, value: Mapping[str, Any]) -> Iterator[FoundTemplate]:
        """Yield every pod template in an object of this kind, once."""
        found: set[tuple[str | int, ...]] = set()
        for each in chain.from_iterable(path.find(value) for path in self.paths):
            if each.path not in found:
                found.add(each.path)
                yield each

    def and_also(self, other: Workload) -> Workload:
        """Return the kind with the templates and labels of both. The other's owner of Pods wins, if it names one."""
        paths = {each.text: each for each in (*self.paths, *other.paths)}
        labels = {(each.path.text, each.resource): each for each in (*self.labels, *other.labels)}
        return replace(
            self,
            paths=tuple(paths.values()),
            pod_owner=other.pod_owner or self.pod_owner,
            labels=tuple(labels.values()),
        )


def pod_of(found: FoundTemplate, workload: Workload, request: Request, counts: Counts | None = None) -> Pod:
    """Return the Pod that a pod template will become, owned as its workload's Pods are.

    Args:
        found: the template.
        workload: the kind of object it is in.
        request: the request about that object.
        counts: the counts of the object's other templates.

    Raises:
        MalformedObjectError: the template can't be read as a Pod.
        OverBoundError: the Pod is larger than a bound.
    """
    pod = pod_from_template(found.value, field_path(found.path), counts)
    pod.metadata.namespace = request.namespace
    itself = OwnerReference(kind=request.kind.kind, apiVersion=request.kind.api_version)
    pod.metadata.ownerReferences = [replace(workload.pod_owner or itself, name=request.name, controller=True)]
    return pod

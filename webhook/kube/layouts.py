"""Build Pods from workloads that have no pod template."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.base.field_paths import field_path, parse_pointer
from webhook.model.patch import Operation, pointer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Steps = tuple[str | int, ...]
"""A field path: member names and list indexes."""

_MEMBERS: Final = ("labels", "annotations")
_INHERITED: Final = ("nodeSelector", "tolerations", "affinity", "schedulerName")
"""The placement fields that Pods inherit from their workload, unless they set them."""
_GPU: Final = "nvidia.com/gpu"
_GRACE: Final = "terminationGracePeriodSeconds"
_PATCHED_GRACE: Final = re.compile(rf"""\b{_GRACE}["']?\s*:\s*["']?([0-9]{{1,9}})\b""")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of the labels, annotations, and spec fields that all Pods of an object inherit.

    Attributes:
        whole: whether the spec is that of a pod template, so that Pods inherit every field.
    """

    metadata: Steps | None = None
    spec: Steps | None = None
    whole: bool = False


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of a Pod's fields, relative to the template path.

    Attributes:
        metadata: path of the labels and annotations; None if the Pod only inherits them.
        spec: path of the fields of the Pod's spec.
        containers: paths in the spec of further containers, or lists of containers, in addition to ``containers``.
        gpus: path of the number of GPUs, or of a map with the resource's ``name`` and ``quantity``; empty if the
            containers request their GPUs.
        grace: the field of the spec that sets the grace period, and its default; empty for the usual field.
        patch: the field of the spec with a patch of the Pod's spec as text, of which only the grace period counts.
        elsewhere: the Pods run in another namespace than the object.
        inherits: the sources that all Pods of the object inherit from, most specific first.
        written: the spec fields that a patch can set there; None for all.
    """

    metadata: Steps | None = ("metadata",)
    spec: Steps = ("spec",)
    containers: tuple[Steps, ...] = ()
    gpus: Steps = ()
    grace: tuple[tuple[str, int], ...] = ()
    patch: str = ""
    elsewhere: bool = False
    inherits: tuple[Source, ...] = ()
    written: frozenset[str] | None = None

    def metadata_of(self, path: Steps) -> Steps:
        """Return the path of the labels and annotations of the Pod at a path."""
        if self.metadata is not None:
            return (*path, *self.metadata)
        return next((source.metadata for source in self.inherits if source.metadata is not None), path)

    def pod(self, root: object, place: FoundTemplate) -> LaidOutPod | None:
        """Build the Pod at a place in the object ``root``. Return None if the place has no containers."""
        path, holder = place.path, place.value
        metadata, inherited = self._metadata(root, holder)
        spec: Any = holder
        for step in self.spec:  # stop at a value that can't have members
            spec = spec.get(step) if isinstance(spec, dict) else spec
        if spec is not None and not isinstance(spec, dict):
            value = {"metadata": metadata, "spec": spec}
            return LaidOutPod(path, place.identity, value, self, {}, inherited, {})
        spec = dict(spec or {})
        containers = list(spec["containers"]) if isinstance(spec.get("containers"), list) else []
        moved: dict[Steps, Steps] = {}
        for field in self.containers:
            for steps, container in _containers(member(spec, field), field):
                moved["spec", "containers", len(containers)] = (*path, *self.spec, *steps)
                containers.append(container)
        if self.containers and not containers:
            return None
        if containers:
            spec["containers"] = containers
        copied = self._inherit(root, spec, inherited)
        if grace := self._grace(spec):
            field, spec[_GRACE] = grace
            moved["spec", _GRACE] = inherited.get(("spec", *field), (*path, *self.spec, *field))
        if count := self.gpus and member(holder, self.gpus):
            if not spec.get("containers"):  # the place itself describes the only container
                moved["spec", "containers", 0] = path
            spec["containers"] = _with_gpus(spec.get("containers"), count)
        value = {"metadata": metadata, "spec": spec}
        return LaidOutPod(path, place.identity, value, self, moved, inherited, copied)

    def _grace(self, spec: dict[str, Any]) -> tuple[Steps, object] | None:
        """Return another field that sets the grace period, and the period in seconds."""
        if self.patch and (found := _PATCHED_GRACE.search(str(spec.get(self.patch)))):
            return (self.patch,), int(found[1])
        return next((((name,), spec.get(name) or default) for name, default in self.grace), None)

    def _inherit(self, root: object, spec: dict[str, Any], inherited: dict[Steps, Steps]) -> dict[str, Any]:
        """Add inherited fields to the Pod's spec, and their paths to ``inherited``. Return the added fields."""
        copied: dict[str, Any] = {}
        usual = (*_INHERITED, self.patch) if self.patch else _INHERITED
        for source in self.inherits:
            source_spec = member(root, source.spec) if source.spec is not None else None
            for field in source_spec if source.whole and isinstance(source_spec, dict) else usual:
                if spec.get(field) is None and (given := member(source_spec, (field,))) is not None:
                    spec[field] = copied[field] = given
                    inherited["spec", field] = (*(source.spec or ()), field)
        return copied

    def _metadata(self, root: object, holder: dict[str, Any]) -> tuple[dict[str, Any], dict[Steps, Steps]]:
        """Return the Pod's labels and annotations, and the paths of the inherited ones."""
        own = member(holder, self.metadata) if self.metadata is not None else None
        metadata = {name: own[name] for name in _MEMBERS if name in own} if isinstance(own, dict) else {}
        places: dict[Steps, Steps] = {}
        for source in self.inherits:
            if source.metadata is None or not isinstance(source_metadata := member(root, source.metadata), dict):
                continue
            for name in _MEMBERS:
                given, known = source_metadata.get(name), metadata.get(name) or {}
                if not isinstance(given, dict) or not isinstance(known, dict):
                    continue
                places |= {("metadata", name, key): (*source.metadata, name, key) for key in given if key not in known}
                metadata[name] = {**given, **known}
        return metadata, places


class FoundTemplate(msgspec.Struct, frozen=True):
    """A pod template in an object.

    Attributes:
        identity: the path with names in place of indexes, so that reordering a list doesn't change it.
        value: its plain JSON, with ``metadata`` and ``spec``.
    """

    path: Steps
    identity: Steps
    value: dict[str, Any]

    def field(self, text: str) -> str:
        """Convert a field path in the Pod to a field path in the object."""
        return ".".join(filter(None, (field_path(self.path), text)))

    def operations(self, operations: Iterable[Operation]) -> Iterable[Operation]:
        """Convert operations on the Pod to operations on the object."""
        prefix = pointer(self.path)
        return [replace(operation, path=prefix + operation.path) for operation in operations]


class LaidOutPod(FoundTemplate, frozen=True):
    """A Pod built from an object without a pod template.

    Attributes:
        layout: the paths of its fields, relative to ``path``.
        moved: the paths of containers and of the grace period in the object, by their path in the Pod.
        inherited: the paths of inherited labels, annotations, and spec fields in the object, by their path in the Pod.
        copied: the inherited fields of the spec.
    """

    layout: Layout
    moved: Mapping[Steps, Steps]
    inherited: Mapping[Steps, Steps]
    copied: Mapping[str, Any]

    def field(self, text: str) -> str:
        """Convert a field path in the Pod to a field path in the object."""
        for inside, place in (*self.moved.items(), *self.inherited.items(), *self._roots()):
            before = field_path(inside)
            if text == before or (text.startswith(before) and text[len(before)] in ".["):
                return field_path(place) + text[len(before) :]
        return FoundTemplate.field(self, text)

    def operations(self, operations: Iterable[Operation]) -> Iterator[Operation]:
        """Convert operations on the Pod to operations on the object. Skip fields that the object doesn't have.

        A Pod's field overrides the inherited one, so an operation on an inherited field copies the field first.
        """
        copied = dict(self.copied)
        for operation in operations:
            steps = parse_pointer(operation.path)
            field = str(steps[1])
            if self.layout.written is not None and field not in self.layout.written:
                continue
            if field in copied:
                value = msgspec.to_builtins(copied.pop(field))  # a copy, so that additions don't change the object
                yield replace(operation, path=pointer((*self.path, *self.layout.spec, field)), value=value)
            yield replace(operation, path=pointer(self.place(steps)))

    def place(self, steps: Steps) -> Steps:
        """Return the path in the object of a path in the Pod."""
        for inside, place in (*self.moved.items(), *self._roots()):
            if steps[: len(inside)] == inside:
                return (*place, *steps[len(inside) :])
        return (*self.path, *steps)

    def _roots(self) -> Iterator[tuple[Steps, Steps]]:
        yield ("metadata",), self.layout.metadata_of(self.path)
        yield ("spec",), (*self.path, *self.layout.spec)


def steps_of(text: str) -> Steps:
    """Parse a path of member names. ``.`` and an empty text are the place itself.

    Raise ValueError if the text isn't a path of member names.
    """
    steps = tuple(text.split(".")) if text not in {"", "."} else ()
    if not all(step.isalnum() for step in steps):
        raise ValueError(f"{text!r} is not a path of field names, such as template.spec; '.' is the place itself")
    return steps


def member(value: Any, path: Steps) -> Any:
    """Return the value at a path of member names, or None."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _containers(value: object, path: Steps) -> Iterator[tuple[Steps, Any]]:
    if isinstance(value, dict):
        yield path, value
    for index, item in enumerate(value if isinstance(value, list) else ()):
        yield (*path, index), item


def _with_gpus(containers: object, count: object) -> object:
    """Return the containers, with the GPUs in the limits of the first one."""
    name: object = _GPU
    if isinstance(count, dict):
        name, count = count.get("name") or _GPU, count.get("quantity")
    first, *others = containers if isinstance(containers, list) and containers else [{"name": "main"}]
    if not isinstance(first, dict) or not count:
        return containers
    resources = first.get("resources")
    limits = member(resources, ("limits",))
    resources = {
        **(resources if isinstance(resources, dict) else {}),
        "limits": {name: count, **(limits if isinstance(limits, dict) else {})},
    }
    return [{**first, "resources": resources}, *others]

"""Build Pods from workloads that keep their fields elsewhere than in a pod template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.documents import field_path, parse_pointer
from webhook.model.patch import Operation, pointer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Steps = tuple[str | int, ...]
"""A field path: the names of members, and the indexes of items."""

_MEMBERS: Final = ("labels", "annotations")
_INHERITED: Final = ("nodeSelector", "tolerations", "affinity", "schedulerName")
"""Fields of a Pod's spec that a workload gives to all its Pods that do not say otherwise: where to run."""
_GPU: Final = "nvidia.com/gpu"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The place of labels, annotations, and fields of the spec that an object gives to all its Pods.

    Attributes:
        whole: it is the spec of a pod template, and every field of it counts.
    """

    metadata: Steps | None = None
    spec: Steps | None = None
    whole: bool = False

    @classmethod
    def template(cls, path: Steps) -> Source:
        """Return the source for the pod template at a path."""
        return cls(metadata=(*path, "metadata"), spec=(*path, "spec"), whole=True)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The places of a Pod's fields. Paths are relative to the place that the template path names.

    Attributes:
        metadata: what holds labels and annotations; None if they are only inherited.
        spec: what holds the fields of the Pod's spec.
        containers: fields of the spec that hold a container, or a list of them, in addition to ``containers``.
        gpus: the field with the number of GPUs that the Pod requests, if it is not among its containers' resources; or
            with a map of the resource's ``name`` and the ``quantity``.
        inherits: what holds for all Pods of the object, the more particular first.
        written: the fields of the spec that can be written there; None for all.
    """

    metadata: Steps | None = ("metadata",)
    spec: Steps = ("spec",)
    containers: tuple[Steps, ...] = ()
    gpus: Steps = ()
    inherits: tuple[Source, ...] = ()
    written: frozenset[str] | None = None

    def metadata_of(self, path: Steps) -> Steps:
        """Return the path of what holds labels and annotations, for the Pod at a path."""
        if self.metadata is not None:
            return (*path, *self.metadata)
        return next((source.metadata for source in self.inherits if source.metadata is not None), path)

    def pod(self, root: object, place: FoundTemplate) -> LaidOutPod | None:
        """Return the Pod at a place in the object ``root``, or None if there is no container: it makes no Pods."""
        path, holder = place.path, place.value
        metadata, inherited = self._metadata(root, holder)
        spec = member(holder, self.spec)
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
        if count := self.gpus and member(holder, self.gpus):
            if not spec.get("containers"):  # the place itself describes the only container
                moved["spec", "containers", 0] = path
            spec["containers"] = _with_gpus(spec.get("containers"), count)
        value = {"metadata": metadata, "spec": spec}
        return LaidOutPod(path, place.identity, value, self, moved, inherited, copied)

    def _inherit(self, root: object, spec: dict[str, Any], inherited: dict[Steps, Steps]) -> dict[str, Any]:
        """Add the fields that the Pod inherits to its spec, and their places to ``inherited``. Return the fields."""
        copied: dict[str, Any] = {}
        for source in self.inherits:
            source_spec = member(root, source.spec) if source.spec is not None else None
            for field in source_spec if source.whole and isinstance(source_spec, dict) else _INHERITED:
                if spec.get(field) is None and (given := member(source_spec, (field,))) is not None:
                    spec[field] = copied[field] = given
                    inherited["spec", field] = (*(source.spec or ()), field)
        return copied

    def _metadata(self, root: object, holder: dict[str, Any]) -> tuple[dict[str, Any], dict[Steps, Steps]]:
        """Return labels and annotations of the Pod, and the places of those that it inherits."""
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
    """A pod template of an object.

    Attributes:
        identity: what tells it from the other templates.
        value: its plain value, with ``metadata`` and ``spec``.
    """

    path: Steps
    identity: Steps
    value: dict[str, Any]

    def field(self, text: str) -> str:
        """Return the field path in the object of a field path in the Pod."""
        return ".".join(filter(None, (field_path(self.path), text)))

    def operations(self, operations: Iterable[Operation]) -> Iterable[Operation]:
        """Return the operations on the Pod as operations on the object."""
        prefix = pointer(self.path)
        return [replace(operation, path=prefix + operation.path) for operation in operations]


class LaidOutPod(FoundTemplate, frozen=True):
    """A Pod built from an object whose fields are elsewhere than in a pod template.

    Attributes:
        layout: where its fields stand below ``path``.
        moved: containers, by their path in the Pod.
        inherited: labels, annotations and fields of the spec, by their path in the Pod, that the object gives all Pods.
        copied: those fields of the spec.
    """

    layout: Layout
    moved: Mapping[Steps, Steps]
    inherited: Mapping[Steps, Steps]
    copied: Mapping[str, Any]

    def field(self, text: str) -> str:
        """Return the field path in the object of a field path in the Pod."""
        for inside, place in (*self.moved.items(), *self.inherited.items(), *self._roots()):
            before = field_path(inside)
            if text == before or (text.startswith(before) and text[len(before)] in ".["):
                return field_path(place) + text[len(before) :]
        return FoundTemplate.field(self, text)

    def root(self, member: str) -> Steps:
        """Return the path of the Pod's ``metadata`` or ``spec``."""
        return self._place((member,))

    def operations(self, operations: Iterable[Operation]) -> Iterator[Operation]:
        """Yield the operations on the Pod as operations on the object. Leave out those that it has no field for.

        A field of the Pod replaces the one that all Pods inherit, which is copied first.
        """
        copied = dict(self.copied)
        for operation in operations:
            steps = parse_pointer(operation.path)
            field = str(steps[1])
            if self.layout.written is not None and field not in self.layout.written:
                continue
            if field in copied:
                value = msgspec.to_builtins(copied.pop(field))  # a copy: what is added to it must not change the object
                yield replace(operation, path=pointer((*self.path, *self.layout.spec, field)), value=value)
            yield replace(operation, path=pointer(self._place(steps)))

    def _place(self, steps: Steps) -> Steps:
        for inside, place in (*self.moved.items(), *self._roots()):
            if steps[: len(inside)] == inside:
                return (*place, *steps[len(inside) :])
        return (*self.path, *steps)

    def _roots(self) -> Iterator[tuple[Steps, Steps]]:
        yield ("metadata",), self.layout.metadata_of(self.path)
        yield ("spec",), (*self.path, *self.layout.spec)


def steps_of(text: str) -> Steps:
    """Return a path of member names; ``.`` and an empty text are the place itself.

    Raise ValueError if the text is not such a path.
    """
    steps = tuple(text.split(".")) if text not in {"", "."} else ()
    if not all(step.isalnum() for step in steps):
        raise ValueError(f"{text!r} is not a path of field names, such as template.spec; '.' is the place itself")
    return steps


def member(value: object, path: Steps) -> object:
    """Return the member of a JSON object at a path of names, or None."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _containers(value: object, path: Steps) -> Iterator[tuple[Steps, Any]]:
    if isinstance(value, dict):
        yield path, value
    for index, item in enumerate(value if isinstance(value, list) else ()):
        yield (*path, index), item


def _with_gpus(containers: object, count: object) -> object:
    """Return the containers with the GPUs among the limits of the first."""
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

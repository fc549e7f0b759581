"""Reading a node-pool resource into the normalised `Pool`, as its ``CapacityProvider`` document says.

A pool with missing fields or wrong types is read as far as it goes; what could not be read is in ``Pool.problems``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import jmespath
import msgspec
from jmespath.exceptions import JMESPathError

from webhook.capacity.pool import CapacityType, Gpu, Pool, Taint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.globs import Globs


_PLAIN_PATH: Final = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*")
"""An expression that is nothing but a field path, and so also says where to write."""


class Query:
    """A compiled JMESPath expression; an error while searching is no result.

    The library itself raises TypeError and ValueError where values are of mixed types (``[?size > `1`]`` on a string).
    """

    __slots__ = ("_parsed", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parsed = jmespath.compile(text)

    def __call__(self, value: Mapping[str, Any]) -> Any:  # noqa: ANN401, D102 - JSON; the class says it
        try:
            return self._parsed.search(value)
        except (JMESPathError, TypeError, ValueError):
            return None


class InstanceTypes(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance type says; one that is in neither list is unknown."""

    gpu: Globs
    cpu: Globs
    never_spot: Globs

    def classify(self, instance_type: str) -> Gpu:
        """GPU, no GPU, or unknown; letter case does not matter."""
        instance_type = instance_type.casefold()
        if self.gpu.match(instance_type):
            return Gpu.YES
        return Gpu.NO if self.cpu.match(instance_type) else Gpu.UNKNOWN


class PoolReader(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of node-pool resource, and where its fields are.

    Attributes:
        capacity_values: casefolded value of the capacity field -> what it means.
        on_demand_value: how the capacity field spells on-demand; empty where no single value says so.
        unusable: expressions that say it gets no nodes, each with what a person is told.
        known_labels: labels its nodes get without being listed.
    """

    provider: str
    pool_label: str
    instance_types: InstanceTypes
    group: str
    versions: tuple[str, ...]
    kind: str
    resource: str
    namespaced: bool
    scale: bool
    capacity: Query
    capacity_values: Mapping[str, CapacityType]
    capacity_default: CapacityType
    on_demand_value: str
    instance_type: Query | None
    desired: Query
    autoscaling: Query | None
    maximum: Query | None
    taints: Query | None
    labels: Query | None
    known_labels: Mapping[str, Query]
    zones: Query | None
    unusable: tuple[tuple[Query, str], ...]

    def read(self, value: Mapping[str, Any]) -> Pool:
        """The pool that a resource of this kind declares. Never raises for what is in it."""
        problems: list[str] = []
        metadata = value.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        name = str(metadata.get("name") or metadata.get("generateName") or "")
        instance_type = self._instance_type(value, problems)
        capacity = self._capacity(value, problems)
        return Pool(
            provider=self.provider,
            kind=self.kind,
            name=name,
            namespace=str(metadata.get("namespace") or ""),
            capacity=capacity,
            gpu=self.instance_types.classify(instance_type),
            instance_type=instance_type,
            superchip=bool(instance_type) and self.instance_types.never_spot.match(instance_type.casefold()),
            autoscaling=self._flag(self.autoscaling, value, problems),
            desired=self._number(self.desired, value, problems),
            maximum=self._number(self.maximum, value, problems),
            blocked=next((because for when, because in self.unusable if when(value)), ""),
            taints=self._taints(value, problems),
            labels=self._labels(value, name, problems),
            zones=self._zones(value),
            deleting=bool(metadata.get("deletionTimestamp")),
            problems=tuple(problems),
        )

    def on_demand_manifest(
        self, *, name: str, namespace: str, instance_type: str, maximum: int
    ) -> dict[str, Any] | None:
        """An on-demand pool of this kind, as a manifest: the autoscaler fills it from zero, where it has one.

        None where the provider's document does not say plainly enough how such a pool is written.
        """
        sized: list[tuple[Query | None, object]] = [(self.desired, maximum)]
        if self.autoscaling is not None and self.maximum is not None:
            sized = [(self.autoscaling, True), (self.maximum, maximum), (self.desired, 0)]
        fields = [(self.capacity, self.on_demand_value), (self.instance_type, instance_type), *sized]
        metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
        manifest: dict[str, Any] = {
            "apiVersion": f"{self.group}/{self.versions[0]}",
            "kind": self.kind,
            "metadata": metadata,
        }
        for query, value in fields:
            if query is None:
                continue
            if value == "" or not _PLAIN_PATH.fullmatch(query.text):
                return None
            *parents, last = query.text.split(".")
            place = manifest
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
        return manifest

    def _instance_type(self, value: Mapping[str, Any], problems: list[str]) -> str:
        if self.instance_type is None:
            return ""
        found = self.instance_type(value)
        if isinstance(found, str) and found:
            return found
        problems.append(f"{self.instance_type.text} is {'not a string' if found else 'missing'}")
        return ""

    def _capacity(self, value: Mapping[str, Any], problems: list[str]) -> CapacityType:
        written = self.capacity(value)
        if written is None or written == "":
            return self.capacity_default
        if isinstance(written, str | int):  # a flag is an int
            meant = self.capacity_values.get(str(written).casefold())
            if meant is not None:
                return meant
        shown = "a list or map" if isinstance(written, list | dict) else repr(written)[:60]
        problems.append(f"{self.capacity.text} is {shown}, not one of {', '.join(self.capacity_values)}")
        return CapacityType.UNKNOWN

    @staticmethod
    def _flag(query: Query | None, value: Mapping[str, Any], problems: list[str]) -> bool:
        found = query(value) if query is not None else None
        if found is None or isinstance(found, bool):
            return found is True
        problems.append(f"{query.text if query else ''} is neither true nor false")
        return False

    @staticmethod
    def _number(query: Query | None, value: Mapping[str, Any], problems: list[str]) -> int | None:
        found = query(value) if query is not None else None
        if found is None or (isinstance(found, int) and not isinstance(found, bool)):
            return found
        problems.append(f"{query.text if query else ''} is not an integer")
        return None

    def _taints(self, value: Mapping[str, Any], problems: list[str]) -> tuple[Taint, ...]:
        found = self.taints(value) if self.taints is not None else None
        if found is not None and not isinstance(found, list):
            problems.append(f"{self.taints.text if self.taints else ''} is not a list")
        taints: list[Taint] = []
        for index, item in enumerate(found if isinstance(found, list) else ()):
            key, effect = (item.get("key"), item.get("effect")) if isinstance(item, dict) else (None, None)
            if isinstance(key, str) and isinstance(effect, str):
                taints.append(Taint(key, str(item.get("value") or ""), effect))
            else:
                problems.append(f"{self.taints.text if self.taints else ''}[{index}] has no key and effect")
        return tuple(taints)

    def _labels(self, value: Mapping[str, Any], name: str, problems: list[str]) -> dict[str, str]:
        labels: dict[str, str] = {}
        if self.labels is not None and (found := self.labels(value)) is not None:
            if isinstance(found, dict):
                labels |= {key: item for key, item in found.items() if isinstance(item, str)}
                problems += [f"{self.labels.text}[{key!r}] is not a string" for key in found if key not in labels]
            else:
                problems.append(f"{self.labels.text} is not a map")
        for key, query in self.known_labels.items():
            if isinstance(item := query(value), str):
                labels[key] = item
        if name:
            labels[self.pool_label] = name
        return labels

    def _zones(self, value: Mapping[str, Any]) -> frozenset[str]:
        found = self.zones(value) if self.zones is not None else None
        if isinstance(found, str):
            return frozenset((found,))
        return frozenset(zone for zone in found if isinstance(zone, str)) if isinstance(found, list) else frozenset()

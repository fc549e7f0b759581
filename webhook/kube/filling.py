"""Fill in members of plain JSON, in place, from tables of defaults. Skip values of the wrong type."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from webhook.kube.quantity import canonical_quantity

AnyJSON: TypeAlias = Any
"""An unvalidated value from a manifest."""

Members: TypeAlias = dict[str, Any]
AtPaths: TypeAlias = dict[str, Members]


class Tables(msgspec.Struct, frozen=True, rename="camel"):
    """The API server's defaults as data: ``defaults.json``. Kinds are keyed by ``group/kind``, and fields by path.

    Attributes:
        created_pod: fields that an admission plugin sets; it sets ``priority`` only without a PriorityClass.
        probe: defaults that also replace zero.
        volume_sources: defaults by volume source.
        workloads: defaults of the spec of kinds that contain a pod template.
        rolling_updates: defaults of the RollingUpdate strategy, by kind.
        quantities: paths of quantities, by kind.
        services: defaults of the spec of a Service, by its type.
    """

    pod_spec: Members
    created_pod: Members
    priority: Members
    container: AtPaths
    probe: Members
    volume_sources: AtPaths
    volume_parts: AtPaths
    claim: Members
    workloads: dict[str, Members]
    rolling_updates: dict[str, Members]
    objects: dict[str, AtPaths]
    quantities: dict[str, tuple[str, ...]]
    services: dict[str, Members]
    client_ip_session: Members
    cpu_metric: Members
    scaling_behavior: Members


TABLES: Final = msgspec.json.decode(Path(__file__).with_name("defaults.json").read_bytes(), type=Tables)


def canonical(quantities: AnyJSON, names: tuple[str, ...] | None = None) -> None:
    """Convert quantities to their canonical form: all in a mapping, or only those with these names."""
    for name in quantities.keys() if names is None else quantities.keys() & names:
        quantities[name] = canonical_quantity(quantities[name])


def fill(target: AnyJSON, defaults: dict[str, AnyJSON]) -> None:
    """Set missing members and members that are an empty string, recursively."""
    for key, default in defaults.items():
        current = target.get(key)
        nested = isinstance(default, dict)
        if current is None or current == "":
            current = target[key] = {} if nested else default
        if nested and default and isinstance(current, dict):
            fill(current, default)


def fill_empty(target: AnyJSON, defaults: dict[str, AnyJSON]) -> None:
    """Set members that are missing, zero, or empty."""
    target.update({key: default for key, default in defaults.items() if not target.get(key)})


def mapping(value: AnyJSON, *path: str) -> AnyJSON:
    """Return the mapping at the path, or a new empty mapping if there is none."""
    for field in path:
        value = value.get(field) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items_of(parent: AnyJSON, field: str) -> list[AnyJSON]:
    """Return the mappings in a list. Return an empty list if the field isn't a list."""
    items = parent.get(field)
    return [item for item in items if isinstance(item, dict)] if items and isinstance(items, list) else []


def mappings_at(value: AnyJSON, path: str) -> list[AnyJSON]:
    """Return the mappings at a path. ``spec.ports[*]`` selects the items of a list; an empty path, the value itself."""
    steps = _steps(path)
    if steps and steps[0][0] not in value:  # the usual case
        return []
    mappings = [value]
    for field, is_list in steps:
        if is_list:
            mappings = [item for parent in mappings for item in items_of(parent, field)]
        else:
            mappings = [child for parent in mappings if isinstance(child := parent.get(field), dict)]
        if not mappings:
            break
    return mappings


@cache
def _steps(path: str) -> list[tuple[str, bool]]:
    """Split a path into its fields, each with whether it is a list."""
    return [(step.removesuffix("[*]"), step.endswith("[*]")) for step in path.split(".") if step]


def fill_at(value: AnyJSON, defaults: dict[str, dict[str, AnyJSON]]) -> None:
    """Fill in the mappings at these paths, if there are any."""
    for path, members in defaults.items():
        for target in mappings_at(value, path):
            fill(target, members)

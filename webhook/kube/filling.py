"""Read members of plain JSON by their paths, and fill in missing ones in place. Skip values of the wrong type."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from webhook.kube.quantity import canonical_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AnyJSON: TypeAlias = Any
"""An unvalidated value from a manifest."""


def canonical(value: AnyJSON, paths: Iterable[str]) -> None:
    """Convert the quantities at these paths to their canonical form. ``limits.*`` selects all members of ``limits``."""
    for path in paths:
        holder, _, field = path.rpartition(".")
        for quantities in mappings_at(value, holder):
            for name in quantities if field == "*" else quantities.keys() & {field}:
                quantities[name] = canonical_quantity(quantities[name])


def fill(target: AnyJSON, defaults: Mapping[str, AnyJSON]) -> None:
    """Set missing members and members that are an empty string, recursively."""
    for key, default in defaults.items():
        current = target.get(key)
        nested = isinstance(default, dict)
        if current is None or current == "":
            current = target[key] = {} if nested else default
        if nested and default and isinstance(current, dict):
            fill(current, default)


def fill_empty(target: AnyJSON, defaults: Mapping[str, AnyJSON]) -> None:
    """Set members that are missing, zero, or empty."""
    target.update({key: default for key, default in defaults.items() if not target.get(key)})


def fill_at(value: AnyJSON, defaults: Mapping[str, Mapping[str, AnyJSON]]) -> None:
    """Fill in the mappings at these paths, if there are any."""
    for path, members in defaults.items():
        for target in mappings_at(value, path):
            fill(target, members)


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

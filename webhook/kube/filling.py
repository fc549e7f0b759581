"""Fill in members of plain JSON in place, skipping what has the wrong type."""

from __future__ import annotations

from typing import Any, TypeAlias

from webhook.kube.quantity import canonical_quantity

AnyJSON: TypeAlias = Any
"""A value of a manifest that has not been validated yet."""


def canonical(quantities: AnyJSON, names: tuple[str, ...] | None = None) -> None:
    """Write quantities in their canonical form: all in a mapping, or those with these names."""
    for name in quantities.keys() if names is None else quantities.keys() & names:
        quantities[name] = canonical_quantity(quantities[name])


def fill(target: AnyJSON, defaults: dict[str, AnyJSON]) -> None:
    """Set members that are missing or an empty string, recursively."""
    for key, default in defaults.items():
        there = target.get(key)
        nested = isinstance(default, dict)
        if there is None or there == "":
            there = target[key] = {} if nested else default
        if nested and default and isinstance(there, dict):
            fill(there, default)


def fill_empty(target: AnyJSON, defaults: dict[str, AnyJSON]) -> None:
    """Set members that are missing, zero or empty."""
    target.update({key: default for key, default in defaults.items() if not target.get(key)})


def fill_if_there(parent: AnyJSON, field: str, defaults: dict[str, AnyJSON]) -> None:
    """Fill in the mapping in a field, if there is one."""
    if isinstance(target := parent.get(field), dict):
        fill(target, defaults)


def mapping(value: AnyJSON, *path: str) -> AnyJSON:
    """Return the mapping at the path, or a new empty one if there is none."""
    for field in path:
        value = value.get(field) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items_of(parent: AnyJSON, field: str) -> list[AnyJSON]:
    """Return the mappings in a list. Return an empty list if the field is no list."""
    items = parent.get(field)
    return [item for item in items if isinstance(item, dict)] if items and isinstance(items, list) else []


def mappings_at(value: AnyJSON, path: str) -> list[AnyJSON]:
    """Return the mappings at a path, or a new empty one if there are none."""
    mappings = [value]
    for step in filter(None, path.split(".")):
        field = step.removesuffix("[*]")
        if field == step:
            mappings = [mapping(parent, field) for parent in mappings]
        else:
            mappings = [item for parent in mappings for item in items_of(parent, field)]
    return mappings

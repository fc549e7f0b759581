"""Read members of plain JSON by their paths, and fill in missing ones in place. Skip values of the wrong type."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from webhook.kube.quantity import canonical_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AnyJSON: TypeAlias = Any
"""An unvalidated value from a manifest."""


class Defaults(msgspec.Struct):
    """The defaults of a mapping, and of the mappings below it.

    Attributes:
        members: the members to set, as in `fill`.
        quantities: the members with quantities; ``*`` for all members.
        parts: the defaults of each member, and whether it is a list, whose items have them.
    """

    members: Mapping[str, AnyJSON] = {}
    quantities: list[str] = []
    parts: dict[str, tuple[bool, Defaults]] = {}

    @classmethod
    def of(cls, members: Mapping[str, Mapping[str, AnyJSON]], quantities: Iterable[str] = ()) -> Defaults:
        """Build the defaults from the members by path, and the paths of quantities. See `mappings_at`."""
        defaults = cls()
        for path, at in members.items():
            defaults._at(path).members = at
        for path in quantities:
            holder, _, field = path.rpartition(".")
            defaults._at(holder).quantities.append(field)
        return defaults

    def _at(self, path: str) -> Defaults:
        defaults = self
        for field, is_list in _steps(path):
            defaults = defaults.parts.setdefault(field, (is_list, Defaults()))[1]
        return defaults


def fill_in(value: AnyJSON, defaults: Defaults) -> None:
    """Fill in a mapping and the mappings below it, and convert the quantities to their canonical form."""
    if defaults.members:
        fill(value, defaults.members)
    for field in defaults.quantities:
        for name in value if field == "*" else value.keys() & {field}:
            value[name] = canonical_quantity(value[name])
    for field, (is_list, part) in defaults.parts.items():
        below = value.get(field)
        if isinstance(below, list) and is_list:
            for item in below:
                if isinstance(item, dict):
                    fill_in(item, part)
        elif isinstance(below, dict) and not is_list:
            fill_in(below, part)


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

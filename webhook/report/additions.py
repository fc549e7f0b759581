"""Describe the fields that a patch adds."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.field_paths import FieldPath, field_path, parse_pointer
from webhook.documents.yaml_writer import dump

if TYPE_CHECKING:
    from collections.abc import Mapping


_WIDTH: Final = 92
_END: Final = "-"
"""The last step of a JSON pointer that appends an item."""


class Addition(msgspec.Struct, frozen=True):
    """An added field.

    Attributes:
        field: the field path; ``spec.tolerations[+]`` appends an item to a list.
        name: the last field name in the path, such as ``tolerations``.
    """

    field: str
    name: str
    value: Any


def addition_of(operation: Mapping[str, Any], depth: int = 0) -> Addition:
    """Return the addition of a JSONPatch operation.

    ``depth`` is the number of steps from the document to the object, such as in a List. Omit these steps.
    """
    path = parse_pointer(operation["path"])[depth:]
    name = next((step for step in reversed(path) if isinstance(step, str) and step != _END), "")
    return Addition(field_at(path), name, operation["value"])


def field_at(path: FieldPath) -> str:
    """Return the field of a JSON pointer's path. ``spec.tolerations[+]`` appends an item to a list."""
    return field_path(path).replace(f'["{_END}"]', "[+]")


def as_field(field: str, value: object) -> str:
    """Format a field and its value as YAML."""
    shown = dump(value, width=_WIDTH)
    return f"{field}:\n{indent(shown, '    ')}" if isinstance(value, dict | list) else f"{field}: {shown}"

"""Describe for people the fields that a patch adds."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.documents import field_path, parse_pointer
from webhook.documents.yaml_writer import dump

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.documents import FieldPath


_WIDTH: Final = 92
_END: Final = "-"
"""The last step of a JSON pointer that appends an item."""


class Addition(msgspec.Struct, frozen=True):
    """An added field.

    Attributes:
        field: its path; ``spec.tolerations[+]`` is a further item of a list.
        name: the last member of the path: ``tolerations``.
    """

    field: str
    name: str
    value: Any


def addition_of(operation: Mapping[str, Any], depth: int = 0) -> Addition:
    """Return the addition that an operation of a JSONPatch makes.

    ``depth`` is the number of steps from the document to the object, as in a List; they are left out.
    """
    path = parse_pointer(operation["path"])[depth:]
    name = next((step for step in reversed(path) if isinstance(step, str) and step != _END), "")
    return Addition(field_at(path), name, operation["value"])


def field_at(path: FieldPath) -> str:
    """Return the field of a JSON pointer's path; ``spec.tolerations[+]`` is a further item of a list."""
    return field_path(path).replace(f'["{_END}"]', "[+]")


def as_yaml(value: object) -> str:
    """Return a value as YAML, in block style."""
    return dump(value, width=_WIDTH)


def as_field(field: str, value: object) -> str:
    """Return a field and its value as YAML."""
    shown = as_yaml(value)
    return f"{field}:\n{indent(shown, '    ')}" if isinstance(value, dict | list) else f"{field}: {shown}"

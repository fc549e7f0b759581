"""What a patch adds, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.documents import field_path, parse_pointer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.documents import Path


_END: Final = "-"
"""Where JSON pointers have an item added."""


class Addition(msgspec.Struct, frozen=True):
    """A field that is added.

    Attributes:
        field: its path; ``spec.tolerations[+]`` is a further item of a list.
        name: of that the last member: ``tolerations``.
        value: JSON.
    """

    field: str
    name: str
    value: Any


def addition_of(operation: Mapping[str, Any], depth: int = 0) -> Addition:
    """The addition that an operation of a JSONPatch makes.

    Args:
        operation: of the patch of a document.
        depth: how far in the document the object is, as for the items of a List: so many steps are left out.
    """
    path = parse_pointer(operation["path"])[depth:]
    name = next((step for step in reversed(path) if isinstance(step, str) and step != _END), "")
    return Addition(field_at(path), name, operation["value"])


def field_at(path: Path) -> str:
    """The field of a JSON pointer's path; ``spec.tolerations[+]`` is a further item of a list."""
    return field_path(path).replace(f'["{_END}"]', "[+]")

"""Build specs from what users write in a document."""

from __future__ import annotations

from typing import TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


def spec_of(kind: type[T], written: object) -> T:
    """Return the validated spec. Raise pydantic's ValidationError if it has mistakes."""
    return TypeAdapter(kind).validate_python(written)

"""Build specs from what users write in a document."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def spec_of(kind: type[T], written: object) -> T:
    """Return the validated spec. Raise pydantic's ValidationError if it has mistakes."""
    spec: T = _adapter(kind).validate_python(written)
    return spec

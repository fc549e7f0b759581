"""Measure how large the values are that expressions read: `webhook.cel.limits` estimates by it."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOOKED_AT: Final = 1000
"""Values at a path that are measured one by one, which takes 4 ms. Of more, one may be as large as all."""

Path = tuple[str | None, ...]
"""A variable, and fields below it; None for all items of a list or map."""


class Extent(NamedTuple):
    """How large what is at a path is at most. Numbers are rounded up, as estimates are kept by them.

    Attributes:
        values: how many there are in one value, in lists and maps of any depth, and itself.
        size: bytes of its JSON.
        length: items of it, or bytes of a string.
        number: how many values are at the path: one for each item of a list, where the path leads through items.
        all_values: the values in all of them.
        all_size: bytes of all of them.
    """

    values: float = 1
    size: float = 0
    length: float = 0
    number: float = 1
    all_values: float = 1
    all_size: float = 0


class Measured:
    """Some values, and how large they are: measured when an expression first asks."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: value for name, value in values.items() if isinstance(value, list | dict | str)}
        self._extents: dict[Path, Extent] = {}
        self.size = len(msgspec.json.encode(self._values))

    @cached_property
    def values(self) -> int:
        """How many there are."""
        return _counted(self._values)[0]

    @cached_property
    def whole(self) -> Extent:
        """Return an extent that nothing in it exceeds."""
        values, size = _up(self.values), _up(self.size)
        return Extent(values, size, size, values, values, size)

    def at(self, path: Path) -> Extent:
        """Return the extent of what is at this path."""
        if path not in self._extents:
            self._extents[path] = _extent(self._found(path))
        return self._extents[path]

    def _found(self, path: Path) -> list[Any]:
        found: list[Any] = [self._values]
        for step in path:
            if step is None:
                maps = chain.from_iterable((each, each.values()) for each in found if isinstance(each, dict))
                found = list(chain.from_iterable((*maps, *(each for each in found if isinstance(each, list)))))
            else:
                found = [each[step] for each in found if isinstance(each, dict) and step in each]
        return found


def _counted(value: object) -> tuple[int, int]:
    """Return how many values there are, and the bytes of their JSON."""
    json = msgspec.json.encode(value)
    outside = b"".join(json.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) + 1, len(json)


def _extent(found: list[Any]) -> Extent:
    all_values, all_size = _counted(found)
    values, size = all_values, all_size
    if len(found) <= _LOOKED_AT:
        values, size = map(max, zip(*map(_counted, found), strict=True)) if found else (1, 0)
    length = max((size if isinstance(each, str) else len(each) for each in found if _has_size(each)), default=0)
    return Extent(*map(_up, (values, size, length, len(found), all_values, all_size)))


def _has_size(value: object) -> bool:
    return isinstance(value, list | dict | str)


def _up(number: int) -> int:
    """Round up to two digits of a number of powers of two: by a quarter at most."""
    step = 1 << max(number.bit_length() - 3, 0)
    return -(-number // step) * step

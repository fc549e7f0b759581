"""Measure how large the values are that expressions read, for the estimates of `webhook.cel.limits`."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.cel.protocol import ReadPath

_MEASURED_AT_MOST: Final = 1000
"""Values at a path that are measured one by one, which takes 4 ms. If there are more, one counts as large as all."""


class Sizes(NamedTuple):
    """Hold the largest sizes of the values at a path. Numbers are rounded up, because estimates are cached by them.

    Attributes:
        values: in one value: itself and all in it, at any depth.
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
    """Hold values whose sizes are measured when an expression first needs them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: value for name, value in values.items() if isinstance(value, list | dict | str)}
        self._sizes: dict[ReadPath, Sizes] = {}
        self.size = len(msgspec.json.encode(self._values))

    @cached_property
    def values(self) -> int:
        """Return the number of values."""
        return _counted(self._values)[0]

    @cached_property
    def whole(self) -> Sizes:
        """Return sizes that no value at any path exceeds."""
        values, size = _up(self.values), _up(self.size)
        return Sizes(values, size, size, values, values, size)

    def at(self, path: ReadPath) -> Sizes:
        """Return the sizes of the values at a path."""
        if path not in self._sizes:
            self._sizes[path] = _sizes(self._found(path))
        return self._sizes[path]

    def _found(self, path: ReadPath) -> list[Any]:
        found: list[Any] = [self._values]
        for step in path:
            if step is None:
                maps = chain.from_iterable((each, each.values()) for each in found if isinstance(each, dict))
                found = list(chain.from_iterable((*maps, *(each for each in found if isinstance(each, list)))))
            else:
                found = [each[step] for each in found if isinstance(each, dict) and step in each]
        return found


def _counted(value: object) -> tuple[int, int]:
    """Return the number of values in a value, and the bytes of its JSON."""
    json = msgspec.json.encode(value)
    outside = b"".join(json.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) + 1, len(json)


def _sizes(found: list[Any]) -> Sizes:
    all_values, all_size = _counted(found)
    values, size = all_values, all_size
    if len(found) <= _MEASURED_AT_MOST:
        values, size = map(max, zip(*map(_counted, found), strict=True)) if found else (1, 0)
    length = max((size if isinstance(each, str) else len(each) for each in found if _has_size(each)), default=0)
    return Sizes(*map(_up, (values, size, length, len(found), all_values, all_size)))


def _has_size(value: object) -> bool:
    return isinstance(value, list | dict | str)


def _up(number: int) -> int:
    """Round up to the next of four steps between two powers of two: by a quarter at most."""
    step = 1 << max(number.bit_length() - 3, 0)
    return -(-number // step) * step

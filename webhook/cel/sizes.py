"""Measure the size of the values that expressions read, for the estimates of `webhook.cel.limits`."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.cel.errors import ReadPath

VALUE_NS: Final = 300
"""Nanoseconds to read or compare a value."""
BYTE_NS: Final = 15
"""Nanoseconds to process a byte of a value."""
_MEASURED_AT_MOST: Final = 1000
"""The maximum number of values at a path to measure individually, which takes 4 ms. Beyond it, the largest value counts
as large as all values together."""


class ReadCost(NamedTuple):
    """The cost to read the values at a path. Numbers are rounded up, because estimates are cached by them.

    Attributes:
        one: nanoseconds to read the largest value, including nested values.
        all: nanoseconds to read all values.
        items: items of the longest list or map, or characters of the longest string.
        number: the number of values at the path, one for each item of a list that the path leads through.
    """

    one: float = VALUE_NS
    all: float = VALUE_NS
    items: float = 0
    number: float = 1


class Measured:
    """Values whose sizes are measured on first use."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: value for name, value in values.items() if isinstance(value, list | dict | str)}
        self._read_costs: dict[ReadPath, ReadCost] = {}
        self.values, self.size = _counted(self._values)

    @cached_property
    def whole(self) -> ReadCost:
        """Return an upper bound on the cost of every path."""
        cost = _rounded_up(self.values * VALUE_NS + self.size * BYTE_NS)
        return ReadCost(cost, cost, _rounded_up(self.size), _rounded_up(self.values))

    def at(self, path: ReadPath) -> ReadCost:
        """Return the cost to read the values at a path."""
        if path not in self._read_costs:
            items = self._items_at(path)
            every = _cost(items)
            one = max(map(_cost, items), default=VALUE_NS) if len(items) <= _MEASURED_AT_MOST else every
            length = max((len(item) for item in items if isinstance(item, str | list | dict)), default=0)
            self._read_costs[path] = ReadCost(*map(_rounded_up, (one, every, length, len(items))))
        return self._read_costs[path]

    def _items_at(self, path: ReadPath) -> list[Any]:
        items: list[Any] = [self._values]
        for step in path:
            if step is None:
                maps = chain.from_iterable((item, item.values()) for item in items if isinstance(item, dict))
                items = list(chain.from_iterable((*maps, *(item for item in items if isinstance(item, list)))))
            else:
                items = [item[step] for item in items if isinstance(item, dict) and step in item]
        return items


def _counted(value: object) -> tuple[int, int]:
    """Return the number of nested values, and the bytes of the JSON."""
    json = msgspec.json.encode(value)
    outside = b"".join(json.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) + 1, len(json)


def _cost(value: object) -> int:
    """Return the nanoseconds to read a value."""
    values, size = _counted(value)
    return values * VALUE_NS + size * BYTE_NS


def _rounded_up(number: int) -> int:
    """Round up to the next of four steps between two powers of two: by at most a quarter."""
    step = 1 << max(number.bit_length() - 3, 0)
    return -(-number // step) * step

"""Measure how large the values are that expressions read, for the estimates of `webhook.cel.limits`."""

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
"""Nanoseconds to do anything with a byte of it."""
_MEASURED_AT_MOST: Final = 1000
"""Values at a path that are measured one by one, which takes 4 ms. If there are more, one counts as large as all."""


class ReadCost(NamedTuple):
    """The cost to read the values at a path. Numbers are rounded up, because estimates are cached by them.

    Attributes:
        one: nanoseconds to read the largest value there, with all in it.
        all: nanoseconds to read all of them.
        items: of the longest list or map there, or characters of the longest string.
        number: how many values are at the path: one for each item of a list, where the path leads through items.
    """

    one: float = VALUE_NS
    all: float = VALUE_NS
    items: float = 0
    number: float = 1


class Measured:
    """Values whose sizes are measured when an expression first needs them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {name: value for name, value in values.items() if isinstance(value, list | dict | str)}
        self._read_costs: dict[ReadPath, ReadCost] = {}
        self.values, self.size = _counted(self._values)

    @cached_property
    def whole(self) -> ReadCost:
        """Return a cost that nothing at any path exceeds."""
        cost = _rounded_up(self.values * VALUE_NS + self.size * BYTE_NS)
        return ReadCost(cost, cost, _rounded_up(self.size), _rounded_up(self.values))

    def at(self, path: ReadPath) -> ReadCost:
        """Return the cost to read what stands at a path."""
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
    """Return the number of values in a value, and the bytes of its JSON."""
    json = msgspec.json.encode(value)
    outside = b"".join(json.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) + 1, len(json)


def _cost(value: object) -> int:
    """Return the nanoseconds to read a value."""
    values, size = _counted(value)
    return values * VALUE_NS + size * BYTE_NS


def _rounded_up(number: int) -> int:
    """Round up to the next of four steps between two powers of two: by a quarter at most."""
    step = 1 << max(number.bit_length() - 3, 0)
    return -(-number // step) * step

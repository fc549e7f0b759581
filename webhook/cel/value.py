"""The largest value that a part of an expression may have: what `webhook.cel.cost` walks an expression with."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NS_OF_A_VALUE: Final = 300
"""Nanoseconds to compare a value of JSON, besides its bytes, and those in it."""
NS_OF_A_BYTE: Final = 0.2
"""To compare one of a string."""


class Value(NamedTuple):
    """What a value is at most.

    Attributes:
        length: items of it.
        inner: items of a list or map in it.
        depth: of lists and maps in each other; 0: it is a string or a number.
        text: bytes of it, or of a string in it.
        made: those of them that are not of what is shown.
        number: the integer that it is.
        once: nanoseconds to compare all of it.
        total: the same of all the times together that it is evaluated.
        again: how many times each of its strings is among these.
        part: its fields are fields of what is shown.
    """

    length: float = 0
    inner: float = 0
    depth: float = 0
    text: float = 0
    made: float = 0
    number: float = inf
    once: float = NS_OF_A_VALUE
    total: float = 0
    again: float = 0
    part: bool = True

    def item(self, times: float) -> Value:
        """One of its items."""
        return self._replace(length=self.inner, depth=self.depth - 1) if self.depth > 1 else self.plain(times)

    def plain(self, times: float) -> Value:
        """As a string or number."""
        once = min(self.once, NS_OF_A_VALUE + self.text * NS_OF_A_BYTE)
        return self._replace(length=0, inner=0, depth=0, once=once, total=min(self.total, times * once))

    def items(self, times: float) -> float:
        """Items of all times together."""
        return min(times * self.length, self.total / NS_OF_A_VALUE)


def string(text: float, times: float) -> Value:
    """A string that is made."""
    once = NS_OF_A_VALUE + text * NS_OF_A_BYTE
    return Value(text=text, made=text, once=once, total=times * once, again=times)


def made(parts: list[Value], times: float) -> Value:
    """A list or map of them."""
    if not parts:
        return Value(depth=1, total=times * NS_OF_A_VALUE, again=times)
    largest = merged(parts, max)
    return largest._replace(
        length=len(parts),
        inner=max(largest.length, largest.inner),
        depth=largest.depth + 1,
        once=NS_OF_A_VALUE + sum(part.once for part in parts),
        total=largest.total + times * NS_OF_A_VALUE,
        part=largest.part and len(parts) == 1,  # an item: a map has keys, too
    )


def merged(values: list[Value], of: Callable[[Iterable[float]], float]) -> Value:
    """One of them, or all of them behind each other."""
    return Value(
        length=of(each.length for each in values),
        inner=max(each.inner for each in values),
        depth=max(each.depth for each in values),
        text=of(each.text for each in values),
        made=max(each.made for each in values),
        number=of(each.number for each in values),
        once=of(each.once for each in values),
        total=sum(each.total for each in values),
        again=sum(each.again for each in values),
        part=all(each.part for each in values),
    )

"""How large the values are that expressions are evaluated over: what `webhook.cel.cost` estimates by."""

from __future__ import annotations

from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from webhook.caching import identity_cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_REMEMBERED: Final = 4
"""Values kept measured: the newest node pools, and those of requests under way."""
_LOOKED_AT: Final = 50_000
"""Values that are looked at one by one, which takes 20 ms. Of more, each field may be as large as all of them."""


class Field(NamedTuple):
    """The largest value that a field has anywhere.

    Attributes:
        length: of the longest list or map.
        text: bytes of the longest string, or string in a list or map.
        depth: 0: there is no list or map; 1: there are strings and numbers in it; 2: others.
    """

    length: int = 0
    text: int = 0
    depth: int = 0


class Extent(NamedTuple):
    """How large some values are at most. Numbers are rounded up, as estimates are kept by them.

    Attributes:
        values: how many there are, in lists and maps of any depth.
        size: bytes of their JSON.
        length: of the longest list or map.
        text: bytes of the longest string.
        fields: what fields have; None: anything.
        pieces: into how many pieces separators split all strings together.
    """

    values: int
    size: int
    length: int
    text: int
    fields: tuple[Field, ...] | None
    pieces: tuple[int, ...]


class Shown:
    """Some values, measured when an expression first asks."""

    def __init__(self, values: Iterable[Any]) -> None:
        """Values of JSON; what is no list or map does not count."""
        self._values = [value for value in values if isinstance(value, list | dict)]

    def extent(self, fields: Iterable[str] | None, separators: Iterable[str]) -> Extent:
        """Their extent, as far as it matters to an expression that names these.

        Without fields (None) it takes a tenth of the time, and is larger.
        """
        pieces = tuple([self._pieces(each) for each in separators])
        values, size = self._rounded
        if fields is None or self._fields is None:
            return Extent(values, size, values, size, None, pieces)
        known = self._fields
        longest = known[""]
        there = tuple([known.get(field, _ABSENT) for field in fields])
        return Extent(values, size, longest.length, longest.text, there, pieces)

    def _pieces(self, separator: str) -> int:
        return _up(self._strings.count(separator.encode()) + self._strings.count(b"\\"))

    @cached_property
    def size(self) -> int:
        """Bytes of their JSON."""
        return len(self._json)

    @cached_property
    def values(self) -> int:
        """How many there are."""
        return sum(map(b"".join(self._parts[::2]).count, (b",", b"[", b"{"))) + 1

    @cached_property
    def _rounded(self) -> tuple[int, int]:
        return _up(self.values), _up(self.size)

    @cached_property
    def _json(self) -> bytes:
        return msgspec.json.encode(self._values)

    @cached_property
    def _parts(self) -> list[bytes]:
        """Of the JSON; every other is a string, in which a character that was escaped is a backslash and another."""
        return self._json.replace(rb"\\", rb"\_").replace(rb"\"", rb"\_").split(b'"')

    @cached_property
    def _strings(self) -> bytes:
        return b'"'.join(self._parts[1::2])

    @cached_property
    def _fields(self) -> Mapping[str, Field] | None:
        if self.values > _LOOKED_AT:
            return None
        return _fields(self._values, 1 if self._json.isascii() else 4)


@identity_cache(maxsize=_REMEMBERED)
def measured(value: object) -> Shown:
    """One value that many objects are judged with: what was measured of it is remembered."""
    return Shown([value])


_ABSENT: Final = Field()


def _fields(values: list[Any], bytes_at_most: int) -> dict[str, Field]:
    """What each field has, and ``""`` for all; of a character so many bytes."""
    lengths: dict[str, int] = {}
    texts: dict[str, int] = {}
    nested: set[str] = set()
    left: list[tuple[str, Any]] = [("", values)]
    while left:
        name, value = left.pop()
        is_map = type(value) is dict
        longest = max(map(len, value), default=0) if is_map else 0
        for field, each in value.items() if is_map else zip(repeat(""), value):
            kind = type(each)
            if kind is str:
                long = len(each)
                if long > longest:  # noqa: PLR1730
                    longest = long
                if field not in texts or long > texts[field]:
                    texts[field] = long
            elif kind is dict or kind is list:
                nested.add(name)
                left.append((field, each))
        if name not in lengths or len(value) > lengths[name]:
            lengths[name] = len(value)
        if name not in texts or longest > texts[name]:
            texts[name] = longest
    texts = {field: _up(text * bytes_at_most) for field, text in texts.items()}
    whole = Field(_up(max(lengths.values())), max(texts.values(), default=0), 2)
    fields = {field: Field(0, text, 0) for field, text in texts.items()}
    for field, length in lengths.items():
        text = whole.text if field in nested else texts.get(field, 0)
        fields[field] = Field(_up(length), text, 2 if field in nested else 1)
    return fields | {"": whole}


def _up(number: int) -> int:
    """Rounded up to two digits of a number of powers of two: by a quarter at most."""
    step = 1 << max(number.bit_length() - 3, 0)
    return -(-number // step) * step

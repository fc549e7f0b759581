"""How long an expression may take over values of an extent: estimated before it is evaluated, which nothing interrupts.

The library itself stops after 10,000 rounds of all loops together, and not within one round, where
``x in object.spec.names`` may look at a million items. So the tree of the expression is walked with the largest value
that each node may have (`webhook.cel.value`) and how many times it is evaluated, and what it takes is added up:

- A field is as large as the largest value that a field of its name has anywhere in the object: ``image`` is a string
  of at most so many bytes, ``containers`` a list that may have as many items as the longest list.
- In ``list.all(x, ...)`` the items of all rounds together are as large as the list (`Value.total`); whatever else is
  read in a round is read whole in each.
- ``map`` and ``filter`` copy what they have with each item that they add: the square of the length.

So an estimate is what takes longest on any object of that extent, and mostly far more than what an object takes. The
functions in Python are counted as they are called (`webhook.cel.meter`), out of the same budget.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Final

from webhook.cel import ExpressionError
from webhook.cel.extent import Extent, Field
from webhook.cel.functions import pattern_of
from webhook.cel.tree import Call, Const, Ident, Loop, Make, Node, Select, walk
from webhook.cel.value import NS_OF_A_BYTE as _BYTE
from webhook.cel.value import NS_OF_A_VALUE as _VALUE
from webhook.cel.value import Value, made, merged, string

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

BUDGET_NS: Final = 500_000_000
"""For all expressions on one object."""
ROUNDS_AT_MOST: Final = 10_000
"""Of all loops of an evaluation together; the library's own limit."""

# Nanoseconds, of what was measured to take longest
_STEP: Final = 120  # for each node of the tree, each time
_PART: Final = 300  # for each part of a list or map that is written out, each time: it is made anew
_ITEM: Final = 100  # to copy an item of a list
_ITEM_KEPT: Final = 60  # to copy it with each that is added by `map`
_ITEM_SORTED: Final = 300
_PAIR: Final = 30  # of items, where each is looked for among others
_PIECE: Final = 130  # to split off
_VALUE_CONVERTED: Final = 1200  # for a function in Python that takes a list
_BYTE_SOUGHT: Final = 0.03  # for each byte of a string, and each of that which is sought in it
_BYTE_READ: Final = 10  # by most functions
_BYTE_READ_BY: Final = {
    **dict.fromkeys(("_+_", "charAt", "contains", "find", "lowerAscii"), 3),
    **dict.fromkeys(("Matches", "Substring", "size", "string", "upperAscii"), 3),
    **dict.fromkeys(("format", "getQuery", "join", "replace"), 40),
}

_PATTERN_AT_MOST: Final = 1000
_PATTERNS: Final = {"Matches": "matches", "find": "find", "findAll": "findAll"}
_LOGIC: Final = frozenset({"_&&_", "_||_", "!_", "@not_strictly_false", "optional.none", "hasValue", "type"})
_COMPARING: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith"})
_SAME: Final = frozenset({"dyn", "optional.of", "optional.ofNonZeroValue", "value"})
_SEEKING: Final = frozenset({"contains", "indexOf", "lastIndexOf", "split", "replace"})
_SUBSTRINGS: Final = frozenset({"Substring", "charAt", "find", "trim"})
_SUBLISTS: Final = frozenset({"sort", "@sortByAssociatedKeys", "distinct", "slice", "reverse"})
_CONVERTED: Final = frozenset({"isSorted", "sum", "min", "max"})


class Cost:
    """What an expression costs.

    Attributes:
        fields: that it names.
        separators: that it splits strings by.
        nanoseconds: what it takes at most where what is shown has the first extent, and the pools the second; the first
            again where it names no pools.
    """

    __slots__ = ("fields", "nanoseconds", "separators")

    def __init__(self, tree: Node) -> None:
        """The cost of an expression.

        Raises:
            ExpressionError: an object could make it cost anything.
        """
        self.fields = tuple(sorted(set(_fields(tree))))
        self.separators = tuple(sorted(set(_separators(tree))))

        @lru_cache(maxsize=512)
        def nanoseconds(shown: Extent, pools: Extent) -> float:
            estimate = _Estimate(self, shown, pools)
            estimate.of(tree, {}, 1)
            return estimate.nanoseconds

        self.nanoseconds: Callable[[Extent, Extent], float] = nanoseconds
        nothing = Extent(0, 0, 0, 0, None, (0,) * len(self.separators))
        nanoseconds(nothing, nothing)


class _Estimate:
    """Adds up what the nodes of a tree take."""

    def __init__(self, cost: Cost, shown: Extent, pools: Extent) -> None:
        self.nanoseconds = 0.0
        self.shown = shown
        self.pools = pools
        self.pieces: dict[str | None, float] = dict(
            zip(cost.separators, map(max, shown.pieces, pools.pieces), strict=True)
        )
        self.fields: dict[str, tuple[Field, Field]] = {}
        if shown.fields is not None and pools.fields is not None:
            self.fields = dict(zip(cost.fields, zip(shown.fields, pools.fields, strict=True), strict=True))

    def of(self, node: Node, names: Mapping[str, Value], times: float) -> Value:
        """What a node gives that is evaluated so many times, with these values bound to names."""
        self.nanoseconds += times * _STEP
        match node:
            case Const():
                return _literal(node, times)
            case Ident(name):
                return names[name] if name in names else self._variable(name, times)
            case Select(operand, field):
                return self._field(self.of(operand, names, times), field, times)
            case Make(parts):
                self.nanoseconds += times * len(parts) * _PART
                return made([self.of(part, names, times) for part in parts], times)
            case Loop():
                return self._loop(node, names, times)
            case Call():
                _check_pattern(node)
                return self._call(node, [self.of(arg, names, times) for arg in node.args], times)

    def _variable(self, name: str, times: float) -> Value:
        of = self.pools if name == "pools" else self.shown
        once = of.values * _VALUE + of.size * _BYTE
        return Value(of.length, of.length, inf, of.text, once=once, total=times * once, again=times)

    def _field(self, value: Value, field: str, times: float) -> Value:
        item = value.item(times)
        if not value.part or not self.fields:
            return item
        length, text, depth = map(max, *self.fields[field])  # of what is shown, and of the pools
        item = item._replace(length=min(item.length, length), text=min(item.text, text))
        if depth > 1:
            return item
        once = min(value.once, _VALUE + length * (_VALUE + text * _BYTE))
        flat = item._replace(inner=0, depth=1, once=once, total=min(value.total, times * once))
        return flat if depth else item.plain(times)

    def _loop(self, loop: Loop, names: Mapping[str, Value], times: float) -> Value:
        start = self.of(loop.start, names, times)
        if loop.binds:
            return self.of(loop.result, {**names, loop.accumulator: start}, times)
        span = self.of(loop.range, names, times)
        rounds = min(span.items(times), ROUNDS_AT_MOST)
        inside = {name: value._replace(total=rounds * value.once, again=rounds) for name, value in names.items()}
        inside |= dict.fromkeys(loop.variables, span.item(rounds))
        inside[loop.accumulator] = Value(once=0)
        self.of(loop.condition, inside, rounds)
        step = self.of(loop.step, inside, rounds)
        if not isinstance(loop.start, Make):
            return Value(total=times * _VALUE)
        self.nanoseconds += rounds * span.length * _ITEM_KEPT
        return step._replace(length=span.length, once=_VALUE + min(step.total, span.length * step.once))

    def _call(  # noqa: C901, PLR0911 - one case for each sort of function
        self, call: Call, args: list[Value], times: float
    ) -> Value:
        plain = Value(total=times * _VALUE, again=times)
        if not args or call.function in _LOGIC:
            return plain
        first, last = args[0], args[-1]
        match call.function:
            case name if name in _SAME:
                return first
            case "_?_:_":
                return merged(args[1:], max)
            case "or" | "orValue":
                return merged(args, max)
            case "_?._" | "_[_]" | "_[?_]":
                field = _literal_text(call.args[1])
                return first.item(times) if field is None else self._field(first, field, times)
            case "first" | "last":
                return first.item(times)
            case name if name in _COMPARING:  # they stop where the shorter of the two ends
                self.nanoseconds += min(arg.total for arg in args)
                return plain
            case "@in":
                self._seek(first, last, times, 1)
                return plain
            case "sets.contains" | "sets.equivalent" | "sets.intersects":
                self._seek(first, last, times, first.length)
                return plain
            case "_+_" if first.once == 0:  # the list that a loop makes
                return last
        self._read(call.function, args, times)
        return self._result(call, args, times)

    def _seek(self, what: Value, among: Value, times: float, length: float) -> None:
        """Each of so many items in a list."""
        self.nanoseconds += times * length * among.length * _PAIR
        if what.depth > (length > 1) and among.depth > 1:
            self.nanoseconds += min(length * among.total, among.length * what.total)
        else:
            self.nanoseconds += length * among.length * times * min(what.text, among.text) * _BYTE

    def _read(self, function: str, args: list[Value], times: float) -> None:
        """What most functions take: they read their strings and lists once."""
        of_a_byte: float = _BYTE_READ_BY.get(function, _BYTE_READ)
        of_an_item = _ITEM_SORTED if function in {"sort", "@sortByAssociatedKeys"} else _ITEM
        if function in _SEEKING:
            of_a_byte += args[1].text * _BYTE_SOUGHT
        for arg in args:
            self.nanoseconds += self._bytes(arg, times) * of_a_byte + arg.items(times) * of_an_item
        if function in _CONVERTED:
            self.nanoseconds += args[0].total / _VALUE * _VALUE_CONVERTED
        if function == "distinct":
            self._seek(args[0], args[0], times, args[0].length)

    def _bytes(self, value: Value, times: float) -> float:
        """Of the strings in a value, of all times together."""
        shown = value.again * max(self.shown.size, self.pools.size) + value.total / _VALUE * value.made
        return min(shown, times * value.text * max(value.length, 1)) if value.depth <= 1 else shown

    def _result(  # noqa: C901, PLR0911 - one case for each sort of function
        self, call: Call, args: list[Value], times: float
    ) -> Value:
        first, *others = args
        text = sum(arg.text for arg in others)
        match call.function:
            case name if name in _SUBSTRINGS:
                return first.plain(times)
            case name if name in _SUBLISTS:
                return first
            case "flatten":
                length = max(first.length, min(first.length * first.inner, first.once / _VALUE))
                return first._replace(length=length, depth=max(1, first.depth - 1))
            case "size":
                return Value(number=max(first.length, first.text), total=times * _VALUE, again=times)
            case "lists.range":
                return self._range(first.number, times)
            case "_+_" | "_-_":
                joined = merged(args, sum)
                return joined if all(arg.depth for arg in args) else joined._replace(made=joined.text)
            case "split":
                return self._split(first, self.pieces.get(_literal_text(call.args[1]), first.text), times)
            case "findAll" | "getQuery":
                return self._split(first, first.text, times)._replace(part=False)
            case "join":
                text = first.length * (first.text + text)
            case "format":
                text = first.text + sum(arg.once / _BYTE for arg in others)
            case "replace":
                old, new = others[0].text, others[1].text
                known = old and _literal_text(call.args[1]) is not None
                text = first.text * max(1, new / old if known else 1 + new) + new
            case _:
                return string(max(first.text, text), times)
        self.nanoseconds += times * text
        return string(text, times)

    def _range(self, number: float, times: float) -> Value:
        if number == inf:
            raise ExpressionError(
                "lists.range() takes a literal of at most 10000 or a size(): no object may choose how many"
            )
        self.nanoseconds += times * number * _ITEM
        once = number * _VALUE
        return Value(length=number, depth=1, once=once, total=times * once, again=times)

    def _split(self, text: Value, pieces: float, times: float) -> Value:
        length = min(text.text, pieces + text.made) + 1
        number = min(times * length, times + text.again * pieces + times * text.made)
        self.nanoseconds += number * _PIECE
        once = length * _VALUE + text.text * _BYTE
        return text._replace(length=length, depth=1, once=once, total=number * _VALUE + text.plain(times).total)


def _literal(literal: Const, times: float) -> Value:
    value = literal.value
    if isinstance(value, int):
        return Value(number=max(value, 0) if value <= ROUNDS_AT_MOST else inf, total=times * _VALUE, again=times)
    return string(len(value.encode()) if value else 0, times)


def _fields(tree: Node) -> Iterator[str]:
    for node in walk(tree):
        match node:
            case Select(field=field) | Call("_?._" | "_[_]" | "_[?_]", (_, Const(str(field)))):
                yield field


def _separators(tree: Node) -> Iterator[str]:
    for node in walk(tree):
        match node:
            case Call("split", (_, Const(str(separator)), *_)):
                yield separator


def _literal_text(node: Node) -> str | None:
    return node.value if isinstance(node, Const) and isinstance(node.value, str) else None


def _check_pattern(call: Call) -> None:
    if (shown := _PATTERNS.get(call.function)) is None:
        return
    pattern = _literal_text(call.args[1])
    if pattern is None:
        raise ExpressionError(f"{shown}() takes its pattern as a literal: no object may bring one of its own")
    if len(pattern) > _PATTERN_AT_MOST:
        raise ExpressionError(f"the pattern of {shown}() has more than {_PATTERN_AT_MOST} characters")
    try:
        pattern_of(pattern)
    except ValueError as error:
        raise ExpressionError(str(error)) from None

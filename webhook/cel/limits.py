"""Bound the time of an evaluation before it begins: nothing can interrupt the library.

The library stops after 10,000 rounds of all loops together, but not within one round, where ``x in object.spec.names``
may look at a million items. So the tree of an expression is walked with the largest value that each node may have and
the number of times that it is evaluated, and the time to read, copy and call is added up:

- The values at a path like ``object.spec.containers[].name`` are measured on the object (`Sizes`).
- A loop reads of its items no more than all values at their path, however many rounds it takes.
- An item of a list that a function makes may be as large as the list.
- The result of a function is no larger than its arguments, but for the few functions that are named here.

So an estimate is the longest time on any object of these sizes, and mostly far more than this object takes.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.cel.functions import ADDRESS, FUNCTIONS, NETWORK, URL, pattern_of
from webhook.cel.protocol import ExpressionError, ReadPath
from webhook.cel.sizes import Sizes
from webhook.cel.tree import Call, Const, ExprNode, Ident, Loop, Make, Select

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from webhook.cel.sizes import Measured

BUDGET_NS: Final = 400_000_000
"""Nanoseconds for all expressions on one object, by the costs below, each the highest that was measured."""
ROUNDS_AT_MOST: Final = 10_000
"""Rounds of all loops of an evaluation together; the library's own limit."""
_CHEAP_NS: Final = BUDGET_NS / 500
"""An expression that costs less by the size of the whole object is not estimated by the sizes of its fields."""

# Nanoseconds
_STEP: Final = 120  # for each node of the tree, each time
_PART: Final = 300  # for each part of a list or map that is written out, each time: it is made anew
_VALUE: Final = 300  # to read or compare a value
_BYTE_COUNTED: Final = 5  # by size()
_BYTE: Final = 0.2  # to compare a byte of a string
_BYTE_READ: Final = 15  # to do anything else with it
_BYTE_MADE: Final = 3  # of a longer string
_BYTE_SOUGHT: Final = 0.03  # for each byte of a string, and each of that which is sought in it
_COPIED_ITEM: Final = 60  # to copy an item with each that is added by `map`
_PIECE: Final = 430  # to split off, or find
_MATCH: Final = 20_000  # to find one by a pattern
_CALL: Final = 15_000  # of a function in Python
_CALL_OF_ADDRESS: Final = 60_000  # of one of addresses or URLs
_VALUE_CONVERTED: Final = 1200  # for a function in Python that takes a list

_PATTERN_AT_MOST: Final = 1000
_PATTERNS: Final = {"Matches": "matches", "find": "find", "findAll": "findAll"}
_IN_PYTHON: Final = {
    each.name: _CALL_OF_ADDRESS if {ADDRESS, NETWORK, URL} & {*each.parameters, each.result} else _CALL
    for each in FUNCTIONS
}
_LOGIC: Final = frozenset({"_&&_", "_||_", "!_", "@not_strictly_false", "optional.none", "hasValue", "type"})
_COMPARING: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith"})
_SAME: Final = frozenset({"dyn", "optional.of", "optional.ofNonZeroValue", "value"})
_FIELD: Final = frozenset({"_[_]", "_[?_]", "_?._"})
_ITEM: Final = frozenset({"first", "last"})
_SUBLISTS: Final = frozenset({"sort", "@sortByAssociatedKeys", "distinct", "slice", "reverse"})
_EITHER: Final = frozenset({"or", "orValue"})
_SETS: Final = frozenset({"sets.contains", "sets.equivalent", "sets.intersects", "distinct"})
_SEEKING: Final = frozenset({"contains", "indexOf", "lastIndexOf", "split", "replace"})
_SPLITTING: Final = frozenset({"split", "findAll", "getQuery"})
_PLAIN: Final = frozenset({"size", "contains", "indexOf", "lastIndexOf", "int", "uint", "double", "bool"}) | {
    each.name for each in FUNCTIONS if each.result in {"bool", "int", "double"}
}
"""Functions whose result is a number or a Boolean."""

Paths = tuple[ReadPath, ...]
_PATHS_AT_MOST: Final = 16


class Budget:
    """Hold the time that is left for the expressions on one object.

    Attributes:
        left: nanoseconds.
    """

    __slots__ = ("left",)

    def __init__(self, nanoseconds: float) -> None:
        self.left = nanoseconds

    def spend(self, cost: Cost, shown: Measured, pools: Measured) -> bool:
        """Subtract the cost of an expression. Return False if it is more than what is left."""
        nanoseconds = cost.of(tuple([pools.whole if path[0] == "pools" else shown.whole for path in cost.paths]))
        if nanoseconds > _CHEAP_NS:
            exact = tuple([(pools if path[0] == "pools" else shown).at(path) for path in cost.paths])
            nanoseconds = min(nanoseconds, cost.of(exact))
        if nanoseconds > self.left:
            return False
        self.left -= nanoseconds
        return True


class Cost:
    """Hold the cost of an expression.

    Attributes:
        paths: those that it reads.
        of: returns the nanoseconds that it takes at most, given the sizes of the values at the paths.
    """

    __slots__ = ("of", "paths")

    def __init__(self, tree: ExprNode) -> None:
        """Collect the paths of an expression. Raise ExpressionError if its cost has no bound."""
        paths: dict[ReadPath, None] = {}

        def read(path: ReadPath) -> Sizes:
            paths[path] = None
            return Sizes()

        _Estimate(read).of(tree, {}, 1)
        self.paths = tuple(paths)

        @lru_cache(maxsize=512)
        def of(sizes: Sequence[Sizes]) -> float:
            estimate = _Estimate(dict(zip(paths, sizes, strict=True)).__getitem__)
            estimate.of(tree, {}, 1)
            return estimate.nanoseconds

        self.of: Callable[[Sequence[Sizes]], float] = of


class _Value(NamedTuple):
    """Hold the largest value that a node may have, and all its values over all evaluations.

    Attributes:
        values: in the largest: itself and all in it.
        size: bytes of the largest.
        length: items of the longest, or bytes of a string.
        all_values: values in all that the node has, over all evaluations.
        all_size: bytes of all that the node has, over all evaluations.
        paths: of the object where the value is; empty: a function makes it.
        items: paths of its items; empty: a function makes them, and one may be as large as the whole value.
        repeat: how many times the values at these paths are read.
        nested: its items may be lists or maps.
    """

    values: float = 1
    size: float = 0
    length: float = 0
    all_values: float = 0
    all_size: float = 0
    paths: Paths = ()
    items: Paths = ()
    repeat: float = 0
    nested: bool = True

    @property
    def number(self) -> float:
        """Return the most items that one value can have."""
        return min(self.length, self.values)

    @property
    def comparing(self) -> float:
        """Return the nanoseconds to compare all values."""
        return self.all_values * _VALUE + self.all_size * _BYTE

    def again(self, times: float) -> _Value:
        """Return the value as it is if it is read so many times."""
        return self._replace(all_values=times * self.values, all_size=times * self.size, repeat=times)


def _plain(times: float) -> _Value:
    return _Value(all_values=times)


def _text(size: float, times: float) -> _Value:
    return _Value(size=size, all_values=times, all_size=times * size)


def _together(values: Sequence[_Value]) -> _Value:
    """Return one value for a list of all of these. The empty list that a loop begins with has no values."""
    there = [each for each in values if each.values]
    if len(there) == 1:
        return there[0]
    items = tuple(chain.from_iterable(each.items for each in there))
    return _Value(
        values=sum(each.values for each in there),
        size=sum(each.size for each in there),
        length=sum(each.length for each in there),
        all_values=sum(each.all_values for each in there),
        all_size=sum(each.all_size for each in there),
        items=items if len(items) <= _PATHS_AT_MOST and all(each.items or not each.length for each in there) else (),
        repeat=max((each.repeat for each in there), default=0),
    )


class _Estimate:
    """Add up the nanoseconds of the nodes of a tree."""

    def __init__(self, sizes: Callable[[ReadPath], Sizes]) -> None:
        self.nanoseconds = 0.0
        self._sizes = sizes

    def of(  # noqa: PLR0911 - one for each sort of node
        self, node: ExprNode, names: Mapping[str, _Value], times: float
    ) -> _Value:
        """Return the value of a node that is evaluated so many times, with these values bound to names."""
        self.nanoseconds += times * _STEP
        match node:
            case Const(value):
                return _text(len(value.encode()), times) if isinstance(value, str) else _plain(times)
            case Ident(name):
                return names[name] if name in names else self._at(((name,),), times, times)
            case Select(operand, field, test=test):
                of = self.of(operand, names, times)
                return _plain(times) if test else self._below(of, field, times)
            case Make(parts):
                self.nanoseconds += times * len(parts) * _PART
                return _made([self.of(part, names, times) for part in parts], times)
            case Loop():
                return self._loop(node, names, times)
            case Call("lists.range", (number,)):
                return self._range(number, names, times)
            case Call():
                _check_pattern(node)
                return self._call(node, [self.of(arg, names, times) for arg in node.args], times)

    def _at(self, paths: Paths, times: float, repeat: float) -> _Value:
        """Return the value of a node that reads one of the paths."""
        sizes = list(map(self._sizes, paths))
        values, size, length = (max(each[number] for each in sizes) for number in range(3))
        return _Value(
            values,
            size,
            length,
            min(times * values, repeat * sum(each.all_values for each in sizes)),
            min(times * size, repeat * sum(each.all_size for each in sizes)),
            paths,
            tuple((*path, None) for path in paths),
            repeat,
        )

    def _below(self, of: _Value, field: str, times: float) -> _Value:
        """Return the value of a field."""
        if of.paths:
            return self._at(tuple((*path, field) for path in of.paths), times, of.repeat)
        return self._item(of, times)

    def _item(self, of: _Value, times: float) -> _Value:
        """Return the value of any item."""
        if of.items:
            return self._at(of.items, times, of.repeat)
        values, length = (of.values, of.values) if of.nested else (1, 0)
        return _Value(values, of.size, length, min(of.all_values, times * values), min(of.all_size, times * of.size))

    def _loop(self, loop: Loop, names: Mapping[str, _Value], times: float) -> _Value:
        start = self.of(loop.start, names, times)
        if loop.binds:
            return self.of(loop.result, {**names, loop.accumulator: start}, times)
        span = self.of(loop.range, names, times)
        items = sum(self._sizes(path).number for path in span.items) * span.repeat if span.items else span.all_values
        rounds = min(times * span.number, items, ROUNDS_AT_MOST)
        inside = {name: value.again(rounds) for name, value in names.items()}
        inside |= dict.fromkeys(loop.variables, self._item(span, rounds))
        inside[loop.accumulator] = _Value(values=0)
        self.of(loop.condition, inside, rounds)
        step = self.of(loop.step, inside, rounds)
        if not isinstance(loop.start, Make):
            return _plain(times)
        self.nanoseconds += rounds * span.number * _COPIED_ITEM
        return step._replace(
            values=1 + min(step.all_values, span.number * step.values),
            size=min(step.all_size, span.number * step.size),
            length=span.number,
            all_values=times + step.all_values,
        )

    def _range(self, number: ExprNode, names: Mapping[str, _Value], times: float) -> _Value:
        match number:
            case Const(int(literal)) if literal <= ROUNDS_AT_MOST:
                length: float = max(literal, 0)
            case Call("size", (of,)):
                sized = self.of(of, names, times)
                length = max(sized.length, sized.size if sized.values <= 1 else 0)
            case Call("_-_", (size, Const(int(less)))) if less >= 0:
                return self._range(size, names, times)
            case _:
                raise ExpressionError(
                    "lists.range() takes a literal of at most 10000 or a size(): no object may choose how many"
                )
        self.nanoseconds += times * length * _PIECE
        return _Value(length + 1, 0, length, times * (length + 1))

    def _call(  # noqa: PLR0911 - one for each sort of function
        self, call: Call, args: list[_Value], times: float
    ) -> _Value:
        function = call.function
        if not args or function in _LOGIC:
            return _plain(times)
        first, last = args[0], args[-1]
        if function in _SAME:
            return first
        if function in _FIELD:
            field = _literal(call.args[1])
            return self._item(first, times) if field is None else self._below(first, field, times)
        if function in _ITEM:
            return self._item(first, times)
        if function in _EITHER:
            return _together(args)
        if function == "_?_:_":
            return last if call.args[1] == Make(()) else _together(args[1:])  # an empty map for what may be null
        if function in _COMPARING:  # they stop where the shorter of the two ends
            self.nanoseconds += min(each.comparing for each in args)
            return _plain(times)
        if function == "@in":
            self.nanoseconds += last.comparing
            return _plain(times)
        if function in _SETS:
            self.nanoseconds += first.number * last.comparing
        self.nanoseconds += self._read(call, args, times)
        return _plain(times) if function in _PLAIN else self._result(call, args, times)

    def _read(self, call: Call, args: list[_Value], times: float) -> float:
        """Return the nanoseconds of most functions: they read their strings and lists once."""
        called = _IN_PYTHON.get(call.function, 0)
        if call.function == "size":  # of a list it is known
            return args[0].all_size * _BYTE_COUNTED
        of_a_byte = _BYTE_READ + (args[1].size * _BYTE_SOUGHT if call.function in _SEEKING else 0)
        of_a_value = _VALUE_CONVERTED if called else _VALUE
        return times * called + sum(each.all_size * of_a_byte + each.all_values * of_a_value for each in args)

    def _result(self, call: Call, args: list[_Value], times: float) -> _Value:
        first = args[0]
        match call.function:
            case name if name in _SPLITTING:
                pieces = first.size + 1
                together = first.all_size + times
                self.nanoseconds += together * (_PIECE if call.function == "split" else _MATCH)
                nested = call.function == "getQuery"
                return _Value(1 + pieces, first.size, pieces, times + together, first.all_size, nested=nested)
            case "join":
                text = first.size + sum(first.number * each.size for each in args[1:])
            case "replace":
                found = len(_literal(call.args[1]) or "")
                text = first.size * (1 + args[2].size / max(found, 1)) + args[2].size
            case "flatten":
                return first._replace(length=first.values, paths=(), items=())
            case "string":
                return _text(first.size + _SCALAR_BYTES, times)
            case name if name in _SUBLISTS:
                return first._replace(paths=())
            case _:
                return _together(args)._replace(paths=())
        self.nanoseconds += times * text * _BYTE_MADE
        return _text(text, times)


_SCALAR_BYTES: Final = 64
"""The most bytes of a number, a time or an address as a string."""


def _made(parts: Sequence[_Value], times: float) -> _Value:
    """Return the value of a list or map of these parts."""
    together = _together(parts)
    items = tuple(chain.from_iterable(each.paths for each in parts))
    return _Value(
        together.values + 1,
        together.size,
        len(parts),
        together.all_values + times,
        together.all_size,
        items=items if all(each.paths for each in parts) else (),
        repeat=together.repeat,
    )


def _literal(node: ExprNode) -> str | None:
    return node.value if isinstance(node, Const) and isinstance(node.value, str) else None


def _check_pattern(call: Call) -> None:
    if (shown := _PATTERNS.get(call.function)) is None:
        return
    pattern = _literal(call.args[1])
    if pattern is None:
        raise ExpressionError(f"{shown}() takes its pattern as a literal: no object may bring one of its own")
    if len(pattern) > _PATTERN_AT_MOST:
        raise ExpressionError(f"the pattern of {shown}() has more than {_PATTERN_AT_MOST} characters")
    try:
        pattern_of(pattern)
    except ValueError as error:
        raise ExpressionError(str(error)) from None

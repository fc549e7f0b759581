"""Limit the time of an evaluation before it starts, because nothing can interrupt the library.

The library stops after 10,000 rounds of all loops together, but not within one round, where ``x in object.spec.names``
may compare a million items. So this module walks the tree of an expression. For each node, it estimates the number of
evaluations and the time to read the largest value that the node can have:

- Values at a path such as ``object.spec.containers[].name`` are measured on the object (`Measured`). However many
  rounds a loop takes, it reads no more than all values at the path of its items.
- The result of a function is no larger than its arguments. The few exceptions are handled by name.

An estimate is the longest time on any object of these sizes. Most evaluations take far less.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.cel.errors import ExpressionError, ReadPath
from webhook.cel.functions import ADDRESS, FUNCTIONS, NETWORK, URL, pattern_of
from webhook.cel.sizes import BYTE_NS, VALUE_NS, Measured, ReadCost
from webhook.cel.tree import Call, Const, ExprNode, Ident, Loop, Make, Select

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


BUDGET_NS: Final = 400_000_000
"""The nanoseconds for all expressions on one object. Each cost below is the highest that was measured."""
ROUNDS_AT_MOST: Final = 10_000
"""The maximum rounds of all loops of an evaluation together, which is the library's limit."""
_CHEAP_NS: Final = BUDGET_NS / 500
"""If the size of the whole object gives a lower cost, the sizes of its fields aren't measured."""

# Nanoseconds, in addition to the read cost
_STEP: Final = 120  # for each evaluation of a node
_PART: Final = 300  # for each part of a list or map literal: each evaluation builds the literal again
_SOUGHT: Final = 0.03  # for each byte of a string, times each byte of the substring to find
_COPIED_ITEM: Final = 60  # to copy an item each time that `map` adds another item
_PIECE: Final = 430  # to split off or find a piece
_MATCH: Final = 20_000  # to find a piece by a pattern
_CALL: Final = 15_000  # to call a Python function
_CALL_OF_ADDRESS: Final = 60_000  # to call a Python function for addresses or URLs
_CONVERTED: Final = 4  # a factor of the read cost: to convert a value for a Python function

_PATTERN_AT_MOST: Final = 1000
_PATTERNS: Final = {"Matches": "matches", "find": "find", "findAll": "findAll"}
_IN_PYTHON: Final = {
    function.name: _CALL_OF_ADDRESS if {ADDRESS, NETWORK, URL} & {*function.parameters, function.result} else _CALL
    for function in FUNCTIONS
}
_LOGIC: Final = frozenset({"_&&_", "_||_", "!_", "@not_strictly_false", "optional.none", "hasValue", "type"})
_COMPARING: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith"})
_SAME: Final = frozenset({"dyn", "optional.of", "optional.ofNonZeroValue", "value", "or", "orValue", "_?_:_"})
_BELOW: Final = frozenset({"_[_]", "_[?_]", "_?._", "first", "last"})
_SETS: Final = frozenset({"sets.contains", "sets.equivalent", "sets.intersects", "distinct"})
_SEEKING: Final = frozenset({"contains", "indexOf", "lastIndexOf", "split", "replace"})
_SPLITTING: Final = frozenset({"split", "findAll", "getQuery"})
_PLAIN: Final = _COMPARING.union(
    ("@in", "size", "contains", "indexOf", "lastIndexOf", "int", "uint", "double", "bool"),
    (function.name for function in FUNCTIONS if function.result in {"bool", "int", "double"}),
)
"""The functions that return a number or a Boolean."""
_SCALAR_BYTES: Final = 64
"""The maximum bytes of a number, a time, or an address as a string."""


class Budget:
    """The time left for the expressions on one object.

    Attributes:
        left: the remaining nanoseconds.
    """

    def __init__(self, nanoseconds: float) -> None:
        self.left = nanoseconds

    def spend(self, cost: Cost, shown: Measured, pools: Measured) -> bool:
        """Subtract the cost of an expression. Return False if the cost exceeds the remaining time."""
        nanoseconds = cost.of(tuple([pools.whole if path[0] == "pools" else shown.whole for path in cost.paths]))
        if nanoseconds > _CHEAP_NS:
            exact = tuple([(pools if path[0] == "pools" else shown).at(path) for path in cost.paths])
            nanoseconds = min(nanoseconds, cost.of(exact))
        if nanoseconds > self.left:
            return False
        self.left -= nanoseconds
        return True


class Cost:
    """The cost of an expression.

    Attributes:
        paths: the paths that it reads.
        of: a function that returns the maximum nanoseconds of an evaluation, given the read cost of each path.
        least: the nanoseconds on an object without values at these paths.
    """

    def __init__(self, tree: ExprNode) -> None:
        """Collect the paths of an expression.

        Raise ExpressionError if its cost has no limit, or is too high on every object because it loops over literals.
        """
        paths = defaultdict[ReadPath, ReadCost](ReadCost)
        smallest = _Estimate(tree, paths.__getitem__)
        if smallest.rounds > ROUNDS_AT_MOST:
            raise ExpressionError(
                f"its loops over literals may take more than {ROUNDS_AT_MOST:,} rounds on every object: "
                "use shorter lists, or nest fewer loops"
            )
        if smallest.nanoseconds > BUDGET_NS:
            raise ExpressionError(f"it may take more than {BUDGET_NS // 1_000_000} ms on every object: simplify it")
        self.paths = tuple(paths)
        self.least = smallest.nanoseconds

        @lru_cache(maxsize=512)
        def of(costs: Sequence[ReadCost]) -> float:
            return _Estimate(tree, dict(zip(paths, costs, strict=True)).__getitem__).nanoseconds

        self.of: Callable[[Sequence[ReadCost]], float] = of


class _Value(NamedTuple):
    """Upper bounds on the value of a node.

    Attributes:
        one: nanoseconds to read the largest value; 0 for an empty list or map literal.
        all: nanoseconds to read the values of all evaluations.
        items: items of the longest list or map, or bytes of the longest string.
        item: nanoseconds to read the largest item; for a value with a path, the item is measured instead.
        path: the path in the object; empty for the result of a function.
        repeat: the number of times that all values at the path are read.
    """

    one: float
    all: float
    items: float = 0
    item: float = VALUE_NS
    path: ReadPath = ()
    repeat: float = 0

    @property
    def number(self) -> float:
        """Return the maximum number of items in one value."""
        return min(self.items, self.one / VALUE_NS)

    @property
    def bytes(self) -> float:
        """Return the maximum number of bytes in one value, as a string."""
        return max(self.one - VALUE_NS, 0) / BYTE_NS


def _scalar(times: float, size: float = 0) -> _Value:
    """Return the bounds of a number, a Boolean, or a string of ``size`` bytes."""
    one = VALUE_NS + size * BYTE_NS
    return _Value(one, times * one, size)


class _Estimate:
    """The nanoseconds of all nodes of a tree, and the rounds of its loops."""

    def __init__(self, tree: ExprNode, read_cost: Callable[[ReadPath], ReadCost]) -> None:
        self.nanoseconds = 0.0
        self.rounds = 0.0
        self._read_cost = read_cost
        self.of(tree, {}, 1)

    def of(  # noqa: PLR0911 - one for each type of node
        self, node: ExprNode, names: Mapping[str, _Value], times: float
    ) -> _Value:
        """Return the bounds of a node that is evaluated ``times`` times. ``names`` has the bounds of bound names."""
        self.nanoseconds += times * _STEP
        match node:
            case Const(literal):
                return _scalar(times, len(literal.encode()) if isinstance(literal, str) else 0)
            case Ident(name):
                return names[name] if name in names else self._at(tuple(name.split(".")), times, times)
            case Select(operand, field, test=test):
                of = self.of(operand, names, times)
                return _scalar(times) if test else self._below(of, field, times)
            case Make(()):
                return _Value(0, 0)
            case Make(parts, pairs=pairs):
                self.nanoseconds += times * len(parts) * _PART
                values = [self.of(part, names, times) for part in parts]
                return _Value(
                    VALUE_NS + sum(value.one for value in values),
                    VALUE_NS * times + sum(value.all for value in values),
                    len(parts) / (2 if pairs else 1),
                    max(value.one for value in values),
                )
            case Loop():
                return self._loop(node, names, times)
            case Call("lists.range", (number,)):
                return self._range(number, names, times)
            case Call():
                _check_pattern(node)
                return self._call(node, [self.of(arg, names, times) for arg in node.args], times)

    def _at(self, path: ReadPath, times: float, repeat: float) -> _Value:
        """Return the bounds of a node that reads a path."""
        cost = self._read_cost(path)
        every = min(times * cost.one, repeat * cost.all)
        return _Value(cost.one, every, cost.items, path=path, repeat=repeat)

    def _below(self, of: _Value, field: str | None, times: float) -> _Value:
        """Return the bounds of a field, or of any item if ``field`` is None."""
        if of.path:
            return self._at((*of.path, field), times, of.repeat)
        return _Value(of.item, min(of.all, times * of.item), of.item / BYTE_NS, of.item)

    def _together(self, values: Sequence[_Value]) -> _Value:
        """Return the bounds of the concatenation of the values. They also apply to each single value."""
        present = [value for value in values if value.one]
        if len(present) == 1:
            return present[0]
        return _Value(
            sum(value.one for value in present),
            sum(value.all for value in present),
            sum(value.items for value in present),
            max((self._below(value, None, 1).one for value in present), default=0),
        )

    def _loop(self, loop: Loop, names: Mapping[str, _Value], times: float) -> _Value:
        start = self.of(loop.start, names, times)
        if loop.binds:
            return self.of(loop.result, {**names, loop.accumulator: start}, times)
        span = self.of(loop.range, names, times)
        items = self._read_cost((*span.path, None)).number * span.repeat if span.path else span.all / VALUE_NS
        rounds = min(times * span.number, items)
        self.rounds += rounds
        rounds = min(rounds, ROUNDS_AT_MOST)
        inside = {name: value._replace(all=rounds * value.one, repeat=rounds) for name, value in names.items()}
        inside |= dict.fromkeys(loop.variables, self._below(span, None, rounds))
        inside[loop.accumulator] = _Value(0, 0)
        self.of(loop.condition, inside, rounds)
        step = self.of(loop.step, inside, rounds)
        if not isinstance(loop.start, Make):
            return _scalar(times)
        self.nanoseconds += rounds * span.number * _COPIED_ITEM
        if loop.filters:
            return span
        largest = VALUE_NS + min(step.all, span.number * step.one)
        return _Value(largest, times * VALUE_NS + step.all, span.number, step.item)

    def _range(self, number: ExprNode, names: Mapping[str, _Value], times: float) -> _Value:
        match number:
            case Const(int(literal)) if literal <= ROUNDS_AT_MOST:
                length: float = max(literal, 0)
            case Call("size", (of,)):
                length = self.of(of, names, times).items
            case Call("_-_", (size, Const(int(less)))) if less >= 0:
                return self._range(size, names, times)
            case _:
                raise ExpressionError(
                    "lists.range() takes a literal of at most 10000 or a size(), not an object's value"
                )
        self.nanoseconds += times * length * _PIECE
        one = (length + 1) * VALUE_NS
        return _Value(one, times * one, length)

    def _call(self, call: Call, args: list[_Value], times: float) -> _Value:
        function = call.function
        if not args or function in _LOGIC:
            return _scalar(times)
        if function in _BELOW:
            return self._below(args[0], _literal(call.args[-1]), times)
        if function in _SAME:
            return self._together(args[-2:])
        if function == "_+_" and not all(value.one for value in args):  # a loop adds an item to its result
            self.nanoseconds += times * _COPIED_ITEM * sum(value.number for value in args)
            return self._together(args)
        self.nanoseconds += self._read(function, args, times)
        return _scalar(times) if function in _PLAIN else self._result(call, args, times)

    def _read(self, function: str, args: list[_Value], times: float) -> float:
        """Return the nanoseconds of a function. Most functions read each argument once."""
        first, last = args[0], args[-1]
        if function in _COMPARING:  # stops at the end of the shorter argument
            return min(value.all for value in args)
        if function == "@in":
            return last.all
        if function == "size":
            return first.all / 3
        called = _IN_PYTHON.get(function, 0)
        read = times * called + sum(value.all for value in args) * (_CONVERTED if called else 1)
        if function in _SETS:
            read += first.number * last.all
        if function in _SEEKING:
            read += first.all / BYTE_NS * last.bytes * _SOUGHT
        return read

    def _result(self, call: Call, args: list[_Value], times: float) -> _Value:
        first = args[0]
        match call.function:
            case name if name in _SPLITTING:
                pieces = min(first.all / BYTE_NS, times * first.bytes) + times
                self.nanoseconds += pieces * (_PIECE if name == "split" else _MATCH)
                one = first.one + (first.bytes + 1) * VALUE_NS
                item = one if name == "getQuery" else first.one
                return _Value(one, first.all + pieces * VALUE_NS, first.bytes + 1, item)
            case "join":
                result = _scalar(times, first.bytes + sum(first.number * value.bytes for value in args[1:]))
            case "replace":
                sought = len(_literal(call.args[1]) or "")
                result = _scalar(times, first.bytes * (1 + args[2].bytes / max(sought, 1)) + args[2].bytes)
            case "string":
                result = _scalar(times, first.bytes + _SCALAR_BYTES)
            case name:
                result = self._together(args)
                items = first.one / VALUE_NS if name == "flatten" else result.items
                result = result._replace(path=(), items=items, item=self._below(result, None, 1).one)
        self.nanoseconds += result.all
        return result


def _literal(node: ExprNode) -> str | None:
    return node.value if isinstance(node, Const) and isinstance(node.value, str) else None


def _check_pattern(call: Call) -> None:
    if (shown := _PATTERNS.get(call.function)) is None:
        return
    pattern = _literal(call.args[1])
    if pattern is None:
        raise ExpressionError(f"the pattern of {shown}() must be a literal")
    if len(pattern) > _PATTERN_AT_MOST:
        raise ExpressionError(f"the pattern of {shown}() has more than {_PATTERN_AT_MOST} characters")
    pattern_of(pattern)

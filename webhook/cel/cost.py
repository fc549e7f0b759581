"""How the time that an expression takes grows with the size of what it is shown: known before it is evaluated.

The library stops after 10,000 rounds of all loops together, and not within one round, where ``x in object.spec.names``
may look at a million items. So the work of each operation is estimated as a power of the size of the values: 1 for
``object.spec.containers.all(c, c.image.startsWith("a"))``, which reads everything once; 2 where the body reads
something that is not a part of the item at hand. What grows with the square or faster has a budget.
"""

from __future__ import annotations

from typing import Final

import msgspec

from webhook.cel import ExpressionError
from webhook.cel.functions import pattern_of
from webhook.cel.tree import Call, Const, Ident, Loop, Make, Node, Select

ROUNDS_AT_MOST: Final = 10_000
"""Of all loops together; the library's own limit."""
_NS_OF_AN_ITEM: Final = 400
_NS_OF_A_BYTE: Final = 15
"""What it took at most to compare, search or copy a list, and a string."""
BUDGET_NS: Final = 2_000_000_000
"""For all expressions on one object that grow with its square or faster, if the object is made for it. No object is all
loop and all list at once: the worst that was found took a quarter."""
_GROWTH_AT_MOST: Final = 64
"""How often an expression may repeat what it is given in one value; ``[x, x].map(y, [y, y])`` repeats it 4 times."""
_PATTERN_AT_MOST: Final = 1000

_AS_ITS_OPERAND: Final = frozenset({"_[_]", "_[?_]", "_?._", "optional.of", "optional.ofNonZeroValue", "value"})
_LOGIC: Final = frozenset(
    {"_&&_", "_||_", "!_", "_?_:_", "@not_strictly_false", "or", "orValue", "optional.none", "hasValue"}
)
_COMPARING: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith"})
"""They stop where the shorter of the two ends."""
_SQUARE: Final = frozenset({"distinct", "sets.contains", "sets.equivalent", "sets.intersects"})
_JOINING: Final = frozenset({"_+_", "format"})
_BOOLEAN: Final = frozenset({"@in", "contains", "Matches", *_COMPARING, *_SQUARE - {"distinct"}, "isSorted"})
_PATTERNS: Final = {"Matches": "matches", "find": "find", "findAll": "findAll"}


class Size(msgspec.Struct, frozen=True):
    """How large a value may be.

    Attributes:
        once: the power of the size of everything that it may have each time.
        total: the same of all the times together that it is read.
        growth: how often it may repeat the same.
    """

    once: int
    total: int
    growth: int = 1


class Cost(msgspec.Struct, frozen=True):
    """What an expression may cost.

    Attributes:
        power: its time grows with this power of the size of the values.
        growth: and with this factor.
    """

    power: int
    growth: int

    def nanoseconds(self, size: int, items: int) -> float:
        """What it takes at most over values of so many bytes and items; 0 where it only reads them once."""
        if self.power <= 1:
            return 0
        rounds = min(float(items) ** (self.power - 1), ROUNDS_AT_MOST)
        return float(self.growth * rounds * (items * _NS_OF_AN_ITEM + size * _NS_OF_A_BYTE))


def cost_of(tree: Node) -> Cost:
    """The cost of an expression.

    Raises:
        ExpressionError: it could cost anything.
    """
    estimate = _Estimate()
    estimate.of(tree, {}, 0)
    return Cost(estimate.power, estimate.growth)


class _Estimate:
    """Walks a tree with what each name stands for, and how often (as a power) what is looked at is evaluated."""

    def __init__(self) -> None:
        self.power = 0
        self.growth = 1

    def of(self, node: Node, names: dict[str, Size], often: int) -> Size:
        match node:
            case Const():
                return Size(0, often)
            case Ident(name):
                return names.get(name) or Size(1, 1 + often)
            case Select(operand):
                return self.of(operand, names, often)
            case Make(parts):
                return self._joined([self.of(part, names, often) for part in parts], often)
            case Loop():
                return self._loop(node, names, often)
            case Call():
                return self._call(node, names, often)

    def _loop(self, loop: Loop, names: dict[str, Size], often: int) -> Size:
        start = self.of(loop.start, names, often)
        if loop.binds:
            return self.of(loop.result, {**names, loop.accumulator: start}, often)
        span = self.of(loop.range, names, often)
        rounds = max(often, span.total)
        inside = {name: Size(size.once, size.once + rounds, size.growth) for name, size in names.items()}
        inside |= dict.fromkeys(loop.variables, span)
        inside[loop.accumulator] = Size(0, rounds, 0)
        self.of(loop.condition, inside, rounds)
        step = self.of(loop.step, inside, rounds)
        self._spend(rounds, span.growth)
        if not isinstance(loop.start, Make):
            return Size(0, often)
        made = max(step.total, rounds)
        return Size(made - often, made, max(step.growth, span.growth))

    def _call(self, call: Call, names: dict[str, Size], often: int) -> Size:
        _refuse(call)
        args = [self.of(arg, names, often) for arg in call.args]
        growth = max((arg.growth for arg in args), default=1)
        largest = Size(max((a.once for a in args), default=0), max((a.total for a in args), default=often), growth)
        match call.function:
            case name if name in _AS_ITS_OPERAND:
                return args[0] if args else largest
            case name if name in _LOGIC:
                return largest
            case name if name in _COMPARING:
                self._spend(min(arg.total for arg in args), growth)
            case name if name in _SQUARE:
                self._spend(largest.total + largest.once, growth)
            case name if name in _JOINING:
                joined = self._joined(args, often)
                self._spend(joined.total, joined.growth)
                return joined
            case "replace" | "join":
                once = sum(arg.once for arg in args)
                largest = Size(once, once + often, growth)
                self._spend(largest.total, growth)
            case _:
                self._spend(largest.total, growth)
        return Size(0, often) if call.function in _BOOLEAN else largest

    def _joined(self, parts: list[Size], often: int) -> Size:
        growth = sum(part.growth for part in parts if part.once)
        if growth > _GROWTH_AT_MOST:
            raise ExpressionError(f"it repeats what it is given more than {_GROWTH_AT_MOST} times in one value")
        once = max((part.once for part in parts), default=0)
        return Size(once, max((part.total for part in parts), default=often), max(growth, 1))

    def _spend(self, power: int, growth: int) -> None:
        self.power = max(self.power, power)
        self.growth = max(self.growth, growth)


def _refuse(call: Call) -> None:
    """What has no bound at all."""
    if (shown := _PATTERNS.get(call.function)) is not None:
        pattern = call.args[1]
        if not (isinstance(pattern, Const) and isinstance(pattern.value, str)):
            raise ExpressionError(f"{shown}() takes its pattern as a literal: no object may bring one of its own")
        if len(pattern.value) > _PATTERN_AT_MOST:
            raise ExpressionError(f"the pattern of {shown}() has more than {_PATTERN_AT_MOST} characters")
        try:
            pattern_of(pattern.value)
        except ValueError as error:
            raise ExpressionError(str(error)) from None
    if call.function == "lists.range" and not _bounded(call.args[0]):
        raise ExpressionError(
            "lists.range() takes a literal of at most 10000 or a size(): no object may choose how many"
        )


def _bounded(count: Node) -> bool:
    if isinstance(count, Const):
        return isinstance(count.value, int) and count.value <= ROUNDS_AT_MOST
    return isinstance(count, Call) and (
        count.function == "size" or (count.function in {"_-_", "_+_"} and all(map(_bounded, count.args)))
    )

"""How the time that an expression takes grows with the size of what it is shown: known before it is evaluated.

The library stops after 10,000 rounds of all loops together, and not within one round, where ``x in object.spec.names``
may look at a million items. So the work of each operation is estimated as a power of the size of the values: 1 for
``object.spec.containers.all(c, c.image.startsWith("a"))``, which reads everything once; 2 where the body reads
something that is not a part of the item at hand, or makes a list, which the library copies for each item. The
functions in Python are counted as they are called. All expressions on one object have one budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from webhook.cel import ExpressionError
from webhook.cel.functions import pattern_of
from webhook.cel.tree import Call, Const, Ident, Loop, Make, Node, Select, walk

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDS_AT_MOST: Final = 10_000
"""Of all loops together; the library's own limit."""
_NS_OF_AN_ITEM: Final = 400
_NS_OF_A_BYTE: Final = 15
"""What it took at most to compare, search or copy a list, and a string."""
_NS_OF_A_COPY: Final = 200
"""For an item of a list that is made, which is copied with each item that comes after it."""
_NS_OF_A_STEP: Final = 400
"""For one operation in one round of a loop."""
_NS_OF_A_BYTE_READ: Final = 10
_NS_OF_A_BYTE_MADE: Final = 20
_NS_OF_A_BYTE_TAKEN_APART: Final = 500
"""For one operation on the text of the whole object: searched, written, split or replaced."""
BUDGET_NS: Final = 2_000_000_000
"""For all expressions on one object, if the object is made for it. No object is all loop and all list at once: the
worst that was found took a quarter."""
_GROWTH_AT_MOST: Final = 64
"""How often an expression may repeat what it is given in one value; ``[x, x].map(y, [y, y])`` repeats it 4 times."""
_PATTERN_AT_MOST: Final = 1000

_AS_ITS_OPERAND: Final = frozenset({"_[_]", "_[?_]", "_?._", "optional.of", "optional.ofNonZeroValue", "value"})
_LOGIC: Final = frozenset(
    {"_&&_", "_||_", "!_", "_?_:_", "@not_strictly_false", "or", "orValue", "optional.none", "hasValue"}
)
_COMPARING: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith"})
"""They stop where the shorter of the two ends."""
_SPLITTING: Final = frozenset({"split", "findAll"})
_TAKING_APART: Final = frozenset({*_SPLITTING, "replace", "join", "reverse", "format", "getQuery"})
_PARTS: Final = frozenset(
    {*_SPLITTING, "find", "substring", "trim", "charAt", "slice", "sort", "distinct", "flatten", "first", "last"}
)
"""What they give has no character that is not in what they are given, in the same order."""
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
        stretch: how many times as long literals may make its strings.
        pieces: it may be a list of pieces of a string, more than there are items.
        made: its strings may have characters that the object does not have.
    """

    once: int
    total: int
    growth: int = 1
    stretch: int = 1
    pieces: bool = False
    made: bool = False


class Extent(Protocol):
    """How large the values are.

    Attributes:
        size: in bytes of JSON.
        items: how many there are in them, at most.
    """

    size: int
    items: int

    def pieces(self, separator: str) -> int:
        """How many pieces a separator makes of their strings, at most; "" makes one of each character."""


class Power(NamedTuple):
    """What grows with a power of how many there are.

    Attributes:
        pieces: pieces of strings, or else items.
        copies: each round copies the list that is made, or else reads everything.
    """

    pieces: bool
    copies: bool


class Cost(msgspec.Struct, frozen=True):
    """What an expression may cost.

    Attributes:
        powers: its time grows with these.
        separators: what splits strings; "" where that can't be counted.
        growth: and with this factor.
        stretch: how many times as long literals may make strings.
        repeats: how often literals may repeat everything.
        steps: operations in loops.
        reads: operations that read strings or lists.
        takes_apart: operations that take them apart, or put them together.
    """

    powers: dict[Power, int]
    separators: frozenset[str]
    growth: int
    stretch: int
    repeats: int
    steps: int
    reads: int
    takes_apart: int

    def nanoseconds(self, extent: Extent) -> float:
        """What it takes at most over values of this extent."""
        size = extent.size * self.stretch
        pieces = max(extent.items, *(extent.pieces(each) if each else size for each in self.separators), 0)
        time = float(min(pieces, ROUNDS_AT_MOST) * self.steps * _NS_OF_A_STEP)
        time += self.reads * (extent.size * _NS_OF_A_BYTE_READ + pieces * _NS_OF_AN_ITEM)
        time += self.takes_apart * extent.size * _NS_OF_A_BYTE_TAKEN_APART
        if self.stretch > 1:
            time += size * self.growth * self.takes_apart * _NS_OF_A_BYTE_MADE
        for of, power in self.powers.items():
            if power > 1:
                number = pieces if of.pieces else extent.items
                rounds = min(float(number) ** (power - 1), ROUNDS_AT_MOST)
                each = number * _NS_OF_A_COPY if of.copies else number * _NS_OF_AN_ITEM + size * _NS_OF_A_BYTE
                time += self.growth * rounds * each
        return time * self.repeats


def cost_of(tree: Node) -> Cost:
    """The cost of an expression.

    Raises:
        ExpressionError: it could cost anything.
    """
    estimate = _Estimate()
    estimate.of(tree, {}, 0)
    return estimate.cost()


class _Estimate:
    """Walks a tree with what each name stands for, and how often (as a power) what is looked at is evaluated."""

    def __init__(self) -> None:
        self.powers: dict[Power, int] = {}
        self.separators: set[str] = set()
        self.growth = 1
        self.stretch = 1
        self.repeats = 1
        self.steps = 0
        self.reads = 0
        self.takes_apart = 0

    def cost(self) -> Cost:
        return Cost(
            self.powers,
            frozenset(self.separators),
            self.growth,
            self.stretch,
            self.repeats,
            self.steps,
            self.reads,
            self.takes_apart,
        )

    def of(self, node: Node, names: dict[str, Size], often: int) -> Size:
        self.steps += often > 0
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
        inside = {name: replace(size, total=size.once + rounds) for name, size in names.items()}
        inside |= dict.fromkeys(loop.variables, span)
        inside[loop.accumulator] = Size(0, rounds, 0)
        self.of(loop.condition, inside, rounds)
        step = self.of(loop.step, inside, rounds)
        self._spend(rounds, span)
        if not isinstance(loop.start, Make):
            return Size(0, often)
        # The library copies what there is of a list to add an item.
        self._spend(rounds + span.once, span, copies=True)
        made = max(step.total, rounds)
        return replace(_largest((step, span)), once=made - often, total=made)

    def _call(self, call: Call, names: dict[str, Size], often: int) -> Size:
        _refuse(call)
        args = [self.of(arg, names, often) for arg in call.args]
        largest = _largest(args) if args else Size(0, often)
        if call.function not in _PARTS | _AS_ITS_OPERAND | _LOGIC:
            largest = replace(largest, made=True)
        match call.function:
            case name if name in _AS_ITS_OPERAND:
                return _of_pieces(call, args[0]) if args else largest
            case name if name in _LOGIC:
                return largest
            case name if name in _COMPARING:
                self._spend(min(arg.total for arg in args), largest)
            case name if name in _SQUARE:
                self._spend(largest.total + largest.once, largest)
            case name if name in _SPLITTING and largest.total:
                largest = replace(largest, pieces=True)
                self.separators.add(_separator(call, args[0]))
                self._read(call, largest)
            case name if name in _JOINING:
                joined = self._joined(args, often)
                added = sum(_length(arg) for arg in call.args)
                made = joined.made or added > 0 or call.function == "format"
                largest = replace(joined, made=made, stretch=joined.stretch + (added if often else 0))
                self._read(call, largest)
                return largest
            case "lists.range":
                return self._ranged(call, largest)
            case "replace" | "join":
                once = sum(arg.once for arg in args)
                largest = replace(largest, once=once, total=once + often, stretch=largest.stretch * _stretch(call))
                self._read(call, largest)
            case _:
                self._read(call, largest)
        return Size(0, often) if call.function in _BOOLEAN else largest

    def _joined(self, parts: list[Size], often: int) -> Size:
        growth = sum(part.growth for part in parts if part.once)
        if growth > _GROWTH_AT_MOST:
            raise ExpressionError(f"it repeats what it is given more than {_GROWTH_AT_MOST} times in one value")
        return replace(_largest(parts), growth=max(growth, 1)) if parts else Size(0, often)

    def _ranged(self, call: Call, count: Size) -> Size:
        self.repeats *= max(1, sum(_integer(each) for each in walk(call.args[0])))
        if not count.total:
            return count
        self.separators.add("")  # it may be the size of a string
        return replace(count, pieces=True)

    def _read(self, call: Call, size: Size) -> None:
        self._spend(size.total, size)
        if not size.total:
            return
        if call.function in _TAKING_APART:
            self.takes_apart += 1
        else:
            self.reads += 1

    def _spend(self, power: int, size: Size, *, copies: bool = False) -> None:
        of = Power(size.pieces, copies)
        self.powers[of] = max(self.powers.get(of, 0), power)
        self.growth = max(self.growth, size.growth)
        self.stretch = max(self.stretch, size.stretch)


def _largest(sizes: Sequence[Size]) -> Size:
    """What all of them are at most."""
    return Size(
        max(size.once for size in sizes),
        max(size.total for size in sizes),
        max(size.growth for size in sizes),
        max(size.stretch for size in sizes),
        any(size.pieces for size in sizes),
        any(size.made for size in sizes),
    )


def _of_pieces(call: Call, operand: Size) -> Size:
    """One of the pieces of a string is a string."""
    split = call.args[0]
    if call.function in {"_[_]", "_[?_]"} and isinstance(split, Call) and split.function in _SPLITTING:
        return replace(operand, pieces=False)
    return operand


def _separator(call: Call, text: Size) -> str:
    """What splits the text, if it can be counted in the object."""
    separator = call.args[1]
    if call.function != "split" or text.made or not isinstance(separator, Const):
        return ""
    return separator.value if isinstance(separator.value, str) else ""


def _stretch(call: Call) -> int:
    """How many times as long literals make a string."""
    match call.args:
        case (_, Const(str(old)), Const(str(new)), *_) if old:
            return max(1, -(-len(new) // len(old)))
        case _:
            return 1 + sum(_length(arg) for arg in call.args)


def _integer(node: Node) -> int:
    return node.value if isinstance(node, Const) and isinstance(node.value, int) else 0


def _length(node: Node) -> int:
    return len(node.value) if isinstance(node, Const) and isinstance(node.value, str) else 0


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

"""What an expression comes to where some variables are null, as far as that is certain before it is evaluated.

On CREATE ``oldObject`` is null: ``oldObject.spec.x == 1`` has no result then, whatever the object is, and
``oldObject == null || oldObject.spec.x == 1`` is true.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from webhook.cel.tree import Call, Const, Ident, Loop, Make, Select, children

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from webhook.cel.tree import Node


class Foreseen(Enum):
    """What something comes to."""

    TRUE = auto()
    FALSE = auto()
    NULL = auto()
    EMPTY = auto()
    """An empty map."""
    FAILS = auto()
    """A field is read of a null, so it has no result."""
    MAY_FAIL = auto()
    """The same, if it is evaluated up to there."""
    OPEN = auto()


Names = dict[str, Foreseen]
_NOT: Final = {Foreseen.TRUE: Foreseen.FALSE, Foreseen.FALSE: Foreseen.TRUE}
FAILING: Final = (Foreseen.FAILS, Foreseen.MAY_FAIL)
_OF_A_FIELD: Final = frozenset({"_[_]", "_?._", "_[?_]", "size"})
"""They have no result for a null as their first."""
_OPERATION: Final = Ident("request.operation")


def foresee(tree: Node, nulls: Collection[str], operation: str) -> Foreseen:
    """What the expression comes to.

    Args:
        tree: the expression.
        nulls: the variables that are null.
        operation: that of the request.
    """
    return _Foresight(operation).of(tree, dict.fromkeys(nulls, Foreseen.NULL))


class _Foresight:
    def __init__(self, operation: str) -> None:
        self._operation = operation

    def of(self, node: Node, names: Mapping[str, Foreseen]) -> Foreseen:  # noqa: PLR0911 - one for each node
        match node:
            case Const(null=True):
                return Foreseen.NULL
            case Make(()):
                return Foreseen.EMPTY
            case Ident(name) if "." in name:  # a field that the library knows as a name
                null = names.get(name.partition(".")[0]) is Foreseen.NULL
                return Foreseen.FAILS if null else Foreseen.OPEN
            case Ident(name):
                return names.get(name, Foreseen.OPEN)
            case Select():
                return self._select(node, names)
            case Call():
                return self._call(node, names)
            case Loop() if node.binds:
                return self.of(node.result, {**names, node.accumulator: self.of(node.start, names)})
            case Loop():
                return self._loop(node, names)
        return _strict([self.of(child, names) for child in children(node)])

    def _select(self, select: Select, names: Mapping[str, Foreseen]) -> Foreseen:
        if "." in select.name:
            return self.of(Ident(select.name), names)
        operand = self.of(select.operand, names)
        if operand is Foreseen.EMPTY and select.test:
            return Foreseen.FALSE
        return Foreseen.FAILS if operand is Foreseen.NULL else _strict([operand])

    def _call(self, call: Call, names: Mapping[str, Foreseen]) -> Foreseen:  # noqa: PLR0911 - one for each function
        if (known := self._compared(call)) is not None:
            return known
        args = [self.of(arg, names) for arg in call.args]
        match call.function, args:
            case ("_||_" | "_&&_") as function, [one, other]:
                return _decided(one, other, Foreseen.TRUE if function == "_||_" else Foreseen.FALSE)
            case "!_", [one]:
                return _NOT.get(one, _strict(args))
            case "_?_:_", [condition, one, other]:
                return _chosen(condition, one, other)
            case ("_==_" | "_!=_") as function, [Foreseen.NULL, Foreseen.NULL]:
                return Foreseen.TRUE if function == "_==_" else Foreseen.FALSE
            case (("orValue" | "or"), [first, other]):
                return _strict([first, Foreseen.MAY_FAIL if other is Foreseen.FAILS else other])
            case "@in", [_, Foreseen.NULL]:
                return Foreseen.FAILS
            case function, [Foreseen.NULL, *_] if function in _OF_A_FIELD:
                return Foreseen.FAILS
        return _strict(args)

    def _compared(self, call: Call) -> Foreseen | None:
        """``request.operation == 'CREATE'``, and the like."""
        match call:
            case Call("_==_" | "_!=_", (left, Const(str(named)))) if left == _OPERATION:
                same = named == self._operation
            case Call("_==_" | "_!=_", (Const(str(named)), right)) if right == _OPERATION:
                same = named == self._operation
            case Call("@in", (left, Make(parts))) if left == _OPERATION:
                same = Const(self._operation) in parts
            case _:
                return None
        return Foreseen.TRUE if same == (call.function != "_!=_") else Foreseen.FALSE

    def _loop(self, loop: Loop, names: Mapping[str, Foreseen]) -> Foreseen:
        over = self.of(loop.range, names)
        if over in {Foreseen.NULL, Foreseen.FAILS}:
            return Foreseen.FAILS
        inner = {**names, **dict.fromkeys((loop.accumulator, *loop.variables), Foreseen.OPEN)}
        parts = (over, *(self.of(each, inner) for each in (loop.start, loop.condition, loop.step, loop.result)))
        return Foreseen.MAY_FAIL if any(each in FAILING for each in parts) else Foreseen.OPEN


def _strict(args: list[Foreseen]) -> Foreseen:
    """Of what has no result where an argument has none."""
    return next((each for each in FAILING if each in args), Foreseen.OPEN)


def _decided(one: Foreseen, other: Foreseen, deciding: Foreseen) -> Foreseen:
    if deciding in {one, other}:
        return deciding
    rest = [each for each in (one, other) if each is not _NOT[deciding]]
    if not rest:
        return _NOT[deciding]
    found = _strict(rest)
    return Foreseen.MAY_FAIL if found is Foreseen.FAILS and Foreseen.OPEN in rest else found


def _chosen(condition: Foreseen, one: Foreseen, other: Foreseen) -> Foreseen:
    if condition in {Foreseen.TRUE, Foreseen.FALSE}:
        return one if condition is Foreseen.TRUE else other
    if condition is Foreseen.FAILS or one is other:
        return _strict([condition]) if condition in FAILING else one
    return Foreseen.MAY_FAIL if {condition, one, other} & set(FAILING) else Foreseen.OPEN

"""What an expression does with literals and `params`, which are the same for all objects."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.cel import ExpressionError
from webhook.cel.reads import written
from webhook.cel.tree import Call, Const, Ident, Loop, Make, Select, children, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from webhook.cel.tree import Node

_CONVERSIONS: Final = frozenset({"cidr", "double", "duration", "int", "ip", "quantity", "timestamp", "uint", "url"})
_ORDER: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}


def check_constants(node: Node, text: str, why_not: Callable[[str, str], str], *, always: bool) -> None:
    """Find what never has a result.

    Of params only where nothing stands before it that may ask first, as in `params.max == '' || ...`.

    Args:
        node: the compiled expression.
        text: the expression as it is written.
        always: it is evaluated on each object, and not only where it is read.
        why_not: why a function has no result for a string; empty: it has one.

    Raises:
        ExpressionError: there is something.
    """
    for each, bound in _unconditional(node, {}) if always else ():
        match each:
            case Call("@in", (_, of)) | Loop(range=of) if type_of := _type(_constant(of, bound)):
                raise _mistake(_shown(of), f"is {type_of}, and has no items", text)
            case Call(function, (one, other)) if function in _ORDER:
                types = [_type(_constant(side, bound)) for side in (one, other)]
                if all(types) and types[0] != types[1]:
                    shown = f"{_shown(one)} {_ORDER[function]} {_shown(other)}"
                    problem = f"compares {types[0]} with {types[1]}: write one as the other"
                    raise _mistake(shown, problem, text)
            case Call(function, (of,)) if function in _CONVERSIONS:
                _check_conversion(function, of, _constant(of, bound), text, why_not)
    for each in walk(node):
        match each:
            case Call(function, (Const() as of,)) if function in _CONVERSIONS:
                _check_conversion(function, of, of, text, why_not)


def _unconditional(node: Node, bound: Mapping[str, Node]) -> Iterator[tuple[Node, Mapping[str, Node]]]:
    """What is evaluated whatever the rest comes to, with the nodes that bound names stand for there."""
    yield node, bound
    match node:
        case Call("_&&_" | "_||_" | "_?_:_"):
            return
        case Loop() if node.binds:
            yield from _unconditional(node.result, {**bound, node.accumulator: node.start})
        case Loop():
            yield from _unconditional(node.range, bound)
        case _:
            for child in children(node):
                yield from _unconditional(child, bound)


def _check_conversion(
    function: str, of: Node, value: Node | None, text: str, why_not: Callable[[str, str], str]
) -> None:
    if isinstance(value, Const) and isinstance(value.value, str) and (why := why_not(function, value.value)):
        raise _mistake(f"{function}({_shown(of)})", f"never has a result: {why}", text)


def _mistake(shown: str, problem: str, text: str) -> ExpressionError:
    words = r"\s*".join(re.escape(each) for each in re.findall(r"\w+|\W", shown) if not each.isspace())
    found = re.search(words.replace("'", "[\"']").replace(r"variables\s*\.\s*", "variables_"), text)
    return ExpressionError(f"`{shown}` {problem}", offset=found.start() if found is not None else None)


def _shown(node: Node) -> str:
    return repr(node.value) if isinstance(node, Const) else written(node)


def _type(node: Node | None) -> str:
    match node:
        case Const(str()):
            return "a string"
        case Const(int()):
            return "a number"
        case _:
            return ""


def _constant(node: Node, bound: Mapping[str, Node]) -> Node | None:
    """The literal that a node is, or that stands for it; None: it is something else."""
    match node:
        case Const() | Make():
            return node
        case Ident(name) if name in bound:
            return _constant(bound[name], bound)
        case Call("dyn", (of,)):
            return _constant(of, bound)
        case Select(of, str(key), test=False) | Call("_[_]", (of, Const(str(key)))):
            entries = _constant(of, bound)
            if isinstance(entries, Make):
                keys = entries.parts[::2]
                return _constant(entries.parts[2 * keys.index(Const(key)) + 1], bound) if Const(key) in keys else None
    return None

"""Find the variables and fields that an expression reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.cel.text import shown_name
from webhook.cel.tree import Call, Const, Ident, Loop, Make, Select, children

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from webhook.cel.errors import ReadPath
    from webhook.cel.tree import ExprNode

_NAME: Final = re.compile(r"@?[A-Za-z_]\w*")
Scope = dict[str, "ReadPath"]
"""The paths that the names of loops and bound names stand for; empty: a name stands for something else."""


def variables_read(node: ExprNode, variables: Collection[str]) -> Iterator[str]:
    """Yield the variables that an expression reads, each by its longest name."""
    if isinstance(node, Ident | Select) and node.name in variables:
        yield node.name
        return
    for child in children(node):
        yield from variables_read(child, variables)


def hidden(node: ExprNode) -> Iterator[str]:
    """Yield ``request.userInfo`` if an expression reads it without writing that name, as through ``request``."""
    match node:
        case Ident("request") | Call("_?._" | "_[_]" | "_[?_]", (Ident("request"), Const("userInfo"))):
            yield "request.userInfo"
            return
        case Select(Ident("request")) | Call("_?._" | "_[_]" | "_[?_]", (Ident("request"), Const(str()))):
            return
    for child in children(node):
        yield from hidden(child)


def paths(node: ExprNode) -> Iterator[tuple[ReadPath, str]]:
    """Yield each path that an expression reads, and how it is written.

    For ``object.spec.containers.all(c, has(c.name))`` also ``("object", "spec", "containers", None, "name")``, which is
    written ``c.name``.
    """
    for each, inner in scoped_nodes(node, {}):
        if path := path_of(each, inner):
            yield path, written_path(each)


def written_path(node: ExprNode) -> str:
    """Return how the path that a node reads is written, or an empty string if it reads none."""
    path = path_of(node, {})
    return shown_path((*shown_name(path[0] or "").split("."), *path[1:])) if path else ""


def tested(node: ExprNode) -> Iterator[ReadPath]:
    """Yield each path that an expression tests: ``has(params.x)``, ``params.?x``, ``'x' in params``."""
    for each, scope in scoped_nodes(node, {}):
        match each:
            case Select(test=True) | Call("_?._" | "_[?_]", (_, Const(str()))):
                yield path_of(each, scope)
            case Call("@in", (Const(str(key)), of)):
                yield _below(path_of(of, scope), key)


def scoped_nodes(node: ExprNode, scope: Mapping[str, ReadPath]) -> Iterator[tuple[ExprNode, Mapping[str, ReadPath]]]:
    """Yield the node and all nodes below it, each with the scope it is in."""
    yield node, scope
    inner = {**scope, **_inside(node, scope)} if isinstance(node, Loop) else scope
    for child in children(node):
        yield from scoped_nodes(child, inner)


def _inside(loop: Loop, scope: Mapping[str, ReadPath]) -> Scope:
    """Return the paths that the names of a loop stand for."""
    if loop.binds:
        return {loop.accumulator: path_of(loop.start, scope) or (loop.accumulator,)}
    of = path_of(loop.range, scope)
    first: Scope = dict.fromkeys((loop.accumulator, *loop.variables), ())
    return {**first, loop.variables[-1]: (*of, None)} if of else first


def path_of(node: ExprNode, scope: Mapping[str, ReadPath]) -> ReadPath:  # noqa: PLR0911 - one for each shape
    """Return the path that a node reads in a scope, or an empty one if it reads no variable or field."""
    match node:
        case Ident(name):
            return scope.get(name, tuple(name.split(".")))
        case Select(operand, field) | Call("_?._", (operand, Const(str(field)))):
            return _below(path_of(operand, scope), field)
        case Call("_[_]" | "_[?_]", (operand, Const(str(field)))):
            return _below(path_of(operand, scope), field)
        case Call("_[_]" | "_[?_]", (operand, _)):
            return _below(path_of(operand, scope), None)
        case Loop(range=of, step=Call("_?_:_", (_, Call("_+_", (_, made)), _))) if _is_item(made, node):
            return path_of(of, scope)  # filter
        case Loop() if node.binds:
            return path_of(node.result, {**scope, **_inside(node, scope)})
        case Call("_?_:_", (_, Make(()), or_empty)):
            return path_of(or_empty, scope)
        case _:
            return ()


def _is_item(made: ExprNode, loop: Loop) -> bool:
    return children(made) == (Ident(loop.variables[-1]),)


def _below(path: ReadPath, step: str | None) -> ReadPath:
    return (*path, step) if path else ()


def shown_path(path: ReadPath) -> str:
    """Return a path for people, as ``pools[].labels['a/b']``."""
    steps = ("[]" if each is None else f".{each}" if _NAME.fullmatch(each) else f"[{each!r}]" for each in path)
    return "".join(steps).removeprefix(".")

"""Find the variables and fields that an expression reads, and reject those that can't work as written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.cel.errors import ExpressionError
from webhook.cel.names import NAMES
from webhook.cel.text import shown_name
from webhook.cel.tree import Call, Const, ExprNode, Ident, Loop, Make, Select, children

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.cel.errors import ReadPath

    Scope = Mapping[str, ReadPath]
    """The paths of loop variables and bound names. A name for any other value has an empty path."""

_NAME: Final = re.compile(r"@?[A-Za-z_]\w*")
_VARIABLES: Final = frozenset({"object", "oldObject", "request", "namespaceObject", "pools", "params"})


class Reads:
    """The variables and fields that an expression reads.

    Attributes:
        names: the variables, such as ``pools`` or ``request.userInfo``.
        items: the names of items in its loops and ``optMap``.
        paths: the fields of variables and bound names, each with its text in the expression:
            ``("object", "spec", "containers", None, "name")`` is ``c.name``, where None is any item.
        tested: the paths that it tests, so that they may be absent: ``has(params.x)``, ``'x' in params``.
        user: whether it reads ``request.userInfo`` indirectly, such as through ``request``.
    """

    def __init__(self, tree: ExprNode) -> None:
        self.names: set[str] = set()
        self.items: set[str] = set()
        self.paths: dict[ReadPath, str] = {}
        self.tested: set[ReadPath] = set()
        self.user = _reads_user(tree)
        self._walk(tree, {})

    def _walk(self, node: ExprNode, scope: Scope) -> None:
        path, inner = path_of(node, scope), scope
        if path:
            self.paths[path] = _written(node)
        match node:
            case Ident(name) if name not in scope:
                self.names.add(name)
            case Loop():
                # The compiler binds `params`, which isn't an item.
                self.items |= {node.accumulator} - {"params"} if node.binds else {*node.variables}
                inner = _inside(node, scope)
            case Select(test=True) | Call("_?._" | "_[?_]", (_, Const(str()))):
                self.tested.add(path)
            case Call("@in", (Const(str(key)), of)):
                self.tested.add(_below(path_of(of, scope), key))
        for child in children(node):
            self._walk(child, inner)


def _reads_user(node: ExprNode) -> bool:
    match node:
        case Ident("request") | Call("_?._" | "_[_]" | "_[?_]", (Ident("request"), Const("userInfo"))):
            return True
        case Select(Ident("request")) | Call("_?._" | "_[_]" | "_[?_]", (Ident("request"), Const(str()))):
            return False
    return any(map(_reads_user, children(node)))


def _written(node: ExprNode) -> str:
    """Return the text of the path that a node reads, or an empty string if it doesn't read a path."""
    path = path_of(node, {})
    return shown_path((*shown_name(path[0] or "").split("."), *path[1:])) if path else ""


def _inside(loop: Loop, scope: Scope) -> Scope:
    """Return the scope inside a loop."""
    if loop.binds:
        return {**scope, loop.accumulator: path_of(loop.start, scope) or (loop.accumulator,)}
    return {
        **scope,
        **dict.fromkeys((loop.accumulator, *loop.variables), ()),
        loop.variables[-1]: _below(path_of(loop.range, scope), None),
    }


def path_of(node: ExprNode, scope: Scope) -> ReadPath:  # noqa: PLR0911 - one for each shape
    """Return the path that a node reads in a scope, or an empty path if it doesn't read a variable or field."""
    match node:
        case Ident(name):
            return scope.get(name, tuple(name.split(".")))
        case Select(operand, field) | Call("_?._" | "_[_]" | "_[?_]", (operand, Const(str(field)))):
            return _below(path_of(operand, scope), field)
        case Call("_[_]" | "_[?_]", (operand, _)):
            return _below(path_of(operand, scope), None)
        case Loop() if node.filters:
            return path_of(node.range, scope)
        case Loop() if node.binds:
            return path_of(node.result, _inside(node, scope))
        case Call("_?_:_", (_, Make(()), or_empty)):
            return path_of(or_empty, scope)
        case _:
            return ()


def _below(path: ReadPath, step: str | None) -> ReadPath:
    return (*path, step) if path else ()


def shown_path(path: ReadPath) -> str:
    """Format a path for messages: ``pools[].labels['a/b']``."""
    steps = ("[]" if step is None else f".{step}" if _NAME.fullmatch(step) else f"[{step!r}]" for step in path)
    return "".join(steps).removeprefix(".")


def check(reads: Reads) -> None:
    """Check the names of items and the fields in an expression.

    Raise ExpressionError if a field doesn't exist, or if an item has the name of a variable: the library would read the
    variable instead.
    """
    if taken := reads.items & _VARIABLES:
        raise ExpressionError(f"`{min(taken)}` is the name of a variable: use another name here")
    for path, as_written in reads.paths.items():
        known = NAMES.fields.get(shown_path(path[:-1]), ())
        if known and path[-1] is not None and path[-1] not in known:
            hint = f", only {', '.join(known)}"
            raise ExpressionError(f"there is no `{as_written}`", path[-1], known=known, hint=hint)

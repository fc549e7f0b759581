"""What an expression reads: the variables that it names, and what it asks of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.cel import ExpressionError
from webhook.cel.text import shown_name
from webhook.cel.tree import Call, Const, Ident, Loop, Make, Select, children, walk
from webhook.review import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from webhook.cel import Path
    from webhook.cel.tree import Node

KNOWN_FIELDS: Final = {
    "request": ("operation", "kind", "resource", "subResource", "name", "namespace", "userInfo", "dryRun"),
    "request.kind": ("group", "version", "kind"),
    "request.resource": ("group", "version", "resource"),
    "request.userInfo": ("username", "groups"),
    "namespaceObject": ("metadata",),
    "namespaceObject.metadata": ("name", "labels"),
    "pools[]": (
        *("provider", "kind", "name", "namespace", "poolName", "capacity", "gpu", "gpuType", "gpuCount"),
        *("instanceType", "superchip", "autoscaling", "desired", "maximum", "taints", "labels", "zones", "cluster"),
        *("deleting", "unusable"),
    ),
    "pools[].taints[]": ("key", "value", "effect"),
}
"""What is known of the request and its namespace, less than a ValidatingAdmissionPolicy is shown; and of node pools."""

KNOWN_VALUES: Final = {
    "request.operation": OPERATIONS,
    "pools[].capacity": ("spot", "on-demand", "both", "unknown"),
    "pools[].gpu": ("yes", "no", "any", "unknown"),
    "pools[].taints[].effect": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
}
"""What these fields can be."""

_ELSEWHERE: Final = {
    "request.object": "object",
    "request.oldObject": "oldObject",
    "request.username": "request.userInfo.username",
    "request.groups": "request.userInfo.groups",
    "namespaceObject.labels": "namespaceObject.metadata.labels",
    "namespaceObject.name": "namespaceObject.metadata.name",
}
"""What is looked for in the wrong place, as others have it, and where it is."""

_NAME: Final = re.compile(r"@?[A-Za-z_]\w*")
Scope = dict[str, "Path"]
"""What the names of loops and bound names stand for; empty: something else."""


def names(node: Node, variables: Collection[str]) -> Iterator[str]:
    """The variables in an expression; of one with a longer name only that."""
    if isinstance(node, Ident | Select) and node.name in variables:
        yield node.name
        return
    for child in children(node):
        yield from names(child, variables)


def hidden(node: Node) -> Iterator[str]:
    """What is read of a part of the request that has a name of its own, and not by that name."""
    match node:
        case Ident("request") | Call("_?._" | "_[_]" | "_[?_]", (Ident("request"), Const("userInfo"))):
            yield "request.userInfo"
            return
        case Select(Ident("request")) | Call("_?._" | "_[_]" | "_[?_]", (Ident("request"), Const(str()))):
            return
    for child in children(node):
        yield from hidden(child)


def paths(node: Node) -> Iterator[tuple[Path, str]]:
    """What it reads of its variables, as far as the text says, and how that is written.

    Of ``object.spec.containers.all(c, has(c.name))`` also ``("object", "spec", "containers", None, "name")``, which is
    written ``c.name``.
    """
    for each, inner in _below_in(node, {}):
        if path := _path(each, inner):
            root, *fields = _path(each, {})
            yield path, shown_path((*shown_name(root or "").split("."), *fields))


def asked(node: Node) -> Iterator[Path]:
    """What it asks whether it is there: ``has(params.x)``, ``params.?x``, ``'x' in params``."""
    for each, scope in _below_in(node, {}):
        match each:
            case Select(test=True) | Call("_?._" | "_[?_]", (_, Const(str()))):
                yield _path(each, scope)
            case Call("@in", (Const(str(key)), of)):
                yield _below(_path(of, scope), key)


def compared(node: Node) -> Iterator[tuple[Path, Const]]:
    """What it compares with a literal, and with which: ``x == 'a'``, ``x in ['a']``."""
    for each, scope in _below_in(node, {}):
        match each:
            case Call("_==_" | "_!=_", (one, other)):
                pairs = [(one, other), (other, one)]
            case Call("@in", (one, Make(parts))):
                pairs = [(one, part) for part in parts]
            case _:
                continue
        for value, literal in pairs:
            if isinstance(literal, Const) and not literal.null and (path := _path(value, scope)):
                yield path, literal


def _below_in(node: Node, scope: Mapping[str, Path]) -> Iterator[tuple[Node, Mapping[str, Path]]]:
    """The node and everything below, with what names stand for there."""
    yield node, scope
    inner = {**scope, **_inside(node, scope)} if isinstance(node, Loop) else scope
    for child in children(node):
        yield from _below_in(child, inner)


def _inside(loop: Loop, scope: Mapping[str, Path]) -> Scope:
    """What the names of a loop stand for."""
    if loop.binds:
        return {loop.accumulator: _path(loop.start, scope) or (loop.accumulator,)}
    of = _path(loop.range, scope)
    first: Scope = dict.fromkeys((loop.accumulator, *loop.variables), ())
    return {**first, loop.variables[-1]: (*of, None)} if of else first


def _path(node: Node, scope: Mapping[str, Path]) -> Path:  # noqa: PLR0911 - one for each shape
    match node:
        case Ident(name):
            return scope.get(name, tuple(name.split(".")))
        case Select(operand, field) | Call("_?._", (operand, Const(str(field)))):
            return _below(_path(operand, scope), field)
        case Call("_[_]" | "_[?_]", (operand, Const(str(field)))):
            return _below(_path(operand, scope), field)
        case Call("_[_]" | "_[?_]", (operand, _)):
            return _below(_path(operand, scope), None)
        case Loop(range=of, step=Call("_?_:_", (_, Call("_+_", (_, made)), _))) if _is_item(made, node):
            return _path(of, scope)  # filter
        case Loop() if node.binds:
            return _path(node.result, {**scope, **_inside(node, scope)})
        case Call("_?_:_", (_, Make(()), or_empty)):
            return _path(or_empty, scope)
        case _:
            return ()


def _is_item(made: Node, loop: Loop) -> bool:
    return children(made) == (Ident(loop.variables[-1]),)


def _below(path: Path, step: str | None) -> Path:
    return (*path, step) if path else ()


def offset_of(written: str, text: str) -> int | None:
    """Where in the text of an expression this is written, in characters."""
    found = re.search(rf"(?<![\w.]){re.escape(written)}(?!\w)", text)
    return found.start() if found is not None else None


def check_loops(node: Node, text: str) -> None:
    """An item that is named as one of what expressions are shown would be read as that.

    Raises:
        ExpressionError: there is one.
    """
    shown = {"object", "oldObject", "request", "namespaceObject", "pools"}
    for each in walk(node):
        if isinstance(each, Loop) and (taken := shown.intersection((*each.variables, each.accumulator))):
            name = min(taken)
            found = re.search(rf"\(\s*(?:\w+\s*,\s*)?({name})\s*,", text)
            problem = f"`{name}` is what expressions are shown: another name is needed here"
            raise ExpressionError(problem, offset=found.start(1) if found else None)


def check_fields(read: Mapping[Path, str], text: str) -> None:
    """Fields of what is known that nobody knows are a mistake, and no absent fields.

    Raises:
        ExpressionError: there is one.
    """
    for path, written in read.items():
        of = shown_path(path[:-1])
        if of in KNOWN_FIELDS and path[-1] is not None and path[-1] not in KNOWN_FIELDS[of]:
            elsewhere = _ELSEWHERE.get(f"{of}.{path[-1]}")
            hint = f": write `{elsewhere}`" if elsewhere else f", only {', '.join(KNOWN_FIELDS[of])}"
            known = () if elsewhere else KNOWN_FIELDS[of]
            problem, offset = f"there is no `{written}`", offset_of(written, text)
            raise ExpressionError(problem, path[-1], known=known, hint=hint, offset=offset)


def check_values(node: Node, read: Mapping[Path, str], text: str) -> None:
    """What can only be one of a few words, and is compared with another, is a mistake: it never is that.

    Raises:
        ExpressionError: there is one.
    """
    for path, literal in compared(node):
        known, written = KNOWN_VALUES.get(shown_path(path), ()), read.get(path, "")
        if not known or literal.value in {*known, ""}:  # to ask whether it is empty does no harm
            continue
        only = f", only {', '.join(map(repr, known))}"
        if not isinstance(literal.value, str):
            raise ExpressionError(f"`{written}` is a string{only}", offset=offset_of(written, text))
        at = [offset_of(f"{quote}{literal.value}{quote}", text) for quote in "'\""]
        offset = next((each for each in at if each is not None), None)
        problem = f"`{written}` is never `{literal.value}`"
        raise ExpressionError(problem, literal.value, known=known, hint=only, offset=offset)


def shown_path(path: Path) -> str:
    """As it is written: ``pools[].labels['a/b']``."""
    steps = ("[]" if each is None else f".{each}" if _NAME.fullmatch(each) else f"[{each!r}]" for each in path)
    return "".join(steps).removeprefix(".")

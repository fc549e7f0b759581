"""What compiles, and yet can't mean what it says: it is refused when a policy is loaded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from webhook.cel import ExpressionError
from webhook.cel.reads import below_in, bound_in, offset_of, path_of, shown_path
from webhook.cel.tree import Call, Const, Ident, Loop, Make, Select, walk
from webhook.review import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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

_SHOWN: Final = frozenset({"object", "oldObject", "request", "namespaceObject", "pools"})

_ELSEWHERE: Final = {
    "request.object": "object",
    "request.oldObject": "oldObject",
    "request.username": "request.userInfo.username",
    "request.groups": "request.userInfo.groups",
    "namespaceObject.labels": "namespaceObject.metadata.labels",
    "namespaceObject.name": "namespaceObject.metadata.name",
}
"""What is looked for in the wrong place, as others have it, and where it is."""


def _compared(node: Node) -> Iterator[tuple[Path, Const]]:
    """What it compares with a literal, and with which: ``x == 'a'``, ``x in ['a']``."""
    for each, scope in below_in(node, {}):
        match each:
            case Call("_==_" | "_!=_", (one, other)):
                pairs = [(one, other), (other, one)]
            case Call("@in", (one, Make(parts))):
                pairs = [(one, part) for part in parts]
            case _:
                continue
        for value, literal in pairs:
            if isinstance(literal, Const) and not literal.null and (path := path_of(value, scope)):
                yield path, literal


def check(node: Node, read: Mapping[Path, str], text: str) -> None:
    """Look for all of it.

    Args:
        node: the compiled expression.
        read: what it reads, and how that is written.
        text: the expression as it is written.

    Raises:
        ExpressionError: there is something.
    """
    _names_of_items(node, text)
    _fields(read, text)
    _words(node, read, text)
    _optionals(node, text)


def _names_of_items(node: Node, text: str) -> None:
    """An item that is named as one of what expressions are shown would be read as that."""
    for each in walk(node):
        if not isinstance(each, Loop):
            continue
        names = (each.accumulator,) if each.binds else each.variables  # `params` itself is bound
        if taken := {*_SHOWN, *(() if each.binds else ("params",))}.intersection(names):
            name = min(taken)
            found = re.search(rf"\(\s*(?:\w+\s*,\s*)?({name})\s*,", text)
            problem = f"`{name}` is what expressions are shown: another name is needed here"
            raise ExpressionError(problem, offset=found.start(1) if found else None)


def _fields(read: Mapping[Path, str], text: str) -> None:
    """Fields of what is known that nobody knows are a mistake, and no absent fields."""
    for path, as_written in read.items():
        of = shown_path(path[:-1])
        if of in KNOWN_FIELDS and path[-1] is not None and path[-1] not in KNOWN_FIELDS[of]:
            problem, offset = f"there is no `{as_written}`", offset_of(as_written, text)
            if (elsewhere := _ELSEWHERE.get(f"{of}.{path[-1]}")) is not None:
                raise ExpressionError(problem, hint=f": write `{elsewhere}`", offset=offset)
            known = KNOWN_FIELDS[of]
            raise ExpressionError(problem, path[-1], known=known, hint=f", only {', '.join(known)}", offset=offset)


def _words(node: Node, read: Mapping[Path, str], text: str) -> None:
    """What can only be one of a few words, and is compared with another, never is that."""
    for path, literal in _compared(node):
        known, as_written = KNOWN_VALUES.get(shown_path(path), ()), read.get(path, "")
        if not known or literal.value in {*known, ""}:  # to ask whether it is empty does no harm
            continue
        only = f", only {', '.join(map(repr, known))}"
        if not isinstance(literal.value, str):
            raise ExpressionError(f"`{as_written}` is a string{only}", offset=offset_of(as_written, text))
        at = [offset_of(f"{quote}{literal.value}{quote}", text) for quote in "'\""]
        offset = next((each for each in at if each is not None), None)
        problem = f"`{as_written}` is never `{literal.value}`"
        raise ExpressionError(problem, literal.value, known=known, hint=only, offset=offset)


def _optionals(node: Node, text: str) -> None:
    """To the type checker `labels[?'a']` of an object could be anything, also a string, which it never is."""
    for each, bound in bound_in(node, {}):
        match each:
            case Call("_==_" | "_!=_", (one, other)):
                for optional, plain in ((one, other), (other, one)):
                    if _is_optional(optional, bound) and _is_plain(plain):
                        at = (text.find(written) for written in _asking(optional) if written in text)
                        problem = "what is optional never equals what is not"
                        raise ExpressionError(problem, hint=": write `.orValue(...)` behind it", offset=next(at, None))


def _is_optional(node: Node, bound: Mapping[str, Node]) -> bool:
    match node:
        case Call("_[?_]" | "_?._"):
            return True
        case Select(of, test=False) | Call("_[_]", (of, _)):  # a field of it is, too
            return _is_optional(of, bound)
        case Ident(name) if name in bound:
            return _is_optional(bound[name], bound)
        case _:
            return False


def _is_plain(node: Node) -> bool:
    """Is it a literal, or a field of an object?"""
    match node:
        case Const():
            return True
        case Select(of) | Call("_[_]", (of, Const())):
            return _is_plain(of)
        case Ident(name):
            return name.partition(".")[0] in _SHOWN
        case _:
            return False


def _asking(node: Node) -> tuple[str, ...]:
    """How what is optional may be written."""
    match node:
        case Call("_[?_]", (_, Const(key))):
            return f"[?{key!r}]", f'[?"{key}"]'
        case Call("_?._", (_, Const(key))):
            return (f".?{key}",)
        case Select(of) | Call("_[_]", (of, _)):
            return _asking(of)
        case Ident(name):
            return (name,)
        case _:
            return ()

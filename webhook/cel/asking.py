"""How an expression would ask whether what it reads is there, as CEL that can be copied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.cel.text import shown_name
from webhook.cel.tree import Call, Const, Ident, Select, walk

if TYPE_CHECKING:
    from webhook.cel.tree import Node


def asking(node: Node, key: str) -> str:
    """How to ask for a key that it reads and that is not there: where it reads it, if that can be told."""
    computed = ""
    for each in walk(node):
        match each:
            case Select(of, field, test=False) if field == key and (text := _source(of)):
                return f"`has({text}.{key})`, or `{text}.?{key}.orValue(...)`"
            case Call("_[_]", (of, Const(value) as index)) if str(value) == key and (text := _source(of)):
                return _in(_source(index), text)
            case Call("_[_]", (of, index)) if not isinstance(index, Const) and _source(of) and _source(index):
                computed = computed or _in(_source(index), _source(of))
    return computed or _in(repr(key), "map")


def _in(key: str, of: str) -> str:
    return f"`{key} in {of}`, or `{of}[?{key}].orValue(...)`"


def _source(node: Node) -> str:
    """A literal, a name, or a path of fields and items as it is written; empty for anything else."""
    match node:
        case Const(str() | int() as value):
            return repr(value)
        case Ident(name) | Select(name=name, test=False) if name:
            return shown_name(name)
        case Select(of, field, test=False) if text := _source(of):
            return f"{text}.{field}"
        case Call("_[_]", (of, index)) if (text := _source(of)) and (at := _source(index)):
            return f"{text}[{at}]"
        case _:
            return ""

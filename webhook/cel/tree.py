"""Read the tree of a compiled expression from the library's serialized form.

Source: google/api/expr: syntax.proto and checked.proto of https://github.com/google/cel-spec
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CONST, _IDENT, _SELECT, _CALL, _LIST, _STRUCT, _LOOP = range(3, 10)
_INT, _STRING = 3, 6
"""The field numbers of a constant."""

_Fields = dict[int, list[Any]]
"""The fields of a message, by number. Each value is an integer or bytes."""


class Const(msgspec.Struct, frozen=True):
    """A literal. ``value`` is None unless it is a string or an integer."""

    value: str | int | None


class Ident(msgspec.Struct, frozen=True):
    """A name. ``request.operation`` is a single name, because it is a variable."""

    name: str


class Select(msgspec.Struct, frozen=True):
    """``operand.field``, or ``has(operand.field)`` if ``test``."""

    operand: ExprNode
    field: str
    test: bool = False


class Call(msgspec.Struct, frozen=True):
    """A call of a function or operator. The first of a method's ``args`` is its target."""

    function: str
    args: tuple[ExprNode, ...]


class Make(msgspec.Struct, frozen=True):
    """A list, map, or message literal. With ``pairs``, the parts alternate between keys and values."""

    parts: tuple[ExprNode, ...]
    pairs: bool = False


class Loop(msgspec.Struct, frozen=True):
    """A comprehension, such as ``all``, ``map``, or ``cel.bind``, which has an empty range.

    Attributes:
        accumulator: the name of the result while the loop runs.
    """

    variables: tuple[str, ...]
    range: ExprNode
    accumulator: str
    start: ExprNode
    condition: ExprNode
    step: ExprNode
    result: ExprNode

    @property
    def binds(self) -> bool:
        """Return whether the loop only binds a name, as ``cel.bind`` does."""
        return self.range == Make(()) and self.step == Ident(self.accumulator)

    @property
    def filters(self) -> bool:
        """Return whether the result consists of unchanged items of the range."""
        match self.step:
            case Call("_?_:_", (_, Call("_+_", (_, Make((Ident(name),)))), _)):
                return name == self.variables[-1]
        return False


ExprNode = Const | Ident | Select | Call | Make | Loop


def read_tree(serialized: bytes) -> ExprNode:
    """Read the tree of a checked expression (a ``google.protobuf.Any``)."""
    checked = _fields(_bytes(_fields(serialized), 2))
    names: dict[int, str] = {}
    for entry in checked.get(2, ()):
        reference = _fields(entry)
        names[_int(reference, 1)] = _text(_fields(_bytes(reference, 2)), 1)
    (tree,) = _nodes(names, checked, 4)
    return tree


def _nodes(names: Mapping[int, str], fields: _Fields, *numbers: int) -> tuple[ExprNode, ...]:
    """Read the nodes in these fields. ``names`` has the full names of variables, by node id."""
    return tuple(_node(names, data) for number in numbers for data in fields.get(number, ()))


def _node(names: Mapping[int, str], data: bytes) -> ExprNode:  # noqa: PLR0911 - one for each kind
    fields = _fields(data)
    kind = next((kind for kind in range(_CONST, _LOOP + 1) if kind in fields), _CONST)
    body = _fields(_bytes(fields, kind))
    if kind == _CONST:
        return Const(_text(body, _STRING) if _STRING in body else _int(body, _INT) if _INT in body else None)
    name = names.get(_int(fields, 2), "")
    if kind == _IDENT or (kind == _SELECT and name):
        return Ident(name or _text(body, 1))
    if kind == _SELECT:
        return Select(_nodes(names, body, 1)[0], _text(body, 2), test=bool(_int(body, 3)))
    if kind == _CALL:
        return Call(_text(body, 2), _nodes(names, body, 1, 3))
    if kind == _LIST:
        return Make(_nodes(names, body, 1))
    if kind == _STRUCT:
        entries = (_fields(data) for data in body.get(2, ()))
        return Make(tuple(node for entry in entries for node in _nodes(names, entry, 3, 4)), pairs=True)
    variables = tuple(filter(None, (_text(body, 1), _text(body, 8))))
    span, start, condition, step, result = _nodes(names, body, 2, 4, 5, 6, 7)
    return Loop(variables, span, _text(body, 3), start, condition, step, result)


def _fields(data: bytes) -> _Fields:
    """Read the fields of a message, by number."""
    fields: _Fields = {}
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        value: int | bytes
        if wire == _VARINT:
            value, position = _varint(data, position)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}.get(wire, 0)
            if wire == _BYTES:
                size, position = _varint(data, position)
            value = data[position : position + size]
            position += size
        fields.setdefault(number, []).append(value)
    return fields


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, position


def _bytes(fields: _Fields, number: int) -> bytes:
    content: bytes = fields.get(number, (b"",))[0]
    return content


def _text(fields: _Fields, number: int) -> str:
    return _bytes(fields, number).decode()


def _int(fields: _Fields, number: int) -> int:
    value: int = fields.get(number, (0,))[0]
    return value - (1 << 64) if value >> 63 else value


def children(node: ExprNode) -> tuple[ExprNode, ...]:
    """Return the direct children of a node."""
    match node:
        case Select(operand=operand):
            return (operand,)
        case Call(args=parts) | Make(parts=parts):
            return parts
        case Loop():
            return (node.range, node.start, node.condition, node.step, node.result)
        case _:
            return ()

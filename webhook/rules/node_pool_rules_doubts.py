"""What a check of `NodePoolRules` says in JMESPath that is no mistake of that language, and can never be meant."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import jmespath
from jmespath.lexer import Lexer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Node = dict[str, Any]
"""Of the library's tree: ``type``, ``value`` and ``children``."""

_COMPARE: Final = frozenset({"eq", "ne", "lt", "lte", "gt", "gte"})
_GOES_ON: Final = frozenset({"dot", "lbracket", "filter", "flatten"})
_BELOW: Final = frozenset(
    {"filter_projection", "flatten", "index_expression", "pipe", "projection", "subexpression", "value_projection"}
)
"""Nodes whose first child is about the same value as they are, and the others about what that finds."""
_WORDS: Final = frozenset({"true", "false", "null"})
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TYPES: Final[Mapping[type, str]] = {str: "string", int: "integer", bool: "boolean"}
_MEANT: Final = {"string": re.compile(".*"), "integer": re.compile(r"-?[0-9]+"), "boolean": re.compile("true|false")}
"""What may be meant for one where it is written as something else."""
_A: Final = {"string": "a string", "integer": "an integer", "boolean": "a boolean"}

_OBJECT: Final = "object"
_NO_OBJECT: Final = "there is no field `object`: paths begin below it, as spec.targetNodes does"
"""It is a name of CEL."""


def doubts(text: str, types: Mapping[str, str]) -> Iterator[str]:
    """What can't be meant in an expression that compiles, each with what to write.

    Args:
        text: the expression.
        types: of fields of the object, by their paths, as far as they are known.
    """
    parsed: Node = jmespath.compile(text).parsed  # type: ignore[assignment]
    yield from dict.fromkeys((*_quoted(text), *_of(parsed, types, at_root=True)))


def begins_with_object(path: str) -> str:
    """What is wrong with a field path as CEL has it; empty: nothing."""
    return _NO_OBJECT if path.partition(".")[0] == _OBJECT else ""


def _quoted(text: str) -> Iterator[str]:
    """Names in double quotes where a text is meant: a field is seldom compared with another, and needs no quotes."""
    tokens: list[Any] = [{"type": ""}, *Lexer().tokenize(text)]
    for before, token, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if token["type"] != "quoted_identifier" or after["type"] in _GOES_ON or before["type"] == "dot":
            continue
        plain = _PLAIN.fullmatch(token["value"]) is not None
        if before["type"] in _COMPARE or (plain and after["type"] in _COMPARE):
            name = json.dumps(token["value"], ensure_ascii=False)
            yield f"{name} is the field of this name: a text is written in single quotes, '{token['value']}'"


def _of(node: Node, types: Mapping[str, str], *, at_root: bool) -> Iterator[str]:
    children = node["children"]
    if node["type"] == "field" and node["value"] == _OBJECT and at_root:
        yield _NO_OBJECT
    if node["type"] == "comparator":
        yield from filter(None, (_bare(each) for each in children))
        if at_root:
            one, other = children
            yield from filter(None, (_mistyped(one, other, types), _mistyped(other, one, types)))
    for number, child in enumerate(children):
        same = node["type"] != "expref" and (number == 0 or node["type"] not in _BELOW)
        if isinstance(child, dict):  # no bound of a slice
            yield from _of(child, types, at_root=at_root and same)


def _bare(node: Node) -> str:
    """A word without backticks is a field."""
    if node["type"] != "field" or node["value"] not in _WORDS:
        return ""
    return f"{node['value']} is the field of this name: write it in backticks, `{node['value']}`"


def _mistyped(node: Node, literal: Node, types: Mapping[str, str]) -> str:
    """A field compared with a literal of another type."""
    path = _path(node)
    wanted, given = types.get(path, ""), _TYPES.get(type(literal.get("value")), "")
    if literal["type"] != "literal" or wanted not in _A or not given or given == wanted:
        return ""
    value = literal["value"] if given == "string" else json.dumps(literal["value"])
    right = _MEANT[wanted].fullmatch(value)
    hint = f": write {_written(value, wanted)}" if right else ""
    return f"{path} is {_A[wanted]}, and is compared with {_A[given]}, {_written(value, given)}{hint}"


def _written(value: str, as_type: str) -> str:
    return f"'{value}'" if as_type == "string" else f"`{value}`"


def _path(node: Node) -> str:
    """A field path; empty: it is something else."""
    nodes = node["children"] if node["type"] == "subexpression" else [node]
    return ".".join(each["value"] for each in nodes) if all(each["type"] == "field" for each in nodes) else ""

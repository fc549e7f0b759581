"""JMESPath conditions of `NodePoolRules` as CEL, as far as both can say the same.

There are: field paths, ``==``, ``!=``, the order of numbers, ``&&``, ``||``, ``!``, ``lower``, ``type``, ``length``,
``contains`` with a literal, and whether a filter of a list leaves anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import jmespath

from webhook.cli.vap_cel import literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from webhook.cli.vap_cel import Fields

_NAME: Final = re.compile(r"(?!(in|true|false|null)$)[A-Za-z]\w*", re.ASCII)
_ORDER: Final = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_EQUAL: Final = {"eq": "==", "ne": "!="}
_TYPES: Final = {"string": "string", "boolean": "bool", "object": "map", "array": "list", "null": "null_type"}
_CONSTANTS: Final = {
    "nothing": "[dyn(null), dyn(false), dyn(''), dyn([]), dyn({})]",
    "numbers": "[dyn(int), dyn(double)]",
    "sized": "[dyn(string), dyn(list), dyn(map)]",
}
"""What JMESPath takes for false, what it compares by order, and what has a length."""


class UntranslatableError(Exception):
    """It has no equal. ``str()`` names the part that has none."""


def condition(text: str, fields: Fields) -> str:
    """The CEL of a condition; what it reads becomes variables.

    Raises:
        UntranslatableError: it has no equal.
    """
    return _Translation(fields, fields.value).whole(jmespath.compile(text).parsed)


class _Translation:
    """Of one expression, or of the test of a filter, which reads fields of an item.

    Where JMESPath fails, a check can't be made: nothing is wrong then, not even what is negated. That is guarded.
    """

    def __init__(self, fields: Fields, read: Callable[[Sequence[str]], str]) -> None:
        self.fields = fields
        self.read = read
        self.negated = False
        self.guards: dict[str, None] = {}

    def whole(self, node: Mapping[str, Any]) -> str:
        """The expression behind its guards."""
        truth = self.truth(node)
        return f"({' && '.join([*self.guards, truth])})" if self.guards else truth

    def truth(self, node: Mapping[str, Any]) -> str:
        """Does it hold? In JMESPath whatever is neither empty, false nor null does."""
        kind, children = node["type"], node["children"]
        if kind in {"and_expression", "or_expression"}:
            operator = " && " if kind == "and_expression" else " || "
            return f"({operator.join(map(self.truth, children))})"
        if kind == "not_expression":
            outside, self.negated = self.negated, True
            truth = f"!{self.truth(children[0])}"
            self.negated = outside
            return truth
        if kind == "comparator":
            return f"({self.comparison(node)})"
        if kind == "filter_projection":
            return f"({self.filter(node)})"
        if kind == "function_expression" and node["value"] == "contains":
            return f"({self.contains(node)})"
        return f"!({self.value(node)} in {self.constant('nothing')})"

    def comparison(self, node: Mapping[str, Any]) -> str:
        left, right = node["children"]
        sign = node["value"]
        if sign in _ORDER:
            one, other, numbers = self.value(left), self.value(right), self.constant("numbers")
            self.guard(f"type({one}) != string")
            self.guard(f"type({other}) != string")
            return f"type({one}) in {numbers} && type({other}) in {numbers} && {one} {_ORDER[sign]} {other}"
        if left["type"] == "function_expression" and left["value"] == "type" and right.get("value") in _TYPES:
            return f"type({self.value(left['children'][0])}) {_EQUAL[sign]} {_TYPES[right['value']]}"
        return f"{self.value(left)} {_EQUAL[sign]} {self.value(right)}"

    def filter(self, node: Mapping[str, Any]) -> str:
        items, result, test = node["children"]
        if self.negated:
            raise UntranslatableError("a filter that is negated")
        if result["type"] != "identity":
            raise UntranslatableError("what a filter of a list makes of its items")
        listed = self.value(items)
        return f"type({listed}) == list && {listed}.exists(item, {_Translation(self.fields, _of_item).whole(test)})"

    def contains(self, node: Mapping[str, Any]) -> str:
        where, what = node["children"]
        if what["type"] != "literal" or not isinstance(what["value"], str):
            raise UntranslatableError("contains() of what is no literal")
        item = literal(what["value"])
        if where["type"] == "function_expression" and where["value"] == "lower":
            text = self.value(where["children"][0])
            self.guard(f"type({text}) == string")
            return f"type({text}) == string && {text}.lowerAscii().contains({item})"
        value = self.value(where)
        is_text, is_list = f"type({value}) == string", f"type({value}) == list"
        self.guard(f"({is_text} || {is_list})")
        return f"{is_text} && {value}.contains({item}) || {is_list} && {item} in {value}"

    def value(self, node: Mapping[str, Any]) -> str:
        kind = node["type"]
        if kind == "literal" and not isinstance(node["value"], dict | list):
            return literal(node["value"])
        if kind in {"field", "subexpression"}:
            return self.read(_path(node))
        if kind != "function_expression":
            raise UntranslatableError(kind.replace("_", " "))
        if node["value"] not in {"lower", "length"}:
            raise UntranslatableError(f"{node['value']}()")
        of = self.value(node["children"][0])
        if node["value"] == "lower":
            self.guard(f"({of} == null || type({of}) == string)")
            return f"(type({of}) == string ? dyn({of}.lowerAscii()) : null)"
        self.guard(f"type({of}) in {self.constant('sized')}")
        return f"(type({of}) in {self.constant('sized')} ? dyn({of}.size()) : null)"

    def guard(self, test: str) -> None:
        if self.negated:
            self.guards[test] = None

    def constant(self, name: str) -> str:
        self.fields.variables.setdefault(name, _CONSTANTS[name])
        return f"variables.{name}"


def _of_item(path: Sequence[str]) -> str:
    if len(path) > 1:
        raise UntranslatableError("a field in a field of an item")
    return f"(type(item) == map ? item.?{path[0]}.orValue(null) : null)"


def _path(node: Mapping[str, Any]) -> tuple[str, ...]:
    if node["type"] == "field":
        if not _NAME.fullmatch(node["value"]):
            raise UntranslatableError("a name in quotes")
        return (node["value"],)
    if node["type"] != "subexpression":
        raise UntranslatableError(node["type"].replace("_", " "))
    return tuple(name for each in node["children"] for name in _path(each))

"""JMESPath conditions of `NodePoolRules` as CEL, as far as both can say the same.

There are: field paths, ``==``, ``!=``, the order of numbers, ``&&``, ``||``, ``!``, ``lower``, ``type``, ``length``,
``contains`` with a literal, and whether a filter of a list leaves anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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


class _Said(NamedTuple):
    """CEL for a part.

    Attributes:
        cel: its value, or whether it holds; it has a result also where JMESPath fails.
        works: does JMESPath not fail? Empty: it never does.
    """

    cel: str
    works: str = ""


class _Translation:
    """Of one expression, or of the test of a filter, which reads fields of an item.

    Where JMESPath fails, a check can't be made: nothing is wrong then, not even what is negated.
    """

    def __init__(self, fields: Fields, read: Callable[[Sequence[str]], str]) -> None:
        self.fields = fields
        self.read = read

    def whole(self, node: Mapping[str, Any]) -> str:
        """Does it hold, and without failing?"""
        said = self.truth(node)
        return f"({said.works} && {said.cel})" if said.works else said.cel

    def truth(self, node: Mapping[str, Any]) -> _Said:
        """Does it hold? In JMESPath whatever is neither empty, false nor null does."""
        kind, children = node["type"], node["children"]
        if kind in {"and_expression", "or_expression"}:
            one, other = map(self.truth, children)
            operator, decides = ("&&", f"!{one.cel}") if kind == "and_expression" else ("||", one.cel)
            works = f"({decides} || {other.works})" if other.works else ""
            return _Said(f"({one.cel} {operator} {other.cel})", _all(one.works, works))
        if kind == "not_expression":
            said = self.truth(children[0])
            return _Said(f"!{said.cel}", said.works)
        if kind == "comparator":
            return self.comparison(node)
        if kind == "filter_projection":
            return self.filter(node)
        if kind == "function_expression" and node["value"] == "contains":
            return self.contains(node)
        value = self.value(node)
        return _Said(f"!({value.cel} in {self.constant('nothing')})", value.works)

    def comparison(self, node: Mapping[str, Any]) -> _Said:
        left, right = node["children"]
        sign = node["value"]
        if left["type"] == "function_expression" and left["value"] == "type" and right.get("value") in _TYPES:
            of = self.value(left["children"][0])
            return _Said(f"(type({of.cel}) {_EQUAL[sign]} {_TYPES[right['value']]})", of.works)
        one, other = self.value(left), self.value(right)
        works = _all(one.works, other.works)
        if sign not in _ORDER:
            return _Said(f"({one.cel} {_EQUAL[sign]} {other.cel})", works)
        numbers = self.constant("numbers")
        are_numbers = f"type({one.cel}) in {numbers} && type({other.cel}) in {numbers}"
        no_strings = (f"type({each.cel}) != string" for each in (one, other))
        return _Said(f"({are_numbers} && {one.cel} {_ORDER[sign]} {other.cel})", _all(works, *no_strings))

    def filter(self, node: Mapping[str, Any]) -> _Said:
        items, result, test = node["children"]
        if result["type"] != "identity":
            raise UntranslatableError("what a filter of a list makes of its items")
        listed = self.value(items)
        of_item = _Translation(self.fields, _of_item).truth(test)
        works = f"(type({listed.cel}) != list || {listed.cel}.all(item, {of_item.works}))" if of_item.works else ""
        exists = f"(type({listed.cel}) == list && {listed.cel}.exists(item, {of_item.cel}))"
        return _Said(exists, _all(listed.works, works))

    def contains(self, node: Mapping[str, Any]) -> _Said:
        where, what = node["children"]
        if what["type"] != "literal" or not isinstance(what["value"], str):
            raise UntranslatableError("contains() of what is no literal")
        item = literal(what["value"])
        if where["type"] == "function_expression" and where["value"] == "lower":
            text = self.value(where["children"][0])
            is_text = f"type({text.cel}) == string"
            return _Said(f"({is_text} && {text.cel}.lowerAscii().contains({item}))", _all(text.works, is_text))
        value = self.value(where)
        is_text, is_list = f"type({value.cel}) == string", f"type({value.cel}) == list"
        holds = f"({is_text} && {value.cel}.contains({item}) || {is_list} && {item} in {value.cel})"
        return _Said(holds, _all(value.works, f"({is_text} || {is_list})"))

    def value(self, node: Mapping[str, Any]) -> _Said:
        kind = node["type"]
        if kind == "literal" and not isinstance(node["value"], dict | list):
            return _Said(literal(node["value"]))
        if kind in {"field", "subexpression"}:
            return _Said(self.read(_path(node)))
        if kind != "function_expression":
            raise UntranslatableError(kind.replace("_", " "))
        if node["value"] not in {"lower", "length"}:
            raise UntranslatableError(f"{node['value']}()")
        of = self.value(node["children"][0])
        if node["value"] == "lower":
            works = f"({of.cel} == null || type({of.cel}) == string)"
            return _Said(f"(type({of.cel}) == string ? dyn({of.cel}.lowerAscii()) : null)", _all(of.works, works))
        works = f"type({of.cel}) in {self.constant('sized')}"
        return _Said(f"({works} ? dyn({of.cel}.size()) : null)", _all(of.works, works))

    def constant(self, name: str) -> str:
        self.fields.variables.setdefault(name, _CONSTANTS[name])
        return f"variables.{name}"


def _all(*tests: str) -> str:
    return " && ".join(dict.fromkeys(filter(None, tests)))


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

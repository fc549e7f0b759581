"""What Kubernetes refuses of an expression that is fine here: lists and maps of mixed types."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from webhook.cel.text import without_strings

if TYPE_CHECKING:
    from collections.abc import Iterator

_STRING: Final = "''"
_LITERALS: Final = {
    "string": re.compile(_STRING),
    "int": re.compile(r"-?(\d+|0x[0-9a-fA-F]+)"),
    "uint": re.compile(r"(\d+|0x[0-9a-fA-F]+)[uU]"),
    "double": re.compile(r"-?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?"),
    "bool": re.compile("true|false"),
    "null": re.compile("null"),
}
_PAIRS: Final = {"[": "]", "{": "}", "(": ")"}


def refused(expression: str) -> str:
    """What Kubernetes does not compile in it, as a phrase; empty: nothing that is known to be so.

    Of the items of a list the first are looked at that are literals: with one of any type, the rest may be what it is.
    """
    for items in _lists(without_strings(expression, _STRING)):
        types = list(dict.fromkeys(takewhile(bool, map(_type_of, items))))
        if len(types) > 1:
            return f"Kubernetes refuses a list or map of {types[0]} and {types[1]}; write dyn() around the items"
    return ""


def _lists(text: str) -> Iterator[list[str]]:
    """What stands between commas, list by list; of a map, its keys and its values."""
    opened: list[tuple[str, list[str]]] = []
    begins = 0
    for at, character in enumerate(text):
        if opened and character in {",", opened[-1][0]}:
            opened[-1][1].append(text[begins:at].strip())
        if opened and character == opened[-1][0]:
            closing, items = opened.pop()
            if closing == "}":
                pairs = [each.partition(":") for each in items]
                yield [key.strip() for key, _, _ in pairs]
                yield [value.strip() for _, _, value in pairs]
            elif closing == "]":
                yield items
            begins = at  # of the list that this one is in: no literal
        elif character in _PAIRS:
            opened.append((_PAIRS[character], []))
            begins = at + 1
        elif character == ",":
            begins = at + 1


def _type_of(item: str) -> str:
    """Of a literal; empty: it is none."""
    return next((name for name, literal in _LITERALS.items() if literal.fullmatch(item)), "")

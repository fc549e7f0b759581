"""JSON files: one object, or several one after another."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from webhook.documents.values import as_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.documents.model import JSONValue, Limits


def read_json(text: str, limits: Limits) -> Iterator[tuple[int, int, JSONValue]]:
    """Where each JSON value begins and ends in the text, and the value.

    Raises:
        ValueError, OverflowError, RecursionError: it is no JSON, bad JSON or too much of it. What and where: the YAML
            reader says.
    """
    # Without aliases, commas and brackets bound the number of values, before one of them is made.
    if text.count(",") + text.count("[") + text.count("{") >= limits.nodes:
        raise ValueError("too many values")
    escaped_surrogates = re.search(r"\\u[dD][89a-fA-F]", text)
    end = 0
    while match := _NEXT.match(text, end):
        start = match.end()
        value, end = _DECODER.raw_decode(text, start)
        if _is_deeper(value, limits.depth):
            raise ValueError("too deep")
        if escaped_surrogates:
            json.dumps(value, ensure_ascii=False).encode()  # half a pair is a UnicodeEncodeError, which is a ValueError
        yield start, end, value


def _object(members: list[tuple[str, JSONValue]]) -> dict[str, JSONValue]:
    value = dict(members)
    if len(value) < len(members):
        raise ValueError("duplicate key")
    return value


def _constant(name: str) -> JSONValue:
    raise ValueError(f"{name} is no JSON")


def _is_deeper(value: JSONValue, depth: int) -> bool:
    """Whether containers lie within containers more than ``depth`` times, found without recursion."""
    level: list[Any] = [value] if isinstance(value, (dict, list)) else []
    while level and depth:
        depth -= 1
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, (dict, list))
        ]
    return bool(level)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_constant=_constant,
    parse_float=lambda text: as_json(float(text)),
    parse_int=lambda text: as_json(int(text)),
)
_NEXT: Final = re.compile(r"[ \t\n\r]*(?=[^ \t\n\r])")

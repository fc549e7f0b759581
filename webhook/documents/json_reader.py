"""Read JSON files of one object, or of several one after another."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from webhook.documents.model import DocumentError, line_and_column
from webhook.documents.values import as_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.documents.model import DocumentLimits, JSONValue


def read_json(text: str, file: str, limits: DocumentLimits) -> Iterator[tuple[int, int, JSONValue]]:
    """Yield the beginning, the end and the value of each JSON value in a text.

    Raises:
        DocumentError: a key is there twice, or a number is not finite: the YAML reader would take it for a string.
        ValueError, RecursionError: the text is no JSON, or too large. The YAML reader finds out what is wrong where.
    """
    # Without aliases, commas and brackets bound the number of values, before one of them is made.
    if text.count(",") + text.count("[") + text.count("{") >= limits.nodes:
        raise ValueError("too many values")
    escaped_surrogates = re.search(r"\\u[dD][89a-fA-F]", text)
    end = 0
    while match := _NEXT.match(text, end):
        start = match.end()
        try:
            value, end = _DECODER.raw_decode(text, start)
        except _FaultError:
            raise next(_faults(text, start, file)) from None
        if _is_deeper(value, limits.depth):
            raise ValueError("too deep")
        if escaped_surrogates:
            json.dumps(value, ensure_ascii=False).encode()  # half a pair is a UnicodeEncodeError, which is a ValueError
        yield start, end, value


class _FaultError(ValueError):
    """A hook of the decoder has found a mistake, at a place that it does not know."""


def _object(members: list[tuple[str, JSONValue]]) -> dict[str, JSONValue]:
    value = dict(members)
    if len(value) < len(members):
        raise _FaultError
    return value


def _number(convert: Callable[[str], int | float], text: str) -> int | float:
    try:
        return as_json(convert(text))
    except (ValueError, OverflowError):
        raise _FaultError from None


def _faults(text: str, start: int, file: str) -> Iterator[DocumentError]:
    """Yield the duplicate keys and the numbers that are not finite in otherwise valid JSON."""
    containers: list[dict[str, int]] = []  # around the token: where the keys of each are
    for token in _TOKEN.finditer(text, start):
        at = token.start()
        if token[0] in "{[":
            containers.append({})
        elif token[0] in "}]":
            containers.pop()
        elif token["key"]:
            key = json.loads(token["key"])
            if key in containers[-1]:
                first, _ = line_and_column(text, containers[-1][key])
                problem = f"duplicate key {json.dumps(key)}, first at {file}:{first}"
                yield DocumentError(file, *line_and_column(text, at), problem, "keep one of the two")
            containers[-1][key] = at
        elif token["number"]:
            try:
                _number(json.loads, token["number"])
            except _FaultError:
                problem = f"{token['number'][:_SHOWN]} is no finite number"
                yield DocumentError(file, *line_and_column(text, at), problem, "write one, or quote it")


def _is_deeper(value: JSONValue, depth: int) -> bool:
    """Return whether a value is nested deeper than ``depth`` levels, without recursion."""
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
    parse_constant=partial(_number, float),
    parse_float=partial(_number, float),
    parse_int=partial(_number, int),
)
_NEXT: Final = re.compile(r"[ \t\n\r]*(?=[^ \t\n\r])")
_STRING: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN: Final = re.compile(rf"(?P<key>{_STRING})(?=\s*:)|{_STRING}|[{{}}\[\]]|(?P<number>-?[0-9NI][-+.\w]*)")
_SHOWN: Final = 40
"""Characters of a number in a message; it may have thousands of digits."""

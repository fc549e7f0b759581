"""Read JSON files that have one value, or several in sequence.

YAML's parser rejects some JSON: DEL, and escaped surrogate pairs, which Python's json writes for an emoji.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from webhook.documents.values import as_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.documents.model import DocumentLimits, JSONValue, TextPart


def read_json(text: str, limits: DocumentLimits) -> Iterator[TextPart]:
    """Yield the JSON values in a text.

    Raise ValueError, OverflowError, or RecursionError if the text isn't JSON, has a duplicate key, or exceeds a limit.
    To report the problem and its position, pass the text to the YAML reader.
    """
    # JSON has no aliases, so the commas and brackets limit the number of values. Count them before decoding.
    if text.count(",") + text.count("[") + text.count("{") >= limits.nodes:
        raise ValueError("too many values")
    escaped_surrogates = re.search(r"\\u[dD][89a-fA-F]", text)
    end = 0
    while match := _NEXT.match(text, end):
        start = match.end()
        value, end = _DECODER.raw_decode(text, start)
        if isinstance(value, (dict, list)) and _depth(value) > limits.depth:
            raise ValueError("too deep")
        if escaped_surrogates:
            json.dumps(value, ensure_ascii=False).encode()  # UnicodeEncodeError, a ValueError, for half a pair
        yield start, end, value


def _object(members: list[tuple[str, JSONValue]]) -> dict[str, JSONValue]:
    value = dict(members)
    if len(value) < len(members):
        raise ValueError("duplicate key")
    return value


def _float(text: str) -> int | float:
    return as_json(float(text))


def _depth(value: dict[str, JSONValue] | list[JSONValue]) -> int:
    """Return the levels of nesting. Raise RecursionError if there are too many to count."""
    members = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(member) for member in members if isinstance(member, (dict, list))), default=0)


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_constant=_float,  # NaN and Infinity: as_json rejects them
    parse_float=_float,
    parse_int=lambda text: as_json(int(text)),
)
_NEXT: Final = re.compile(r"[ \t\n\r]*(?=[^ \t\n\r])")

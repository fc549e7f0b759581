"""Put into Kubernetes' words why the library found no result."""

from __future__ import annotations

import re
from typing import Final

from webhook.cel.limits import ROUNDS_AT_MOST
from webhook.cel.protocol import HAS_NUL, NOT_KNOWN, EvaluationError

_STATUS: Final = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_NOT_CONVERTED: Final = re.compile(
    r"(?:Non-CEL|Unexpected) value type for '([A-Za-z.]+)': (\w+)\.(?: \(Expected .*\))?"
)
"""Matches whole messages only: others quote the object, whose text must not pass for an unknown value."""
_MISSING: Final = re.compile(r'Key not found in map : "?(.*?)"?', re.DOTALL)
_OUT_OF_BOUNDS: Final = re.compile(r"Index error: index=(-?\d+) size=\d+")
_OVERLOAD: Final = re.compile(r"No matching overloads found : (.*)", re.DOTALL)
_OPERATOR: Final = re.compile(r"_([^_]+)_\((.*), (.*)\)")
_ABSENT: Final = "ask first whether it is there, as `has(object.spec.x)` or `object.?x.orValue(...)` do"
_CONTAINER: Final = "Invalid container type"
_NO_FIELDS: Final = "a field is read of what has none: a string, a number, a list or null"
_MESSAGES: Final = {
    "Applying SELECT to non-message type": _NO_FIELDS,
    'No value with name "namespaceObject.metadata.name" found in Activation': _NO_FIELDS,
    "vector::reserve": "lists.range() of a negative number",
}


def failed(text: str) -> EvaluationError:  # noqa: PLR0911 - one for each message
    """Return the error for a message of the library."""
    text = _STATUS.sub("", text).replace("Matches", "matches").replace("Substring", "substring")
    if "Iteration budget exceeded" in text:
        return EvaluationError(f"its loops took more than {ROUNDS_AT_MOST} rounds")
    if (found := _NOT_CONVERTED.fullmatch(text)) is not None:
        if found[2] == type(NOT_KNOWN).__name__:
            return EvaluationError(f"{found[1]} is not known", unknown=found[1])
        if found[2] == type(HAS_NUL).__name__:
            return EvaluationError(f"{found[1]} has a NUL character in it, and can't be judged")
    if (found := _MISSING.fullmatch(text)) is not None:
        return EvaluationError(f"no such key: {found[1]}", hint=_ABSENT)
    if (found := _OUT_OF_BOUNDS.fullmatch(text)) is not None:
        return EvaluationError(f"index out of bounds: {found[1]}")
    text = text.replace("int64", "int").replace("null_type", "null").replace("*opaque*", "optional")
    if (found := _OVERLOAD.fullmatch(text)) is not None:
        return EvaluationError("no such overload: " + _OPERATOR.sub(r"\2 \1 \3", found[1]))
    return EvaluationError(_NO_FIELDS if text.startswith(_CONTAINER) else _MESSAGES.get(text, text))

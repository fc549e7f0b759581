"""What the library says of an expression that came to no result, in Kubernetes' words and with what would be right."""

from __future__ import annotations

import re
from typing import Final

from webhook.cel import HAS_NUL, NOT_KNOWN, EvaluationError
from webhook.cel.cost import ROUNDS_AT_MOST

_STATUS: Final = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_NOT_CONVERTED: Final = re.compile(
    r"(?:Non-CEL|Unexpected) value type for '([A-Za-z.]+)': (\w+)\.(?: \(Expected .*\))?"
)
"""The whole of a message: others have text of the object in them, which must not pass for what is not known."""
_MISSING: Final = re.compile(r'Key not found in map : "?(.*?)"?', re.DOTALL)
_OUT_OF_BOUNDS: Final = re.compile(r"Index error: index=(-?\d+) size=\d+")
_CONTAINER: Final = re.compile(r"Invalid container type: '(\w+)'")
_OVERLOAD: Final = re.compile(r"No matching overloads found : (.*)")
_OPERATOR: Final = re.compile(r"_([^_]+)_\]?\((.*), (.*)\)")
_CONTAINS: Final = re.compile(r"\((?:list|map)\)\.contains\(.*")
_OVERLOADS: Final = {
    "_&&_": "&& of what is no bool",
    "_||_": "|| of what is no bool",
    "!_": "! of what is no bool",
    "<jump_condition>": "? : with a condition that is no bool",
    "<iter_range>": "a loop (all, exists, map ...) over what is no list and no map",
    "@in": "in what is no list and no map",
}
_OF_A_LIST: Final = "ask what it is: `type(object.spec.x) == map`; a list is read by `list[0].x`, and `list.size()`"
_ABSENT: Final = "ask first whether it is there, as `has(object.spec.x)` or `object.?x.orValue(...)` do"
_OPAQUE: Final = "*opaque*"
"""What the library calls the type of an optional."""
_NO_FIELDS: Final = (
    "Applying SELECT to non-message type",
    'No value with name "namespaceObject.metadata.name" found in Activation',
)
_SIMPLY: Final = {
    "vector::reserve": "lists.range() of a negative number",
    "String to Duration conversion failed": "a string is no duration, as 90s or 1h30m",
    "String to Timestamp conversion failed": "a string is no timestamp, as 2026-11-21T10:00:00Z",
}


def failed(text: str) -> EvaluationError:  # noqa: PLR0911 - one for each message
    """Why there is no result."""
    text = _STATUS.sub("", text).replace("Matches", "matches").replace("Substring", "substring")
    if "Iteration budget exceeded" in text:
        return EvaluationError(f"its loops took more than {ROUNDS_AT_MOST} rounds")
    if (found := _NOT_CONVERTED.fullmatch(text)) is not None:
        if found[2] == type(NOT_KNOWN).__name__:
            return EvaluationError(f"{found[1]} is not known", unknown=found[1])
        if found[2] == type(HAS_NUL).__name__:
            return EvaluationError(f"{found[1]} has a NUL character in it, and can't be judged")
    text = text.replace("int64", "int").replace("_type)", ")").replace("null_type,", "null,")
    if (found := _MISSING.fullmatch(text)) is not None:
        return EvaluationError(f"no such key: {found[1]}", hint=_ABSENT)
    if (found := _OUT_OF_BOUNDS.fullmatch(text)) is not None:
        return EvaluationError(f"index out of bounds: {found[1]}")
    if (found := _CONTAINER.fullmatch(text)) is not None:
        kind = found[1].removesuffix("_type")
        return EvaluationError(f"a field or an item is read of {kind}, which has none")
    if (found := _OVERLOAD.fullmatch(text)) is not None:
        return _no_overload(found[1])
    if text in _NO_FIELDS:
        return EvaluationError("a field is read of what has none: a string, a number, a list or null", hint=_OF_A_LIST)
    return EvaluationError(_SIMPLY.get(text, text))


def _no_overload(function: str) -> EvaluationError:
    of_optional = "take out what is optional with `.orValue(...)`" if _OPAQUE in function else ""
    function = function.replace(_OPAQUE, "optional")
    if (found := _OPERATOR.fullmatch(function)) is None:
        hint = "of a list or a map, write `'a' in list`" if _CONTAINS.fullmatch(function) else of_optional
        said = _OVERLOADS.get(function, function)
        return EvaluationError(f"no such overload: {said}", hint=hint)
    operator, left, right = found.groups()
    if operator in {"?.", "[?"}:
        return EvaluationError(f"a field is read of {left}, which has none")
    hint = of_optional or "convert one of the two: `int(...)`, `double(...)`, `string(...)`"
    if "null" in {left, right}:
        hint = "ask first whether there is a value: `object.x != null`"
    return EvaluationError(f"no such overload: {left} {operator} {right}", hint=hint)

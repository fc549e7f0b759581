"""Resolve scalars as go-yaml v2 does, and convert numbers as Go's encoding/json does.

Source: https://github.com/yaml/go-yaml/blob/v2/resolve.go and https://github.com/kubernetes-sigs/yaml/blob/master/yaml.go
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Final, TypeAlias

Scalar: TypeAlias = str | int | float | bool | None

_MIN_INT64: Final = -(2**63)
_MAX_INT64: Final = 2**63 - 1
_MAX_UINT64: Final = 2**64 - 1

_KEYWORDS: Final[dict[str, Scalar]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
"""Unquoted scalars that aren't strings."""

_OCTAL: Final = re.compile(r"[-+]?0[0-7]+")
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,19}|0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


def resolve(text: str) -> Scalar:
    """Return the value of an unquoted scalar."""
    if text in _KEYWORDS:
        return _KEYWORDS[text]
    return _number(text) if text[0] in "+-.0123456789" else text


def _number(text: str) -> str | int | float:
    """Parse a number like Go's ParseInt with base 0, then like ParseFloat. Return the text if both fail."""
    digits = text.replace("_", "")
    base = 8 if _OCTAL.fullmatch(digits) else 0 if _INTEGER.fullmatch(digits) else None
    if base is not None and _MIN_INT64 <= (integer := int(digits, base)) <= _MAX_UINT64:
        return integer
    if _FLOAT.fullmatch(digits) and math.isfinite(number := float(digits)):
        return number
    return text


def as_json(number: float) -> int | float:
    """Convert a number to the int64 or float64 that the API server decodes after Go encodes the number as JSON.

    Raise ValueError if the number is NaN or infinite, which JSON can't represent.
    """
    if isinstance(number, int):
        return number if _MIN_INT64 <= number <= _MAX_INT64 else float(number)
    if not math.isfinite(number):
        raise ValueError(f"{number} isn't JSON")
    if not number.is_integer() or abs(number) > _MAX_INT64:
        return number
    # Go writes the shortest digits that round-trip, then zeros. Beyond 2**53, this can differ from int(number).
    return int(Decimal(repr(number)))


def key_text(key: Scalar) -> str:
    """Return the key of a mapping as a string, as sigs.k8s.io/yaml converts it.

    Raise ValueError if the key is null, or a number that isn't an int64: kubectl rounds those to float32.
    """
    if isinstance(key, str):
        return key
    if isinstance(key, int) and key <= _MAX_INT64:
        return json.dumps(key)
    raise ValueError("null can't be a key" if key is None else f"{key} can't be a key")

"""Find template placeholders in values, and describe the fix."""

from __future__ import annotations

import re
from typing import Final

_PLACEHOLDER: Final = re.compile(
    r"\$\{[^}\n]*\}|\{\{.*?\}\}|\{%.*?%\}|\A\$[a-z_]\w*\Z|(?<=the placeholder )\$[a-z_]\w*", re.ASCII | re.IGNORECASE
)
"""``$NAME``, which envsubst also fills in, matches only a whole value, or where a problem quotes it."""
_SEARCHED: Final = 4_096
"""Characters of a text to search: 3 MiB would take 30 ms. Names and numbers with a placeholder are shorter."""
_SHOWN: Final = 60
"""Characters of a placeholder to quote in a message."""


def placeholder_in(value: object) -> str:
    """Return the first placeholder in a text, list, or mapping, or an empty string if there is none."""
    if isinstance(value, str):
        match = _PLACEHOLDER.search(value, 0, _SEARCHED)
        return match[0][:_SHOWN] if match is not None else ""
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return next(filter(None, map(placeholder_in, members)), "")


def placeholder_before(value: object) -> str:
    """Return ``the placeholder ${X}, `` to put before a problem such as "not a list", or an empty string."""
    placeholder = placeholder_in(value)
    return f"the placeholder {placeholder}, " if placeholder else ""


def filling_in(value: object) -> str:
    """Return the fix for the first placeholder in a value, or an empty string if there is none."""
    placeholder = placeholder_in(value)
    fix = "fill it in first (envsubst, helm template, flux build), and pass the result"
    return f"{placeholder} is a placeholder: {fix}" if placeholder else ""

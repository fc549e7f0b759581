"""Find placeholders of templates in values, and say what to do about them."""

from __future__ import annotations

import re
from typing import Final

_PLACEHOLDER: Final = re.compile(
    r"\$\{[^}\n]*\}|\{\{.*?\}\}|\{%.*?%\}|\A\$[a-z_]\w*\Z|(?<=the placeholder )\$[a-z_]\w*", re.ASCII | re.IGNORECASE
)
"""``$NAME``, which envsubst fills in too, counts only as the whole value, and where a problem quotes it."""
_SEARCHED: Final = 4_096
"""Characters of a text that are searched: 3 MiB would take 30 ms. Names and numbers with a placeholder are shorter."""
_SHOWN: Final = 60
"""Characters of a placeholder that a message quotes."""


def placeholder_in(value: object) -> str:
    """Return the first placeholder in a text, or in the texts of a list or mapping; empty if there is none."""
    if isinstance(value, str):
        match = _PLACEHOLDER.search(value, 0, _SEARCHED)
        return match[0][:_SHOWN] if match is not None else ""
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return next(filter(None, map(placeholder_in, members)), "")


def placeholder_before(value: object) -> str:
    """Return ``the placeholder ${X}, ``, which a problem such as "not a list" can follow; empty if there is none."""
    placeholder = placeholder_in(value)
    return f"the placeholder {placeholder}, " if placeholder else ""


def filling_in(value: object) -> str:
    """Return what to do about the first placeholder in a value; empty if there is none."""
    placeholder = placeholder_in(value)
    fix = "fill it in first (envsubst, helm template, flux build), and pass the result"
    return f"{placeholder} is a placeholder: {fix}" if placeholder else ""

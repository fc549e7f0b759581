"""Find what a program was to fill in before a manifest is one: ``${PORT}``, ``{{ .Values.port }}``, ``{% if x %}``."""

from __future__ import annotations

import re
from typing import Final

_PLACEHOLDER: Final = re.compile(r"\$\{[^}\n]*\}|\{\{.*?\}\}|\{%.*?%\}")
_SHOWN: Final = 60
"""Characters of a placeholder that a message quotes."""

RENDER: Final = "fill it in first (envsubst, helm template, flux build), and pass what comes out"


def placeholder_in(value: object) -> str:
    """Return the first placeholder in a text, or in the texts of a list or mapping; empty if there is none."""
    if isinstance(value, str):
        found = _PLACEHOLDER.search(value)
        return found[0][:_SHOWN] if found is not None else ""
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next(filter(None, map(placeholder_in, members)), "")


def filling_in(value: object) -> str:
    """Return what to do about the first placeholder in a value; empty if there is none."""
    placeholder = placeholder_in(value)
    return f"{placeholder} is a placeholder: {RENDER}" if placeholder else ""

"""Unified diffs that ``git apply`` and ``patch -p1`` take."""

from __future__ import annotations

import re
from difflib import unified_diff
from typing import Final

_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
"""A line as Git counts them: `str.splitlines` knows other line ends too."""


def unified(file: str, before: str, after: str) -> str:
    """Return the diff between two contents of a file."""
    lines = unified_diff(_LINE.findall(before), _LINE.findall(after), f"a/{file}", f"b/{file}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

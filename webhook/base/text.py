"""Make users' text safe to show, shorten lists, name types and code locations, and parse durations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s|us|µs|ns)")
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern})+")

LONG_LINE: Final = 1000
"""The width, in characters, that keeps an expression or a certificate on one line of YAML."""

_FRAMES: Final = 20
"""The frames of an exception to name. A recursion has a thousand."""


def printable(text: str, keep: str = "") -> str:
    """Replace control characters and lone surrogates with spaces: users' text must not control a terminal.

    Args:
        text: from any source.
        keep: a character to keep although it isn't printable.
    """
    if (text.replace(keep, "") if keep else text).isprintable():
        return text
    return "".join(char if char in keep or char.isprintable() else " " for char in text)


def sentence(text: str) -> str:
    """Return a phrase with a full stop, unless it ends in a question mark."""
    return text if text.endswith("?") else f"{text}."


def listed(texts: Iterable[str], at_most: int = 5, separator: str = ", ", rest: str = " and ") -> str:
    """Return the first few texts, then ``rest`` and the number of the others, as a phrase for a terminal."""
    items = list(texts)
    more = len(items) - at_most
    return separator.join(items[:at_most]) + (f"{rest}{more} more" if more > 0 else "")


def line_and_column(text: str, at: int) -> tuple[int, int]:
    """Return the line and column, from 1, of a character.

    Only newlines end a line, as in Git and editors. YAML has other line breaks, too.
    """
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def described(value: object) -> str:
    """Return the name of a JSON value's type for a message, with the value if it is a number or a boolean."""
    match value:
        case None:
            return "nothing"
        case bool():
            words = "y, yes and on" if value else "n, no and off"
            return f"the boolean {str(value).lower()} (YAML reads {words} as {str(value).lower()})"
        case int() | float():
            return f"the number {value}"
        case str():
            return "text"
        case _:
            return "a list" if isinstance(value, list) else "a map"


def frames_of(error: BaseException) -> tuple[str, ...]:
    """Return the innermost frames of an exception, outermost first, without its text, which may quote an object."""
    import traceback

    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    return tuple(f"{code.co_filename}:{line} {code.co_name}" for code, line in frames[-_FRAMES:])


def go_duration(text: str) -> float | None:
    """Parse a Go duration (``1m30s``, ``500ms``) into seconds. Return None if the text isn't a duration."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))

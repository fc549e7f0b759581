"""Print styled lines: in colour on a terminal that supports it, else plain."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import msgspec

from webhook.base.exits import CANNOT_JUDGE, FINE, FOUND
from webhook.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

_PROSE = 4
"""The indentation of reasons, details, and fixes."""

Line = list[tuple[str, str]]
"""Pieces of text, each with a rich style. An empty style is plain."""


def show(lines: Iterable[Line]) -> None:
    """Print the lines, in colour if standard output is a terminal and NO_COLOR is not set."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        show_in_colour(lines)
    else:
        print(plain(lines))


def show_in_colour(lines: Iterable[Line]) -> None:
    """Print the lines with their styles. Wrap prose below its beginning. YAML and tables, which are deeper, stay."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        text = Text.assemble(*((printable(text), style) for text, style in line))
        indent = len(text.plain) - len(text.plain.lstrip(" "))
        body = text[indent:]
        for part in body.wrap(console, max(console.width - indent, 20)) if 0 < indent <= _PROSE else [body]:
            part.rstrip()
            console.print(Text(" " * indent) + part, soft_wrap=True)


def complain(*texts: str) -> None:
    """Print problems on standard error, each on one plain line."""
    print(plain([(text, "")] for text in texts), file=sys.stderr)


def exit_code(problems: Iterable[str], *, failed: bool) -> int:
    """Print the problems after the output, and return the exit code of a command."""
    if texts := list(problems):
        sys.stdout.flush()
        complain(*texts)
        return CANNOT_JUDGE
    return FOUND if failed else FINE


def plain(lines: Iterable[Line]) -> str:
    """Return the lines as text without styles and trailing spaces.

    GitHub's runner interprets a log line that starts with ``::``, after spaces, as a command. Our lines don't, but file
    names and texts in manifests can.
    """
    texts = ("".join(printable(text) for text, _ in line).rstrip() for line in lines)
    return "\n".join(text.replace("::", ": :", 1) if text.lstrip().startswith("::") else text for text in texts)


def as_json(value: object) -> str:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def counted(number: int, what: str) -> str:
    """Return a number with its noun: 1 object, 2 objects."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"

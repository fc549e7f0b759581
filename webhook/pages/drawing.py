"""Bars and lines of text for SVG drawings, in colors for light and dark mode."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WIDTH: Final = 820
"""The width of a drawing in pixels."""

CHARACTER: Final = 7.8
"""The average width in pixels of a character in a wide font, for measuring texts."""

STYLE: Final = Path(__file__).with_name("drawing.css").read_text()
"""The style of all drawings. An SVG file contains it. A page includes ``drawing.css`` once."""


def text(x: float, y: float, line: str, style: str = "", *, anchor: str = "start", most: int = 0) -> str:
    """Draw a line of text. If it is cut after ``most`` characters, hovering shows the whole line."""
    line = printable(line)
    cut = bool(most) and len(line) > most
    shown = f"{line[: most - 1]}…" if cut else line
    whole = f"<title>{safe(line)}</title>" if cut else ""
    classes = f"text {style}".rstrip()
    return f'<text x="{x}" y="{y}" class="{classes}" text-anchor="{anchor}">{whole}{safe(shown)}</text>\n'


def bar(color: str, x: float, y: float, width: float, height: float, about: str = "") -> str:
    """Draw a bar in a color of `STYLE`. A browser shows ``about`` on hovering."""
    title = f"<title>{safe(about)}</title>" if about else ""
    size = f'x="{x:g}" y="{y:g}" width="{round(width, 2):g}" height="{round(height, 2):g}" rx="2"'
    return f'<rect class="{color}" {size}>{title}</rect>\n'


def legend(meanings: Iterable[tuple[str, str]], y: float) -> Iterator[str]:
    """Draw a line with the meaning of each color."""
    x = 16.0
    for color, about in meanings:
        yield bar(color, x, y - 11, 12, 12)
        yield text(x + 18, y, about, "faint")
        x += round(30 + CHARACTER * len(about), 1)


def safe(line: str) -> str:
    """Remove control characters from a text, and escape it for XML."""
    return escape(printable(line))

"""Draw what all drawings of SVG share: bars and lines of text, in colours for light and dark mode."""

from __future__ import annotations

from html import escape
from typing import Final

from webhook.base.text import printable

WIDTH: Final = 820
"""The width of a drawing in pixels."""

CHARACTER: Final = 7.8
"""Average width of a character of a wide font, by which texts are measured."""

_COLOURS: Final = {
    "bg": ("#ffffff", "#0d1117"),
    "text": ("#1f2328", "#e6edf3"),
    "faint": ("#59636e", "#9198a1"),
    "on": ("#ffffff", "#0d1117"),
    "running": ("#c8d1da", "#484f58"),
    "preStop": ("#9a6700", "#e3b341"),
    "hook": ("#bc4c00", "#f0883e"),
    "shutdown": ("#0969da", "#58a6ff"),
    "margin": ("#1a7f37", "#3fb950"),
    "lost": ("#cf222e", "#ff7b72"),
}
"""Fill colours by class, for light and dark mode. Plain colours: not every viewer knows CSS variables."""


def _fills(mode: int) -> str:
    return "\n".join(f".spotgate .{name} {{ fill: {colours[mode]}; }}" for name, colours in _COLOURS.items())


STYLE: Final = f"""\
.spotgate {{ font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }}
.spotgate .title {{ font-size: 16px; font-weight: 600; }}
.spotgate .strong {{ font-weight: 600; }}
.spotgate .on {{ font-size: 12px; font-weight: 600; }}
.spotgate .grid, .spotgate .node {{ stroke: #8c959f; stroke-opacity: .4; }}
.spotgate .node {{ stroke-width: 2; }}
.spotgate .moment {{ stroke: #8c959f; stroke-dasharray: 3 3; }}
.spotgate .before {{ opacity: .5; }}
{_fills(0)}
@media (prefers-color-scheme: dark) {{
{_fills(1)}
}}
"""
"""The style of all drawings; a page includes it once."""


def text(x: float, y: float, line: str, style: str = "", *, anchor: str = "start", most: int = 0) -> str:
    """Draw a line of text. A line that is cut after ``most`` characters is shown whole on hovering."""
    line = printable(line)
    cut = bool(most) and len(line) > most
    shown = f"{line[: most - 1]}…" if cut else line
    whole = f"<title>{safe(line)}</title>" if cut else ""
    classes = f"text {style}".rstrip()
    return f'<text x="{x}" y="{y}" class="{classes}" text-anchor="{anchor}">{whole}{safe(shown)}</text>\n'


def bar(colour: str, x: float, y: float, width: float, height: float, about: str = "") -> str:
    """Draw a bar of a colour of `STYLE`. What it is about is shown on hovering."""
    size = " ".join(
        f'{name}="{round(value, 2):g}"'
        for name, value in zip(("x", "y", "width", "height"), (x, y, width, height), strict=True)
    )
    title = f"<title>{safe(about)}</title>" if about else ""
    return f'<rect class="{colour}" {size}>{title}</rect>\n'


def safe(line: str) -> str:
    """Return a text as XML has it, without control characters."""
    return escape(printable(line))

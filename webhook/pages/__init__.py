"""HTML pages and SVG drawings: self-contained files with light and dark mode, readable without scripts.

    page("check.html", style="drawing.css", script="check.js", report=...)

The template engine escapes all values. The page's Content-Security-Policy allows only its own style and script, by
their hashes.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from webhook.base.text import printable

_HERE: Final = Path(__file__).parent


def page(template: str, *, style: str, script: str = "", **content: object) -> str:
    """Render a page.

    Args:
        template, style, script: files in this folder. Every page includes ``page.css``.
        content: the template's variables.
    """
    css, code = _parts(style, script)
    policy = content_policy(style=style, script=script)
    return _environment().get_template(template).render(style=css, script=code, policy=policy, **content)


def drawing(template: str, *, whole: bool = False, **content: object) -> Markup:
    """Render an SVG drawing: a file with its style if ``whole``, or else a part of a page with ``drawing.css``."""
    style = Markup((_HERE / "drawing.css").read_text()) if whole else ""  # noqa: S704 - our own
    shown = _environment().get_template(template).render(style=style, **content)
    return Markup(shown.strip())  # noqa: S704 - the template escapes all values


def content_policy(*, style: str, script: str = "") -> str:
    """Return the Content-Security-Policy of a page with these files."""
    css, code = _parts(style, script)
    return (
        f"default-src 'none'; style-src {_hashed(css)}; script-src {_hashed(code)}; base-uri 'none'; form-action 'none'"
    )


def _parts(style: str, script: str) -> tuple[Markup, Markup]:
    css = Markup((_HERE / "page.css").read_text() + (_HERE / style).read_text())  # noqa: S704 - our own
    code = Markup((_HERE / script).read_text() if script else "")  # noqa: S704 - our own
    return css, code


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["part"] = lambda text: quote(text, safe="")
    return environment


def _shown(value: object) -> object:
    """Remove the control characters of a text: some reverse the direction of the following text."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return printable(value, keep="\n")


def _hashed(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

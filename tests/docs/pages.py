"""Code blocks, commands, and command output in the documentation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND: Final = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def blocks(page: Path, language: str = "") -> list[str]:
    """Return the fenced blocks of a page in this language."""
    return [text for tag, text in _BLOCK.findall(page.read_text()) if tag == language]


def commands(*pages: Path) -> list[tuple[str, str]]:
    """Return the commands that the pages show, each with its output."""
    return [pair for page in pages for block in blocks(page, "console") for pair in _COMMAND.findall(block)]


def assert_shown(expected: str, printed: str) -> None:
    """Compare the output on a page with the printed one; ``...`` is any text, or any lines if alone on a line."""
    pattern = re.escape(expected).replace(re.escape("...\n"), r"(?s:.*)")
    pattern = pattern.replace(re.escape(" ..."), " .*").replace(re.escape("... "), ".* ")
    assert re.fullmatch(pattern, printed), printed

"""A headless Chromium, if one is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES: Final = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
TIMEOUT_SECONDS: Final = 60
QUIET: Final = (
    "--headless",
    "--no-sandbox",  # the sandbox works neither for root nor in most containers
    "--disable-dev-shm-usage",  # it is small in containers
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
)
_CONSOLE: Final = re.compile(r"CONSOLE[^\]]*\] (.*)")


@dataclass(frozen=True, slots=True)
class Seen:
    """A page as a browser shows it.

    Attributes:
        dom: the HTML of the page after its script has run.
        console: the lines of the console, including violations of the page's content security policy.
    """

    dom: str
    console: list[str]


@pytest.fixture
def browse(tmp_path: Path) -> Callable[..., Seen]:
    """Return a function that opens a file, with an optional URL fragment."""
    program = next(filter(None, map(shutil.which, NAMES)), "")
    if not program:
        pytest.skip("no Chromium: install it to test pages in a browser (Debian: apt-get install chromium)")

    def browse(file: Path, fragment: str = "") -> Seen:
        address = file.resolve().as_uri() + (f"#{fragment}" if fragment else "")
        done = subprocess.run(
            [program, *QUIET, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", address],
            check=True,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        return Seen(done.stdout, _CONSOLE.findall(done.stderr))

    return browse

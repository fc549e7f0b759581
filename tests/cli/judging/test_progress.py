"""A spinner while judging takes long: on a terminal alone, and nothing of it stays."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import POD

if TYPE_CHECKING:
    from tests.cli.conftest import Write


ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, sys
from webhook.commands import main
from webhook.offline import parallel
os.sched_getaffinity = lambda _: {0, 1, 2}
parallel.WORTH = int(os.environ["WORTH"])
sys.exit(main(["check", "-o", "json", "d"]))
"""


@pytest.fixture(autouse=True)
def files(write: Write) -> None:
    for number in range(30):
        write(f"d/{number}.yaml", POD.replace("name: web", f"name: web-{number}"))


def run(*, terminal: bool, worth: int = 1000) -> tuple[str, str]:
    """Return standard output, and what standard error shows on the way."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "WORTH": str(worth),
        "TERM": "xterm",
    }
    screen, stderr = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=stderr, env=environment
    ) as command:
        os.close(stderr)
        shown = b""
        try:
            while read := os.read(screen, 4096):
                shown += read
        except OSError:  # how a terminal ends
            pass
        assert command.stdout is not None
        out = command.stdout.read()
    os.close(screen)
    return out.decode(), shown.decode()


def test_there_is_a_spinner_on_a_terminal_and_it_is_taken_away() -> None:
    out, shown = run(terminal=True)
    assert "judging" in shown
    assert shown.rstrip().endswith("\x1b[2K")  # the line is cleared
    assert (out, "") == run(terminal=False)


def test_there_is_none_where_it_is_soon_done() -> None:
    _, shown = run(worth=1_000_000, terminal=True)
    assert shown == ""

"""The benchmark runs and gives every figure. What the figures are is for docs/bench.md, not for a test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TITLES = (
    "Decision, us",
    "Decision beside 100 more policies that do not match, us",
    "Hostile requests",
    "Requests per second on one core, TLS keep-alive",
    "Latency on one connection, ms",
    "Memory of the server, MiB",
    "Start of the command line",
    "spotgate check, manifests of 69 lines",
)


@pytest.mark.skipif(sys.platform != "linux", reason="it pins processes and reads /proc")
def test_every_section_has_its_figures_and_each_is_above_zero() -> None:
    command = [sys.executable, "bench/run.py", "--quick"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    _, *sections = re.split(r"^## ", ran.stdout, flags=re.MULTILINE)
    assert tuple(section.partition("\n")[0] for section in sections) == TITLES
    for section in sections:
        rows = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)[2:]
        assert rows, section
        for _, *cells in (row.split("|") for row in rows):
            figures = [float(cell.replace(",", "")) for cell in cells]
            # What a request takes of memory, and leaves behind, is best nothing.
            assert all(figure > 0 for figure in (figures[:2] if section.startswith("Hostile") else figures)), section

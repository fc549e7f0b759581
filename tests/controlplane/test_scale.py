"""`make bench-scale` in short: spotgate on a small cluster that is busy as a large one, every figure measured."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUICK = ("--nodes=300", "--namespaces=60", "--budgets=30", "--pools=9", "--seconds=1")


def test_every_figure_is_measured_at_two_sizes(binaries: dict[str, Path]) -> None:
    assert binaries
    assert f"-m bench.scale {' '.join(QUICK)}`" in (ROOT / "docs/bench-scale.md").read_text()
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale", *QUICK], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [re.split(r" *\| *", line.strip("| ")) for line in done.stdout.splitlines() if line.startswith("| ")]
    assert rows[0] == ["100 Nodes", "300 Nodes", "100,000 Nodes, extrapolated"]
    figures = {name: [float(cell.replace(",", "")) for cell in cells] for name, *cells in rows[2:]}
    assert len(figures) == 14
    assert all(min(cells[:2]) > 0 for name, cells in figures.items() if not name.startswith("CPU")), done.stdout
    assert len(figures["memory at rest, MiB"]) == 3

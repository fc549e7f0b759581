"""`make chaos` in short: bad policies make no verdict wrong, and without a webhook it sees that verdicts are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLUMNS = ("writes", "let in", "unchanged", "denied", "unknown", "failed")
DEAD, EMPTIED = QUICK = ("all replicas killed, back after 5 s", "policies: a file emptied")


def test_wrong_verdicts_are_counted_by_kind(binaries: dict[str, Path]) -> None:
    assert binaries
    done = subprocess.run(
        [sys.executable, "-m", "bench.chaos", *QUICK], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [re.split(r" *\| *", line.strip("| ")) for line in done.stdout.splitlines() if line.startswith("| ")]
    assert rows[0][: 1 + len(COLUMNS)] == ["fault", *COLUMNS]
    counted = {name: [int(each.replace(",", "")) for each in cells[: len(COLUMNS)]] for name, *cells in rows[1:]}
    assert tuple(counted) == QUICK
    assert counted[EMPTIED][0] > 100
    assert counted[EMPTIED][1:] == [0, 0, 0, 0, 0], done.stdout
    _, let_in, unchanged, *_, failed = counted[DEAD]
    assert let_in
    assert unchanged
    assert failed

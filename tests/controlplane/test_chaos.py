"""`make chaos` in short: faults that must make no verdict wrong and lose no call."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane.binaries import BinariesError, find_or_build
from tests.programs import without

ROOT = Path(__file__).parents[2]
WRONG = ("let in", "unchanged", "denied", "failed")


def outcomes(*faults: str) -> dict[str, dict[str, int]]:
    """Run these faults. Return how many writes had which outcome, by fault."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.chaos", *faults], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [re.split(r" *\| *", line.strip("| ")) for line in done.stdout.splitlines() if line.startswith("| ")]
    return {
        row[0]: {name: int(cell.replace(",", "")) for name, cell in zip(rows[0][1:7], row[1:7], strict=True)}
        for row in rows[1:]
    }


@pytest.mark.usefixtures("binaries")
def test_no_verdict_is_wrong_while_watches_are_cut_and_two_bundles_serve() -> None:
    faults = ("upgrade and downgrade: two bundles side by side", "watches cut, five times")
    found = outcomes(*faults)
    assert tuple(found) == faults
    for counts in found.values():
        assert counts["writes"] > 100
        assert not any(counts[each] for each in WRONG), counts


@pytest.mark.usefixtures("binaries")
def test_no_verdict_is_wrong_while_cert_manager_renews() -> None:
    try:
        find_or_build(["cert-manager"])
    except BinariesError as error:
        raise without(error) from None
    (counts,) = outcomes("cert-manager: five renewals in a row").values()
    assert counts["writes"] > 100
    assert not any(counts[each] for each in WRONG), counts

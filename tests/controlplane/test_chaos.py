"""`make chaos` in short: faults that make no verdict wrong, and without a webhook it sees that verdicts are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane.tools import find_tools
from tests.programs import without
from webhook.controlplane.binaries import BinariesError

ROOT = Path(__file__).parents[2]
WRONG = ("let in", "unchanged", "denied", "failed")
DEAD = "all replicas killed, back after 5 s"
HARMLESS = ("policies: a file emptied", "upgrade and downgrade: two bundles side by side", "watches cut, five times")


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
def test_wrong_verdicts_are_counted_by_kind() -> None:
    found = outcomes(DEAD, *HARMLESS)
    assert found.keys() == {DEAD, *HARMLESS}
    for fault in HARMLESS:
        assert found[fault]["writes"] > 100
        assert not any(found[fault][each] for each in WRONG), found
    for each in ("let in", "unchanged", "failed"):
        assert found[DEAD][each]


@pytest.mark.usefixtures("binaries")
def test_no_verdict_is_wrong_while_cert_manager_renews() -> None:
    try:
        find_tools(["cert-manager"])
    except BinariesError as error:
        raise without(error) from None
    (counts,) = outcomes("cert-manager: five renewals in a row").values()
    assert counts["writes"] > 100
    assert not any(counts[each] for each in WRONG), counts

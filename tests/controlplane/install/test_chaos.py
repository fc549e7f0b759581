"""A short `make chaos`: ordinary faults cause no wrong verdict, and an outage of all replicas does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.chaos.faults import SHORT
from tests.controlplane.harness.tools import find_tools
from tests.controlplane.harness.webhook import CERT_MANAGER, PROVIDED
from webhook.rehearse.controlplane.binaries import BinariesError

ROOT = Path(__file__).parents[3]
WRONG = ("admitted", "unchanged", "denied", "failed")
DEAD = "all replicas killed, back after 2 s"
LATE = "etcd stopped for 3 s"
SECONDS = 300
"""The faults take 40 s on an idle machine."""


@pytest.mark.timeout(SECONDS, func_only=True)
@pytest.mark.usefixtures("binaries")
def test_wrong_verdicts_are_counted_by_kind() -> None:
    try:
        find_tools(["cert-manager"])
        certificates = CERT_MANAGER
    except BinariesError:
        certificates = PROVIDED
    done = subprocess.run(
        [sys.executable, "-m", "bench.chaos", f"--short={certificates}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [re.split(r" *\| *", line.strip("| ")) for line in done.stdout.splitlines() if line.startswith("| ")]
    tallies = {
        row[0]: {name: int(cell.replace(",", "")) for name, cell in zip(rows[0][1:7], row[1:7], strict=True)}
        for row in rows[1:]
    }
    assert tallies.keys() == {fault.name for fault in SHORT[certificates]}
    for name, counts in tallies.items():
        if name == DEAD:
            assert all(counts[outcome] for outcome in ("admitted", "unchanged", "failed")), tallies
        else:
            assert not any(counts[outcome] for outcome in WRONG if (name, outcome) != (LATE, "failed")), tallies
            assert counts["writes"] > 25

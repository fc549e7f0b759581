"""Rehearsals with the real scheduler give the results in the `expected.yaml` of each cluster.

Independent scenarios share a cluster; a comment above each workload in `expected.yaml` describes its scenario.
A figure is a number, or a list of its minimum and maximum over the runs. `reasons` must be a part of a reason.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.programs import since

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).parent
NEEDS = {"devices": since((1, 36), "extended resources of DeviceClasses")}
SCENARIOS = [
    pytest.param(folder, marks=NEEDS.get(folder.name, ()), id=folder.name)
    for folder in sorted((HERE / "scenarios").iterdir(), key=lambda folder: -(folder / "cluster.yaml").stat().st_size)
]
"""The largest one starts first."""


def rehearsed(spotgate: Path, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run `spotgate rehearse` on a cluster, and return the result."""
    return subprocess.run(
        [str(spotgate), "rehearse", str(folder / "cluster.yaml"), *flags],
        capture_output=True,
        text=True,
        env=os.environ,
        timeout=110,
        check=False,
    )


def differences(said: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the figures that differ, with their actual and expected values."""
    differing = {}
    for key, want in expected.items():
        got = said[key]
        if key == "reasons":
            same = any(want in reason for reason in got)
        elif isinstance(got, dict):
            lowest, highest = want if isinstance(want, list) else (want, want)
            same = (got["min"], got["max"]) == (lowest, highest)
        else:
            same = got == want
        if not same:
            differing[key] = (got, want)
    return differing


@pytest.mark.parametrize("folder", SCENARIOS)
@pytest.mark.usefixtures("binaries")
def test_a_rehearsal_gives_the_expected_results(spotgate: Path, folder: Path) -> None:
    expected = yaml.safe_load((folder / "expected.yaml").read_text())
    lost = [f"--lose={target}" for target in expected["lose"]]
    done = rehearsed(spotgate, folder, *lost, "--runs=1", "--output=json", *expected.get("flags", ()))
    assert done.returncode == expected.get("code", 0), done.stderr
    said = json.loads(done.stdout)
    workloads = {workload["name"]: workload for workload in said["workloads"]}
    assert workloads.keys() == expected["workloads"].keys()
    assert {key: said[key] for key in ("drainedBy", "lostNodes") if key in expected}.items() <= expected.items()
    assert [name for name in expected.get("notSimulated", ()) if name not in " ".join(said["notSimulated"])] == []
    assert differences(said["summary"], expected.get("summary", {})) == {}
    assert {
        name: wrong for name, want in expected["workloads"].items() if (wrong := differences(workloads[name], want))
    } == {}

"""The GitHub workflows and the action are valid, have least privilege, and pin their actions."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.integrations.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ACTION = ROOT / "action.yml"
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def jobs(workflow: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(workflow.read_text())
    return loaded["jobs"]  # type: ignore[no-any-return]


def test_actionlint_finds_nothing(actionlint: Path) -> None:
    done = subprocess.run([actionlint, "-no-color", *WORKFLOWS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize("file", [*WORKFLOWS, ACTION], ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_name_their_version(file: Path) -> None:
    used = re.findall(r"uses: (.+)", file.read_text())
    assert used
    assert not [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)]


def test_an_action_has_one_version() -> None:
    used = {line for file in (*WORKFLOWS, ACTION) for line in re.findall(r"uses: (.+)", file.read_text())}
    assert len({action.partition("@")[0] for action in used}) == len(used)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_permissions_are_per_job_and_no_credentials_are_stored(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {}
    assert not [name for name, job in jobs(workflow).items() if "permissions" not in job]
    assert "secrets." not in workflow.read_text()


def test_only_the_release_job_can_write() -> None:
    writing = {
        f"{workflow.stem}/{name}": sorted(what for what, right in job["permissions"].items() if right == "write")
        for workflow in WORKFLOWS
        for name, job in jobs(workflow).items()
        if "write" in job["permissions"].values()
    }
    assert writing == {
        "release/pypi": ["id-token"],
        "release/image": ["attestations", "id-token", "packages"],
        "release/chart": ["attestations", "id-token", "packages"],
        "release/release": ["attestations", "contents", "id-token"],
    }


def test_no_untrusted_input_reaches_a_shell() -> None:
    scripts = [
        step["run"]
        for workflow in WORKFLOWS
        for job in jobs(workflow).values()
        for step in job["steps"]
        if "run" in step
    ]
    assert scripts
    assert not [script for script in scripts if "${{" in script]

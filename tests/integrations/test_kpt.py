"""``spotgate fn`` in kpt, where that is installed: it can't be built here, as no module proxy has its dependencies."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.integrations.conftest import REPOS

if TYPE_CHECKING:
    from tests.integrations.conftest import Shell

pytestmark = pytest.mark.skipif(shutil.which("kpt") is None, reason="kpt is not installed")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REPOS / "argo-apps", tmp_path / "package"))


def test_mutating_writes_into_the_files(shell: Shell, package: Path, tmp_path: Path) -> None:
    before = (package / "ml-platform/training.yaml").read_text()

    done = shell(
        'kpt fn eval ml-platform --exec "spotgate fn" -- mode=mutate state=cluster',
        package,
        environment={"HOME": str(tmp_path)},
    )

    assert done.returncode == 0, done.stderr
    after = (package / "ml-platform/training.yaml").read_text()
    assert [line for line in before.splitlines() if line not in after.splitlines()] == []  # comments too
    assert "terminationGracePeriodSeconds: 270" in after
    assert "spotgate would inject" not in shell("spotgate check --state cluster ml-platform", package).stdout


def test_validating_reports_with_file_and_index(shell: Shell, package: Path, tmp_path: Path) -> None:
    done = shell(
        'kpt fn eval . --exec "spotgate fn" --results-dir results -- mode=validate',
        package,
        environment={"HOME": str(tmp_path)},
    )

    assert done.returncode == 1
    (function,) = yaml.safe_load((package / "results/results.yaml").read_text())["items"]
    denied = [each for each in function["results"] if each["severity"] == "error"]
    assert {"path": "cluster/node-pools.yaml", "index": 2} in [each["file"] for each in denied]
    assert {each["tags"]["policy"] for each in denied} == {"on-demand-fallback", "reserved-labels"}

"""The hooks of ``.pre-commit-hooks.yaml`` in the real pre-commit, which builds and installs spotgate."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.integrations.conftest import OFFLINE_PIP, REPOS, ROOT, copy_of_spotgate

if TYPE_CHECKING:
    from tests.integrations.conftest import Shell


def commit(folder: Path) -> str:
    """Turn a folder into a Git repository; return its commit."""
    identity = ["-c", "user.name=Tester", "-c", "user.email=tester@example.com", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "--quiet"], ["add", "--all"], [*identity, "commit", "--quiet", "--message=all"]):
        subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)  # noqa: S607 - wherever it is
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)  # noqa: S607
    return done.stdout.strip()


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a clone of spotgate and its commit."""
    clone = copy_of_spotgate(tmp_path_factory.mktemp("hooks") / "spotgate")
    return clone, commit(clone)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment with a private pre-commit cache."""
    return {**OFFLINE_PIP, "PRE_COMMIT_HOME": str(tmp_path_factory.mktemp("pre-commit"))}


@pytest.fixture
def repo(tmp_path: Path, hooks: tuple[Path, str]) -> Path:
    """Return a project with the hooks."""
    folder = Path(shutil.copytree(REPOS / "argo-apps", tmp_path / "repo"))
    asked = [
        {"id": "spotgate-check", "args": ["--state", "cluster", "ml-platform"]},
        {"id": "spotgate-fix", "args": ["--state", "cluster", "ml-platform"]},
        {"id": "spotgate-test", "args": ["policies"]},
    ]
    use = {"repo": str(hooks[0]), "rev": hooks[1], "hooks": asked}
    (folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [use]}))
    (folder / "policies").mkdir()
    shutil.copy(ROOT / "policies/reserved-labels.yaml", folder / "policies")
    (folder / "policies/tests").mkdir()
    shutil.copy(ROOT / "policies/tests/reserved-labels.yaml", folder / "policies/tests")
    shutil.copytree(ROOT / "policies/tests/state", folder / "policies/tests/state")
    commit(folder)
    return folder


@pytest.mark.cluster
def test_hooks_judge_and_fix_committed_files(shell: Shell, repo: Path, environment: dict[str, str]) -> None:
    run = f"{sys.executable} -m pre_commit run --all-files --color=never spotgate-"

    checked = shell(f"{run}check", repo, environment=environment)
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert "- hook id: spotgate-check\n- exit code: 1\n" in checked.stdout
    assert "ml-platform/evaluation.yaml:14  deny  CronJob research/nightly-evaluation" in checked.stdout

    fixed = shell(f"{run}fix", repo, environment=environment)
    assert "- files were modified by this hook\n" in fixed.stdout
    assert "terminationGracePeriodSeconds: 270" in (repo / "ml-platform/training.yaml").read_text()

    tested = shell(f"{run}test", repo, environment=environment)
    assert tested.returncode == 0, tested.stdout

"""Third-party programs with spotgate installed, and repositories to run them in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
REPOS = ROOT / "examples" / "repos"
GITOPS = ROOT / "examples" / "gitops"

OFFLINE_PIP = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_BUILD_ISOLATION": "0",
    "PIP_NO_COMPILE": "1",
    "PIP_NO_DEPS": "1",
    "PIP_NO_INDEX": "1",
    "PYTHONPATH": sysconfig.get_path("purelib"),
}
"""Options with which pip installs only spotgate, with the build tools and dependencies of this environment."""


def copy_of_spotgate(folder: Path) -> Path:
    """Return a private copy of the sources to install spotgate from."""
    folder.mkdir()
    for part in (".pre-commit-hooks.yaml", "pyproject.toml", "README.md", "LICENSE", "webhook", "certs", "policies"):
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, folder / part)
    return folder


@dataclass(frozen=True)
class Shell:
    """A runner of commands as in a pipeline: in Bash, with `spotgate` on the PATH."""

    bin: Path

    def __call__(
        self, command: str, folder: Path, *programs: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(self.bin), *(str(program.parent) for program in programs), os.environ["PATH"]])
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", command],  # noqa: S607 - wherever it is
            cwd=folder,
            env={**os.environ, "PATH": path, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )


@pytest.fixture(scope="session")
def shell(spotgate: Path) -> Shell:
    return Shell(spotgate.parent)

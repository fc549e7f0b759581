"""Run the commands of a page in docs/ as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.controlplane.harness.kubectl import Kubectl

ROOT: Final = Path(__file__).parents[3]
TIMEOUT_SECONDS: Final = 90.0


def sections(page: str) -> dict[str, str]:
    """Return the sections of docs/`page` by heading."""
    text = (ROOT / "docs" / page).read_text()
    return dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))


def commands(section: str) -> list[str]:
    """Return the commands in a section."""
    return re.findall(r"^\$ (.*)$", section, re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Terminal:
    """A reader's terminal: a cluster, a folder, and programs on the PATH, with `folder/bin` first."""

    kubectl: Kubectl
    folder: Path

    def run(self, *commands: str) -> str:
        """Run commands of a page, and return the output of the last one. Raise AssertionError if a command fails."""
        programs = (self.folder / "bin", self.kubectl.program.parent, Path(sys.executable).parent)
        path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
        env = os.environ | {"PATH": path, "KUBECONFIG": str(self.kubectl.kubeconfig), "HOME": str(self.kubectl.home)}
        output = ""
        for command in commands:
            done = subprocess.run(
                ["/bin/bash", "-o", "pipefail", "-c", command],
                cwd=self.folder,
                env=env,
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_SECONDS,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            output = done.stdout
        return output

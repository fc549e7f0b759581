"""The output for the repositories in examples/repos of the commands that their pipelines run.

`python -m tests.integrations.repos` writes the output to expected/; review the difference.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.controlplane.harness.tools import find_tools
from tests.integrations.conftest import REPOS, Shell
from tests.quick_start import quick_spotgate

if TYPE_CHECKING:
    import subprocess

EXPECTED: Final = Path(__file__).parent / "expected"
COMMANDS: Final = {
    "argo-apps.txt": "spotgate check .",
    "argo-apps.diff": "spotgate fix --diff --state cluster ml-platform",
    "helm-chart.txt": "spotgate check .",
    "helm-chart.prod.txt": "helm template media . -f values-prod.yaml | spotgate check --state ../kustomize-overlays/cluster -",
    "kustomize-overlays.txt": "spotgate check .",
    "kustomize-overlays.staging.txt": "kustomize build overlays/staging | spotgate check --state cluster -",
    "kustomize-overlays.prod.yaml": "kustomize build --enable-alpha-plugins --enable-exec overlays/prod",
    "kustomize-overlays.prod.txt": "kustomize build --enable-alpha-plugins --enable-exec overlays/prod | spotgate check --state cluster -",
}
"""Commands by output file, whose name begins with the repository."""


def run(name: str, shell: Shell, *programs: Path) -> subprocess.CompletedProcess[str]:
    """Run the named command in a copy of its repository, outside this one."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(REPOS, Path(folder) / "repos")
        return shell(COMMANDS[name], copy / name.partition(".")[0], *programs)


if __name__ == "__main__":
    with quick_spotgate() as program:
        installed = Shell(program)
        tools = find_tools(["helm", "kustomize"]).values()
        EXPECTED.mkdir(exist_ok=True)
        for file in COMMANDS:
            (EXPECTED / file).write_text(run(file, installed, *tools).stdout)

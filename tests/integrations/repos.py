"""The output for the repositories in examples/repos of the commands that their pipelines run.

`python -m tests.integrations.repos` writes the output to expected/; review the difference. It builds nothing: without helm
or kustomize, their files stay.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.controlplane.harness.tools import find_built
from tests.integrations.conftest import REPOS, Shell
from tests.quick_start import quick_spotgate
from webhook.base.exits import CANNOT_JUDGE

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
RENDERED_BY: Final = {"helm-chart": "helm", "kustomize-overlays": "kustomize"}


def run(name: str, shell: Shell, *programs: Path) -> subprocess.CompletedProcess[str]:
    """Run the named command in a copy of its repository, outside this one."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(REPOS, Path(folder) / "repos")
        return shell(COMMANDS[name], copy / name.partition(".")[0], *programs)


if __name__ == "__main__":
    EXPECTED.mkdir(exist_ok=True)
    tools = {name: find_built(name) for name in set(RENDERED_BY.values())}
    with quick_spotgate() as program:
        for file, command in COMMANDS.items():
            tool = RENDERED_BY.get(file.partition(".")[0])
            if tool and tools[tool] is None:
                sys.stderr.write(
                    f"unchanged: {EXPECTED / file}, because there is no {tool}; `make test-cluster` builds it\n"
                )
                continue
            done = run(file, Shell(program), *filter(None, tools.values()))
            if done.returncode > CANNOT_JUDGE:
                sys.exit(f"{file}: `{command}` exited with {done.returncode}: {done.stderr}")
            (EXPECTED / file).write_text(done.stdout)

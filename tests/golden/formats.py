"""Golden reports: the output of ``check`` for a small repository, in each format.

``outputs/deploy`` has the manifests, ``outputs/cluster`` the cluster, and ``outputs/expected`` the reports.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from webhook.commands import main
from webhook.engine.bundle import SHIPPED

HERE: Final = Path(__file__).parent / "outputs"
NODE_LABELS: Final = Path(__file__).parents[2] / "examples" / "policies" / "node-labels.yaml"
"""A policy that only audits; no shipped policy does."""
_MAIN: Final = re.compile(r"<main>.*</main>\n", re.DOTALL)


def expected_file(name: str) -> Path:
    """Return the file of the expected report in a format."""
    return HERE / "expected" / f"{name}.txt"


def report(name: str) -> str:
    """Return the report of the golden repository in a format."""
    out = io.StringIO()
    # In a copy outside this repository, paths are relative to the golden repository.
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
        copy = shutil.copytree(HERE, Path(folder) / "outputs")
        with contextlib.chdir(copy):
            policies = shutil.copytree(SHIPPED, Path(folder) / "policies", ignore=shutil.ignore_patterns("tests"))
            shutil.copy(NODE_LABELS, policies)
            assert main(["check", f"--policies={policies}", "--state", "cluster", "-o", name, "deploy"]) == 1
    return out.getvalue()


def written(name: str) -> str:
    """Return the report in a format, without the page's styles and scripts."""
    text = report(name)
    if name != "html":
        return text
    shown = _MAIN.search(text)
    assert shown is not None
    return shown[0]

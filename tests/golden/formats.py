"""Golden reports: what ``check`` says of one small repository, in each format.

``outputs/deploy`` is judged, ``outputs/cluster`` is what the cluster has; ``outputs/expected`` is what is said.
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
"""Beside the shipped policies, none of which only audits."""
_MAIN: Final = re.compile(r"<main>.*</main>\n", re.DOTALL)


def expected_file(name: str) -> Path:
    """Where the report of a format is kept."""
    return HERE / "expected" / f"{name}.txt"


def report(name: str) -> str:
    """Return the report of the golden repository in a format."""
    out = io.StringIO()
    # A copy is not in this repository: its paths are those of the small one.
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
        copy = shutil.copytree(HERE, Path(folder) / "outputs")
        with contextlib.chdir(copy):
            policies = shutil.copytree(SHIPPED, Path(folder) / "policies", ignore=shutil.ignore_patterns("tests"))
            shutil.copy(NODE_LABELS, policies)
            assert main(["check", f"--policies={policies}", "--state", "cluster", "-o", name, "deploy"]) == 1
    return out.getvalue()


def written(name: str) -> str:
    """Return the report in a format; of the page only what it shows, without style and script."""
    text = report(name)
    if name != "html":
        return text
    shown = _MAIN.search(text)
    assert shown is not None
    return shown[0]

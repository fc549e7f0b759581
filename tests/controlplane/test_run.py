"""`make cluster`: what it prints can be typed, has the outcome that the README shows, and Ctrl-C leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
LAST_LINE = "Ctrl-C ends and deletes it all.\n"


@pytest.fixture
def running(binaries: dict[str, Path], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The program, which finds the binaries where the tests do."""
    assert binaries
    with subprocess.Popen(
        [sys.executable, "-m", "tests.controlplane.run"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as program:
        try:
            yield program
        finally:
            if program.poll() is None:
                program.send_signal(signal.SIGINT)


def test_what_it_prints_can_be_typed_and_ctrl_c_leaves_nothing(running: subprocess.Popen[str], tmp_path: Path) -> None:
    assert running.stdout
    printed: list[str] = []
    while not printed or printed[-1] not in ("", LAST_LINE):
        printed.append(running.stdout.readline())
    commands = [line.strip() for line in printed if line.startswith("    ")]
    exports, denied, placed, kept = "\n".join(commands[:2]), *commands[2:]

    def typed(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", f"{exports}\n{command}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            env=os.environ | {"HOME": str(tmp_path)},  # for kubectl's cache
            timeout=60,
            check=False,
        )

    answer = typed(denied)
    assert answer.returncode == 1
    assert answer.stderr in (ROOT / "README.md").read_text()
    assert "deployment.apps/storefront created" in typed(placed).stdout
    typed("kubectl rollout status --namespace=shop deployment/storefront --timeout=60s")
    pods = typed(placed.partition(" && ")[2]).stdout.splitlines()[1:]
    assert len(pods) == 6
    assert all(re.search(r" cpu-spot-\d ", line) for line in pods)
    assert "is the last on-demand fallback of GPU spot pool NodePool h100-spot" in typed(kept).stderr

    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (0, "spotgate: the cluster is gone\n")
    assert not list(tmp_path.glob("spotgate-*"))

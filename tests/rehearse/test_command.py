"""The command works as its page shows, and leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.programs import VERSION
from webhook.rehearse.controlplane.binaries import KUBERNETES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cli" / "rehearse.md").read_text()
SPOTGATE = Path(sys.executable).with_name("spotgate")


pytestmark = pytest.mark.usefixtures("binaries")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the file from the page."""
    shown = re.search(r"`reclaim\.yaml`:\n\n```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert shown
    (tmp_path / "reclaim.yaml").write_text(shown[1])
    return tmp_path


@pytest.mark.parametrize("page", ["docs/cli/rehearse.md", "README.md"])
def test_the_pages_example_prints_the_shown_output(spotgate: Path, folder: Path, page: str) -> None:
    shown = re.search(r"```console\n\$ (?:\S*/)?spotgate (rehearse .*)\n((?:.*\n)*?)```", (ROOT / page).read_text())
    assert shown
    where = folder if "reclaim.yaml" in shown[1] else ROOT
    done = subprocess.run(
        [str(spotgate), *shown[1].split()], cwd=where, capture_output=True, text=True, timeout=110, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    pattern = re.escape(shown[2].replace(KUBERNETES.version[1:], VERSION[1:])).replace(re.escape("...\n"), r"(?s:.*)")
    assert re.fullmatch(pattern, done.stdout), done.stdout


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    """Return whether the process exists and isn't a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends what a killed program has started")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_rehearsal_leaves_nothing_behind(folder: Path, number: signal.Signals) -> None:
    command = [str(SPOTGATE), "rehearse", "--lose=spot", "reclaim.yaml"]
    environment = os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        deadline = time.monotonic() + 60
        while len(started := children(program.pid)) < 3:  # spotgate, etcd and the API server
            assert program.poll() is None
            assert time.monotonic() < deadline, started
            time.sleep(0.05)
        program.send_signal(number)
        output, _ = program.communicate(timeout=60)
    assert program.returncode == (-number if number == signal.SIGKILL else 130)
    assert output == ""
    deadline = time.monotonic() + 60
    while any(map(runs, started)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if number != signal.SIGKILL:  # SIGKILL leaves files
        assert [file.name for file in folder.iterdir()] == ["reclaim.yaml"]

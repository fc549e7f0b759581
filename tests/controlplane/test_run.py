"""`make cluster`: the printed commands and the pages' commands work as shown, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.harness.kubectl import write_preferences

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
WRITTEN = re.compile(r"`([\w./-]+)`[^`]*\n\n```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
"""A file that the reader of the tutorial creates."""
STEP = re.compile(r"(`[\w./-]+`[^`]*\n\n```yaml\n.*?^```$|^```console\n.*?^```$)", re.DOTALL | re.MULTILINE)

PAGES = ("README.md", "docs/control-plane.md")
BLOCK = re.compile(r"```console\n(\$ kubectl .*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
LAST_LINE = "Ctrl-C ends and deletes it all.\n"


@dataclass
class Running:
    """The program, and its output so far."""

    program: subprocess.Popen[str]
    folder: Path
    spotgate: Path
    printed: list[str] = field(default_factory=list)

    @property
    def commands(self) -> list[str]:
        """The commands in the output."""
        return [line.strip() for line in self.printed if line.startswith("    ")]

    @property
    def tutorial(self) -> Path:
        """The working folder of the tutorial's reader."""
        return self.folder / "tutorial"

    def typed(self, command: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """Run a command after the exports from the output, and return the result."""
        exports = "\n".join(line for line in self.commands if line.startswith("export "))
        own = {"KUBECACHEDIR": str(self.folder), "KUBERC": str(self.folder / ".kube" / "kuberc")}
        return subprocess.run(
            ["/bin/sh", "-c", f"{exports}\n{command.replace('.venv/bin/spotgate', str(self.spotgate))}"],
            cwd=folder,
            capture_output=True,
            text=True,
            env=os.environ | own | {"PATH": f"{self.spotgate.parent}:{os.environ['PATH']}"},
            timeout=240,
            check=False,
        )


@pytest.fixture(scope="module")
def running(binaries: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, spotgate: Path) -> Iterator[Running]:
    """Start the program, which uses the same binaries as the tests."""
    assert binaries
    folder = tmp_path_factory.mktemp("run")
    (folder / "tutorial" / "team").mkdir(parents=True)
    write_preferences(folder)
    # The server starts with these two files, which the tutorial's reader wrote earlier.
    for name in ("team/shutdown.yaml", "team/owner.yaml"):
        (folder / "tutorial" / name).write_text(dict(WRITTEN.findall(TUTORIAL.read_text()))[name])
    with subprocess.Popen(
        [sys.executable, "-m", "tests.controlplane.run", str(folder / "tutorial" / "team")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    ) as program:
        running = Running(program, folder, spotgate)
        try:
            assert program.stdout
            while not running.printed or running.printed[-1] not in ("", LAST_LINE):
                running.printed.append(program.stdout.readline())
            yield running
        finally:
            if program.poll() is None:
                program.send_signal(signal.SIGINT)


@pytest.fixture
def nothing_left(running: Running) -> Iterator[None]:
    """Delete the objects that a test applied."""
    yield
    delete = "kubectl delete --ignore-not-found --cascade=foreground"
    done = running.typed(f"{delete} -f examples/web-on-spot.yaml && {delete} pod/patient")
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("nothing_left")
def test_the_printed_commands_work(running: Running) -> None:
    denied, placed, kept, checked = (command for command in running.commands if not command.startswith("export "))
    assert running.typed(denied).returncode == 1
    assert "deployment.apps/storefront created" in running.typed(placed).stdout
    running.typed("kubectl rollout status --namespace=shop deployment/storefront --timeout=60s")
    pods = running.typed(placed.partition(" && ")[2]).stdout.splitlines()[1:]
    assert len(pods) == 6
    assert all(re.search(r" cpu-spot-\d ", line) for line in pods)
    assert "is the last on-demand fallback of GPU spot pool NodePool h100-spot" in running.typed(kept).stderr
    judged = running.typed(checked)
    assert ("Fix: did you mean qos.coreweave.cloud/interruptable?" in judged.stdout, judged.stderr) == (True, "")
    assert re.search(r"^\d objects: 1 deny", judged.stdout, re.MULTILINE)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("page", PAGES)
def test_the_pages_show_the_output_of_kubectl(running: Running, page: str) -> None:
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for command, shown in COMMAND.findall("".join(blocks)):
        done = running.typed(command)
        # A page may omit warnings of unrelated policies.
        said = done.stdout if done.returncode == 0 and "Warning:" not in shown else done.stderr + done.stdout
        pattern = re.escape(anywhere(shown)).replace(re.escape("...\n"), r"(?s:.*)")
        assert re.fullmatch(pattern, anywhere(said)), f"{command}\n{said}"


@pytest.mark.timeout(480)
def test_the_tutorial_works_as_written(running: Running) -> None:
    (running.tutorial / "team" / "owner.yaml").unlink()
    (running.tutorial / "team" / "tests").mkdir()
    shutil.copytree(ROOT / "examples" / "state", running.tutorial / "cluster")
    for part in STEP.split(TUTORIAL.read_text()):
        if written := WRITTEN.fullmatch(part):
            (running.tutorial / written[1]).write_text(written[2])
        for command, shown in COMMAND.findall(part):
            if command.startswith(("make ", "source ", "mkdir ")):
                continue
            done = running.typed(command, running.tutorial)
            said = done.stderr + done.stdout
            pattern = re.escape(anywhere(shown)).replace(re.escape("...\n"), r"(?s:.*)")
            assert re.fullmatch(pattern, anywhere(said)), f"{command}\n{said}"


def anywhere(said: str) -> str:
    """Return the text without the numbers of Nodes, which the scheduler chooses."""
    return re.sub(r"cpu-spot-\d", "cpu-spot-N", said)


def test_ctrl_c_leaves_nothing_behind(running: Running) -> None:
    running.program.send_signal(signal.SIGINT)
    running.program.send_signal(signal.SIGINT)  # an impatient user
    _, errors = running.program.communicate(timeout=60)
    assert running.program.returncode == 0
    assert re.fullmatch(r"spotgate: starting .*\nspotgate: the cluster is gone\n", errors)
    assert not list(running.folder.glob("spotgate-*"))

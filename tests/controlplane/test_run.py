"""`make cluster`: what it prints and what the pages show can be typed and has that outcome, and Ctrl-C leaves nothing."""

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
"""A file that the tutorial tells the reader to create."""
STEP = re.compile(r"(`[\w./-]+`[^`]*\n\n```yaml\n.*?^```$|^```console\n.*?^```$)", re.DOTALL | re.MULTILINE)

PAGES = ("README.md", "docs/control-plane.md")
BLOCK = re.compile(r"```console\n(\$ kubectl .*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
LAST_LINE = "Ctrl-C ends and deletes it all.\n"


@dataclass
class Running:
    """The program, and what it has printed so far."""

    program: subprocess.Popen[str]
    folder: Path
    printed: list[str] = field(default_factory=list)

    @property
    def commands(self) -> list[str]:
        """Those that it offers to type."""
        return [line.strip() for line in self.printed if line.startswith("    ")]

    @property
    def tutorial(self) -> Path:
        """Return the folder in which the reader of the tutorial works."""
        return self.folder / "tutorial"

    def typed(self, command: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """Return a command, in a terminal in which the exports that it offers have been typed."""
        exports = "\n".join(line for line in self.commands if line.startswith("export "))
        program = f"{Path(sys.executable).parent}/spotgate"  # where `make cluster` has put it
        own = {"KUBECACHEDIR": str(self.folder), "KUBERC": str(self.folder / ".kube" / "kuberc")}
        return subprocess.run(
            ["/bin/sh", "-c", f"{exports}\n{command.replace('.venv/bin/spotgate', program)}"],
            cwd=folder,
            capture_output=True,
            text=True,
            env=os.environ | own | {"PATH": f"{Path(program).parent}:{os.environ['PATH']}"},
            timeout=240,
            check=False,
        )


@pytest.fixture(scope="module")
def running(binaries: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield the program, which finds the binaries where the tests do."""
    assert binaries
    folder = tmp_path_factory.mktemp("run")
    (folder / "tutorial" / "team").mkdir(parents=True)
    write_preferences(folder)
    # The server starts with these two; the tutorial's reader has written them before.
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
        running = Running(program, folder)
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
    """Delete what a test has applied."""
    yield
    delete = "kubectl delete --ignore-not-found --cascade=foreground"
    done = running.typed(f"{delete} -f examples/web-on-spot.yaml && {delete} pod/patient")
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("nothing_left")
def test_what_it_prints_can_be_typed(running: Running) -> None:
    denied, placed, kept, checked = (each for each in running.commands if not each.startswith("export "))
    assert running.typed(denied).returncode == 1
    assert "deployment.apps/storefront created" in running.typed(placed).stdout
    running.typed("kubectl rollout status --namespace=shop deployment/storefront --timeout=60s")
    pods = running.typed(placed.partition(" && ")[2]).stdout.splitlines()[1:]
    assert len(pods) == 6
    assert all(re.search(r" cpu-spot-\d ", line) for line in pods)
    assert "is the last on-demand fallback of GPU spot pool NodePool h100-spot" in running.typed(kept).stderr
    assert "Fix for Deployment media/thumbnails at " in running.typed(checked).stdout


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("page", PAGES)
def test_what_the_page_shows_is_what_kubectl_says(running: Running, page: str) -> None:
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for command, shown in COMMAND.findall("".join(blocks)):
        done = running.typed(command)
        # A page need not repeat the warnings that a policy has for the objects of another.
        said = done.stdout if done.returncode == 0 and "Warning:" not in shown else done.stderr + done.stdout
        pattern = re.escape(anywhere(shown)).replace(re.escape("...\n"), r"(?s:.*)")
        assert re.fullmatch(pattern, anywhere(said)), f"{command}\n{said}"


@pytest.mark.timeout(480)
def test_the_tutorial_can_be_typed_as_it_is(running: Running) -> None:
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
    """Without the numbers of Nodes: the scheduler chooses one."""
    return re.sub(r"cpu-spot-\d", "cpu-spot-N", said)


def test_ctrl_c_leaves_nothing(running: Running) -> None:
    running.program.send_signal(signal.SIGINT)
    running.program.send_signal(signal.SIGINT)  # whoever is impatient
    _, errors = running.program.communicate(timeout=60)
    assert running.program.returncode == 0
    assert re.fullmatch(r"spotgate: starting .*\nspotgate: the cluster is gone\n", errors)
    assert not list(running.folder.glob("spotgate-*"))

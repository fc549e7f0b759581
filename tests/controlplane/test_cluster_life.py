"""A control plane that starts leaves nothing behind, and one that does not says why."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.controlplane.cluster import start_cluster
from webhook.rehearse.controlplane.control_plane import ControlPlaneError

if TYPE_CHECKING:
    from collections.abc import Collection


def is_alive(pid: int) -> bool:
    """Return whether the process exists, other than as a zombie that its parent has not asked about yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def all_end(pids: Collection[int]) -> bool:
    deadline = time.monotonic() + 30
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(is_alive, pids))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part of it is Linux's")
def test_a_killed_test_run_leaves_no_process(binaries: dict[str, Path], tmp_path: Path) -> None:
    program = (
        "import time\n"
        "from tests.controlplane.cluster import start_cluster\n"
        f"with start_cluster({ {name: str(path) for name, path in binaries.items()} }, controllers=False) as own:\n"
        "    print(*(process.pid for process in own.processes.values()), flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(tmp_path)}
    ) as run:
        try:
            assert run.stdout
            pids = [int(pid) for pid in run.stdout.readline().split()]
            assert len(pids) == 2
            assert all(map(is_alive, pids))
        finally:
            run.send_signal(signal.SIGKILL)
    assert all_end(pids)


def test_a_server_that_does_not_start_is_an_error_with_what_it_said(binaries: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "kube-apiserver"
    broken.write_text("#!/bin/sh\necho no such flag\nexit 3\n")
    broken.chmod(0o755)
    with (
        pytest.raises(ControlPlaneError, match=r"^kube-apiserver exited with 3; it said last:\nno such flag$"),
        contextlib.ExitStack() as stack,
    ):
        stack.enter_context(start_cluster(binaries | {"kube-apiserver": broken}, controllers=False))

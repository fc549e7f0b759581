"""A control plane starts, restarts, stands beside others, and leaves nothing behind."""

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

from tests.controlplane import scheduling
from tests.controlplane.cluster import Cluster, ClusterError, start_cluster

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


def test_one_worker_runs_all_tests_on_the_shared_control_plane(pytestconfig: pytest.Config) -> None:
    hooks = pytestconfig.hook.pytest_xdist_make_scheduler.get_hookimpls()
    assert scheduling.pytest_xdist_make_scheduler in {hook.function for hook in hooks}
    scope_of = scheduling.scope_of
    assert scope_of("tests/controlplane/test_a.py::test_1") == scope_of("tests/controlplane/test_b.py::test_2")
    assert scope_of("tests/kube/test_a.py::test_1") != scope_of("tests/kube/test_a.py::test_2")


def test_tests_on_another_control_plane_are_run_by_another_worker(request: pytest.FixtureRequest) -> None:
    fixtures: dict[str, set[str]] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.nodeid.startswith(scheduling.FOLDER):
            fixtures.setdefault(scheduling.scope_of(item.nodeid), set()).update(item.fixturenames)
    shared = {scope for scope, names in fixtures.items() if "cluster" in names}
    bare = {scope for scope, names in fixtures.items() if "bare_cluster" in names}
    assert shared <= {scheduling.FOLDER}
    assert len(bare) <= 1
    assert shared.isdisjoint(bare)


def test_two_control_planes_run_side_by_side_and_nothing_is_left_of_one_that_is_stopped(
    cluster: Cluster, binaries: dict[str, Path]
) -> None:
    with start_cluster(binaries, controllers=False) as other:
        other.kubectl("create", "namespace", "only-here")
        assert cluster.kubectl.run("get", "namespace", "only-here").returncode == 1
        pids = [process.pid for process in other.processes.values()]
        assert len(pids) == 2
        assert all(map(is_alive, pids))
    assert not any(map(is_alive, pids))
    assert not other.directory.exists()


def test_a_control_plane_comes_back_on_its_port_with_what_was_stored(binaries: dict[str, Path]) -> None:
    with start_cluster(binaries, controllers=False) as own:
        own.kubectl("create", "namespace", "kept")
        own.restart("kube-apiserver")
        assert own.kubectl("get", "namespace", "kept", "--output=name") == "namespace/kept\n"


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
        pytest.raises(ClusterError, match=r"^kube-apiserver exited with 3; it said last:\nno such flag$"),
        contextlib.ExitStack() as stack,
    ):
        stack.enter_context(start_cluster(binaries | {"kube-apiserver": broken}, controllers=False))

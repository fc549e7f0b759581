"""Servers that stop after the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from tests.server.harness import LOOPBACK, PAIR, SHORT, Known, Process, Served, bundle_of, write_policy
from tests.server.recording import Recording
from webhook.runtime.reload import Reloader
from webhook.runtime.snapshot import Snapshot
from webhook.server.http.recorder import prepare_folder
from webhook.server.serve import ServeOptions
from webhook.server.tls.serving import ServingCertificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from webhook.capacity.view import ClusterState
    from webhook.engine.bundle import Bundle
    from webhook.runtime.limits import Limits

    Start: TypeAlias = Callable[..., Served]
    Spawn: TypeAlias = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a server in a thread with a snapshot or a reloader; stop it after the test."""
    started: list[Served] = []

    def start_one(
        bundle: Bundle | None = None,
        state: ClusterState | None = None,
        *,
        reloader: Reloader | None = None,
        certificate: ServingCertificate | None = None,
        limits: Limits = SHORT,
        callers: frozenset[str] = frozenset(),
    ) -> Served:
        snapshot = Snapshot(bundle or bundle_of(), state or Known())
        served = Served(
            reloader or Reloader(lambda: snapshot, (tmp_path,)),
            certificate or ServingCertificate(PAIR),
            limits,
            callers,
        )
        started.append(served)
        return served

    yield start_one
    for served in started:
        served.stop()
    for served in started:
        served.wait()


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Start `spotgate serve` as a process, by default self-signed and with a policy folder."""
    started: list[Process] = []

    def start_one(**changes: Any) -> Process:
        policies = tmp_path / "policies"
        if not policies.exists():
            write_policy(policies)
        options = {"policies": (policies,), "self_signed": True, "limits": SHORT, **changes}
        process = Process(ServeOptions(listen=LOOPBACK, ops=LOOPBACK, **options), tmp_path / f"{len(started)}.log")
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.end()


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Return a recorder in a temporary folder."""
    prepare_folder(tmp_path / "recorded")
    return Recording(tmp_path / "recorded")

"""`spotgate serve` as a process: how it starts, stops, and survives."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

import pytest

from certs.self_signed import self_signed
from tests.server.harness import (
    LOOPBACK,
    PAIR,
    PATIENCE,
    SHORT,
    eventually,
    labelled,
    put,
    review,
    write_policy,
)
from webhook.context import utc_now
from webhook.server.serve import Address, ServeOptions, serve

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.server.conftest import Spawn
    from tests.server.harness import Process

MIB = 1024 * 1024


# Starting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0.0.0.0:8443", ("0.0.0.0", 8443)),  # noqa: S104
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("localhost:1", ("localhost", 1)),
        (":8443", ("0.0.0.0", 8443)),  # noqa: S104
        ("[::1]:8443", ("::1", 8443)),
        ("[::]:8443", ("::", 8443)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["", "8443", "host", "host:", "host:x", "host:65536", "host:-1", "host:1 "])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write host:port, as in 0\.0\.0\.0:8443"):
        Address.parse(text)


def refuses(options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """Start with these options, which must fail with exit code 2; what it says."""
    assert serve(ServeOptions(**{"listen": LOOPBACK, "ops": LOOPBACK, "self_signed": True, **options})) == 2
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    return errors


def test_bad_policies_are_refused_with_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_policy(tmp_path)
    (tmp_path / "policy.yaml").write_text((tmp_path / "policy.yaml").read_text().replace("domains", "domain"))
    for workers in (1, 2):
        assert f"{tmp_path}/policy.yaml:4:" in refuses({"policies": (tmp_path,), "workers": workers}, capsys)


def test_I23_an_empty_policy_set_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds no policy" in refuses({"policies": (tmp_path,)}, capsys)


def test_a_missing_certificate_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "give --tls-cert and --tls-key, or --self-signed" in refuses({"self_signed": False}, capsys)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(PAIR.certificate_pem)
    key.write_bytes(self_signed(["localhost"], [], utc_now())[1].key_pem)
    options = {"self_signed": False, "tls_cert": certificate, "tls_key": key}
    assert "the private key does not belong to the certificate" in refuses(options, capsys)


def test_bad_state_is_refused_with_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "state.yaml").write_text("kind: [")
    write_policy(tmp_path / "policies")
    options = {"policies": (tmp_path / "policies",), "state": (tmp_path / "state.yaml",)}
    assert f"{tmp_path}/state.yaml:2:" in refuses(options, capsys)


def test_an_address_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_policy(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = Address(*other.getsockname())
        assert str(address.port) in refuses({"policies": (tmp_path,), "listen": address}, capsys)


# Load ---------------------------------------------------------------------------------------------------------------


class Load:
    """Clients as API servers are: keep-alive, told by `/readyz` where to go, and leaving a connection when asked to."""

    def __init__(self, process: Process, clients: int = 4) -> None:
        self._process = process
        self._done = threading.Event()
        self.answered = 0
        self.failures: list[Exception] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._done.is_set():
            try:
                with closing(self._process.connection()) as connection:
                    closed = False
                    while not self._done.is_set() and not closed:
                        answer = self._process.post(over=connection)
                        assert answer.allowed
                        self.answered += 1
                        closed = answer.headers.get("connection") == "close"
            except (OSError, HTTPException) as error:
                self.failures.append(error)

    def goes_on(self, requests: int) -> None:
        """Wait until so many more were answered."""
        target = self.answered + requests
        eventually(lambda: self.answered >= target)

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(PATIENCE)


@pytest.mark.parametrize("workers", [1, 2])
def test_L3_no_request_fails_while_it_stops_under_load(spawn: Spawn, workers: int) -> None:
    process = spawn(workers=workers, limits=dataclasses.replace(SHORT, quiet=3, drain=PATIENCE))
    load = Load(process)
    load.goes_on(50)
    process.process.send_signal(signal.SIGTERM)
    eventually(lambda: process.ops("/readyz").status == 503)
    load.goes_on(50)  # until the clients have heard that it is not ready
    load.stop()
    assert process.process.wait(PATIENCE) == 0
    assert load.failures == []
    assert process.errors() == ""


def test_an_interrupt_ends_it_without_a_failed_request(spawn: Spawn) -> None:
    process = spawn(limits=dataclasses.replace(SHORT, quiet=60, drain=60))
    assert process.post().allowed
    process.process.send_signal(signal.SIGINT)
    assert process.process.wait(PATIENCE) == 0
    assert process.errors() == ""


def test_what_was_decided_last_is_logged_too(spawn: Spawn) -> None:
    process = spawn()
    process.post(review(uid="the-last"))
    process.process.send_signal(signal.SIGINT)
    process.process.wait(PATIENCE)
    assert [line["uid"] for line in process.log("decision")] == ["the-last"]


# Memory -------------------------------------------------------------------------------------------------------------


def megabytes(count: int, unit: bytes) -> Callable[[], Any]:
    return lambda: (unit * MIB for _ in range(count))


@pytest.mark.parametrize("count", [6, 20])
def test_I2_many_large_bodies_at_once_do_not_fill_the_memory(spawn: Spawn, count: int) -> None:
    process = spawn(limits=dataclasses.replace(SHORT, receive=60))
    before = process.peak_memory()

    def post(_: int) -> int:
        try:
            return process.post(bytes(MIB) for _ in range(count)).status
        except OSError:
            return 413  # the answer was lost because it came before the body's end

    with ThreadPoolExecutor(30) as clients:
        statuses = list(clients.map(post, range(60)))
    assert set(statuses) <= {400, 413, 429}
    # 64 MiB of bodies, one copy of each while its pieces are joined, and what waits in each connection's buffers.
    assert process.peak_memory() - before < 200 * MIB
    assert process.post().allowed


# Workers ------------------------------------------------------------------------------------------------------------


def test_workers_count_together_serve_the_same_and_change_together(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn(workers=2)
    assert len(process.workers()) == 2
    certificates = set()
    for _ in range(20):
        assert process.post().allowed
        assert not process.post(labelled()).allowed
        with process.socket() as client:
            certificates.add(client.getpeercert(binary_form=True))
    assert len(certificates) == 1
    assert process.metric("spotgate_decisions_total") == 40
    assert process.metric("spotgate_decisions_total", outcome="denied") == 20
    assert process.metric("spotgate_findings_total", policy="reserved", outcome="deny") == 20
    assert process.metric("spotgate_request_seconds_count") == 40
    assert process.metric("spotgate_ready_workers") == 2
    (process.counters() / "counter_0.db").touch()  # as when a worker has made it just now
    assert process.metric("spotgate_decisions_total") == 40

    before = process.ops("/version").json["bundle"]
    assert process.metric("spotgate_bundle_info", hash=before) == 2
    write_policy(tmp_path / "policies", "other.example.com")
    eventually(lambda: process.metric("spotgate_bundle_info", hash=before) == 0)
    assert process.ops("/version").json["bundle"] != before
    assert not any(process.post(labelled("other.example.com")).allowed for _ in range(10))


def test_I7_a_worker_that_is_killed_under_load_is_replaced(spawn: Spawn) -> None:
    process = spawn(workers=2)
    load = Load(process, clients=4)
    load.goes_on(50)
    before = process.workers()
    os.kill(before[0], signal.SIGKILL)
    eventually(lambda: process.metric("spotgate_worker_restarts_total") == 1)
    load.goes_on(50)
    eventually(lambda: process.metric("spotgate_ready_workers") == 2)
    assert process.ops("/readyz").status == 200
    load.goes_on(50)
    load.stop()
    assert len(set(process.workers()) - set(before)) == 1
    # Only who was connected to the dead worker can have noticed, and once.
    assert len(load.failures) <= 4
    assert process.metric("spotgate_decisions_total") >= load.answered, "what the dead one counted is not lost"


def test_a_worker_that_hangs_is_replaced(spawn: Spawn) -> None:
    process = spawn(workers=2, limits=dataclasses.replace(SHORT, silence=3))
    hung, _ = process.workers()
    os.kill(hung, signal.SIGSTOP)
    eventually(lambda: hung not in process.workers() and process.metric("spotgate_ready_workers") == 2)
    assert process.log("worker is silent")
    assert process.post().allowed


def test_it_is_ready_while_one_worker_serves(spawn: Spawn) -> None:
    process = spawn(workers=2)
    killed, left = process.workers()
    os.kill(killed, signal.SIGKILL)
    for _ in range(20):
        assert process.ops("/readyz").status == 200
    eventually(lambda: process.metric("spotgate_ready_workers") == 2)
    eventually(lambda: answer_without_workers(process) == b"0 of 2 workers are ready\n")
    assert left not in process.workers()
    eventually(lambda: process.ops("/readyz").status == 200)


def answer_without_workers(process: Process) -> bytes:
    """What it says right after all workers were killed: before they are replaced, if it has heard of that."""
    for worker in process.workers():
        with suppress(ProcessLookupError):  # it had died already
            os.kill(worker, signal.SIGKILL)
    return process.ops("/readyz").body


def test_P1_a_worker_that_begins_when_the_policies_are_bad_serves_the_last_good_ones(
    spawn: Spawn, tmp_path: Path
) -> None:
    policies = tmp_path / "policies"
    process = spawn(workers=2)
    write_policy(policies, "second.example.com")
    eventually(lambda: len(process.log("policies taken over")) == 3)  # by the workers, and for those to come
    good = process.log("policies taken over")[0]["bundle"]
    put(policies / "policy.yaml", "kind: [")
    eventually(lambda: process.metric("spotgate_last_reload_success", what="policies") == 0)
    for worker in process.workers():
        os.kill(worker, signal.SIGKILL)
    eventually(lambda: process.metric("spotgate_worker_restarts_total") == 2)
    eventually(lambda: process.metric("spotgate_bundle_info", hash=good) == 2)
    assert process.metric("spotgate_last_reload_success", what="policies") == 0
    assert not process.post(labelled("second.example.com")).allowed
    assert process.post(labelled("reserved.example.com")).allowed

    write_policy(policies, "third.example.com")
    eventually(lambda: process.metric("spotgate_bundle_info", hash=good) == 0)
    assert not any(process.post(labelled("third.example.com")).allowed for _ in range(10))
    assert process.metric("spotgate_last_reload_success", what="policies") == 1
    assert process.metric("spotgate_worker_restarts_total") == 2


def test_workers_end_when_their_supervisor_is_killed(spawn: Spawn) -> None:
    process = spawn(workers=2)
    workers, counters = process.workers(), process.counters()
    process.process.kill()
    process.process.wait(PATIENCE)
    eventually(lambda: not any(is_running(pid) for pid in workers))
    shutil.rmtree(counters)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_nothing_is_left_behind(spawn: Spawn) -> None:
    process = spawn(workers=2)
    counters = process.counters()
    assert counters.stat().st_mode & 0o777 == 0o700
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(PATIENCE) == 0
    assert not counters.exists()

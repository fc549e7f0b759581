"""`spotgate serve` as a process: how it starts, stops, and survives."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from certs.authority import self_signed
from tests.server.harness import LOOPBACK, PAIR, PATIENCE, SHORT, eventually, review, write_policy
from webhook import __version__
from webhook.commands.serve.command import configure
from webhook.rules.context import utc_now
from webhook.runtime.address import Address
from webhook.server.serve import ServeOptions, serve

if TYPE_CHECKING:
    from tests.server.conftest import Spawn
    from tests.server.harness import Process

MIB = 1024 * 1024
SPOTGATE = Path(sys.executable).with_name("spotgate")
AS_PROCESS_1 = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


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
def test_an_invalid_address_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"write host:port, such as 0\.0\.0\.0:8443"):
        Address.parse(text)


def error_of(options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the error of a start with these options, which must fail with exit code 2."""
    assert serve(ServeOptions(**{"listen": LOOPBACK, "ops": LOOPBACK, "self_signed": True, **options})) == 2
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    return errors


def test_bad_policies_are_rejected_with_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_policy(tmp_path)
    (tmp_path / "policy.yaml").write_text((tmp_path / "policy.yaml").read_text().replace("domains", "domain"))
    assert f"{tmp_path}/policy.yaml:4:" in error_of({"policies": (tmp_path,)}, capsys)


def test_I23_an_empty_policy_set_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "contains no policy" in error_of({"policies": (tmp_path,)}, capsys)


def test_a_missing_certificate_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert "pass --tls-cert and --tls-key, --tls-secret, or --self-signed" in error_of({"self_signed": False}, capsys)


def test_a_key_of_another_certificate_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(PAIR.certificate_pem)
    key.write_bytes(self_signed(["localhost"], [], utc_now())[1].key_pem)
    options = {"self_signed": False, "tls_cert": certificate, "tls_key": key}
    assert "the private key does not belong to the certificate" in error_of(options, capsys)


def test_bad_state_is_rejected_with_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "state.yaml").write_text("kind: [")
    write_policy(tmp_path / "policies")
    options = {"policies": (tmp_path / "policies",), "state": (tmp_path / "state.yaml",)}
    assert f"{tmp_path}/state.yaml:2:" in error_of(options, capsys)


def test_an_address_in_use_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_policy(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = Address(*other.getsockname())
        assert str(address.port) in error_of({"policies": (tmp_path,), "listen": address}, capsys)


def test_the_first_lines_name_the_configuration_in_force(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn(tls_name=("spotgate.example",))
    (line,) = process.log("listening")
    assert line["version"] == __version__
    assert line["bundle"] == process.ops("/version").json["bundle"]
    assert line["flags"]["policies"] == [str(tmp_path / "policies")]
    assert line["flags"]["listen"] == "127.0.0.1:0"
    assert line["flags"]["tls_name"] == ["spotgate.example"]


def test_the_first_lines_name_every_flag() -> None:
    parser = ArgumentParser()
    configure(parser)
    flags = {action.dest for action in parser._actions} - {"help"}
    in_effect = ServeOptions(listen=LOOPBACK, ops=LOOPBACK, tls_secret=("a", "b")).in_effect()
    assert flags == in_effect.keys()
    assert (in_effect["policies"], in_effect["tls_secret"]) == (("shipped",), "a/b")


# Load ---------------------------------------------------------------------------------------------------------------


class Load:
    """Clients like API servers: they keep connections alive, follow `/readyz`, and close connections when asked to."""

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
        """Wait for this number of further answers."""
        target = self.answered + requests
        eventually(lambda: self.answered >= target)

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(PATIENCE)


def test_L3_no_request_fails_during_a_shutdown_under_load(spawn: Spawn) -> None:
    process = spawn(limits=dataclasses.replace(SHORT, quiet=3, drain=PATIENCE))
    load = Load(process)
    load.goes_on(50)
    process.process.send_signal(signal.SIGTERM)
    eventually(lambda: process.ops("/readyz").status == 503)
    load.goes_on(50)  # until the clients see that it is not ready
    load.stop()
    assert process.process.wait(PATIENCE) == 0
    assert load.failures == []
    assert process.errors() == ""


def test_an_interrupt_fails_no_request_and_logs_the_last_decision(spawn: Spawn, tmp_path: Path) -> None:
    process = spawn(limits=dataclasses.replace(SHORT, quiet=60, drain=60))
    assert process.post(review(uid="the-last")).allowed
    process.process.send_signal(signal.SIGINT)
    assert process.process.wait(PATIENCE) == 0
    assert process.errors() == ""
    assert [line["uid"] for line in process.log("decision")] == ["the-last"]
    assert {path.name for path in tmp_path.iterdir()} == {"policies", "0.log"}  # nothing is recorded unless asked for


@pytest.mark.parametrize("moment", ["starts", "serves"])
def test_L3_as_process_1_of_a_container_sigterm_stops_it_while_it(moment: str, tmp_path: Path) -> None:
    if (
        not shutil.which("unshare")
        or subprocess.run([*AS_PROCESS_1, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no PID namespace can be made here")
    write_policy(tmp_path / "policies")
    flags = ["--listen=127.0.0.1:0", "--ops=127.0.0.1:0", f"--policies={tmp_path / 'policies'}"]
    if moment == "starts":  # a pipe without a writer blocks it there
        os.mkfifo(tmp_path / "pipe")
        flags += [f"--tls-cert={tmp_path / 'pipe'}", f"--tls-key={tmp_path / 'pipe'}"]
    else:
        flags += ["--self-signed"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen([*AS_PROCESS_1, SPOTGATE, "serve", *flags], stdout=log, stderr=subprocess.PIPE) as container,
    ):
        try:
            eventually(lambda: len(children(container.pid)) == 1)
            (pid,) = children(container.pid)
            eventually(lambda: catches(pid, signal.SIGTERM))
            if moment == "serves":
                eventually(lambda: b'"listening"' in (tmp_path / "log").read_bytes())
            assert children(pid) == []  # without children, it has no process to wait for
            os.kill(pid, signal.SIGTERM)
            assert container.wait(PATIENCE) == 0
            assert container.stderr
            assert container.stderr.read() == b""
        finally:
            container.kill()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def catches(pid: int, number: signal.Signals) -> bool:
    caught = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0]
    return bool(int(caught, 16) >> (number - 1) & 1)


# Memory -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [6, 20])
def test_I2_concurrent_large_bodies_do_not_exhaust_memory(spawn: Spawn, count: int) -> None:
    process = spawn(limits=dataclasses.replace(SHORT, receive=60))
    before = process.peak_memory()

    def post(_: int) -> int:
        try:
            return process.post(bytes(MIB) for _ in range(count)).status
        except OSError:
            return 413  # the answer is lost because it preceded the end of the body

    with ThreadPoolExecutor(30) as clients:
        statuses = list(clients.map(post, range(30)))
    assert set(statuses) <= {400, 413, 429}
    # 64 MiB of bodies, a copy of each while its pieces are joined, and the buffers of each connection.
    assert process.peak_memory() - before < 200 * MIB
    assert process.post().allowed

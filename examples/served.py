"""A ``spotgate serve`` process, and a client that verifies its certificate, as an API server does."""

from __future__ import annotations

import base64
import http.client
import json
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SPOTGATE: Final = Path(sys.executable).with_name("spotgate")
LOCALHOST: Final = "127.0.0.1"
_PATIENCE: Final = 60
"""Seconds to wait for the start on a very busy machine. It usually takes less than one."""


class WebhookError(Exception):
    """A webhook that didn't start, or whose answer is invalid."""


@dataclass(slots=True)
class Webhook:
    """A running webhook.

    Attributes:
        process: the process of the webhook.
        policies: the folder with its policies.
        port: the port of /mutate and /validate, with TLS.
        ops_port: the port of /readyz and /metrics.
        ca_file: the certificate of the CA that signed its certificate, PEM.
        log: the log file.
    """

    process: subprocess.Popen[bytes]
    policies: Path
    port: int
    ops_port: int
    ca_file: Path
    log: Path
    _connection: http.client.HTTPSConnection

    def ask(self, path: str, review: dict[str, Any]) -> dict[str, Any]:
        """Send an AdmissionReview to this path, and return the ``response`` of the answer."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            self._connection.request("POST", f"{path}?timeout=10s", json.dumps(review), headers)
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise WebhookError(f"{path} did not answer: {error}\n{self.log.read_text()}") from None
        if answer.status != http.client.OK:
            raise WebhookError(f"{path} answered {answer.status}: {body.decode(errors='replace')}")
        response: dict[str, Any] = json.loads(body)["response"]
        if response["uid"] != review["request"]["uid"]:
            raise WebhookError(f"{path} answered with the uid of another request")
        return response

    def configurations(self) -> str:
        """Return the mutating and the validating webhook configuration, as YAML."""
        command: list[str | Path] = [SPOTGATE, "webhook-config", "--policies", self.policies, "--ca-file", self.ca_file]
        printed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if printed.returncode:
            raise WebhookError(f"spotgate webhook-config failed:\n{printed.stderr}")
        return printed.stdout


@contextmanager
def serving(policies: Path, state: Path) -> Iterator[Webhook]:
    """Run a webhook on free ports of this machine during the block."""
    with tempfile.TemporaryDirectory(prefix="spotgate-") as folder:
        log = Path(folder, "webhook.log")
        command: list[str | Path] = [SPOTGATE, "serve", "--policies", policies, "--self-signed", "--state", state]
        addresses = ["--listen", f"{LOCALHOST}:0", "--ops", f"{LOCALHOST}:0"]
        with log.open("wb") as output:
            process = subprocess.Popen([*command, *addresses], stdout=output, stderr=output)  # noqa: S603
        try:
            yield _connected(process, policies, log)
        finally:
            process.send_signal(signal.SIGINT)  # stops at once; SIGTERM first waits for late requests of an API server
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _connected(process: subprocess.Popen[bytes], policies: Path, log: Path) -> Webhook:
    deadline = time.monotonic() + _PATIENCE
    events: dict[str, dict[str, Any]] = {}
    while "listening" not in events or not _ready(events["listening"]["ops_port"]):
        if process.poll() is not None:
            raise WebhookError(f"the webhook did not start:\n{log.read_text()}")
        if time.monotonic() > deadline:
            raise WebhookError(f"the webhook was not ready after {_PATIENCE} s:\n{log.read_text()}")
        time.sleep(0.02)
        lines = [
            line for line in log.read_text().splitlines(keepends=True) if line.startswith("{") and line.endswith("\n")
        ]
        events = {event["event"]: event for event in map(json.loads, lines)}
    ca = base64.b64decode(events["self-signed certificate created"]["ca_bundle"])
    ca_file = log.with_name("ca.pem")
    ca_file.write_bytes(ca)
    port = events["listening"]["port"]
    context = ssl.create_default_context(cadata=ca.decode())
    connection = http.client.HTTPSConnection(LOCALHOST, port, timeout=10, context=context)
    return Webhook(process, policies, port, events["listening"]["ops_port"], ca_file, log, connection)


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOCALHOST}:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == http.client.OK)
    except urllib.error.URLError:
        return False

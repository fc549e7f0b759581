"""A real Prometheus and promtool, from the PATH or from the Debian package of `.ci/run`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.server.harness import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

UNPACKED: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spotgate" / "prometheus"
TIMEOUT_SECONDS: Final = 30


def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`; skip the test if it is missing."""
    path = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), str(UNPACKED / "usr" / "bin"))))
    if path is None:
        pytest.skip(f"no {name}: install it to test alerts and the board (Debian: apt-get install prometheus)")
    return path


class Prometheus:
    """A server on loopback that scrapes five times a second."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str, **parameters: str) -> Any:
        """Return the answer of the API. Raise AssertionError with the error if it fails."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current value of an expression."""
        result: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return result


@contextlib.contextmanager
def running(folder: Path, rules: Path, targets: Mapping[str, int]) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes these loopback ports by job name and evaluates these rules."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    configuration = folder / "prometheus.yaml"
    configuration.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
                "rule_files": [str(rules)],
                "scrape_configs": [
                    {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
                    for job, port in targets.items()
                ],
            }
        )
    )
    command = [program("prometheus"), f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address={address}"], cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    server = Prometheus(address)
    try:
        eventually(lambda: process.poll() is not None or _answers(server))
        assert process.poll() is None, (folder / "prometheus.log").read_text()
        yield server
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)


def _answers(server: Prometheus) -> bool:
    with contextlib.suppress(OSError, AssertionError):  # 503 until it has loaded earlier data
        return bool(server.get("status/buildinfo"))
    time.sleep(0.1)
    return False

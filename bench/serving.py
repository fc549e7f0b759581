"""Benchmark of the server over TLS, compared with an echo server on the same core: requests/s, CPU, latency, memory."""

from __future__ import annotations

import contextlib
import http.client
import os
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec
import orjson

from bench.figures import Section
from bench.load import PHASES
from certs.authority import self_signed
from webhook.rules.context import utc_now

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bench.decisions import Case

CONNECTIONS: Final = 12
_STARTS_WITHIN: Final = 20.0
"""Seconds for a server to report that it listens."""


class Measured(msgspec.Struct):
    """The output of `bench.load`."""

    seconds: float
    cpu: float
    latency: dict[str, float]


@dataclass(frozen=True, slots=True)
class Server:
    """A server process and its port."""

    pid: int
    port: int

    def load(self, folder: Path, *, connections: int, count: int) -> Measured:
        """Run the load generator against the server, from the other core."""
        arguments = [self.port, self.pid, folder, connections, count]
        command = [sys.executable, str(Path(__file__).with_name("load.py")), *map(str, arguments)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603
            os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
            output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"the load generator failed on port {self.port}")
        return msgspec.json.decode(output, type=Measured)

    def rss(self) -> float:
        """Return the server's resident memory in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def serving(folder: Path, cases: list[Case], *, rounds: int, count: int) -> list[Section]:
    """Measure requests per core, latency, and memory. ``folder`` contains the cluster's state in state.yaml."""
    answers = {case.phase: case.answer() for case in cases}
    for case in cases:
        (folder / f"{case.phase}.json").write_bytes(case.data)
    authority, pair = self_signed(["localhost"], ["127.0.0.1"], utc_now())
    for name, pem in (("ca", authority), ("tls", pair.certificate_pem), ("key", pair.key_pem)):
        (folder / f"{name}.pem").write_bytes(pem)
    tls = ["--tls-cert", str(folder / "tls.pem"), "--tls-key", str(folder / "key.pem")]
    sizes = [word for phase, answer in answers.items() for word in (f"--{phase}-bytes", str(len(answer)))]
    echo_command = [sys.executable, str(Path(__file__).with_name("echo.py")), *tls, *sizes]
    command = [str(Path(sys.executable).with_name("spotgate")), "serve", *tls]
    command += ["--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0", "--state", str(folder / "state.yaml")]
    with _running(echo_command, folder / "echo.log") as echo, _running(command, folder / "serve.log") as spotgate:
        for case in cases:
            assert _post(spotgate.port, case, folder) == answers[case.phase], "the server's answer differs"
        before = spotgate.rss()
        alone = max(count // 10, 100)
        single = {server: server.load(folder, connections=1, count=alone) for server in (echo, spotgate)}
        loaded: dict[Server, list[Measured]] = {echo: [], spotgate: []}
        for _ in range(rounds):
            for server, measured in loaded.items():
                measured.append(server.load(folder, connections=CONNECTIONS, count=count))
        after = spotgate.rss()
    asked = alone + rounds * count
    return [
        _throughput(loaded[echo], loaded[spotgate], count),
        Section(
            title="Latency on one connection, ms",
            columns=("server", *PHASES),
            rows=[
                (name, *(single[server].latency[phase] * 1000 for phase in PHASES))
                for name, server in (("aiohttp echo", echo), ("spotgate", spotgate))
            ],
            note="Medians; the API server makes both calls for each Pod.",
        ),
        Section(
            title="Memory of the server, MiB",
            columns=("server", "before", f"after {asked:,} requests"),
            rows=[("spotgate", before, after)],
            note=f"Growth: {after - before:.1f} MiB. Resident.",
        ),
    ]


def _throughput(echo: list[Measured], spotgate: list[Measured], count: int) -> Section:
    def figures(measured: Measured) -> tuple[float, ...]:
        cpu_share = measured.cpu / measured.seconds * 100
        return count / measured.seconds, cpu_share, measured.cpu / count * 1000, count / measured.cpu

    def row(name: str, rows: Iterable[tuple[float, ...]]) -> tuple[str | float, ...]:
        return (name, *map(median, zip(*rows, strict=True)))

    bare, ours = [figures(measured) for measured in echo], [figures(measured) for measured in spotgate]
    ratios = (tuple(b / a for a, b in zip(*pair, strict=True)) for pair in zip(bare, ours, strict=True))
    return Section(
        title="Requests per second on one core, TLS keep-alive",
        columns=("server", "requests/s", "core used, %", "CPU ms/request", "requests per CPU second"),
        rows=[row("aiohttp echo", bare), row("spotgate", ours), row("spotgate / echo", ratios)],
        note=f"{CONNECTIONS} connections, /mutate and /validate in turns, rounds of {count:,} requests in turns. "
        "If a server used less than the whole core, other work interfered, and only the CPU columns are valid.",
    )


@contextlib.contextmanager
def _running(command: list[str], log: Path) -> Iterator[Server]:
    """Run a listening server on the first core during the block."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output) as process:  # noqa: S603
        try:
            os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
            yield Server(process.pid, _port(process, log))
        finally:
            process.kill()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + _STARTS_WITHIN
    while process.poll() is None and time.monotonic() < deadline:
        for line in log.read_bytes().split(b"\n")[:-1]:
            event = orjson.loads(line)
            if event["event"] == "listening":
                return int(event["port"])
        time.sleep(0.05)
    raise SystemExit(f"{process.args!r} did not start")


def _post(port: int, case: Case, folder: Path) -> bytes:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)) as connection:
        connection.request("POST", f"/{case.phase}", case.data, {"Content-Type": "application/json"})
        return connection.getresponse().read()

"""Start and stop a Kubernetes control plane of its own on loopback.

    with reserve_control_plane(find_or_build()) as plane:
        plane.start_etcd()
        plane.start_api_server()

When the block ends, no process and no file is left. If the program is killed, the kernel (of Linux) ends the processes.
Start it from a thread that lives as long: the kernel takes the end of that thread for the end of the program.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.request import urlopen

from webhook.rehearse.controlplane import servers
from webhook.rehearse.controlplane.credentials import Credentials, create_credentials
from webhook.rehearse.controlplane.process import Process, reserve_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")

# Four seconds on a quiet machine with two cores; this is for one where everything runs at once.
START_SECONDS: Final = 90.0
POLL_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 5.0


class ControlPlaneError(Exception):
    """A control plane that does not run; the message ends with the last lines of its server's log."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A control plane on reserved ports. Logs and all other files are in `directory`."""

    binaries: Mapping[str, Path]
    directory: Path
    credentials: Credentials
    port: int
    etcd_port: int
    peer_port: int
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Return the API server's address."""
        return self.credentials.url

    @property
    def etcd_url(self) -> str:
        """Return the address at which etcd has its clients."""
        return f"http://127.0.0.1:{self.etcd_port}"

    def start(self, name: str, flags: Sequence[str], program: str = "") -> None:
        """Start a program, by default the one of this name; it ends with the control plane."""
        command = [str(self.binaries.get(program or name, program)), *flags]
        process = Process(name, command, self.directory / f"{name}.log")
        process.start()
        self.processes[name] = process

    def start_etcd(self) -> None:
        """Start etcd, which keeps nothing."""
        self.start("etcd", servers.etcd(self.directory, port=self.etcd_port, peer_port=self.peer_port))

    def start_api_server(self, *flags: str) -> None:
        """Start the API server on etcd, with further flags, and wait until it is ready. Raise ControlPlaneError."""
        own = servers.api_server(self.credentials, port=self.port, etcd_url=self.etcd_url)
        self.start("kube-apiserver", [*own, *flags])
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the API server says that it is. Raise ControlPlaneError."""
        self.wait_for("the API server", lambda: answer_of(f"{self.url}/readyz", self.credentials.authority))

    def wait_for(self, name: str, probe: Callable[[], T | None]) -> T:
        """Return what the probe finds. Raise ControlPlaneError if that takes too long, or a server has ended."""
        deadline = time.monotonic() + START_SECONDS
        while (answer := probe()) is None:
            self.expect_running()
            if time.monotonic() > deadline:
                raise ControlPlaneError(f"{name} is not ready after {START_SECONDS:.0f} s\n{self.logs()}")
            time.sleep(POLL_SECONDS)
        return answer

    def expect_running(self) -> None:
        """Raise ControlPlaneError if a server has ended."""
        for process in self.processes.values():
            if process.exit_code is not None:
                raise ControlPlaneError(process.explain_exit())

    def logs(self) -> str:
        """Return the last lines of every server."""
        return "\n".join(f"--- {name}\n{process.tail(8)}" for name, process in self.processes.items())


@contextlib.contextmanager
def reserve_control_plane(binaries: Mapping[str, Path]) -> Iterator[ControlPlane]:
    """Yield a control plane with its credentials and ports, and nothing started yet."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spotgate-kubernetes-")))
        port, etcd_port, peer_port = (stack.enter_context(reserve_port()).getsockname()[1] for _ in range(3))
        plane = ControlPlane(binaries, directory, create_credentials(directory, port=port), port, etcd_port, peer_port)
        try:
            yield plane
        finally:
            for process in reversed(plane.processes.values()):
                process.kill()


def answer_of(url: str, authority: Path | None = None) -> str | None:
    """Return what a server answers whose certificate is of this CA. Return None unless it answers with success."""
    tls = ssl.create_default_context(cafile=authority) if authority is not None else None
    try:
        with urlopen(url, timeout=_ANSWER_SECONDS, context=tls) as response:  # noqa: S310 - http or https, on loopback
            return str(response.read().decode())
    except (OSError, http.client.HTTPException):
        return None

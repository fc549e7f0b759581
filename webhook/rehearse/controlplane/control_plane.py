"""Start and stop a private Kubernetes control plane on loopback.

    with reserve_control_plane(find_or_build()) as plane:
        plane.start_etcd()
        plane.start_api_server()

The end of the block removes all processes and files. If spotgate is killed, the Linux kernel kills the processes. Start
the control plane from a thread that outlives it: the kernel also kills the processes when that thread ends.
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

import msgspec

from webhook.rehearse.controlplane.credentials import Credentials, create_credentials
from webhook.rehearse.controlplane.process import Process, reserve_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")

# A start takes 4 s on an idle machine with two cores. This limit is for a busy machine.
START_SECONDS: Final = 90.0
POLL_SECONDS: Final = 0.1
_TIMEOUT: Final = 5.0

NO_SERVICE_ACCOUNTS: Final = "--disable-admission-plugins=ServiceAccount"
"""For an API server without a ServiceAccount controller: Pods need no ServiceAccount."""

_FLAGS: Final = msgspec.yaml.decode(Path(__file__).with_name("servers.yaml").read_bytes(), type=dict[str, list[str]])
"""The flags of each server, with placeholders."""


class ControlPlaneError(Exception):
    """An error of a control plane that doesn't run; the message ends with the last lines of the server's log."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A control plane on reserved ports. `directory` contains the logs and all other files."""

    binaries: Mapping[str, Path]
    directory: Path
    credentials: Credentials
    port: int
    etcd_port: int
    peer_port: int
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def etcd_url(self) -> str:
        """Return etcd's client URL."""
        return f"http://127.0.0.1:{self.etcd_port}"

    def flags_of(self, server: str, **values: object) -> list[str]:
        """Return the flags of a server on this control plane. ``values`` are the other placeholders of its flags."""
        return [flag.format(plane=self, **values) for flag in _FLAGS[server]]

    def start(self, name: str, flags: Sequence[str], program: str = "") -> None:
        """Start a program, by default the one with this name. It ends with the control plane."""
        command = [str(self.binaries.get(program or name, program)), *flags]
        process = Process(name, command, self.directory / f"{name}.log")
        process.start()
        self.processes[name] = process

    def start_etcd(self) -> None:
        """Start etcd with a temporary data directory."""
        self.start("etcd", self.flags_of("etcd"))

    def start_api_server(self, *flags: str) -> None:
        """Start the API server with these extra flags, and wait until it is ready. Raise ControlPlaneError."""
        self.start("kube-apiserver", [*self.flags_of("kube-apiserver"), *flags])
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the API server's /readyz succeeds. Raise ControlPlaneError."""
        self.wait_for("the API server", lambda: fetch(f"{self.credentials.url}/readyz", self.credentials.authority))

    def wait_for(self, name: str, probe: Callable[[], T | None]) -> T:
        """Return the probe's first result that isn't None. Raise ControlPlaneError on a timeout or if a server ends."""
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
        """Return the last lines of every server's log."""
        return "\n".join(f"--- {name}\n{process.tail(8)}" for name, process in self.processes.items())


@contextlib.contextmanager
def reserve_control_plane(binaries: Mapping[str, Path]) -> Iterator[ControlPlane]:
    """Yield a control plane that has credentials and ports, but no running server."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spotgate-kubernetes-")))
        port, etcd_port, peer_port = (stack.enter_context(reserve_port()).getsockname()[1] for _ in range(3))
        plane = ControlPlane(binaries, directory, create_credentials(directory, port=port), port, etcd_port, peer_port)
        try:
            yield plane
        finally:
            for process in reversed(plane.processes.values()):
                process.kill()


def fetch(url: str, authority: Path | None = None) -> str | None:
    """Return the body of the server's response, or None if the request fails. ``authority`` is the server's CA."""
    tls = ssl.create_default_context(cafile=authority) if authority is not None else None
    try:
        with urlopen(url, timeout=_TIMEOUT, context=tls) as response:  # noqa: S310 - http or https, on loopback
            return str(response.read().decode())
    except (OSError, http.client.HTTPException):
        return None

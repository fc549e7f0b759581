"""A Kubernetes control plane of its own on loopback: etcd and API server, on request with controllers and fake Nodes.

    with start_cluster(find_or_build()) as cluster:
        cluster.kubectl("get", "nodes")

When the block is left every process and file is gone, and the processes also when the whole program is killed
(on Linux). Start it from a thread that lives as long: the kernel takes the end of that thread for the end of the program.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import ssl
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.controlplane import servers
from tests.controlplane.credentials import Credentials, create_credentials
from tests.controlplane.kubectl import Kubectl
from tests.controlplane.process import Process, reserve_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Four seconds on a quiet machine with two cores; this is for one where everything runs at once.
START_SECONDS = 90.0
POLL_SECONDS = 0.1


class ClusterError(Exception):
    """The control plane did not start; the message ends with what its server logged last."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A control plane that runs. `kubectl` is its administrator's; logs and everything else are in `directory`."""

    directory: Path
    credentials: Credentials
    kubectl: Kubectl
    processes: Mapping[str, Process]

    @property
    def url(self) -> str:
        """The API server's address."""
        return self.credentials.url

    def as_user(self, name: str, *groups: str) -> Kubectl:
        """Return a kubectl for another user, whom the administrator impersonates; nobody has to exist."""
        return self._kubectl_of({"token": self.credentials.tokens["admin"], "as": name, "as-groups": groups})

    def as_service_account(self, namespace: str, name: str) -> Kubectl:
        """Return a kubectl with a real token of this ServiceAccount, which must exist; it holds for a day."""
        token = self.kubectl("create", "token", name, f"--namespace={namespace}", "--duration=24h")
        return self._kubectl_of({"token": token.strip()})

    def _kubectl_of(self, user: dict[str, str | Sequence[str]]) -> Kubectl:
        kubeconfig = self.directory / f"{secrets.token_hex(4)}.kubeconfig"
        self.credentials.write_kubeconfig(kubeconfig, user)
        return replace(self.kubectl, kubeconfig=kubeconfig)

    def restart(self, name: str) -> None:
        """Kill a server and start it again, as it was. Raises ClusterError if the API server is not ready then."""
        self.processes[name].kill()
        self.processes[name].start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the API server says that it is. Raises ClusterError."""
        _wait_until_ready(self)

    def audit_events(self) -> list[dict[str, Any]]:
        """All writes so far as audit Events (level Metadata), oldest first."""
        return [json.loads(line) for line in (self.directory / "audit.jsonl").read_text().splitlines()]

    def logs(self) -> str:
        """Return the last lines of every server."""
        return "\n".join(f"--- {name}\n{process.tail(8)}" for name, process in self.processes.items())


@contextlib.contextmanager
def start_cluster(binaries: Mapping[str, Path], *, controllers: bool = True) -> Iterator[Cluster]:
    """Start a control plane and return when it is ready; without `controllers`, only etcd and the API server.

    With them ServiceAccounts are made (and demanded), workloads become Pods, and KWOK runs those in name on whatever
    Nodes there are; at first none. Raises ClusterError.
    """
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spotgate-cluster-")))
        port, etcd_port, peer_port = (stack.enter_context(reserve_port()).getsockname()[1] for _ in range(3))
        credentials = create_credentials(directory, port=port)
        processes: dict[str, Process] = {}
        kubectl = Kubectl(binaries["kubectl"], credentials.kubeconfig("admin"), directory)
        cluster = Cluster(directory, credentials, kubectl, processes)

        def start(name: str, flags: Sequence[str]) -> None:
            processes[name] = Process(name, [str(binaries[name]), *flags], directory / f"{name}.log")
            stack.callback(processes[name].kill)
            processes[name].start()

        start("etcd", servers.etcd(directory, port=etcd_port, peer_port=peer_port))
        flags = servers.api_server(directory, credentials, port=port, etcd_port=etcd_port, service_accounts=controllers)
        start("kube-apiserver", flags)
        _wait_until_ready(cluster)
        if controllers:  # any sooner they would only take processor time from the API server
            start("kube-controller-manager", servers.controller_manager(credentials))
            start("kube-scheduler", servers.scheduler(credentials))
            start("kwok", servers.kwok(credentials))
            timeout = f"--timeout={START_SECONDS:.0f}s"
            kubectl("wait", "--for=create", "serviceaccount/default", "--namespace=default", timeout)
        yield cluster


def _wait_until_ready(cluster: Cluster) -> None:
    tls = ssl.create_default_context(cafile=str(cluster.credentials.authority))
    deadline = time.monotonic() + START_SECONDS
    while (answer := _readiness(cluster.url, tls)) != "ok":
        for process in cluster.processes.values():
            if process.exit_code is not None:
                raise ClusterError(f"{process.name} exited with {process.exit_code}; it said last:\n{process.tail()}")
        if time.monotonic() > deadline:
            raise ClusterError(f"the API server is not ready after {START_SECONDS:.0f} s: {answer}\n{cluster.logs()}")
        time.sleep(POLL_SECONDS)


def _readiness(url: str, tls: ssl.SSLContext) -> str:
    """`ok`, or what the API server (or the attempt to reach it) says instead."""
    connection = http.client.HTTPSConnection(url.removeprefix("https://"), timeout=5, context=tls)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        connection.close()

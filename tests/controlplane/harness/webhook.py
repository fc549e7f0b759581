"""spotgate on a test control plane: its shipped manifests, and `spotgate serve` as a process.

    with install_webhook(cluster) as webhook:
        cluster.kubectl("apply", "--filename=pod.yaml")
        assert webhook.count("spotgate_decisions_total", resource="pods") == 2

The process uses a token of the shipped ServiceAccount, so tests fail if the manifests lack a permission. The harness
applies the base with an image, then the CA, then the rules. The process runs outside the cluster, so two things differ:
the Service is an ExternalName for localhost, and the webhook configurations name the port of the process.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import io
import json
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from certs.authority import create_authority, issue_leaf
from tests.builders import labeled, node_pool, pod
from tests.controlplane.harness.api import NODE_POOLS, Api, accepted, pods_in
from tests.controlplane.harness.forked import ForkedSpotgate
from webhook.commands import main
from webhook.engine.bundle import SHIPPED
from webhook.policy.document import policy_files
from webhook.rehearse.controlplane.control_plane import POLL_SECONDS, START_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.controlplane.harness.cluster import Cluster
    from webhook.rehearse.controlplane.process import Process

SPOTGATE = Path(sys.executable).with_name("spotgate")
MANIFESTS = Path(__file__).parents[3] / "manifests"
BASE = MANIFESTS / "base"
CONFIGURATIONS = MANIFESTS / "webhooks" / "webhooks.yaml"
OF_CA = ("--server-side", "--field-manager=spotgate-ca")
OF_RULES = ("--server-side",)
NAMESPACE = "spotgate-system"
SERVICE = "spotgate"
KINDS = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
FILLED = "--for=jsonpath={.webhooks[0].clientConfig.caBundle}"
PROVIDED, SELF_MANAGED, CERT_MANAGER = "provided-certs", "self-managed", "cert-manager"
"""The certificate components in manifests/components; each installation uses one."""
CERTIFICATES = "spotgate-certificates"
"""The Secret of the component `self-managed`."""


class WebhookError(Exception):
    """A webhook that didn't become ready; the message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """An installed spotgate. `directory` has its policies, certificates, and log; `ops` is its operators' address."""

    cluster: Cluster
    directory: Path
    process: Process
    port: int
    ops: str

    def metrics(self) -> str:
        """Return the text of /metrics."""
        return self._get("/metrics")[1]

    def samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Return all samples of this metric, each as labels and value."""
        samples = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", self.metrics(), re.MULTILINE)
        return [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in samples]

    def count(self, name: str, **labels: str) -> float:
        """Return the sum of all samples with these labels, as in `count("spotgate_decisions_total", phase="mutate")`."""
        return sum(value for given, value in self.samples(name) if labels.items() <= given.items())

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait until the condition is true. Raise WebhookError with its description."""
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise WebhookError(f"not after {START_SECONDS:.0f} s: {what}; its last log lines:\n{self.logs()}")
            time.sleep(POLL_SECONDS)

    def wait_until_ready(self) -> None:
        """Wait until /readyz reports ready. Raise WebhookError, immediately if the process has ended."""
        self.wait(self._is_ready, "spotgate is ready")

    def wait_until_called(self) -> None:
        """Wait until the API server's caches of the configurations and the Service are current."""
        self.wait(self._is_called, "the API server calls spotgate")

    def _is_called(self) -> bool:
        before = {phase: self.count("spotgate_decisions_total", phase=phase) for phase in ("mutate", "validate")}
        self.try_out(labeled(pod("probe"), {"spotgate.dev/capacity": "spot"}))
        answer = Api(self.cluster).create(NODE_POOLS, node_pool("probe"), dry_run=True)
        return not answer.message and all(
            self.count("spotgate_decisions_total", phase=phase) > count for phase, count in before.items()
        )

    def wait_for_pool(self, name: str) -> None:
        """Wait until the webhook's watch has seen this spot pool, so that it places Pods there."""
        probe = pod(f"probe-{name}")
        probe["metadata"]["annotations"] = {"spotgate.dev/node-pool": name}
        self.wait(lambda: self.try_out(probe)["spec"].get("nodeSelector"), f"Pods can be placed on {name}")

    def try_out(self, pod: dict[str, Any], namespace: str = "default") -> dict[str, Any]:
        """Create the Pod in a dry run, and return the object that would be stored. Raise RefusedError."""
        path = pods_in(pod["metadata"].get("namespace", namespace))
        return accepted(Api(self.cluster).create(path, pod, dry_run=True)).body

    def _is_ready(self) -> bool:
        if self.process.exit_code is not None:
            raise WebhookError(f"spotgate exited with {self.process.exit_code}:\n{self.logs()}")
        try:
            return self._get("/readyz")[0] == http.client.OK
        except ConnectionError:
            return False

    def _get(self, path: str) -> tuple[int, str]:
        with contextlib.closing(http.client.HTTPConnection(self.ops, timeout=10)) as connection:
            try:
                connection.request("GET", path)
                response = connection.getresponse()
                return response.status, response.read().decode()
            except (OSError, http.client.HTTPException) as error:
                error.add_note(f"exit code {self.process.exit_code}; the last log lines of spotgate:\n{self.logs()}")
                raise

    def logs(self) -> str:
        """Return the last lines of the log."""
        return self.process.tail(20)

    def stop(self) -> None:
        """Kill the process. From then on, the API server gets no answer."""
        self.process.kill()

    def start(self) -> None:
        """Restart the process at the same addresses, and wait until it is ready."""
        self.process.start()
        self.wait_until_ready()


@contextlib.contextmanager
def install_webhook(cluster: Cluster, own: Sequence[str] = ()) -> Iterator[Webhook]:
    """Install spotgate with these folders of additional policies, and remove it at the end. Raise WebhookError, KubectlError."""
    directory = cluster.directory / "webhook"
    process = ForkedSpotgate("spotgate", (), directory / "spotgate.log")
    with contextlib.ExitStack() as stack:
        flags = [*stack.enter_context(apply_base(cluster, directory)), *(f"--policies={folder}" for folder in own)]
        stack.callback(process.kill)
        port, ops_port = start_on_free_ports(process, flags)
        webhook = Webhook(cluster, directory, process, port, f"127.0.0.1:{ops_port}")
        webhook.wait_until_ready()
        stack.callback(cluster.kubectl.run, "delete", f"--filename={CONFIGURATIONS}")
        apply_configurations(cluster, directory, port, own=own)
        webhook.wait_until_called()
        yield webhook


@contextlib.contextmanager
def apply_base(cluster: Cluster, directory: Path, *, component: str = PROVIDED) -> Iterator[list[str]]:
    """Apply the base with a certificate component, and delete both at the end.

    Yield the flags of `spotgate serve`, whose files are in `directory`; with cert-manager the certificate is still missing.
    """
    kubectl = cluster.kubectl
    create_certificates(directory)
    overlay = write_overlay(directory / "overlay", component)
    kubectl("apply", f"--kustomize={overlay}", "--warnings-as-errors")
    files = (f"--cert={directory / 'tls.crt'}", f"--key={directory / 'tls.key'}")
    if component == PROVIDED:
        kubectl("create", "secret", "tls", "spotgate-tls", f"--namespace={NAMESPACE}", *files)
    external = {"type": "ExternalName", "externalName": "localhost"}
    kubectl("patch", "service", SERVICE, f"--namespace={NAMESPACE}", f"--patch={json.dumps({'spec': external})}")
    try:
        yield [
            f"--policies={write_policies(directory / 'policies')}",
            *(
                [f"--tls-secret={NAMESPACE}/{CERTIFICATES}"]
                if component == SELF_MANAGED
                else [f"--tls-cert={directory / 'tls.crt'}", f"--tls-key={directory / 'tls.key'}"]
            ),
            f"--tls-name={SERVICE}.{NAMESPACE}.svc",
            f"--kubeconfig={cluster.as_service_account(NAMESPACE, 'spotgate').kubeconfig}",
        ]
    finally:
        kubectl("delete", f"--kustomize={overlay}", "--wait=false", "--ignore-not-found")


def write_overlay(directory: Path, *components: str) -> Path:
    """Write a kustomization of the base with these components and an image that is never pulled."""
    directory.mkdir()
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(BASE, directory.resolve())],
        "components": [os.path.relpath(MANIFESTS / "components" / name, directory.resolve()) for name in components],
        "images": [{"name": "", "newName": "registry.example.com/spotgate", "digest": f"sha256:{64 * '0'}"}],
    }
    (directory / "kustomization.yaml").write_text(json.dumps(kustomization))
    return directory


def apply_configurations(
    cluster: Cluster,
    directory: Path,
    port: int,
    *,
    component: str = PROVIDED,
    own: Sequence[str] = (),
    timeout_seconds: int | None = None,
) -> None:
    """Apply the CA and then the rules, for a webhook that listens on this port, optionally with a different timeout."""
    policies = directory / "policies"
    if component != SELF_MANAGED:
        authority = [f"--ca-file={directory / 'ca.crt'}"] if component == PROVIDED else []
        of_ca = render_configurations(policies, port, *authority, "--ca-only")
        cluster.kubectl("apply", *OF_CA, "--filename=-", documents=of_ca)
    if component == CERT_MANAGER:
        cluster.kubectl("annotate", KINDS, SERVICE, f"cert-manager.io/inject-ca-from={NAMESPACE}/{SERVICE}")
        cluster.kubectl("wait", FILLED, f"--timeout={START_SECONDS:.0f}s", KINDS, SERVICE)
    flags = [f"--policies={folder}" for folder in own]
    rules = render_configurations(policies, port, *flags, timeout_seconds=timeout_seconds)
    cluster.kubectl("apply", *OF_RULES, "--filename=-", documents=rules)


def create_certificates(directory: Path) -> Path:
    """Write tls.crt and tls.key for the Service, ca.key, and ca.crt, and return the path of ca.crt."""
    directory.mkdir()
    now = datetime.now(UTC)
    authority = create_authority(now)
    leaf = issue_leaf(authority, names=[f"{SERVICE}.{NAMESPACE}.svc"], ips=[], now=now)
    (directory / "tls.crt").write_bytes(leaf.certificate_pem)
    (directory / "tls.key").write_bytes(leaf.key_pem)
    (directory / "ca.crt").write_bytes(authority.certificate_pem)
    (directory / "ca.key").write_bytes(authority.key_pem)
    return directory / "ca.crt"


def write_policies(directory: Path) -> Path:
    """Copy the shipped policies, so that tests can change them."""
    directory.mkdir()
    for file in policy_files([SHIPPED]):
        shutil.copy(file, directory)
    return directory


def start_on_free_ports(process: Process, flags: list[str], port: int = 0) -> tuple[int, int]:
    """Start spotgate on free ports, which it keeps after a restart. Return the TLS port and the operators' port."""
    process.command = [str(SPOTGATE), "serve", *flags, f"--listen=127.0.0.1:{port}", "--ops=127.0.0.1:0"]
    process.start()
    deadline = time.monotonic() + START_SECONDS
    while (ports := ports_in(process.log)) is None:
        if process.exit_code is not None or time.monotonic() > deadline:
            raise WebhookError(f"spotgate does not listen:\n{process.tail()}")
        time.sleep(POLL_SECONDS)
    port, ops_port = ports
    process.command = [str(SPOTGATE), "serve", *flags, f"--listen=127.0.0.1:{port}", f"--ops=127.0.0.1:{ops_port}"]
    return ports


def ports_in(log: Path) -> tuple[int, int] | None:
    """Return the TLS port and the operators' port from the log, or None if it doesn't have them yet."""
    for line in log.read_text().splitlines():
        if line.startswith("{") and (entry := json.loads(line)).get("event") == "listening":
            return entry["port"], entry["ops_port"]
    return None


@functools.cache
def render_configurations(policies: Path, port: int, *flags: str, timeout_seconds: int | None = None) -> str:
    """Return the output of `spotgate webhook-config`, with this port and timeout."""
    with contextlib.redirect_stdout(io.StringIO()) as rendered:
        assert main(["webhook-config", f"--policies={policies}", *flags]) == 0
    documents = list(yaml.safe_load_all(rendered.getvalue()))
    for document in documents:
        for webhook in document["webhooks"]:
            webhook["clientConfig"]["service"]["port"] = port  # an ExternalName Service maps no ports
            if timeout_seconds:
                webhook["timeoutSeconds"] = timeout_seconds
    return yaml.safe_dump_all(documents)

"""cert-manager for the replicas of `make chaos`, and a substitute for the kubelet that mounts its Secret."""

from __future__ import annotations

import base64
import contextlib
import threading
from typing import TYPE_CHECKING, Final

from tests.controlplane.harness.populate import wait_for_crds
from tests.controlplane.harness.tools import MODULES, find_tools
from tests.controlplane.harness.webhook import NAMESPACE
from webhook.rehearse.controlplane.control_plane import START_SECONDS
from webhook.rehearse.controlplane.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster

_MOUNTED: Final = 3.0
"""Seconds between reads of the Secret. Like a kubelet's minute, it exceeds the API server's delay for a caBundle."""


@contextlib.contextmanager
def cert_manager(cluster: Cluster) -> Iterator[None]:
    """Run cert-manager's controllers and its CA injector."""
    program = find_tools(["cert-manager"])["cert-manager"]
    cluster.kubectl("apply", f"--filename={MODULES / 'cert-manager' / 'crds.yaml'}")
    wait_for_crds(cluster.kubectl)
    kubeconfig = f"--kubeconfig={cluster.credentials.kubeconfig('admin')}"
    process = Process("cert-manager", [str(program), kubeconfig], cluster.directory / "cert-manager.log")
    process.start()
    try:
        yield
    finally:
        process.kill()


@contextlib.contextmanager
def mounted_certificate(cluster: Cluster, directory: Path) -> Iterator[None]:
    """Wait for the Secrets of the certificate and the CA, and mirror them to files in the directory."""
    kubectl, ended = cluster.kubectl, threading.Event()
    mounted: dict[str, bytes] = {}
    for secret in ("spotgate-tls", "spotgate-ca"):
        # With a condition alone, kubectl fails immediately if the Secret doesn't exist.
        for condition in ("create", "jsonpath={.data.tls\\.crt}"):
            timeout = f"--timeout={START_SECONDS:.0f}s"
            kubectl("wait", f"--for={condition}", timeout, f"--namespace={NAMESPACE}", f"secret/{secret}")

    def mount() -> None:
        for prefix in ("ca", "tls"):
            data = kubectl.get("secret", f"spotgate-{prefix}", f"--namespace={NAMESPACE}")["data"]
            for end in ("key", "crt"):
                content = base64.b64decode(data[f"tls.{end}"])
                if mounted.get(f"{prefix}.{end}") != content:  # otherwise keep the content that a fault wrote
                    mounted[f"{prefix}.{end}"] = content
                    (directory / f"{prefix}.{end}").write_bytes(content)

    def follow() -> None:
        while not ended.wait(_MOUNTED):
            mount()

    mount()
    kubelet = threading.Thread(target=follow)
    kubelet.start()
    try:
        yield
    finally:
        ended.set()
        kubelet.join()

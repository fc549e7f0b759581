"""The controller stays below the memory limit of its Deployment, whatever Pods a tenant creates."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.builders import pod
from tests.controlplane.floor.harness import ANNOTATION, COMPONENT, Controllers, controllers
from tests.controlplane.harness.api import Api, accepted, pods_in
from tests.controlplane.harness.populate import start_bare_cluster
from tests.controlplane.harness.webhook import BASE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.cluster import Cluster
    from webhook.rehearse.controlplane.process import Process

LARGE = 1_250_000
"""Bytes of a Pod that etcd still stores."""


def large_pod(name: str, character: str) -> dict[str, Any]:
    """Return a gated Pod that stays Terminating after its deletion."""
    manifest = pod(name, schedulingGates=[{"name": ANNOTATION}])
    manifest["metadata"] |= {"annotations": {ANNOTATION: "1"}, "finalizers": ["example.com/stays"]}
    manifest["spec"]["containers"][0]["args"] = [LARGE * character]
    return manifest


def peak_mib(process: Process) -> float:
    """Return the highest resident set size of a process so far."""
    (peak,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    return int(peak) / 1024


def limit_mib() -> float:
    """Return the memory limit in the manifest of the controller."""
    documents = yaml.safe_load_all((COMPONENT / "deployment.yaml").read_text())
    (text,) = (
        container["resources"]["limits"]["memory"]
        for document in documents
        if document["kind"] == "Deployment"
        for container in document["spec"]["template"]["spec"]["containers"]
    )
    return float(text.removesuffix("Mi"))


@pytest.fixture
def cluster(binaries: dict[str, Path]) -> Iterator[Cluster]:
    """Start an API server with the ClusterRoles of the manifests, and a Node."""
    with start_bare_cluster(binaries) as running:
        running.kubectl("apply", f"--filename={BASE / 'rbac.yaml'}")
        running.kubectl.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}})
        yield running


def test_large_gated_pods_do_not_exceed_the_memory_limit(cluster: Cluster) -> None:
    api = Api(cluster)

    def peaks(running: Controllers) -> list[float]:
        return [peak_mib(process) for process in running.processes]

    with controllers(cluster) as running:
        small = pod("small", schedulingGates=[{"name": ANNOTATION}])
        small["metadata"]["annotations"] = {ANNOTATION: "1"}

        def released() -> bool:
            return "schedulingGates" not in api.get(f"{pods_in('default')}/small")["spec"]

        def create(number: int) -> None:
            # JSON has six characters for each `<`.
            manifest = large_pod(f"large-{number:03}", "<" if number % 20 == 0 else "a")
            accepted(api.create(pods_in("default"), manifest))
            api.delete(f"{pods_in('default')}/{manifest['metadata']['name']}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(create, range(260)))
        with api.created(pods_in("default"), small):
            api.wait(released, "the controller has handled the events of all large Pods")
        assert max(peaks(running)) < limit_mib()
        running.kill()
        running.start()
        running.wait_for_leader(seconds=60)
        with api.created(pods_in("default"), small):
            api.wait(released, "the controller has listed all large Pods")
        assert max(peaks(running)) < limit_mib()

"""Make a bare control plane look like a small CKS cluster: CRDs, node pools, and their Nodes."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.controlplane.harness.cluster import UNFAIR, start_cluster
from tests.programs import VERSION
from webhook.rehearse.controlplane.control_plane import POLL_SECONDS, START_SECONDS, ControlPlaneError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.kubectl import Kubectl

HERE = Path(__file__).parent
CRDS = HERE / "crds"
POOLS = HERE / "pools.yaml"
GPUS_PER_NODE = 8
NODE_INFO = {
    "architecture": "amd64",
    "bootID": "",
    "containerRuntimeVersion": "",
    "kernelVersion": "",
    "kubeProxyVersion": "",
    "kubeletVersion": VERSION,
    "machineID": "",
    "operatingSystem": "linux",
    "osImage": "",
    "systemUUID": "",
}


def populate(kubectl: Kubectl, state: Path = POOLS) -> None:
    """Install the CRDs, the objects of a file or folder, and the Nodes of its pools, and wait until all are usable.

    Raise KubectlError or ControlPlaneError.
    """
    kubectl("apply", f"--filename={CRDS}")
    wait_for_crds(kubectl)
    files = sorted(state.glob("*.yaml")) if state.is_dir() else [state]
    documents = [document for file in files for document in yaml.safe_load_all(file.read_text())]
    objects = [document for document in documents if document["kind"] != "List"]  # Nodes, which are incomplete for KWOK
    pools = [manifest for manifest in objects if manifest["kind"] == "NodePool"]
    kubectl.apply(*objects, *(node for pool in pools for node in nodes_of(pool)))
    kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")


@contextlib.contextmanager
def start_bare_cluster(binaries: Mapping[str, Path]) -> Iterator[Cluster]:
    """Start only an etcd and an API server, with the CRD of CKS node pools and spotgate's namespace."""
    with start_cluster(binaries, UNFAIR, controllers=False) as running:
        running.kubectl("apply", f"--filename={CRDS / 'coreweave.yaml'}")
        wait_for_crds(running.kubectl)
        running.kubectl("create", "namespace", "spotgate-system")
        yield running


def wait_for_crds(kubectl: Kubectl) -> None:
    """Wait until every custom resource is usable. Raise ControlPlaneError.

    `kubectl wait --for=condition=Established` fails on a new CRD, whose conditions are still null.
    """
    deadline = time.monotonic() + START_SECONDS
    while waiting := [crd for crd in kubectl.get("customresourcedefinitions")["items"] if not _is_established(crd)]:
        if time.monotonic() > deadline:
            raise ControlPlaneError(
                f"after {START_SECONDS:.0f} s not established: {[crd['metadata']['name'] for crd in waiting]}"
            )
        time.sleep(POLL_SECONDS)


def _is_established(crd: Mapping[str, Any]) -> bool:
    conditions = crd["status"].get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def nodes_of(pool: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return as many Nodes as a CKS NodePool targets, named `<pool>-0`, `<pool>-1`, and so on."""
    return [_node(pool, f"{pool['metadata']['name']}-{number}") for number in range(pool["spec"]["targetNodes"])]


def _node(pool: Mapping[str, Any], name: str) -> dict[str, Any]:
    spec = pool["spec"]
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": spec["instanceType"],
        "compute.coreweave.com/node-pool": pool["metadata"]["name"],
    }
    resources = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "110"}
    taints = spec.get("nodeTaints", [])
    # Omit the other automatic taint, is_cpu_compute: CKS gives every Pod without a GPU a toleration for it.
    if spec["instanceType"].startswith("gd-"):
        resources["nvidia.com/gpu"] = str(GPUS_PER_NODE)
        taints = [*taints, {"key": "is_gpu", "value": "true", "effect": "PreferNoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels | spec.get("nodeLabels", {})},
        "spec": {"taints": taints},
        "status": {"allocatable": resources, "capacity": resources, "nodeInfo": NODE_INFO},
    }

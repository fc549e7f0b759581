"""kube-scheduler binds the Pods of the zoo to exactly the expected Nodes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from copy import deepcopy
from typing import TYPE_CHECKING

from tests.controlplane.harness.kubectl import as_list
from tests.controlplane.harness.populate import NODE_INFO
from tests.zoo.clusters import CLUSTERS, REQUIRED, check, nodes_of, template_of
from webhook.rehearse.controlplane.control_plane import POLL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.kubectl import Kubectl
    from tests.zoo.clusters import JSON

NODE = "zoo.example/node"
"""A label with a unique value on every Node of the zoo: all its clusters exist at the same time, and each trial selects
certain Nodes of one."""

PATIENCE_SECONDS = 60.0


def test_the_pods_of_the_zoo_run_only_on_the_expected_nodes(
    cluster: Cluster, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    trials = {name: trial for zoo in CLUSTERS for name, trial in trials_of(zoo, tmp_path / "workloads.yaml")}
    expected = {name: node for name, (_, node) in trials.items()}
    try:
        kubectl.apply(*(node for zoo in CLUSTERS for node in nodes_to_apply(zoo)))
        wait_until_ready(kubectl)
        pods = as_list(*(pod for pod, _ in trials.values()))
        with paused(cluster, "kwok", "kube-controller-manager"):  # they would only take CPU time
            kubectl("create", "--filename=-", f"--namespace={namespace}", documents=pods)
            try:
                assert misplaced(kubectl, namespace, expected) == {}
            finally:  # a single request: with a selector, kubectl deletes objects one by one
                kubectl("delete", f"--raw=/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
    finally:
        kubectl("delete", f"--raw=/api/v1/nodes?labelSelector={NODE}")


@contextlib.contextmanager
def paused(cluster: Cluster, *servers: str) -> Iterator[None]:
    """Pause servers of the control plane."""
    pids = [cluster.processes[name].pid for name in servers]
    for pid in pids:
        os.killpg(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.killpg(pid, signal.SIGCONT)


def trials_of(cluster: str, file: Path) -> Iterator[tuple[str, tuple[JSON, str]]]:
    """Yield the names of trials, each with a Pod and its expected Node, which is empty if the Pod must stay pending.

    A Pod has one trial for each expected Node, and one for all other Nodes of the cluster. Workloads whose Pods are alike
    for the scheduler share trials.
    """
    every = [node["metadata"]["name"] for node in nodes_of(cluster)]
    tried = set()
    for entry, workload in check(cluster, file)[0].items():
        should = CLUSTERS[cluster][1].workloads[entry].nodes
        spec = _spec(cluster, workload)
        if (same := json.dumps([should, spec], sort_keys=True)) in tried:
            continue
        tried.add(same)
        tries = {node: ([node], f"{cluster}.{node}") for node in every if should == "all" or node in should}
        tries["elsewhere"] = ([node for node in every if node not in tries], "")
        for where, (nodes, expected) in tries.items():
            name = f"{cluster}.{entry}.{where}"
            if nodes:
                yield name, (_pod(name, spec, [f"{cluster}.{node}" for node in nodes]), expected)


def _spec(cluster: str, workload: JSON) -> JSON:
    """Return the parts of a Pod's spec that matter to kube-scheduler, with the provider's additions and one container."""
    spec = template_of(workload)["spec"]
    tolerations = list(spec.get("tolerations", []))
    if (adds := CLUSTERS[cluster][1].provider_adds) and adds.holds_for(spec):
        tolerations.append(adds.toleration)
    (container,) = spec["containers"]
    return {
        "nodeSelector": spec.get("nodeSelector", {}),
        "affinity": spec.get("affinity", {}),
        "tolerations": tolerations,
        "containers": [{"name": "main", "image": "registry.example/main", "resources": container["resources"]}],
    }


def _pod(name: str, spec: JSON, nodes: list[str]) -> JSON:
    spec = deepcopy(spec)
    affinity = spec["affinity"].setdefault("nodeAffinity", {})
    for term in affinity.setdefault(REQUIRED, {"nodeSelectorTerms": [{}]})["nodeSelectorTerms"]:
        term.setdefault("matchExpressions", []).append({"key": NODE, "operator": "In", "values": nodes})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def nodes_to_apply(cluster: str) -> Iterator[JSON]:
    """Yield the Nodes of a cluster under unique names, with enough accelerators for all trials."""
    for node in nodes_of(cluster):
        name = f"{cluster}.{node['metadata']['name']}"
        node["metadata"] |= {"name": name, "labels": node["metadata"]["labels"] | {NODE: name}}
        resources = {
            resource: str(int(quantity) * len(CLUSTERS[cluster][1].workloads)) if "/" in resource else quantity
            for resource, quantity in node["status"]["allocatable"].items()
        }
        yield node | {"status": {"allocatable": resources, "capacity": resources, "nodeInfo": NODE_INFO}}


def wait_until_ready(kubectl: Kubectl) -> None:
    """Wait until the Nodes are ready and have lost their not-ready taints."""
    kubectl("wait", "--for=condition=Ready", "nodes", f"--selector={NODE}", "--timeout=60s")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "node.kubernetes.io/not-ready" in kubectl("get", "nodes", f"--selector={NODE}", "--output=yaml"):
        assert time.monotonic() < deadline, "Nodes are not ready"
        time.sleep(POLL_SECONDS)


def misplaced(kubectl: Kubectl, namespace: str, expected: dict[str, str]) -> dict[str, str]:
    """Wait until all Pods are where they should be, and return the others with their Node after the timeout."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        pods = {pod["metadata"]["name"]: pod for pod in kubectl.get("pods", f"--namespace={namespace}")["items"]}
        wrong = {name: became for name, node in expected.items() if (became := _placed(pods[name])) != node}
        if not wrong or time.monotonic() > deadline:
            return wrong
        time.sleep(1)  # listing hundreds of Pods takes time


def _placed(pod: JSON) -> str:
    """Return the Node of a Pod, an empty string if kube-scheduler found none, or ``not tried``."""
    tried = any(condition["type"] == "PodScheduled" for condition in pod["status"].get("conditions", []))
    return pod["spec"].get("nodeName", "") if tried else "not tried"

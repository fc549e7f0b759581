"""The Pods of the zoo run on the Nodes where they should, and on no others: kube-scheduler decides."""

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
"""A label with a value of its own on every Node of the zoo: all clusters are there at the same time, and each Pod is
tried on certain Nodes of one."""

PATIENCE_SECONDS = 60.0


def test_the_pods_of_the_zoo_run_where_they_should_and_nowhere_else(
    cluster: Cluster, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    trials = {name: trial for zoo in CLUSTERS for name, trial in trials_of(zoo, tmp_path / "workloads.yaml")}
    expected = {name: node for name, (_, node) in trials.items()}
    try:
        kubectl.apply(*(node for zoo in CLUSTERS for node in nodes_to_apply(zoo)))
        wait_until_ready(kubectl)
        pods = as_list(*(pod for pod, _ in trials.values()))
        with paused(cluster, "kwok", "kube-controller-manager"):  # they would only take processor time
            kubectl("create", "--filename=-", f"--namespace={namespace}", documents=pods)
            try:
                assert misplaced(kubectl, namespace, expected) == {}
            finally:  # each in one request: kubectl deletes what a selector finds one by one
                kubectl("delete", f"--raw=/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
    finally:
        kubectl("delete", f"--raw=/api/v1/nodes?labelSelector={NODE}")


@contextlib.contextmanager
def paused(cluster: Cluster, *servers: str) -> Iterator[None]:
    """Stop servers of the control plane for a while."""
    pids = [cluster.processes[name].pid for name in servers]
    for pid in pids:
        os.killpg(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.killpg(pid, signal.SIGCONT)


def trials_of(cluster: str, file: Path) -> Iterator[tuple[str, tuple[JSON, str]]]:
    """Yield names of trials, each with a Pod and the Node on which it is to run; none where it is to wait.

    A Pod is tried on each Node where it should run, and once on all others of the cluster. Workloads whose Pods differ in
    nothing that decides it are tried once.
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
    """Return of a Pod what kube-scheduler goes by: with what the provider adds, and one container."""
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
    """Yield the Nodes of a cluster under names of their own, with accelerators for all Pods that are tried there."""
    for node in nodes_of(cluster):
        name = f"{cluster}.{node['metadata']['name']}"
        node["metadata"] |= {"name": name, "labels": node["metadata"]["labels"] | {NODE: name}}
        resources = {
            resource: str(int(quantity) * len(CLUSTERS[cluster][1].workloads)) if "/" in resource else quantity
            for resource, quantity in node["status"]["allocatable"].items()
        }
        yield node | {"status": {"allocatable": resources, "capacity": resources, "nodeInfo": NODE_INFO}}


def wait_until_ready(kubectl: Kubectl) -> None:
    """Wait until the Nodes are ready and lack the taints that they have until then."""
    kubectl("wait", "--for=condition=Ready", "nodes", f"--selector={NODE}", "--timeout=60s")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "node.kubernetes.io/not-ready" in kubectl("get", "nodes", f"--selector={NODE}", "--output=yaml"):
        assert time.monotonic() < deadline, "Nodes are not ready"
        time.sleep(POLL_SECONDS)


def misplaced(kubectl: Kubectl, namespace: str, expected: dict[str, str]) -> dict[str, str]:
    """Return the Pods that kube-scheduler does not put where they should be, with what it does. Wait a while for none."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = {pod["metadata"]["name"]: pod for pod in kubectl.get("pods", f"--namespace={namespace}")["items"]}
        wrong = {name: became for name, node in expected.items() if (became := _placed(found[name])) != node}
        if not wrong or time.monotonic() > deadline:
            return wrong
        time.sleep(1)  # hundreds of Pods are much to read


def _placed(pod: JSON) -> str:
    """Return the Node of a Pod; nothing where kube-scheduler has found none."""
    tried = any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", []))
    return pod["spec"].get("nodeName", "") if tried else "not tried"

"""Measure the time and memory of rehearsals that lose a tenth of the spot nodes. Half of the nodes are spot.

Run as `python -m bench.rehearse [NODES PODS]...`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

POOL = "compute.coreweave.com/node-pool"
SIZES = ((100, 1_000), (1_000, 10_000))
REPLICAS = 50
SPOTGATE = Path(sys.executable).with_name("spotgate")
READY = [
    {"type": condition, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for condition in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
]


def cluster(nodes: int, pods: int) -> Iterator[dict[str, Any]]:
    """Yield a cluster's objects, as `kubectl get -o json` prints them. The Nodes have room for a tenth more Pods."""
    share = pods // nodes
    for number in range(nodes):
        resources = {"cpu": str(2 * share + share // 5 + 1), "memory": "256Gi", "pods": "110"}
        name = f"node-{number}"
        labels = {POOL: "spot" if number % 2 else "on-demand", "kubernetes.io/hostname": name}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": resources},
        }
    for number in range(pods // REPLICAS):
        yield from deployment(f"app-{number}", number * REPLICAS, nodes)


def deployment(name: str, first: int, nodes: int) -> Iterator[dict[str, Any]]:
    """Yield a Deployment, its ReplicaSet, its budget, and its running Pods, which the nodes get in turn."""
    labels = {"app": name, "pod-template-hash": "1"}
    spec = {
        "containers": [{"name": "main", "image": "acme/app", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]
    }
    of_deployment, of_set = str(uuid.uuid4()), str(uuid.uuid4())
    selector = {"matchLabels": {"app": name}}
    revision = {"deployment.kubernetes.io/revision": "1"}
    where = {"namespace": "default", "generation": 1}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**where, "name": name, "uid": of_deployment, "annotations": revision},
        "spec": {
            "replicas": REPLICAS,
            "selector": selector,
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
        "status": {"observedGeneration": 1, "replicas": REPLICAS, "readyReplicas": REPLICAS},
    }
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": of_deployment, "controller": True}
    yield {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            **where,
            "name": f"{name}-1",
            "uid": of_set,
            "labels": labels,
            "annotations": revision,
            "ownerReferences": [owner],
        },
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
        "status": {"observedGeneration": 1, "replicas": REPLICAS, "readyReplicas": REPLICAS},
    }
    yield {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"maxUnavailable": "20%", "selector": selector},
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-1", "uid": of_set, "controller": True}
    for number in range(REPLICAS):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-1-{number}",
                "namespace": "default",
                "uid": str(uuid.uuid4()),
                "labels": labels,
                "ownerReferences": [owner],
            },
            "spec": {**spec, "nodeName": f"node-{(first + number) % nodes}"},
            "status": {"phase": "Running", "conditions": READY},
        }


def measure(nodes: int, pods: int, runs: int) -> None:
    """Print the time and memory of a rehearsal of a cluster of this size."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(cluster(nodes, pods))}))
        command = [str(SPOTGATE), "rehearse", str(file), "--lose=10%of:spot", f"--runs={runs}", "--output=json"]
        started = time.monotonic()
        result = Path(folder) / "result.json"  # an unread pipe would soon be full
        with result.open("wb") as output, subprocess.Popen(command, stdout=output) as program:  # noqa: S603 - spotgate
            most = 0.0
            while program.poll() is None:
                most = max(most, memory_of(program.pid))
                try:
                    program.wait(0.5)
                except subprocess.TimeoutExpired:
                    continue
        took = time.monotonic() - started
        spans = json.loads(result.read_bytes())["summary"]
    summary = {key: f"{span['min']:g}-{span['max']:g}" for key, span in spans.items() if key != "verdict"}
    print(f"{nodes:,} nodes, {pods:,} Pods, {runs} run(s): {took:.0f} s, {most:.1f} GB of memory at most; {summary}")


def memory_of(pid: int) -> float:
    """Return the resident memory of a process and its children, in GB."""
    pids = [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    total = 0
    for process in pids:
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096
        except OSError:
            continue
    return total / 1e9


if __name__ == "__main__":
    given = [int(number) for number in sys.argv[1:]]
    for size in list(zip(given[::2], given[1::2], strict=True)) or SIZES:
        for times in (1, 3):
            measure(*size, times)

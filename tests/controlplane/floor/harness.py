"""The on-demand floor on a test control plane: controllers as processes, and a checker that only watches.

The checker shares no code with the program: it watches Pods and Nodes through the API server, and counts the on-demand
Pods of each ReplicaSet itself. A violation is a Pod assigned to spot although a shortfall had been visible for two
seconds. On a busy machine the watch of Pods lags seconds behind that of Nodes, so the checker applies changes of Nodes
only when the Pods have reached their revision.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import re
import signal
import ssl
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tests.builders import deployment, labeled, node_pool
from tests.controlplane.harness.forked import ForkedSpotgate
from tests.controlplane.harness.populate import nodes_of
from tests.controlplane.harness.webhook import MANIFESTS, NAMESPACE, SPOTGATE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.controlplane.harness.cluster import Cluster
    from tests.controlplane.harness.kubectl import Kubectl
    from tests.controlplane.harness.webhook import Webhook
    from webhook.rehearse.controlplane.process import Process

JSON = dict[str, Any]

LEASE = ("lease", "spotgate-on-demand-floor", f"--namespace={NAMESPACE}")
ANNOTATION = "spotgate.dev/on-demand-floor"
POOL = "compute.coreweave.com/node-pool"
SPOT = {"spotgate.dev/capacity": "spot"}
VISIBLE_SECONDS = 2.0
ROOM = 12
"""Nodes of each CPU pool: enough room for all Pods."""


@dataclass(slots=True)
class Controllers:
    """Two candidates, each a process that uses a token of the shipped ServiceAccount. `metric_of_leader` is 1 for a leader."""

    cluster: Cluster
    processes: Sequence[Process]
    metric_of_leader: str

    def start(self) -> None:
        """Start all candidates."""
        for process in self.processes:
            process.start()

    def leader(self) -> Process | None:
        """Return the process whose metrics say that it leads."""
        for process in self.processes:
            with contextlib.suppress(OSError, IndexError):  # it doesn't listen yet
                if process.exit_code is None and self.metric(process, self.metric_of_leader) == 1:
                    return process
        return None

    def wait_for_leader(self, other_than: Process | None = None, seconds: float = 40) -> Process:
        deadline = time.monotonic() + seconds
        while (leader := self.leader()) is None or leader is other_than:
            assert time.monotonic() < deadline, "\n".join(process.tail(5) for process in self.processes)
            time.sleep(0.2)
        return leader

    def metric(self, process: Process, name: str) -> float:
        """Return the sum of the samples of a metric."""
        port = int(re.findall(r'"ops_port":(\d+)', process.log.read_text())[-1])
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    def stop(self) -> None:
        """Stop all candidates. The leader releases its Lease, so that the next one doesn't wait for its end."""
        for process in self.processes:
            os.kill(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + 40
        while any(process.exit_code is None for process in self.processes):
            assert time.monotonic() < deadline, "\n".join(process.tail(5) for process in self.processes)
            time.sleep(0.1)

    def kill(self) -> None:
        for process in self.processes:
            process.kill()


@contextlib.contextmanager
def controllers(
    cluster: Cluster, port: int = 0, component: str = "on-demand-floor", duty: str = "floor"
) -> Iterator[Controllers]:
    """Install a component without its Pods, and start two candidates that reach the API server through a port."""
    files = [MANIFESTS / "components" / component / f"{name}.yaml" for name in ("rbac", "admission", "priority")]
    for file in files:
        cluster.kubectl("apply", f"--filename={file}")
    kubeconfig = cluster.as_service_account(NAMESPACE, f"spotgate-{component}").kubeconfig
    if port:
        kubeconfig.write_text(kubeconfig.read_text().replace(cluster.credentials.url, f"https://127.0.0.1:{port}"))
    processes = [
        ForkedSpotgate(
            "controller",
            (str(SPOTGATE), "controller", f"--duties={duty}", f"--kubeconfig={kubeconfig}", "--ops=127.0.0.1:0"),
            cluster.directory / f"{duty}-{number}.log",
        )
        for number in range(2)
    ]
    running = Controllers(cluster, processes, f"spotgate_{'reclaim' if duty == 'notice' else duty}_leader")
    try:
        running.start()
        running.wait_for_leader()
        yield running
    finally:
        running.kill()
        cluster.kubectl.run("delete", "lease", f"spotgate-{component}", f"--namespace={NAMESPACE}")
        for file in reversed(files):
            cluster.kubectl.run("delete", f"--filename={file}", "--wait=false")


def make_room(kubectl: Kubectl) -> None:
    """Give the CPU pools enough Nodes for all Pods."""
    taint = {"key": "example.com/spot", "value": "true", "effect": "NoSchedule"}
    spot = {"computeClass": "spot", "nodeLabels": {"example.com/capacity": "spot"}, "nodeTaints": [taint]}
    pools = [
        node_pool("cpu-control-plane", instanceType="cd-gp-i64-erapids", targetNodes=ROOM),
        node_pool("cpu-spot", instanceType="cd-gp-a192-genoa", targetNodes=ROOM, **spot),
    ]
    kubectl.apply(*pools, *(node for pool in pools for node in nodes_of(pool)))
    kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=90s")


@dataclass(slots=True)
class _Seen:
    """A Pod as the watch shows it."""

    owner: str
    floor: str
    gated: bool
    assigned: str
    node: str
    alive: bool


@dataclass(slots=True)
class Checker:
    """A watcher of Pods and Nodes that records violations. Use it as a context manager.

    Attributes:
        ignored: a namespace whose Pods it ignores.
        behind: for each assignment to spot during a shortfall, the seconds for which the shortfall had been visible. The
            controller hadn't seen it yet. After more than `VISIBLE_SECONDS`, it is a violation.
    """

    cluster: Cluster
    ignored: str = ""
    violations: list[str] = field(default_factory=list)
    behind: list[float] = field(default_factory=list)
    assigned: int = 0
    longest_gate: float = 0.0
    _pods: dict[str, _Seen] = field(default_factory=dict)
    _pools: dict[str, str] = field(default_factory=dict)
    _nodes: deque[tuple[str, JSON]] = field(default_factory=deque)
    _first_seen: dict[str, float] = field(default_factory=dict)
    _short_since: dict[str, float] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        for path in ("nodes", "pods"):
            threading.Thread(target=self._follow, args=(path,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _follow(self, resource: str) -> None:
        credentials = self.cluster.credentials
        headers = {"Authorization": f"Bearer {credentials.tokens['admin']}"}
        while not self._stop.is_set():
            try:
                tls = ssl.create_default_context(cafile=str(credentials.authority))
                address = credentials.url.removeprefix("https://")
                connection = http.client.HTTPSConnection(address, timeout=60, context=tls)
                with contextlib.closing(connection):
                    connection.request("GET", f"/api/v1/{resource}", headers=headers)
                    listed = json.loads(connection.getresponse().read())
                    with self._lock:
                        self._replace(resource, listed["items"])
                    version = listed["metadata"]["resourceVersion"]
                    connection.request("GET", f"/api/v1/{resource}?watch=1&resourceVersion={version}", headers=headers)
                    response = connection.getresponse()
                    for line in response:
                        if self._stop.is_set():
                            return
                        event = json.loads(line)
                        with self._lock:
                            self._take(resource, event["type"], event["object"])
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                time.sleep(0.2)

    def _replace(self, resource: str, items: list[JSON]) -> None:
        """Start from a list. A list doesn't show the order of assignments since the last event, so evaluate none of them."""
        self._take_nodes(math.inf)
        if resource == "nodes":
            self._pools.clear()
        else:
            self._pods.clear()
        for item in items:
            self._take(resource, "ADDED", item)
        self._take_nodes(math.inf)
        self._short_since.clear()

    def _take_nodes(self, version: float) -> None:
        """Apply the changes of Nodes up to a revision."""
        while self._nodes and int(self._nodes[0][1]["resourceVersion"]) <= version:
            kind, metadata = self._nodes.popleft()
            if kind == "DELETED":
                self._pools.pop(metadata["name"], None)
            else:
                self._pools[metadata["name"]] = metadata.get("labels", {}).get(POOL, "")
            for uid in {pod.owner for pod in self._pods.values() if pod.node == metadata["name"]}:
                self._note_shortfall(uid, time.monotonic())

    def _take(self, resource: str, kind: str, thing: JSON) -> None:
        metadata, now = thing["metadata"], time.monotonic()
        if resource == "nodes":
            self._nodes.append((kind, metadata))
            return
        self._take_nodes(int(metadata["resourceVersion"]))
        floor = metadata.get("annotations", {}).get(ANNOTATION)
        owner = next((ref for ref in metadata.get("ownerReferences", []) if ref.get("controller")), None)
        if floor is None or owner is None or owner["kind"] != "ReplicaSet" or metadata["namespace"] == self.ignored:
            return
        before = self._pods.pop(metadata["uid"], None)
        self._first_seen.setdefault(metadata["uid"], now)
        gates = [gate["name"] for gate in thing["spec"].get("schedulingGates", [])]
        if kind != "DELETED":
            after = _Seen(
                owner["uid"],
                floor,
                ANNOTATION in gates,
                metadata.get("labels", {}).get("spotgate.dev/assigned", ""),
                thing["spec"].get("nodeName", ""),
                "deletionTimestamp" not in metadata and thing["status"].get("phase") not in ("Succeeded", "Failed"),
            )
            if before is not None and before.gated and not after.gated:
                self.longest_gate = max(self.longest_gate, now - self._first_seen[metadata["uid"]])
                self.assigned += 1
                self._judge(metadata, after, now)
            self._pods[metadata["uid"]] = after
        self._note_shortfall(owner["uid"], now)

    def _counts(self, owner: str) -> tuple[int, int]:
        """Return the number of assigned or bound Pods of a ReplicaSet, and how many of them are on demand."""
        pods = [pod for pod in self._pods.values() if pod.owner == owner and pod.alive and not pod.gated]
        settled = [pod for pod in pods if pod.node or pod.assigned]
        kept = [
            pod
            for pod in settled
            if ("spot" not in self._pools.get(pod.node, "spot") if pod.node else pod.assigned == "on-demand")
        ]
        return len(settled), len(kept)

    def _judge(self, metadata: JSON, pod: _Seen, now: float) -> None:
        """Record a violation if the Pod was assigned to spot after a shortfall had been visible long enough."""
        if pod.assigned != "spot":
            return
        settled, kept = self._counts(pod.owner)
        seconds = now - self._short_since.get(pod.owner, math.inf)
        if seconds >= 0:
            self.behind.append(seconds)
        if seconds > VISIBLE_SECONDS:
            what = f"{kept} of {settled + 1} on demand, floor {pod.floor}, for {seconds:.1f} s"
            self.violations.append(f"{metadata['name']}: {what}")

    def _note_shortfall(self, owner: str, now: float) -> None:
        settled, kept = self._counts(owner)
        floor = next((pod.floor for pod in self._pods.values() if pod.owner == owner), "0")
        if kept < need(floor, settled + 1):  # so the next Pod must be on demand
            self._short_since.setdefault(owner, now)
        else:
            self._short_since.pop(owner, None)

    def gated(self) -> int:
        """Return the current number of gated Pods."""
        with self._lock:
            return sum(1 for pod in self._pods.values() if pod.gated and pod.alive)

    def wait_until_none_is_gated(self, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while self.gated():
            assert time.monotonic() < deadline, f"{self.gated()} Pods are still gated"
            time.sleep(0.1)


def need(floor: str, count: int) -> int:
    """Return how many of ``count`` Pods must be on demand, by the formula in the documentation."""
    numbers = [part.strip() for part in floor.split("+")]
    base = sum(int(part) for part in numbers if not part.endswith("%"))
    percent = sum(int(part[:-1]) for part in numbers if part.endswith("%"))
    return min(base, count) + math.ceil(percent * max(0, count - base) / 100)


def floored(name: str, replicas: int, floor: str, **spec: Any) -> JSON:
    """Return a Deployment on spot with a floor."""
    return labeled(deployment(name, replicas, **spec), {"app": name, **SPOT}, {ANNOTATION: floor})


def made_pod(thing: JSON) -> JSON:
    """Return a Pod as the ReplicaSet controller creates it."""
    template = thing["spec"]["template"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "1", "controller": True}
    metadata = {**template["metadata"], "name": "made", "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def gates(webhook: Webhook, thing: JSON) -> bool:
    """Return whether the webhook currently gates a Pod of this workload."""
    return "schedulingGates" in webhook.try_out(made_pod(thing))["spec"]

"""Random events for workloads with an on-demand floor: scaling, rollouts, deletions, evictions, lost nodes, an autoscaler."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from tests.builders import deployment, labeled
from tests.controlplane.floor.harness import ANNOTATION, POOL
from tests.controlplane.harness.api import JSON_PATCH, Api

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.cluster import Cluster

FLOORS = ("1", "2", "3", "10%", "20%", "50%", "100%", "1 + 20%", "2 + 30%")
LARGEST = 12
"""Replicas of one workload."""


@dataclass(slots=True)
class Events:
    """Workloads in one namespace, and random events for them. Use `run`."""

    cluster: Cluster
    namespace: str
    workloads: int
    seed: int = 1
    happened: dict[str, int] = field(default_factory=dict)
    _rolled: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def create(self) -> None:
        """Create the workloads, with floors in all forms."""
        chosen = random.Random(self.seed)  # noqa: S311 - no secret
        api = Api(self.cluster)
        for number in range(self.workloads):
            thing = labeled(
                deployment(f"w{number}", chosen.randrange(LARGEST)),
                {"app": f"w{number}", "spotgate.dev/capacity": chosen.choice(("spot", "spot-preferred"))},
                {ANNOTATION: FLOORS[number % len(FLOORS)]},
            )
            thing["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
            answer = api.create(f"/apis/apps/v1/namespaces/{self.namespace}/deployments", thing)
            assert not answer.message, answer.message

    def run(self, count: int, *, threads: int = 8) -> None:
        """Run this many events, some of them concurrently."""
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(self._happen, range(self.seed * 1_000_000, self.seed * 1_000_000 + count)))

    def run_for(self, seconds: float, *, threads: int = 4) -> int:
        """Run events for this many seconds. Return their number."""
        ends, count = time.monotonic() + seconds, 0
        while time.monotonic() < ends:
            self.run(20, threads=threads)
            self.seed += 1
            count += 20
        return count

    def _happen(self, number: int) -> None:
        chosen = random.Random(number)  # noqa: S311 - no secret
        event = chosen.choices(
            (self._scale, self._roll_out, self._delete, self._evict, self._lose_node), (30, 6, 35, 25, 4)
        )[0]
        with contextlib.suppress(OSError, HTTPException):  # the API server restarts
            event(Api(self.cluster), chosen)
        with self._lock:
            name = event.__name__.strip("_")
            self.happened[name] = self.happened.get(name, 0) + 1

    def _path(self, chosen: random.Random) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments/w{chosen.randrange(self.workloads)}"

    def _scale(self, api: Api, chosen: random.Random) -> None:
        api.patch(f"{self._path(chosen)}/scale", {"spec": {"replicas": chosen.randrange(LARGEST)}})

    def _roll_out(self, api: Api, chosen: random.Random) -> None:
        with self._lock:
            self._rolled += 1
            metadata = {"annotations": {"rolled": f"{self.seed}.{self._rolled}"}}
        api.patch(self._path(chosen), {"spec": {"template": {"metadata": metadata}}})

    def _pod(self, api: Api, chosen: random.Random) -> dict[str, Any] | None:
        selector = f"app%3Dw{chosen.randrange(self.workloads)}"
        pods = api.get(f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={selector}")["items"]
        return chosen.choice(pods) if pods else None

    def _delete(self, api: Api, chosen: random.Random) -> None:
        if pod := self._pod(api, chosen):
            api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}")

    def _evict(self, api: Api, chosen: random.Random) -> None:
        if pod := self._pod(api, chosen):
            name = pod["metadata"]["name"]
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            api.create(f"/api/v1/namespaces/{self.namespace}/pods/{name}/eviction", eviction)

    def _lose_node(self, api: Api, chosen: random.Random) -> None:
        """Delete a Node with its Pods, and create one with a new name: KWOK can't renew the Lease of a reused name."""
        pool = chosen.choice(("cpu-spot", "cpu-control-plane"))
        node = chosen.choice(api.get(f"/api/v1/nodes?labelSelector={POOL}%3D{pool}")["items"])
        name = node["metadata"]["name"]
        api.delete(f"/api/v1/nodes/{name}")
        for pod in api.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}")["items"]:
            api.delete(
                f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0"
            )
        metadata = {"generateName": f"{pool}-", "labels": node["metadata"]["labels"]}
        taints = [item for item in node["spec"].get("taints", []) if not item["key"].startswith("node.kubernetes.io/")]
        api.create("/api/v1/nodes", {"metadata": metadata, "spec": {"taints": taints}, "status": node["status"]})


@contextlib.contextmanager
def patching(cluster: Cluster, pods: list[str], path: str) -> Iterator[None]:
    """Change an annotation of these Pods as often as possible, each on its own connection."""
    ends = threading.Event()

    def patch(pod: str) -> None:
        credentials = cluster.credentials
        tls = ssl.create_default_context(cafile=str(credentials.authority))
        address = credentials.url.removeprefix("https://")
        headers = {"Authorization": f"Bearer {credentials.tokens['admin']}", "Content-Type": JSON_PATCH}
        with contextlib.closing(http.client.HTTPSConnection(address, timeout=30, context=tls)) as connection:
            number = 0
            while not ends.is_set():
                number = number % 1000 + 1
                change = {"op": "add", "path": path, "value": str(number)}
                connection.request("PATCH", pod, json.dumps([change]), headers)
                connection.getresponse().read()

    threads = [threading.Thread(target=patch, args=(pod,)) for pod in pods]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ends.set()
        for thread in threads:
            thread.join()

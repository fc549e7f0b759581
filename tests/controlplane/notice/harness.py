"""Reclaims on a test API server without kubelets, and a checker that shares no code with the controller.

The checker reads what happened to each Pod from the API server: its audit log contains every write of the controller,
and a watch shows every value of the annotation.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from tests.controlplane.harness.api import Api, accepted, pods_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.controlplane.harness.cluster import Cluster

JSON = dict[str, Any]

ACCOUNT = "system:serviceaccount:spotgate-system:spotgate-reclaim-notice"
RECLAIM_AT = "spotgate.dev/reclaim-at"
ON_RECLAIM = "spotgate.dev/on-reclaim"
PREEMPTION = "qos.coreweave.cloud/pending-preemption"
CKS_REMOVAL, CKS_DRAIN, CKS_MARGIN = 420, 120, 30


@dataclass(frozen=True, slots=True)
class Reclaims:
    """Nodes and Pods that a test creates, without a kubelet: Pods that are evicted terminate forever."""

    api: Api
    namespace: str
    nodes: list[str] = field(default_factory=list)

    def node(self, name: str) -> None:
        """Create a Node with a label: the API server tracks the field managers of objects that had one when created."""
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        accepted(self.api.create("/api/v1/nodes?fieldManager=kubelet", {"metadata": metadata}))
        self.nodes.append(name)

    def pod(self, name: str, node: str, action: str = "inform", grace: int = 60, **metadata: Any) -> str:
        """Create a running Pod on a Node, and return its path. ``action`` is the value of the label; or empty."""
        labels = {"app": name, **({ON_RECLAIM: action} if action else {})}
        spec = {
            "nodeName": node,
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "app", "image": "registry.example.com/app:1"}],
        }
        path = pods_in(self.namespace)
        accepted(self.api.create(path, {"metadata": {"name": name, "labels": labels, **metadata}, "spec": spec}))
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        accepted(self.api.patch(f"{path}/{name}/status", {"status": status}))
        return f"{path}/{name}"

    def preempt(self, node: str) -> datetime:
        """Label a Node as CKS does, and return the time of its removal."""
        time.sleep(1)  # a Pod that is created in the second of the signal isn't evicted
        answer = self.signal(node, {"metadata": {"labels": {PREEMPTION: "true"}}})
        (since,) = (
            entry["time"] for entry in answer["metadata"]["managedFields"] if PREEMPTION in str(entry["fieldsV1"])
        )
        return datetime.fromisoformat(since) + timedelta(seconds=CKS_REMOVAL)

    def signal(self, node: str, patch: JSON) -> JSON:
        """Change a Node as a provider does, and return it."""
        part = "/status" if "status" in patch else ""
        return accepted(self.api.patch(f"/api/v1/nodes/{node}{part}?fieldManager=provider", patch)).body

    def restore(self, node: str) -> None:
        """Remove the label."""
        accepted(self.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {PREEMPTION: None}}}))

    def told(self, pod: str) -> str | None:
        """Return the value of the annotation, or None."""
        value: str | None = self.api.get(pod)["metadata"].get("annotations", {}).get(RECLAIM_AT)
        return value

    def wait_until_told(self, *pods: str) -> None:
        for pod in pods:
            self.api.wait(lambda pod=pod: self.told(pod), f"{pod} is informed")  # type: ignore[misc]

    def evicted(self, pod: str) -> bool:
        return "deletionTimestamp" in self.api.get(pod)["metadata"]

    def remove(self) -> None:
        """Delete all Pods without a grace period, and the Nodes."""
        self.api.delete(f"{pods_in(self.namespace)}?gracePeriodSeconds=0")
        for node in self.nodes:
            self.api.delete(f"/api/v1/nodes/{node}")


@dataclass(slots=True)
class Checker:
    """A watcher of the Pods in one namespace, or in all if it is empty. Use it as a context manager.

    Attributes:
        values: the values of each Pod's annotation, in order; None where it is missing.
        informed: when each Pod had its first value, by the monotonic clock.
        ends: the values of each terminating Pod's deletionTimestamp, in order.
    """

    cluster: Cluster
    namespace: str
    values: defaultdict[str, list[str | None]] = field(default_factory=lambda: defaultdict(list))
    informed: dict[str, float] = field(default_factory=dict)
    ends: defaultdict[str, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    _versions: dict[str, int] = field(default_factory=dict)
    _connection: http.client.HTTPSConnection = field(init=False)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        credentials = self.cluster.credentials
        tls = ssl.create_default_context(cafile=str(credentials.authority))
        address = credentials.url.removeprefix("https://")
        self._connection = http.client.HTTPSConnection(address, timeout=600, context=tls)
        headers = {"Authorization": f"Bearer {credentials.tokens['admin']}"}
        path = pods_in(self.namespace) if self.namespace else "/api/v1/pods"
        self._connection.request("GET", f"{path}?watch=1", headers=headers)
        self._thread = threading.Thread(target=self._follow, args=(self._connection.getresponse(),))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def _follow(self, response: http.client.HTTPResponse) -> None:
        with response, contextlib.suppress(OSError, ValueError, http.client.HTTPException):  # the end of the test
            for line in response:
                event = json.loads(line)
                metadata = event["object"]["metadata"]
                name, value = metadata["name"], metadata.get("annotations", {}).get(RECLAIM_AT)
                if not self.values[name] or self.values[name][-1] != value:
                    self.values[name].append(value)
                if value:
                    self.informed.setdefault(name, time.monotonic())
                if "deletionTimestamp" in metadata and event["type"] != "DELETED":
                    end = datetime.fromisoformat(metadata["deletionTimestamp"])
                    self.ends[name] += [end] if end not in self.ends[name][-1:] else []
                self._versions[name] = int(metadata["resourceVersion"])

    def catch_up(self) -> None:
        """Wait until the watch has seen every current Pod: it lags behind a request that reads one."""
        api = Api(self.cluster)
        pods = [
            item["metadata"] for item in api.get(pods_in(self.namespace) if self.namespace else "/api/v1/pods")["items"]
        ]
        api.wait(
            lambda: all(self._versions.get(pod["name"], 0) >= int(pod["resourceVersion"]) for pod in pods),
            "the watch has seen every Pod",
        )

    def writes(self) -> dict[str, Counter[str]]:
        """Return the successful writes of the controller for each Pod: ``patch`` and ``eviction``.

        The last write of a killed leader can take effect without counting as successful.
        """
        counts: dict[str, Counter[str]] = {"patch": Counter(), "eviction": Counter()}
        for event in self.cluster.audit_events():
            if event["user"]["username"] != ACCOUNT or event["responseStatus"]["code"] >= http.client.BAD_REQUEST:
                continue
            about = event["objectRef"]
            if about["resource"] == "pods" and self.namespace in {"", about["namespace"]}:
                counts[about.get("subresource", event["verb"])][about["name"]] += 1
        return counts

    def problems(self, removals: dict[str, datetime], evicted: Sequence[str]) -> list[str]:
        """Return how Pods that must be informed of these removals, and evicted, weren't, or more than once."""
        self.catch_up()
        writes, problems = self.writes(), []
        for name, removal in removals.items():
            if self.values[name] != [None, removal.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")]:
                problems.append(f"{name} saw {self.values[name]}, not {removal}")
            if writes["patch"][name] > 1:
                problems.append(f"{name} was patched {writes['patch'][name]} times")
            if len(self.ends[name]) != (name in evicted) or writes["eviction"][name] > (name in evicted):
                problems.append(f"{name} was evicted {writes['eviction'][name]} times, and ends at {self.ends[name]}")
            if any(end > removal for end in self.ends[name]):
                problems.append(f"{name} may run until {self.ends[name]}, after {removal}")
        problems += [f"{name} is no Pod of the test" for name in writes["patch"].keys() - removals.keys()]
        return problems

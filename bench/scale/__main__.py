"""``make bench-scale``: measure spotgate on a large cluster: time to ready, memory, CPU at rest, staleness, latency.

A real API server stores the objects. A separate process sends the writes of kubelets and controllers. The benchmark
measures a third of the sizes and the full sizes, and extrapolates to other numbers of Nodes. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
import orjson
import uvloop
from rich.console import Console

from bench import samples
from bench.chaos.service import Replica
from bench.cluster.readings import cpu_seconds
from bench.figures import Section, percentile
from bench.run import conditions, show
from bench.scale.objects import PROBE, PROBE_GROUP, Sizes
from bench.scale.writer import PATHS
from tests.controlplane.harness.api import Api
from tests.controlplane.harness.cluster import Cluster, start_cluster
from tests.controlplane.harness.kubectl import KubectlError
from tests.controlplane.harness.populate import CRDS, wait_for_crds
from tests.controlplane.harness.webhook import WebhookError, apply_base
from tests.programs import VERSION
from webhook.rehearse.controlplane.binaries import BinariesError, find_or_build, report
from webhook.rehearse.controlplane.control_plane import ControlPlaneError
from webhook.rehearse.controlplane.process import Process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

_SHARE: Final = 3
"""The first measurement divides the sizes by this number."""

_ASK: Final = 0.05
"""Seconds between decisions."""

_SETTLE: Final = 5.0
"""Seconds after the start until spotgate is at rest."""

_ROUNDS: Final = 5
"""The number of times that both changes are made to an object."""

_JSON: Final = {"Content-Type": "application/json"}

_STALE: Final = 30.0
"""Seconds after which a change counts as missed."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change to an object, and a Pod whose verdict depends on it.

    Attributes:
        path: the path of the object.
        patches: two merge patches, applied in turns.
        pod: fields of the Pod, which replace those of the sample.
    """

    path: str
    patches: tuple[dict[str, Any], dict[str, Any]]
    pod: dict[str, Any]


def _labels(key: str, *values: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    first, second = ({"metadata": {"labels": {key: value}}} for value in values)
    return first, second


_TEAM: Final = "example.com/team"
_CHANGES: Final = {
    "Node": Change(
        f"{PATHS['Node']}/{PROBE_GROUP}",
        _labels("eks.amazonaws.com/capacityType", "ON_DEMAND", "SPOT"),
        {"metadata": {"annotations": {"spotgate.dev/node-pool": PROBE_GROUP}}},
    ),
    "node pool": Change(
        f"{PATHS['NodePool']}/{PROBE}",
        (
            {"spec": {"template": _labels(_TEAM, "blue", "green")[0]}},
            {"spec": {"template": _labels(_TEAM, "blue", "green")[1]}},
        ),
        {"metadata": {"annotations": {"spotgate.dev/node-pool": PROBE}}, "spec": {"nodeSelector": {_TEAM: "blue"}}},
    ),
    "Namespace": Change(
        f"{PATHS['Namespace']}/{PROBE}", _labels("spotgate.dev/capacity", "spot", None), {"metadata": {"labels": {}}}
    ),
}
"""Changes that measure the staleness of decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The measurements at one size. Times are in seconds, memory is in MiB.

    Attributes:
        node_kb: the size of a Node from the API server.
        ready: the time from the start of spotgate until it is ready.
        peak: the peak memory over the whole measurement.
        settled: the memory at rest.
        cpu: the share of a core at rest.
        heartbeats: status updates of Nodes per second.
        changes: other writes per second.
        latencies: the latencies of decisions.
        stale: the times from the API server's answer until a decision reflects a change, by changed object.
    """

    node_kb: float
    ready: float
    peak: float
    settled: float
    cpu: float
    heartbeats: float
    changes: float
    latencies: list[float]
    stale: dict[str, list[float]]


class ReviewClient:
    """A connection that sends reviews of Pods to spotgate, like the API server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.latencies: list[float] = []
        self._session = session

    async def answer(self, pod: dict[str, Any]) -> bytes:
        """Return spotgate's concatenated answers for a Pod in both phases."""
        body = _review(pod)
        answers = b""
        for phase in ("mutate", "validate"):
            began = time.perf_counter()
            async with self._session.post(f"/{phase}?timeout=3s", data=body, headers=_JSON) as response:
                answers += await response.read()
                response.raise_for_status()
            self.latencies.append(time.perf_counter() - began)
        return answers

    async def staleness(self, api: Api, change: Change, patch: dict[str, Any]) -> float:
        """Change the object, and return the seconds until the answers for the Pod change."""
        before = await self.answer(change.pod)
        changed = await asyncio.to_thread(api.patch, change.path, patch)
        assert not changed.message, changed.message
        began = time.perf_counter()
        while await self.answer(change.pod) == before:
            if time.perf_counter() - began > _STALE:
                raise WebhookError(f"no decision shows a change of {change.path} after {_STALE:.0f} s")
            await asyncio.sleep(0.001)
        return time.perf_counter() - began


def _review(changes: dict[str, Any]) -> bytes:
    pod = samples.pod(containers=1, variables=3)
    pod["metadata"] |= {"namespace": PROBE} | changes.get("metadata", {})
    pod["spec"] |= changes.get("spec", {})
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": PROBE,
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "object": pod,
    }
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


async def measure(cluster: Cluster, directory: Path, flags: list[str], sizes: Sizes, seconds: float) -> Figures:
    """Start spotgate and the writer, measure, and stop both."""
    name = f"{sizes.nodes}-nodes"
    writer = Process("writer", _writer(cluster, "beat", sizes), directory / f"writer-{name}.log")
    replica = Replica(sizes.nodes, directory, flags)
    api = Api(cluster)
    try:
        writer.start()
        began = time.monotonic()
        await replica.start()
        ready = time.monotonic() - began
        await asyncio.sleep(min(_SETTLE, seconds))
        cpu, written, began = cpu_seconds(replica.process.pid), _written(writer), time.monotonic()
        await asyncio.sleep(seconds)
        rested = time.monotonic() - began
        used = cpu_seconds(replica.process.pid) - cpu
        beats = {what: (count - written.get(what, 0)) / rested for what, count in _written(writer).items()}
        settled = _memory(replica.process.pid, "VmRSS")
        async with _review_client(directory, replica.port) as client:
            for _ in range(int(seconds / _ASK / 2)):
                await client.answer({})
                await asyncio.sleep(_ASK)
            latencies = client.latencies
            stale = {
                what: [await client.staleness(api, change, patch) for patch in change.patches * _ROUNDS]
                for what, change in _CHANGES.items()
            }
        if writer.exit_code is not None:
            raise WebhookError(f"the writer has exited:\n{writer.tail()}")
        return Figures(
            node_kb=len(orjson.dumps(api.get(f"{PATHS['Node']}/{PROBE_GROUP}"))) / 1000,
            ready=ready,
            peak=_memory(replica.process.pid, "VmHWM"),
            settled=settled,
            cpu=used / rested,
            heartbeats=beats["heartbeats"],
            changes=beats["changes"],
            latencies=latencies,
            stale=stale,
        )
    finally:
        writer.kill()
        replica.process.kill()


@contextlib.asynccontextmanager
async def _review_client(directory: Path, port: int) -> AsyncIterator[ReviewClient]:
    tls = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    tls.check_hostname = False  # the certificate is for the Service
    async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=aiohttp.TCPConnector(ssl=tls)) as session:
        yield ReviewClient(session)


def _writer(cluster: Cluster, what: str, sizes: Sizes) -> list[str]:
    kubeconfig = cluster.credentials.kubeconfig("admin")
    return [sys.executable, "-m", "bench.scale.writer", str(kubeconfig), what, orjson.dumps(sizes).decode()]


def _written(writer: Process) -> dict[str, float]:
    """Return the numbers of writes, from the last line of the writer's log."""
    lines = [line for line in writer.log.read_text().splitlines() if line.startswith("{")]
    return msgspec.json.decode(lines[-1], type=dict[str, float]) if lines else {}


def _memory(pid: int, field: str) -> float:
    """Return a field of proc_pid_status(5) in MiB."""
    match = re.search(rf"^{field}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert match
    return int(match[1]) / 1024


def table(measured: dict[Sizes, Figures], elsewhere: int) -> Section:
    """Return the figures, and their extrapolation to this number of Nodes, with the other objects in proportion."""
    (small, one), (large, other) = measured.items()

    def line(name: str, figure: Callable[[Figures], float]) -> tuple[str | float, ...]:
        slope = (figure(other) - figure(one)) / (large.nodes - small.nodes)
        return name, figure(one), figure(other), figure(other) + slope * (elsewhere - large.nodes)

    def spread(name: str, seconds: Callable[[Figures], list[float]]) -> Iterator[tuple[str | float, ...]]:
        for share, title in ((0.5, "median"), (0.99, "p99")):
            yield (f"{name}, {title} ms", *(percentile(seconds(figures), share) * 1000 for figures in (one, other)), "")

    def stale(what: str) -> Iterator[tuple[str | float, ...]]:
        return spread(f"{what} changed until a decision shows it", lambda figures: figures.stale[what])

    return Section(
        title="spotgate on a large cluster",
        columns=("", *(f"{size.nodes:,} Nodes" for size in measured), f"{elsewhere:,} Nodes, extrapolated"),
        rows=[
            (
                "Namespaces, budgets, pools",
                *(f"{s.namespaces:,}, {s.budgets:,}, {s.pools:,}" for s in measured),
                "in proportion",
            ),
            line("heartbeats a second", lambda figures: figures.heartbeats),
            line("other writes a second", lambda figures: figures.changes),
            line("time to ready, s", lambda figures: figures.ready),
            line("memory at its peak, MiB", lambda figures: figures.peak),
            line("memory at rest, MiB", lambda figures: figures.settled),
            line("CPU at rest, % of a core", lambda figures: figures.cpu * 100),
            *spread("decision", lambda figures: figures.latencies),
            *(row for what in _CHANGES for row in stale(what)),
        ],
        note=f"The API server sends {other.node_kb:.1f} KB for a Node.",
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--nodes", type=int, default=15_000)
    parser.add_argument("--namespaces", type=int, default=5_000)
    parser.add_argument("--budgets", type=int, default=2_000, help="PodDisruptionBudgets")
    parser.add_argument("--pools", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30, help="seconds at rest, to measure CPU time")
    parser.add_argument("--elsewhere", type=int, default=100_000, help="the number of Nodes to extrapolate to")
    given = parser.parse_args()
    sizes = Sizes(given.nodes, given.namespaces, given.budgets, given.pools)
    console = Console(width=160, highlight=False)
    before = os.getloadavg()[0]
    measured: dict[Sizes, Figures] = {}
    try:
        with start_cluster(find_or_build(("etcd", "kube-apiserver", "kubectl")), controllers=False) as cluster:
            cluster.kubectl("apply", f"--filename={CRDS / 'karpenter.yaml'}")
            wait_for_crds(cluster.kubectl)
            directory = cluster.directory / "webhook"
            with apply_base(cluster, directory) as flags:
                for size in (sizes.over(_SHARE), sizes):
                    report(f"{size.nodes:,} Nodes")
                    subprocess.run(_writer(cluster, "fill", size), check=True)  # noqa: S603
                    measured[size] = uvloop.run(measure(cluster, directory, flags, size, given.seconds))
    except subprocess.CalledProcessError:
        sys.exit("spotgate: the cluster could not be filled")
    except (BinariesError, ControlPlaneError, KubectlError, WebhookError) as error:
        sys.exit(f"spotgate: {error}")
    console.print(conditions(before, VERSION))
    show(console, table(measured, given.elsewhere))


if __name__ == "__main__":
    main()

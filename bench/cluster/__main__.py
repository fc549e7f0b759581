"""``make bench-cluster``: measure creates of Pods on a real API server, with different ways to admit them. Linux only.

A run measures every figure in docs/bench.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from math import nan
from statistics import median
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson
from rich.console import Console

from bench import samples
from bench.cluster.contenders import NOTHING, Contender, start_contenders
from bench.cluster.load import Creates
from bench.cluster.readings import calls_since, cpu_seconds, read_calls
from bench.figures import Section, percentile
from bench.run import conditions, show
from tests.controlplane.harness.cluster import Cluster, start_cluster
from tests.controlplane.harness.kubectl import KubectlError
from tests.controlplane.harness.populate import CRDS, POOLS, wait_for_crds
from tests.controlplane.harness.webhook import WebhookError
from tests.programs import VERSION
from webhook.capacity.placement.target import CAPACITY_LABEL
from webhook.rehearse.controlplane.binaries import BinariesError, find_or_build, report
from webhook.rehearse.controlplane.control_plane import ControlPlaneError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_COUNTS: Final = {1: 200, 8: 400, 32: 800}
"""The number of creates in a round, by the number of connections. It suffices for a meaningful p99."""

_ONE: Final = "controller: spotgate, one call"
_COMPARED: Final = (
    ("spotgate", "Go webhook"),
    (_ONE, "controller: Go webhook, one call"),
    (_ONE, "controller: spotgate, both calls"),
)
"""The contenders whose ratios are printed."""

_WARM_UP: Final = (32, 200)
"""Connections and creates before the measurement, so that the API server opens its connections to the webhook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The figures of one load, in milliseconds. CPU times and durations of calls are per create."""

    median: float
    p99: float
    per_second: float
    api_server: float
    webhook: float
    mutating: float
    validating: float


Cells: TypeAlias = dict[tuple[str, int], list[Cell]]
"""Cells by the contender's name and the number of connections, one for each round."""


def measure(cluster: Cluster, contenders: list[Contender], *, rounds: int, share: float) -> Cells:
    """Load the contenders in turn, with ``share`` of the usual creates. Each round starts with another contender."""
    pod = samples.pod(containers=2, variables=10)
    del pod["metadata"]["managedFields"]  # set by the API server
    own = {key: value for key, value in pod["metadata"]["labels"].items() if key != CAPACITY_LABEL}
    plain = pod | {"metadata": pod["metadata"] | {"labels": own}}
    kinds = {(contender.plain, contender.user) for contender in contenders}
    creates_of = {
        (is_plain, user): Creates.build(
            int(cluster.credentials.url.rpartition(":")[2]),
            cluster.credentials.authority,
            path=f"/api/v1/namespaces/{samples.NAMESPACE}/pods",
            token=cluster.credentials.tokens["admin"],
            user=user,
            body=orjson.dumps(plain if is_plain else pod),
        )
        for is_plain, user in kinds
    }
    cells: Cells = {(contender.name, connections): [] for connections in _COUNTS for contender in contenders}
    specs: dict[str, dict[str, Any]] = {}
    for number in range(rounds):
        report(f"round {number + 1} of {rounds}")
        start = number % len(contenders)
        for contender in contenders[start:] + contenders[:start]:
            with contender.in_force(cluster, pod) as specs[contender.name]:
                creates = creates_of[contender.plain, contender.user]
                connections, count = _WARM_UP
                creates.send(connections=connections, count=int(count * share))
                for connections, count in _COUNTS.items():
                    cell = _load(cluster, contender, creates, connections, int(count * share))
                    cells[contender.name, connections].append(cell)
        admitted = [spec for name, spec in specs.items() if name != NOTHING.name]
        assert all(spec == admitted[0] for spec in admitted), f"the admitted Pods differ: {specs}"
    return cells


def _load(cluster: Cluster, contender: Contender, creates: Creates, connections: int, count: int) -> Cell:
    pids = cluster.processes["kube-apiserver"].pid, contender.pid

    def cpu() -> list[float]:
        return [cpu_seconds(pid) if pid else 0 for pid in pids]

    calls_before = read_calls(cluster.kubectl)
    before = cpu()
    loaded = creates.send(connections=connections, count=count)
    api_server, webhook = (now - then for now, then in zip(cpu(), before, strict=True))
    calls = calls_since(calls_before, cluster.kubectl)
    called = frozenset() if contender.plain else contender.mutating | contender.validating
    assert {name: call.times for name, call in calls.items()} == dict.fromkeys(called, count), (
        f"{contender.name}: {count} creates caused these calls: {calls}"
    )
    return Cell(
        median=median(loaded.latencies) * 1000,
        p99=percentile(loaded.latencies, 0.99) * 1000,
        per_second=count / loaded.seconds,
        api_server=api_server / count * 1000,
        webhook=webhook / count * 1000,
        mutating=sum(calls[name].seconds for name in contender.mutating & called) / count * 1000,
        validating=sum(calls[name].seconds for name in contender.validating & called) / count * 1000,
    )


def sections(cells: Cells, contenders: list[Contender]) -> Iterator[Section]:
    """Yield the sections to print."""
    for connections in _COUNTS:
        yield _of_creates(cells, contenders, connections)
    yield _of_calls(cells, [contender for contender in contenders[1:] if not contender.plain])
    yield _against_go(cells)


def _of_creates(cells: Cells, contenders: list[Contender], connections: int) -> Section:
    figures: dict[str, Callable[[str], float]] = {
        "median ms": lambda name: _middle(cells[name, connections], lambda cell: cell.median),
        "added": lambda name: _added(cells, name, connections, lambda cell: cell.median),
        "p99 ms": lambda name: _middle(cells[name, connections], lambda cell: cell.p99),
        "creates/s": lambda name: _middle(cells[name, connections], lambda cell: cell.per_second),
        "CPU ms: API server": lambda name: _middle(cells[name, connections], lambda cell: cell.api_server),
        "webhook": lambda name: _middle(cells[name, connections], lambda cell: cell.webhook),
        "added in total": lambda name: _added(cells, name, connections, lambda cell: cell.api_server + cell.webhook),
    }
    return Section(
        title=f"Creates over {connections} connection{'s' if connections > 1 else ''}",
        columns=("admission", *figures),
        rows=[(contender.name, *(figure(contender.name) for figure in figures.values())) for contender in contenders],
        note=f"{_COUNTS[connections]} creates in each round.",
    )


def _of_calls(cells: Cells, contenders: list[Contender]) -> Section:
    def row(way: Contender) -> Iterator[str | float]:
        yield way.name
        for number in _COUNTS:
            yield _middle(cells[way.name, number], lambda cell: cell.mutating)
        for number in _COUNTS:
            yield _middle(cells[way.name, number], lambda cell: cell.validating) if way.validating else "not counted"

    return Section(
        title="Calls, measured by the API server, ms",
        columns=("admission", *(f"{phase}, {number}" for phase in ("mutate", "validate") for number in _COUNTS)),
        rows=[tuple(row(contender)) for contender in contenders],
        note="Means per create, by the number of connections.",
    )


def _against_go(cells: Cells) -> Section:
    return Section(
        title="spotgate compared",
        columns=("", "connections", "median", "creates/s", "CPU of the webhook"),
        rows=[
            (f"{ours} / {other}", str(number), *_ratios(cells[ours, number], cells[other, number]))
            for ours, other in _COMPARED
            for number in _COUNTS
        ],
        note="Medians of the rounds' ratios.",
    )


def _middle(cells: list[Cell], figure: Callable[[Cell], float]) -> float:
    return median(map(figure, cells))


def _added(cells: Cells, name: str, connections: int, figure: Callable[[Cell], float]) -> float:
    return _middle(cells[name, connections], figure) - _middle(cells[NOTHING.name, connections], figure)


def _ratios(ours: list[Cell], theirs: list[Cell]) -> Iterator[float]:
    figures: list[Callable[[Cell], float]] = [
        lambda cell: cell.median,
        lambda cell: cell.per_second,
        lambda cell: cell.webhook,
    ]
    for figure in figures:
        # The CPU time of a short round may be too small to measure.
        yield median(figure(one) / (figure(other) or nan) for one, other in zip(ours, theirs, strict=True))


def prepare(cluster: Cluster) -> None:
    """Create node pools, which spotgate reads, and the namespace of the Pods."""
    cluster.kubectl("apply", f"--filename={CRDS / 'coreweave.yaml'}")
    wait_for_crds(cluster.kubectl)
    cluster.kubectl("apply", f"--filename={POOLS}")
    cluster.kubectl("create", "namespace", samples.NAMESPACE)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="make only a few creates, to test the benchmark")
    quick: bool = parser.parse_args().quick
    console = Console(width=130, highlight=False)
    try:
        with start_cluster(find_or_build(("etcd", "kube-apiserver", "kubectl")), controllers=False) as cluster:
            prepare(cluster)
            with start_contenders(cluster) as contenders:
                before = os.getloadavg()[0]
                cells = measure(cluster, contenders, rounds=1 if quick else 7, share=0.05 if quick else 1)
    except (BinariesError, ControlPlaneError, KubectlError, WebhookError) as error:
        sys.exit(f"spotgate: {error}")
    console.print(conditions(before, VERSION))
    for section in sections(cells, contenders):
        show(console, section)


if __name__ == "__main__":
    main()

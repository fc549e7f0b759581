"""``make bench-notice``: measure how fast Pods learn of a reclaim, also while leaders are killed. Linux only.

The checker of `tests.controlplane.notice.harness` counts violations. The exit code is 1 if it finds a violation.
"""

from __future__ import annotations

import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Final

from rich.console import Console

from bench.figures import Section, percentile
from bench.run import conditions, show
from tests.controlplane.floor.harness import Controllers, controllers
from tests.controlplane.harness.api import Api
from tests.controlplane.harness.cluster import Cluster, start_cluster
from tests.controlplane.notice.harness import Checker, Reclaims
from tests.programs import VERSION, peak_mib
from webhook.rehearse.controlplane.binaries import BinariesError, find_or_build, report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

_NODES: Final = 100
_PODS: Final = 10
"""Pods on each Node, each in a different namespace. Every second one asks to be evicted."""
_KILLS: Final = 10
_NODES_OF_KILL: Final = 10
_MOMENT: Final = 1.5
"""Leaders are killed within this many seconds after the notice."""


class Reclaim:
    """One reclaim of several Nodes at once."""

    def __init__(self, teams: Sequence[Reclaims], checker: Checker, name: str, count: int) -> None:
        self._teams = teams
        self._checker = checker
        self._nodes = [f"{name}-{number}" for number in range(count)]
        self._began: dict[str, float] = {}
        self.removals: dict[str, datetime] = {}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(teams[0].node, self._nodes))
            pods = [(team, node, number) for node in self._nodes for number, team in enumerate(teams)]
            list(pool.map(lambda pod: pod[0].pod(f"{pod[1]}-{pod[2]}", pod[1], ["inform", "evict"][pod[2] % 2]), pods))
        self._of_node = {node: [f"{node}-{number}" for number in range(len(teams))] for node in self._nodes}

    @property
    def evicted(self) -> list[str]:
        """Return the Pods that ask to be evicted."""
        return [pod for pods in self._of_node.values() for pod in pods[1::2]]

    def begin(self) -> None:
        """Label all Nodes."""

        def preempt(node: str) -> None:
            removal, now = self._teams[0].preempt(node), time.monotonic()
            self.removals |= dict.fromkeys(self._of_node[node], removal)
            self._began |= dict.fromkeys(self._of_node[node], now)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(preempt, self._nodes))

    def end(self) -> list[float]:
        """Wait until all Pods are told, and evicted if they ask for it. Return the seconds until each was told."""
        deadline = time.monotonic() + 120
        while not all(pod in self._checker.informed for pod in self.removals) or not all(
            self._checker.ends[pod] for pod in self.evicted
        ):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return [max(0.0, self._checker.informed[pod] - began) for pod, began in self._began.items()]


def measure(cluster: Cluster, running: Controllers, checker: Checker, teams: Sequence[Reclaims]) -> Iterator[Section]:
    """Run all measurements once, and yield the tables. Violations are in the last column."""
    columns = ("", "Pods", "median s", "p99 s", "longest s", "violations")

    def row(name: str, reclaims: Sequence[Reclaim], seconds: list[float]) -> tuple[str | float, ...]:
        problems: list[str] = []
        own = Checker(cluster, "", checker.values, checker.informed, checker.ends)
        for reclaim in reclaims:
            problems += [text for text in own.problems(reclaim.removals, reclaim.evicted) if "no Pod of" not in text]
        for problem in problems[:20]:
            report(problem)
        return (name, len(seconds), median(seconds), percentile(seconds, 0.99), max(seconds), len(problems))

    report(f"{_NODES * _PODS} Pods on {_NODES} Nodes")
    large = Reclaim(teams, checker, "large", _NODES)
    running.wait_for_leader()
    large.begin()
    rows = [row(f"{_NODES} Nodes at once", [large], large.end())]
    chosen = random.Random(_KILLS)  # noqa: S311 - no secret
    small: list[Reclaim] = []
    seconds: list[float] = []
    for number in range(_KILLS):
        report(f"a leader is killed, {number + 1} of {_KILLS}")
        leader = running.wait_for_leader()
        small.append(Reclaim(teams, checker, f"kill{number}", _NODES_OF_KILL))
        small[-1].begin()
        time.sleep(chosen.uniform(0, _MOMENT))
        leader.kill()
        leader.start()
        seconds += small[-1].end()
    rows.append(row(f"{_KILLS} leaders killed", small, seconds))
    yield Section(title="From the notice on the Node to the time on the Pod", columns=columns, rows=rows)
    peak = max(peak_mib(process.pid) for process in running.processes)
    yield Section(title="Memory", columns=("", "MiB"), rows=[("the peak of a controller", peak)])


def main() -> int:
    """Measure and print."""
    console = Console(width=120, highlight=False)
    console.print(conditions(os.getloadavg()[0], VERSION))
    violations = 0
    try:
        with ExitStack() as stack:
            cluster = stack.enter_context(start_cluster(find_or_build(), controllers=False))
            cluster.kubectl("create", "namespace", "spotgate-system")
            api = Api(cluster)
            created = [{"metadata": {"name": f"team-{number}"}} for number in range(_PODS)]
            names = [
                stack.enter_context(api.created("/api/v1/namespaces", team))["metadata"]["name"] for team in created
            ]
            running = stack.enter_context(controllers(cluster, component="reclaim-notice", duty="notice"))
            checker = stack.enter_context(Checker(cluster, ""))
            for section in measure(cluster, running, checker, [Reclaims(api, name) for name in names]):
                show(console, section)
                if section.columns[-1] == "violations":
                    violations += sum(int(row[-1]) for row in section.rows)
    except BinariesError as problem:
        sys.exit(f"spotgate: {problem}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())

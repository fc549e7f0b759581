"""``make bench-floor``: measure the on-demand floor under load, and while leaders are killed or paused. Linux only.

The checker of `tests.controlplane.floor.harness` counts violations. The exit code is 1 if it finds a violation.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from bench.figures import Section, percentile
from bench.run import show
from tests.builders import deployment, labeled
from tests.controlplane.floor import harness
from tests.controlplane.floor.events import Events
from tests.controlplane.floor.harness import ANNOTATION, Checker, Controllers, controllers, make_room
from tests.controlplane.harness.api import Api
from tests.controlplane.harness.cluster import Cluster, start_cluster
from tests.controlplane.harness.populate import populate
from tests.controlplane.harness.relay import Relay
from tests.controlplane.harness.webhook import install_webhook
from webhook.rehearse.controlplane.binaries import BinariesError, find_or_build, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RATE: Final = 20
"""Pods per second, to measure the cost of the scheduling gate."""
_PODS: Final = 200
_AT_ONCE: Final = 1000
_TERM_SECONDS: Final = 10.0
"""Seconds from the election of a leader until it is killed."""


def namespace(cluster: Cluster, name: str) -> str:
    """Create a namespace that accepts Pods."""
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=30s")
    return name


def workload(name: str, replicas: int, annotations: dict[str, str]) -> dict[str, Any]:
    """Return a Deployment that prefers spot."""
    return labeled(deployment(name, replicas), {"app": name, "spotgate.dev/capacity": "spot-preferred"}, annotations)


def seconds_to_bind(cluster: Cluster, where: str, annotations: dict[str, str]) -> list[float]:
    """Create Deployments of one Pod at a steady rate. Return the seconds from each Pod's creation to its binding."""
    api, checker = Api(cluster), Binding(cluster)
    with checker:
        began = time.monotonic()
        for number in range(_PODS):
            time.sleep(max(0.0, began + number / _RATE - time.monotonic()))
            manifest = workload(f"d{number}", 1, annotations)
            answer = api.create(f"/apis/apps/v1/namespaces/{where}/deployments", manifest)
            if answer.message:
                raise RuntimeError(answer.message)
        deadline = time.monotonic() + 60
        while len(checker.seconds) < _PODS and time.monotonic() < deadline:
            time.sleep(0.1)
    cluster.kubectl("delete", "deployments", "--all", f"--namespace={where}", "--cascade=foreground")
    return list(checker.seconds.values())


def seconds_to_bind_all(cluster: Cluster, where: str, annotations: dict[str, str]) -> float:
    """Create a Deployment of many Pods. Return the seconds until all are bound."""
    with Binding(cluster) as checker:
        time.sleep(1)
        before, began = len(checker.seconds), time.monotonic()
        cluster.kubectl.apply(workload("large", _AT_ONCE, annotations), arguments=(f"--namespace={where}",))
        while len(checker.seconds) - before < _AT_ONCE:
            time.sleep(0.05)
        seconds = time.monotonic() - began
    cluster.kubectl("delete", "deployment", "large", f"--namespace={where}", "--cascade=foreground")
    return seconds


class Binding(Checker):
    """A checker that also records the seconds from each Pod's creation to its binding."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.seconds: dict[str, float] = {}
        self._created: dict[str, float] = {}

    def _take(self, resource: str, kind: str, thing: dict[str, Any]) -> None:
        if resource == "pods" and kind != "DELETED":
            uid, now = thing["metadata"]["uid"], time.monotonic()
            self._created.setdefault(uid, now)
            if thing["spec"].get("nodeName"):
                self.seconds.setdefault(uid, now - self._created[uid])


@contextlib.contextmanager
def meanwhile(events: Events, seconds: float) -> Iterator[None]:
    """Run events on another thread during the block, and wait for them to finish."""
    thread = threading.Thread(target=lambda: events.run_for(seconds))
    thread.start()
    yield
    thread.join()


def kill_each(running: Controllers, seconds: float) -> int:
    """Kill each leader some time after its election, and restart it. Repeat for ``seconds``, and return the count."""
    ends, killed = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        leader = running.wait_for_leader()
        time.sleep(_TERM_SECONDS)
        leader.kill()
        killed += 1
        running.wait_for_leader(leader)
        leader.start()
    return killed


def pause(running: Controllers) -> None:
    """Pause a leader until another leader is elected, and then resume it."""
    leader = running.wait_for_leader()
    os.killpg(leader.pid, signal.SIGSTOP)
    running.wait_for_leader(leader)
    time.sleep(2)
    os.killpg(leader.pid, signal.SIGCONT)
    time.sleep(5)


def cut_often(relay: Relay) -> None:
    """Cut the connections of both controllers repeatedly."""
    for _ in range(10):
        time.sleep(3)
        relay.cut()


def measure(cluster: Cluster, running: Controllers, checker: Checker, relay: Relay, count: int) -> Iterator[Section]:
    """Run all measurements once, and yield the tables."""
    where = namespace(cluster, "bench-floor")
    report("the cost of the gate")
    seconds_to_bind(cluster, where, {})  # warm
    without, gated = (seconds_to_bind(cluster, where, annotations) for annotations in ({}, {ANNOTATION: "20%"}))
    report(f"{_AT_ONCE} Pods at once")
    large = [("without a floor", seconds_to_bind_all(cluster, where, {}))]
    checker.longest_gate = 0.0
    large.append(("with a floor", seconds_to_bind_all(cluster, where, {ANNOTATION: "20%"})))
    large.append(("the longest wait for an assignment", checker.longest_gate))
    cost = [
        (name, 1000 * median(seconds), 1000 * percentile(seconds, 0.99))
        for name, seconds in (("without a floor", without), ("with a floor", gated))
    ]
    yield Section(
        title=f"From creation to binding, {_RATE} Pods a second", columns=("", "median ms", "p99 ms"), rows=cost
    )
    yield Section(title=f"{_AT_ONCE} Pods of one Deployment, until all are bound", columns=("", "s"), rows=large)
    columns = ("", "events", "Pods assigned", "violations", "longest wait s")
    rows = list(chaos(cluster, running, checker, relay, where, count))
    yield Section(title="While workloads change", columns=columns, rows=rows)


def chaos(
    cluster: Cluster, running: Controllers, checker: Checker, relay: Relay, where: str, count: int
) -> Iterator[tuple[str | float, ...]]:
    """Yield a row for each fault, which happens during random events."""
    events = Events(cluster, where, workloads=50)
    events.create()

    def row(name: str, work: Callable[[], object]) -> tuple[str | float, ...]:
        report(name)
        happened, assigned, before = sum(events.happened.values()), checker.assigned, len(checker.violations)
        checker.longest_gate = 0.0
        work()
        checker.wait_until_none_is_gated(120)
        now = sum(events.happened.values())
        return name, now - happened, checker.assigned - assigned, len(checker.violations) - before, checker.longest_gate

    def during(seconds: float, work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            with meanwhile(events, seconds):
                work()

        return run

    yield row("nothing", lambda: events.run(count))
    share = min(1.0, count / 10_000)
    yield row("each leader killed", during(120 * share + 20, lambda: kill_each(running, 100 * share)))
    yield row("a leader paused", during(40, lambda: pause(running)))
    yield row("connections cut ten times", during(40, lambda: cut_often(relay)))
    yield row("the API server restarted", during(40, lambda: cluster.restart("kube-apiserver")))
    yield row("etcd restarted", during(40, lambda: cluster.restart("etcd")))
    yield row("both controllers gone", during(40, lambda: gone(running)))


def gone(running: Controllers) -> None:
    """Kill both controllers, and restart them after 20 seconds."""
    running.kill()
    time.sleep(20)
    running.start()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000, help="the number of random events without faults")
    options = parser.parse_args()
    harness.ROOM = 16
    try:
        with start_cluster(find_or_build()) as cluster:
            populate(cluster.kubectl)
            make_room(cluster.kubectl)
            with (
                install_webhook(cluster),
                Relay(cluster.credentials.url) as relay,
                controllers(cluster, relay.port) as running,
                Checker(cluster) as checker,
            ):
                time.sleep(5)
                for section in measure(cluster, running, checker, relay, options.events):
                    show(Console(), section)
    except BinariesError as problem:
        sys.exit(f"spotgate: {problem}")
    for violation in checker.violations[:20]:
        report(violation)
    return 1 if checker.violations else 0


if __name__ == "__main__":
    sys.exit(main())

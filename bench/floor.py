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
from bench.run import conditions, show
from tests.builders import deployment, labeled
from tests.controlplane.floor import harness
from tests.controlplane.floor.events import Events, patching
from tests.controlplane.floor.harness import ANNOTATION, Checker, Controllers, controllers, make_room
from tests.controlplane.harness.api import Api, pods_in
from tests.controlplane.harness.cluster import Cluster, start_cluster
from tests.controlplane.harness.populate import populate
from tests.controlplane.harness.relay import Relay
from tests.controlplane.harness.webhook import SERVICE, install_webhook
from tests.programs import VERSION, peak_mib
from webhook.rehearse.controlplane.binaries import BinariesError, find_or_build, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RATE: Final = 20
"""Pods per second, to measure the cost of the scheduling gate."""
_PODS: Final = 200
_AT_ONCE: Final = 1000
_TERM_SECONDS: Final = 10.0
"""Seconds from the election of a leader until it is killed."""
_HOSTILE: Final = "hostile"
"""The namespace of the tenant that attacks the others. The figures don't include its Pods."""
_FLOOR: Final = "/metadata/annotations/spotgate.dev~1on-demand-floor"
_WAITING: Final = 5
"""Deployments of 1,000 gated Pods each with which controllers start, to measure their memory."""


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


def hang_often(relay: Relay) -> None:
    """Let the connections of both controllers hang repeatedly, without a reset."""
    for _ in range(5):
        time.sleep(10)
        relay.freeze()


def attack(cluster: Cluster, seconds: float) -> None:
    """Let a tenant create many Pods with a floor, and change the floor of some of them as often as possible."""
    api, ends = Api(cluster), time.monotonic() + seconds
    deployments = f"/apis/apps/v1/namespaces/{_HOSTILE}/deployments"
    while time.monotonic() < ends:
        api.create(deployments, workload("hostile", 300, {ANNOTATION: "50%"}))
        time.sleep(1)
        pods = [f"{pods_in(_HOSTILE)}/{pod['metadata']['name']}" for pod in api.get(pods_in(_HOSTILE))["items"][:8]]
        with patching(cluster, pods, _FLOOR):
            time.sleep(8)
        cluster.kubectl("delete", "deployment", "hostile", f"--namespace={_HOSTILE}", "--cascade=foreground")


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
    columns = ("", "events", "Pods assigned", "not yet seen", "at most s", "violations", "longest wait s")
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
        checker.behind.clear()
        work()
        checker.wait_until_none_is_gated(120)
        return (
            name,
            sum(events.happened.values()) - happened,
            checker.assigned - assigned,
            len(checker.behind),
            max(checker.behind, default=0.0),
            len(checker.violations) - before,
            checker.longest_gate,
        )

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
    yield row("connections hang five times", during(60, lambda: hang_often(relay)))
    namespace(cluster, _HOSTILE)
    yield row("a hostile tenant", during(60, lambda: attack(cluster, 55)))
    yield row("the API server restarted", during(40, lambda: cluster.restart("kube-apiserver")))
    yield row("etcd restarted", during(40, lambda: cluster.restart("etcd")))
    yield row("both controllers gone", during(40, lambda: gone(running)))


def gone(running: Controllers) -> None:
    """Kill both controllers, and restart them after 20 seconds."""
    running.kill()
    time.sleep(20)
    running.start()


def starting_with_gated_pods(cluster: Cluster) -> Section:
    """Measure controllers that start when many Pods wait. Without the webhook, the gate of a template stays."""
    where = namespace(cluster, "bench-memory")
    for number in range(_WAITING):
        manifest = workload(f"m{number}", 1000, {ANNOTATION: "50%"})
        manifest["spec"]["template"]["spec"]["schedulingGates"] = [{"name": ANNOTATION}]
        cluster.kubectl.apply(manifest, arguments=(f"--namespace={where}",))
    created = "--for=jsonpath={.status.replicas}=1000"
    cluster.kubectl("wait", created, "deployments", "--all", f"--namespace={where}", "--timeout=600s")
    with Checker(cluster) as checker:
        while checker.gated() < 1000 * _WAITING:
            time.sleep(0.1)
        began = time.monotonic()
        with controllers(cluster) as running:
            checker.wait_until_none_is_gated(600)
            taken = time.monotonic() - began
            peak = max(peak_mib(process.pid) for process in running.processes)
    rows = [("until all are assigned, s", taken), ("the peak memory of a controller, MiB", peak)]
    return Section(title=f"Controllers start with {1000 * _WAITING:,} gated Pods", columns=("", ""), rows=rows)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000, help="the number of random events without faults")
    options = parser.parse_args()
    harness.ROOM = 16
    console = Console(width=120, highlight=False)
    console.print(conditions(os.getloadavg()[0], VERSION))
    try:
        with start_cluster(find_or_build()) as cluster:
            populate(cluster.kubectl)
            make_room(cluster.kubectl)
            with install_webhook(cluster):
                with (
                    Relay(cluster.credentials.url) as relay,
                    controllers(cluster, relay.port) as running,
                    Checker(cluster, _HOSTILE) as checker,
                ):
                    time.sleep(5)
                    for section in measure(cluster, running, checker, relay, options.events):
                        show(console, section)
                cluster.kubectl("delete", "mutatingwebhookconfiguration", SERVICE)
                show(console, starting_with_gated_pods(cluster))
    except BinariesError as problem:
        sys.exit(f"spotgate: {problem}")
    for violation in checker.violations[:20]:
        report(violation)
    return 1 if checker.violations else 0


if __name__ == "__main__":
    sys.exit(main())

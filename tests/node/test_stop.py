"""The timeline of a reclaim is what a kubelet does: it stops the Pods of a table, whose containers log each event.

All Pods run on one node, and stop at the same time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from tests.builders import CKS
from tests.controlplane.harness.api import accepted
from tests.node.node import PODS, Node
from tests.rules.conftest import with_fields
from webhook.capacity.placement.budget import GraceBudget
from webhook.kube.pod_decoding import decode_pod
from webhook.reclaim.timeline import timeline_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.reclaim.timeline import ReclaimTimeline

JSON = dict[str, Any]

# The drain begins with the notice, and the node stays longer than any grace period.
WINDOW = 300
TIMES = {"cordon_seconds": 0, "drain_seconds": 0, "removal_seconds": WINDOW}
PROVIDER = with_fields(CKS, interruption=with_fields(CKS.interruption, **TIMES))

# On two cores with a load of 20, a signal or an exec hook can be a second late, and so can the first event, from which times
# count. Right and wrong times differ by 4 s or more, except the least time from a signal to SIGKILL. That is a timer of
# containerd, measured in the container with an error of 0.2 s, and compared with its own tolerance.
EARLY, LATE, BRIEF = 1.5, 2.5, 1.5
LEAST = 2
LONG = 99
WAITING = "never"  # the container that waits for an init container
KILLED = 137


class Stop(NamedTuple):
    """A Pod and its evictions: the seconds after the first one, and their grace period, if it isn't the Pod's."""

    grace: int
    containers: list[JSON]
    init: tuple[JSON, ...] = ()
    evictions: tuple[tuple[int, int | None], ...] = ((0, None),)

    def spec(self, grace: int) -> JSON:
        """Return the Pod's spec with this grace period."""
        own = {"initContainers": list(self.init), "containers": self.containers}
        return {"restartPolicy": "Never", "terminationGracePeriodSeconds": grace, **own}

    def timeline(self) -> ReclaimTimeline:
        """Return the timeline. The first eviction sets the grace period."""
        first = self.evictions[0][1]
        spec = self.spec(self.grace if first is None else first)
        pod = decode_pod(msgspec.json.encode({"spec": spec}))
        budget = GraceBudget(WINDOW, 0, "")
        return timeline_of("", pod, pod, provider=PROVIDER, pool=None, budget=budget)


def app(name: str, seconds: int, code: object = 0, hook: JSON | None = None, **fields: Any) -> JSON:
    """Return a container that exits with the code some seconds after its signal: see app.sh."""
    lifecycle = {"lifecycle": {"preStop": hook}} if hook else {}
    return {"name": name, "command": ["app", name, str(seconds), str(code)], **lifecycle, **fields}


def sidecar(*arguments: Any, **fields: Any) -> JSON:
    return app(*arguments, **fields, restartPolicy="Always")


def native(seconds: int) -> JSON:
    return {"sleep": {"seconds": seconds}}


def command(*words: str) -> JSON:
    return {"exec": {"command": list(words)}}


def logged(name: str, seconds: int) -> JSON:
    """Return a hook that logs its start. For the timeline, its time is unknown."""
    return command("app", name, str(seconds), "hook")


STOPS = {
    "native and exec sleeps delay SIGTERM": Stop(
        20, [app("native", 2, 3, native(4)), app("exec", 2, 0, command("sleep", "8")), app("none", 2)]
    ),
    "a hook ends with the grace period": Stop(
        6, [app("long", LONG, 0, command("sh", "-c", "sleep 60")), app("equal", LONG, 0, native(6)), app("at-once", 1)]
    ),
    "a hook of unknown length": Stop(20, [app("unknown", 2, 0, logged("unknown", 5))]),
    "SIGKILL for an app that takes too long, or that handles no signal": Stop(
        8, [app("slow", LONG), app("deaf", LONG, "-")]
    ),
    "each container can have its own stop signal": Stop(
        9, [app("quit", 2, lifecycle={"stopSignal": "SIGQUIT"}), app("term", 2)]
    ),
    "sidecars stop after the app, in reverse order, but their hooks run at once": Stop(
        30,
        [app("main", 6)],
        (sidecar("first", 1, 0, logged("first", 2)), sidecar("second", 3, 4, command("sleep", "10"))),
    ),
    "sidecars of an app that takes too long get SIGTERM when the grace period ends": Stop(
        8, [app("greedy", LONG)], (sidecar("proxy", LONG), sidecar("mesh", 1))
    ),
    "an init container has the grace period": Stop(8, [app(WAITING, 1)], (app("init", LONG),)),
    "a grace period of zero": Stop(0, [app("plain", LONG), app("hooked", LONG, 0, command("sleep", "9"))]),
    "a second eviction during a hook": Stop(
        20, [app("again", LONG, 0, logged("again", 9))], evictions=((0, None), (4, None))
    ),
    "a second eviction with a shorter grace period": Stop(24, [app("short", LONG)], evictions=((0, None), (4, 6))),
    "a second eviction with a shorter grace period during a hook": Stop(
        24, [app("cut", LONG, 0, native(14)), app("soon", 1)], evictions=((0, None), (4, 6))
    ),
    "a second eviction with no grace period": Stop(24, [app("forced", LONG)], evictions=((0, None), (4, 0))),
    "a second eviction with a longer grace period": Stop(9, [app("longer", LONG)], evictions=((0, None), (4, 40))),
    "an eviction with a longer grace period than the Pod's, and another without": Stop(
        6, [app("granted", LONG)], evictions=((0, 16), (4, None))
    ),
}


class Stopped(NamedTuple):
    """The events of containers, in seconds after the first one in the Pod, their exit codes, and the phases of Pods."""

    events: dict[str, list[tuple[float, str]]]
    codes: dict[str, int]
    phases: dict[str, str]


@pytest.fixture(scope="module")
def stopped(node: Node) -> Stopped:
    """Run all Pods of the table, evict them, and wait until their containers have ended."""
    names = {what: f"pod-{number}" for number, what in enumerate(STOPS)}
    for what, stop in STOPS.items():
        node.run(names[what], stop.spec(stop.grace))
    count = sum(len(stop.containers) + len(stop.init) for stop in STOPS.values())
    node.api.wait(lambda: len(states(node.pods(), "running")) == count - 1, f"all but `{WAITING}` run")

    start = time.monotonic()
    evictions = [(second, what, grace) for what, stop in STOPS.items() for second, grace in stop.evictions]
    for second, what, grace in sorted(evictions, key=lambda eviction: eviction[0]):
        time.sleep(max(0, start + second - time.monotonic()))
        options = {} if grace is None else {"deleteOptions": {"gracePeriodSeconds": grace}}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": names[what]}, **options}
        accepted(node.api.create(f"{PODS}/{names[what]}/eviction", eviction))
    node.api.wait(lambda: not states(node.pods(), "running"), "all containers have ended")

    pods = node.pods()
    codes = {name: state["exitCode"] for name, state in states(pods, "terminated").items()}
    phases = {what: pods[names[what]]["status"]["phase"] for what in STOPS}
    return Stopped({name: log for stop in STOPS.values() for name, log in logs_of(node, stop)}, codes, phases)


def states(pods: dict[str, JSON], state: str) -> dict[str, JSON]:
    """Return this state of all containers that are in it."""
    kinds = ("containerStatuses", "initContainerStatuses")
    statuses = [status for pod in pods.values() for kind in kinds for status in pod["status"].get(kind, ())]
    return {status["name"]: status["state"][state] for status in statuses if state in status["state"]}


def logs_of(node: Node, stop: Stop) -> Iterator[tuple[str, list[tuple[float, str]]]]:
    """Yield the name and log of each container. A busy kubelet may start late, so times count from the first event."""
    names = [container["name"] for container in (*stop.init, *stop.containers) if container["name"] != WAITING]
    lines = {name: [line.split() for line in (node.log / name).read_text().splitlines()] for name in names}
    zero = min(float(uptime) for log in lines.values() for uptime, event in log if event not in {"started", "runs"})
    for name, log in lines.items():
        yield name, [(float(uptime) - zero, event) for uptime, event in log]


def signal_of(events: list[tuple[float, str]]) -> float | None:
    return next((second for second, event in events if event.startswith("SIG")), None)


@pytest.mark.parametrize("what", STOPS)
def test_the_timeline_is_what_a_kubelet_does(stopped: Stopped, what: str) -> None:
    stop = STOPS[what]
    containers = {container["name"]: container for container in (*stop.init, *stop.containers)}
    spans = {
        "init" if name == WAITING else name: span
        for lane in stop.timeline().lanes
        for span in lane.spans
        if span.name in {"shutdown", "hook", "sidecar"}
        for name in lane.name.split(", ")
    }
    assert spans.keys() == containers.keys() - {WAITING}
    for name, span in spans.items():
        events, container = stopped.events[name], containers[name]
        hooks = [second for second, event in events if event == "preStop"]
        assert len(hooks) == str(container.get("lifecycle")).count("'app'")
        assert not hooks or hooks[0] <= LATE

        signal = signal_of(events) or span.begin
        latest = span.begin if span.name == "shutdown" else span.end
        assert span.begin - EARLY <= signal <= latest + LATE, name
        wanted = container.get("lifecycle", {}).get("stopSignal", "SIGTERM")
        assert {event for _, event in events if event.startswith("SIG")} <= {wanted}

        killed = span.end if span.name == "shutdown" else max(span.end, signal + LEAST)
        _, _, seconds, code = container["command"]
        end = min(signal + int(seconds), killed)
        assert end - EARLY <= events[-1][0] <= end + LATE, name
        if span.name == "shutdown" and span.seconds <= 2 * LEAST:
            assert abs(events[-1][0] - signal - span.seconds) < BRIEF, name
        assert stopped.codes[name] == (KILLED if end == killed else int(code))
    succeeded = not any(stopped.codes.get(container["name"], KILLED) for container in stop.containers)
    assert stopped.phases[what] == ("Succeeded" if succeeded else "Failed")


def test_a_sidecar_gets_sigterm_when_its_hook_and_the_containers_after_it_have_ended(stopped: Stopped) -> None:
    first, second = stopped.events["first"], stopped.events["second"]
    for signal, since in ((signal_of(second), 10), (signal_of(first), second[-1][0])):
        assert signal is not None
        assert since - EARLY <= signal <= since + LATE

"""Benchmark of a decision in this process, from the bytes of the review to the bytes of the response."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import thread_time_ns
from typing import TYPE_CHECKING, Any, cast

import orjson

from bench import samples
from bench.figures import Section, percentile
from examples.apiserver import ENGINEER, Answer, ApiServer, Request, User, pods_of
from examples.run import EXAMPLES, HERE, requests_of
from webhook.engine.bundle import SHIPPED, Bundle, load_bundle
from webhook.engine.call import decide_call, respond_to_call
from webhook.inputs.state import FileState
from webhook.model.review import decode_review
from webhook.registration.configurations import configurations
from webhook.rules.context import Context, Phase, utc_now

if TYPE_CHECKING:
    from examples.served import Webhook
    from webhook.capacity.view import ClusterView

REPLICASET_CONTROLLER = User(
    name="system:serviceaccount:kube-system:replicaset-controller",
    groups=("system:serviceaccounts", "system:serviceaccounts:kube-system"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A review in one phase, and the bundle and the cluster view for its decision."""

    name: str
    phase: Phase
    data: bytes
    bundle: Bundle
    view: ClusterView

    def answer(self) -> bytes:
        """Return the server's answer to the review."""
        context = Context(phase=self.phase, now=utc_now(), view=self.view)
        return respond_to_call(decide_call(decode_review(self.data), self.bundle, context))


class Recorder:
    """An API server whose webhook runs in this process and records every review.

    Attributes:
        cases: the recorded reviews.
    """

    def __init__(self, bundle: Bundle, view: ClusterView) -> None:
        self.cases: list[Case] = []
        self._bundle = bundle
        self._view = view
        self._name = ""
        self._server = ApiServer(cast("Webhook", self))

    def admit(self, name: str, request: Request) -> Answer:
        """Send a request through admission."""
        self._name = name
        return self._server.admit(request)

    def ask(self, path: str, review: dict[str, Any]) -> dict[str, Any]:
        """Record the review and answer it."""
        phase = Phase(path.removeprefix("/"))
        case = Case(name=self._name, phase=phase, data=orjson.dumps(review), bundle=self._bundle, view=self._view)
        self.cases.append(case)
        response: dict[str, Any] = orjson.loads(case.answer())["response"]
        return response

    def configurations(self) -> str:
        """Return the webhook configurations for the API server."""
        client = {"service": {"name": "spotgate", "namespace": "spotgate-system", "port": 443}}
        return "\n---\n".join(orjson.dumps(config).decode() for config in configurations(self._bundle, client))


def pod_cases(name: str, pod: dict[str, Any], bundle: Bundle, view: ClusterView, user: User = ENGINEER) -> list[Case]:
    """Return the reviews of a Pod that the user creates: for /mutate, and for /validate with the patch applied."""
    recorder = Recorder(bundle, view)
    recorder.admit(name, Request(operation="CREATE", object=pod, user=user))
    return recorder.cases


def example_cases(bundle: Bundle) -> list[Case]:
    """Return the reviews of all manifests in ``examples/``, and of their workloads' Pods."""
    cases: list[Case] = []
    for example in EXAMPLES:
        recorder = Recorder(bundle, FileState([HERE / example.cluster], bundle.providers).view())
        for request in requests_of(example):
            answer = recorder.admit(example.file, request)
            for title, pod in () if answer.denied_by else pods_of(answer.object):
                recorder.admit(f"{example.file}: Pod of the {title}", pod)
        cases += recorder.cases
    return cases


def latency(cases: list[Case], *, rounds: int, calls: int) -> Section:
    """Measure the decisions of all cases."""
    taken = _timed(cases, rounds=rounds, calls=calls)
    return Section(
        title="Decision, us",
        columns=("review", "bytes", "p50", "p99"),
        rows=[(f"{case.phase}: {case.name}", len(case.data), *times) for case, times in zip(cases, taken, strict=True)],
        note=f"{len(cases[0].bundle.policies)} policies; CPU time, medians over {rounds} rounds of {calls} calls. "
        "As in production, the pools that admit a workload's Pods are cached.",
    )


def flatness(cases: list[Case], *, rounds: int, calls: int, more: int = 100) -> Section:
    """Measure the decisions again with ``more`` policies that match none of the cases."""
    with tempfile.TemporaryDirectory() as folder:
        samples.write_policies(Path(folder), more)
        bundle = load_bundle([SHIPPED, Path(folder)])
    crowded = [replace(case, bundle=bundle) for case in cases]
    taken = [p50 for p50, _ in _timed([*cases, *crowded], rounds=rounds, calls=calls)]
    few, many = taken[: len(cases)], taken[len(cases) :]
    return Section(
        title=f"Decision with {more} more policies that don't match, us",
        columns=("review", "shipped policies p50", f"{more} more p50", "ratio"),
        rows=[
            (f"{case.phase}: {case.name}", before, after, after / before)
            for case, before, after in zip(cases, few, many, strict=True)
        ],
        note="Half are for other resources, half for Pods in other namespaces.",
    )


def _timed(cases: list[Case], *, rounds: int, calls: int) -> list[tuple[float, float]]:
    """Return p50 and p99 of each case in microseconds, as medians over rounds. In each round, the cases take turns."""
    spreads: list[list[tuple[float, float]]] = [[] for _ in cases]
    for _ in range(rounds):
        for case, spread in zip(cases, spreads, strict=True):
            taken = [_once(case) for _ in range(calls)]
            spread.append((percentile(taken, 0.5), percentile(taken, 0.99)))
    return [(median(p50 for p50, _ in spread), median(p99 for _, p99 in spread)) for spread in spreads]


def _once(case: Case) -> float:
    """Return the CPU time in microseconds, which excludes other work on the machine. A decision never waits."""
    start = thread_time_ns()
    case.answer()
    return (thread_time_ns() - start) / 1000

"""How long one decision takes: bytes in, bytes out, in this process, with nothing around it."""

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
from examples.apiserver import Answer, ApiServer, Request, User, pods_of
from examples.run import EXAMPLES, HERE, requests_of
from webhook.engine.bundle import SHIPPED, Bundle, load_bundle
from webhook.engine.engine import decide_on, needs
from webhook.engine.response import respond
from webhook.model.review import decode_review
from webhook.offline.manifests.state import FileState
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
    """One review in one phase, and what it is judged with."""

    name: str
    phase: Phase
    data: bytes
    bundle: Bundle
    view: ClusterView

    def answer(self) -> bytes:
        """Decide as the server does, from the review's bytes to the response's."""
        index = self.bundle.index
        request = decode_review(self.data)
        route = index.route(self.phase, request)
        needs(route)
        decision = decide_on(route, request, index, Context(phase=self.phase, now=utc_now(), view=self.view))
        return respond(request.uid, decision, self.phase)


class Recorder:
    """An API server whose webhook is in this process and keeps every review it is asked.

    Attributes:
        cases: those reviews.
    """

    def __init__(self, bundle: Bundle, view: ClusterView) -> None:
        self.cases: list[Case] = []
        self._bundle = bundle
        self._view = view
        self._name = ""
        self._server = ApiServer(cast("Webhook", self))

    def admit(self, name: str, request: Request) -> Answer:
        """Take a request through admission."""
        self._name = name
        return self._server.admit(request)

    def ask(self, path: str, review: dict[str, Any]) -> dict[str, Any]:
        """Keep the review and answer it."""
        phase = Phase(path.removeprefix("/"))
        case = Case(name=self._name, phase=phase, data=orjson.dumps(review), bundle=self._bundle, view=self._view)
        self.cases.append(case)
        response: dict[str, Any] = orjson.loads(case.answer())["response"]
        return response

    def configurations(self) -> str:
        """Return the webhook configurations that lead an API server to it."""
        client = {"service": {"name": "spotgate", "namespace": "spotgate-system", "port": 443}}
        return "\n---\n".join(orjson.dumps(each).decode() for each in configurations(self._bundle, client))


def pod_cases(name: str, pod: dict[str, Any], bundle: Bundle, view: ClusterView) -> list[Case]:
    """Return the two reviews of a Pod that a ReplicaSet makes; that of /validate has the patch applied."""
    recorder = Recorder(bundle, view)
    recorder.admit(name, Request(operation="CREATE", object=pod, user=REPLICASET_CONTROLLER))
    return recorder.cases


def example_cases(bundle: Bundle) -> list[Case]:
    """Every review that comes of the manifests in ``examples/``, those of the Pods of workloads included."""
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
    """Measure the decision on each case."""
    taken = _timed(cases, rounds=rounds, calls=calls)
    return Section(
        title="Decision, us",
        columns=("review", "bytes", "p50", "p99"),
        rows=[(f"{case.phase}: {case.name}", len(case.data), *each) for case, each in zip(cases, taken, strict=True)],
        note=f"{len(cases[0].bundle.policies)} policies; CPU time, medians over {rounds} rounds of {calls} calls. "
        "A workload's Pods are of one kind, and where that kind can land is remembered: so it is here.",
    )


def flatness(cases: list[Case], *, rounds: int, calls: int, more: int = 100) -> Section:
    """Measure the decisions beside so many policies that match none of the cases."""
    with tempfile.TemporaryDirectory() as folder:
        samples.write_policies(Path(folder), more)
        bundle = load_bundle([SHIPPED, Path(folder)])
    crowded = [replace(case, bundle=bundle) for case in cases]
    taken = [p50 for p50, _ in _timed([*cases, *crowded], rounds=rounds, calls=calls)]
    alone, beside = taken[: len(cases)], taken[len(cases) :]
    return Section(
        title=f"Decision beside {more} more policies that do not match, us",
        columns=("review", "shipped policies p50", f"{more} more p50", "ratio"),
        rows=[
            (f"{case.phase}: {case.name}", before, after, after / before)
            for case, before, after in zip(cases, alone, beside, strict=True)
        ],
        note="Half are for other resources, half for Pods of other namespaces.",
    )


def _timed(cases: list[Case], *, rounds: int, calls: int) -> list[tuple[float, float]]:
    """p50 and p99 in microseconds of each case: medians over rounds in which the cases take turns."""
    spreads: list[list[tuple[float, float]]] = [[] for _ in cases]
    for _ in range(rounds):
        for case, spread in zip(cases, spreads, strict=True):
            taken = [_once(case) for _ in range(calls)]
            spread.append((percentile(taken, 0.5), percentile(taken, 0.99)))
    return [(median(p50 for p50, _ in each), median(p99 for _, p99 in each)) for each in spreads]


def _once(case: Case) -> float:
    """Microseconds of CPU time: a decision waits for nothing, and what else the machine does must not count."""
    start = thread_time_ns()
    case.answer()
    return (thread_time_ns() - start) / 1000

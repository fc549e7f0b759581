"""Send writes with known right verdicts to an API server that calls spotgate, and count the outcomes.

All writes use `dryRun=All`: the API server still calls webhooks, and a wrong verdict doesn't affect the next write.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import cycle
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import aiohttp
import orjson

from tests.builders import deployment, labeled, node_pool, pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.controlplane.harness.cluster import Cluster

_PATIENCE: Final = 40.0
"""Seconds for one write: longer than the API server waits for etcd."""

_ALICE: Final = "alice"
"""A user with all permissions who is in no group that a policy names."""
_CONTROLLER: Final = "system:serviceaccount:kube-system:replicaset-controller"
"""One call decides its Pods."""
_SPOT: Final = {"spotgate.dev/capacity": "spot"}
_RESERVED: Final = {"qos.coreweave.cloud/reserved": "x"}
_KEYS: Final = 115_000
"""Keys of a nodeSelector, for a Pod of 1.3 MiB: about the largest that etcd accepts."""

_UNKNOWN: Final = "the node pools are unknown"
"""A part of the denial's message."""


class Outcome(StrEnum):
    """The outcome of a write: the right verdict, a wrong verdict, a safe denial, or no verdict."""

    RIGHT = "right"
    ADMITTED = "admitted"
    UNCHANGED = "unchanged"
    DENIED = "denied"
    UNKNOWN = "unknown"
    FAILED = "failed"


MEANINGS: Final = {
    Outcome.ADMITTED: "wrong: admitted, should be denied",
    Outcome.UNCHANGED: "wrong: admitted without the expected change or warning",
    Outcome.DENIED: "wrong: denied, should be admitted",
    Outcome.UNKNOWN: "safe: denied with the message that the node pools are unknown",
    Outcome.FAILED: "no verdict: the API server didn't answer, or a required call to spotgate failed",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The API server's answer: the HTTP status, the body with the object or a Status, and the warnings."""

    status: int
    body: dict[str, Any]
    warnings: str

    @property
    def admitted(self) -> bool:
        """Whether the API server admitted the write."""
        return self.status < 300

    @property
    def message(self) -> str:
        """The message of a Status."""
        return str(self.body.get("message", ""))


Judge: TypeAlias = "Callable[[Answer], Outcome]"


@dataclass(frozen=True, slots=True)
class Write:
    """A write with a known right verdict.

    Attributes:
        name: a description.
        method: the HTTP method.
        path: the path of the collection or object.
        body: the body of the request.
        judge: returns the outcome.
        user: the user.
    """

    name: str
    method: str
    path: str
    body: bytes
    judge: Judge
    user: str = _ALICE


@dataclass(slots=True)
class Tally:
    """The outcomes of the writes during one fault.

    Attributes:
        outcomes: the number of each outcome.
        latencies: the seconds that each write took.
        examples: the message of the first write with each wrong outcome.
        unanswered: the numbers of writes that the API server admitted without an answer from spotgate, by reason.
    """

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    examples: dict[tuple[str, Outcome], str] = field(default_factory=dict)
    unanswered: Counter[str] = field(default_factory=Counter)


class Load:
    """A loop that sends `rate` writes a second, in turn. Assign a new `tally` for each fault."""

    def __init__(self, cluster: Cluster, rate: int) -> None:
        self.tally, self._rate = Tally(), rate
        self._url = cluster.credentials.url
        self._tls = ssl.create_default_context(cafile=str(cluster.credentials.authority))
        self._headers = {
            "Authorization": f"Bearer {cluster.credentials.tokens['admin']}",
        }
        self._sent: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Send until cancelled, and then wait for the answers."""
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        timeout = aiohttp.ClientTimeout(total=_PATIENCE)
        loop = asyncio.get_running_loop()
        async with aiohttp.ClientSession(connector=connector, headers=self._headers, timeout=timeout) as self._session:
            due = loop.time()
            try:
                for write in cycle(WRITES):
                    task = asyncio.create_task(self.send(write))
                    self._sent.add(task)
                    task.add_done_callback(self._sent.discard)
                    due += 1 / self._rate
                    await asyncio.sleep(due - loop.time())
            finally:
                await asyncio.gather(*self._sent)

    async def answered(self) -> None:
        """Wait for the answers to all writes so far."""
        await asyncio.gather(*self._sent)

    async def send(self, write: Write) -> None:
        """Send a write, and count its outcome for the current fault."""
        tally, started = self.tally, perf_counter()
        try:
            answer = await self._ask(write)
            outcome, message = write.judge(answer), answer.message or answer.warnings or str(answer.body.get("spec"))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            outcome, message = Outcome.FAILED, str(error) or type(error).__name__
        tally.latencies.append(perf_counter() - started)
        tally.outcomes[outcome] += 1
        if outcome is not Outcome.RIGHT:
            tally.examples.setdefault((write.name, outcome), message)

    async def _ask(self, write: Write) -> Answer:
        kind = "application/merge-patch+json" if write.method == "PATCH" else "application/json"
        url = f"{self._url}{write.path}?dryRun=All"
        headers = {"Content-Type": kind, "Impersonate-User": write.user}
        if write.user == _ALICE:
            headers["Impersonate-Group"] = "platform"
        async with self._session.request(write.method, url, data=write.body, headers=headers) as response:
            text = await response.text()
            # The API server sheds load in plain text, such as "Too many requests, please try again later."
            body = orjson.loads(text) if response.content_type == "application/json" else {"message": text}
            return Answer(response.status, body, " ".join(response.headers.getall("Warning", ())))


def _admitted(is_right: Callable[[Answer], object] = lambda _: True) -> Judge:
    """Return a judge that expects the object to be admitted and right."""

    def judge(answer: Answer) -> Outcome:
        if answer.admitted:
            return Outcome.RIGHT if is_right(answer) else Outcome.UNCHANGED
        if "denied the request" not in answer.message:
            return Outcome.FAILED
        return Outcome.UNKNOWN if _UNKNOWN in answer.message else Outcome.DENIED

    return judge


def _denied(policy: str) -> Judge:
    """Return a judge that expects a denial by this policy."""

    def judge(answer: Answer) -> Outcome:
        if answer.admitted:
            return Outcome.ADMITTED
        if f"[{policy}]" not in answer.message:
            return Outcome.FAILED
        return Outcome.UNKNOWN if _UNKNOWN in answer.message else Outcome.RIGHT

    return judge


def _untouched(answer: Answer) -> bool:
    spec = answer.body["spec"]
    return "nodeSelector" not in spec and spec["terminationGracePeriodSeconds"] == 30 and not answer.warnings


def _placed(answer: Answer) -> bool:
    spec = answer.body["spec"]
    return (
        spec.get("nodeSelector") == {"compute.coreweave.com/node-pool": "cpu-spot"}
        and [toleration["key"] for toleration in spec["tolerations"] if toleration["key"].startswith("example.com/")]
        == ["example.com/spot"]
        and spec["terminationGracePeriodSeconds"] == 60
        and "preStop" in spec["containers"][0].get("lifecycle", {})
    )


def _placed_and_warned(answer: Answer) -> bool:
    return _placed(answer) and "reserved-labels" in answer.warnings


_POOLS: Final = "/apis/compute.coreweave.com/v1alpha1/nodepools"
_PODS: Final = "/api/v1/namespaces/default/pods"
_DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
_DRY_RUN: Final = {"dryRun": ["All"]}
"""The body of a DELETE. With a body, the API server ignores the options in the query."""

_LATE: Final = labeled(deployment("late", 2, terminationGracePeriodSeconds=600), _SPOT)
_CONTROLLED: Final = labeled(pod("controlled"), _SPOT | _RESERVED)
_SUPERCHIP: Final = node_pool("rack", computeClass="spot", instanceType="gb200-4x")

# tests/controlplane/harness/pools.yaml contains the pools.
WRITES: Final = tuple(
    Write(name, method, path, orjson.dumps(body), judge, *user)
    for name, method, path, body, judge, *user in (
        ("plain Pod", "POST", _PODS, pod("plain"), _admitted(_untouched)),
        ("spot Pod", "POST", _PODS, labeled(pod("spot"), _SPOT), _admitted(_placed)),
        ("Pod with a reserved label", "POST", _PODS, labeled(pod("reserved"), _RESERVED), _denied("reserved-labels")),
        ("last fallback deleted", "DELETE", f"{_POOLS}/h100", _DRY_RUN, _denied("on-demand-fallback")),
        ("Deployment with a warning", "POST", _DEPLOYMENTS, _LATE, _admitted(lambda it: "graceful" in it.warnings)),
        ("spot Pod", "POST", _PODS, labeled(pod("spot"), _SPOT), _admitted(_placed)),
        ("Pod with a reserved label", "POST", _PODS, labeled(pod("reserved"), _RESERVED), _denied("reserved-labels")),
        ("superchips on spot", "POST", _POOLS, _SUPERCHIP, _denied("on-demand-fallback")),
        ("on-demand pool", "POST", _POOLS, node_pool("more"), _admitted()),
        ("pool that grows", "PATCH", f"{_POOLS}/h100", {"spec": {"targetNodes": 5}}, _admitted()),
        ("spot Pod of a controller", "POST", _PODS, _CONTROLLED, _admitted(_placed_and_warned), _CONTROLLER),
    )
)

_HUGE_SPEC: Final = {"nodeSelector": {f"k{number}": "" for number in range(_KEYS)}}
HUGE: Final = Write(
    "huge Pod with a reserved label",
    "POST",
    _PODS,
    orjson.dumps(labeled(pod("huge", **_HUGE_SPEC), _RESERVED)),
    _denied("reserved-labels"),
)

"""The Pods that a drainer evicts, its retries, and the timeout of a run."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from webhook.base.exits import CannotJudgeError
from webhook.capacity.providers.pool import Taint
from webhook.kube.pod import PodSpec
from webhook.rehearse.inputs.nodes import RehearsedNode
from webhook.rehearse.result import ReclaimWindow, WorkloadKey
from webhook.rehearse.runs.drain import Drain
from webhook.rehearse.runs.reclaim import Reclaim
from webhook.rehearse.runs.tally import causes_of, shortage_of
from webhook.rehearse.runs.watching import SeenPod
from webhook.rehearse.runs.workloads import RehearsedPod
from webhook.rehearse.runs.writing import Writer

HOLD = "karpenter.sh/do-not-disrupt"
PLAIN = ReclaimWindow("CoreWeave", ("n",), 0, 0, 120, 120)
KARPENTER = ReclaimWindow(
    *("Karpenter", ("n",), 0, 0, 120, 120), unevicted=HOLD, cordon_taint=Taint("karpenter.sh/disrupted"), tiers=True
)


def drained_pod(name: str, *, owner: str = "ReplicaSet", hold: str = "", age: float = 0, **spec: Any) -> Any:
    started = (datetime.now(UTC) - timedelta(seconds=age)).isoformat()
    value = {
        "metadata": {
            "name": name,
            "namespace": "a",
            "uid": name,
            "annotations": {HOLD: hold} if hold else {},
            "ownerReferences": [{"kind": owner, "name": "x", "controller": True}],
        },
        "spec": {"nodeName": "n", "containers": [], **spec},
        "status": {"phase": "Running", "startTime": started},
    }
    return SimpleNamespace(seen=msgspec.convert(value, SeenPod), leaves=owner in {"DaemonSet", "Node"})


WEB, AGENT, STATIC = drained_pod("web"), drained_pod("agent", owner="DaemonSet"), drained_pod("static", owner="Node")
CRITICAL = drained_pod("critical", priorityClassName="system-cluster-critical")
TOLERANT = drained_pod("tolerant", tolerations=[{"key": "karpenter.sh/disrupted", "operator": "Exists"}])


@pytest.mark.parametrize(
    ("window", "listed", "now", "asked"),
    [
        pytest.param(PLAIN, [WEB], [WEB, drained_pod("late")], ["web"], id="listed once"),
        pytest.param(KARPENTER, [WEB], [WEB, drained_pod("late")], ["web", "late"], id="Karpenter lists again"),
        pytest.param(PLAIN, [WEB, AGENT, CRITICAL], [WEB, AGENT, CRITICAL], ["web", "critical"], id="all at once"),
        pytest.param(KARPENTER, [], [WEB, AGENT, CRITICAL], ["web"], id="ordinary Pods first"),
        pytest.param(KARPENTER, [], [AGENT, CRITICAL, STATIC], ["agent"], id="then DaemonSets"),
        pytest.param(KARPENTER, [], [CRITICAL, TOLERANT], ["critical"], id="then critical Pods, except exempt ones"),
        pytest.param(PLAIN, [TOLERANT], [TOLERANT], ["tolerant"], id="no such taint"),
    ],
)
def test_a_drainer_evicts_pods_in_order(
    window: ReclaimWindow, listed: list[Any], now: list[Any], asked: list[str]
) -> None:
    drain = Drain()
    drain.begin(window, listed)
    assert [pod.seen.metadata.uid for pod in drain.in_turn(0, now)] == asked
    assert not list(drain.in_turn(window.kill, now))


@pytest.mark.parametrize(
    ("now", "tried", "hold", "age", "attempt"),
    [
        pytest.param(30, 0, "", 0, 30, id="now, after the pause"),
        pytest.param(31, 30, "", 0, 35, id="at the end of the pause"),
        pytest.param(30, 30, "", 0, 35, id="never twice in one second"),
        pytest.param(30, 30, "true", 0, None, id="never"),
        pytest.param(30, 0, "30m", 1750, 50, id="half an hour after the start"),
        pytest.param(30, 0, "30m", 7200, 30, id="after more than that"),
        pytest.param(30, 0, "30m", 10, None, id="after the node is gone"),
        pytest.param(30, 0, "yes", 0, 30, id="malformed"),
    ],
)
def test_a_drainer_retries_after_a_pause(now: float, tried: float, hold: str, age: float, attempt: object) -> None:
    waiting, drain = [drained_pod("web", hold=hold, age=age)], Drain()
    drain.begin(KARPENTER, waiting)
    drain.tried = tried
    assert drain.next_attempt(now, waiting) == attempt
    assert drain.next_attempt(now, []) is None


def test_a_run_times_out_and_says_so() -> None:
    async def wait() -> None: ...

    watches: Any = SimpleNamespace(pods={}, budgets={}, quotas={})
    quiet: Any = SimpleNamespace(over=True, wait=wait, abandoned=set())
    workloads: Any = SimpleNamespace(known={}, missing=Counter, pods=list)
    writer: Any = None
    reclaim = Reclaim(writer, watches, quiet, workloads, startup=30, seed=0)
    asyncio.run(reclaim.run([PLAIN], []))
    assert reclaim.notes == {"events later than 0 s after the notice: the run timed out after 900 s"}
    with pytest.raises(CannotJudgeError, match="doesn't become stable within 900 s"):
        asyncio.run(reclaim.begin())


@pytest.mark.parametrize(
    ("label", "options", "second", "is_killed"),
    [("evict", {"gracePeriodSeconds": 390}, 0, False), ("inform", None, 120, True)],
)
def test_a_pod_that_asks_for_it_is_evicted_at_the_notice(
    label: str, options: object, second: float, *, is_killed: bool
) -> None:
    seen = drained_pod("web", terminationGracePeriodSeconds=350).seen
    seen.metadata.labels = {"spotgate.dev/on-reclaim": label}
    pod = RehearsedPod(
        *(seen, WorkloadKey("v1", "Pod", "a", "web"), "n", 350.0, Counter(), ()), 0.0, 0.0, gang=None, leaves=False
    )
    asked = []

    async def write(_: str, path: str, body: dict[str, Any], *__: object) -> None:
        if path.endswith("/eviction"):
            asked.append(body.get("deleteOptions"))
            seen.metadata.deletionTimestamp = "2026-11-29T01:00:00Z"

    async def wait() -> None: ...

    api: Any = SimpleNamespace(write=write)
    watches: Any = SimpleNamespace(budgets={}, quotas={})
    quiet: Any = SimpleNamespace(over=False, wait=wait)
    workloads: Any = SimpleNamespace(pods=lambda: [pod], exists=lambda _: True)
    window = ReclaimWindow("CoreWeave", ("n",), 0, 120, 420, 420, notice=0, margin=30)
    asyncio.run(Reclaim(Writer(api), watches, quiet, workloads, startup=30, seed=0).run([window], []))
    assert (asked, pod.evicted, pod.killed) == ([options], second, is_killed)


# Shortages of pending Pods


def lacking_node(name: str, pool: str, taint: str = "", **allocatable: str) -> RehearsedNode:
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    value = {
        "metadata": {"name": name, "labels": {"pool": pool}},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "110", **allocatable}},
    }
    return RehearsedNode(value, pool, None, None, spot=False)


NODES = [
    lacking_node("a-0", "a"),
    lacking_node("a-1", "a"),
    lacking_node("b-0", "b"),
    lacking_node("t-0", "tainted", "team", cpu="64"),
]


@pytest.mark.parametrize(
    ("sentence", "causes"),
    [
        (
            "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/3: 1 Insufficient b.",
            ("Insufficient cpu",),
        ),
        # Kubernetes 1.35.
        (
            "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1.",
            ("Insufficient cpu",),
        ),
        ("0/9 nodes are available: 9 node(s) didn't match pod anti-affinity.", ("didn't match pod anti-affinity",)),
        ("0/1 nodes are available: 1 node(s) were unschedulable.", ()),
        ("no nodes available to schedule pods", ()),
    ],
)
def test_causes_omit_numbers_and_cordoned_nodes(sentence: str, causes: tuple[str, ...]) -> None:
    assert causes_of(sentence) == causes


@pytest.mark.parametrize(
    ("spec", "needed", "text"),
    [
        ({"nodeSelector": {"pool": "a"}}, {"cpu": 9}, "a has 2 CPUs too few"),
        ({}, {"cpu": 12}, "a and b have 1 CPU too few"),
        ({"tolerations": [{"key": "team", "operator": "Exists"}]}, {"cpu": 80}, "3 pools have 5 CPUs too few"),
        ({"nodeSelector": {"pool": "b"}}, {"memory": 6 * 2**30}, "b has 2 GiB of memory too few"),
        ({"nodeSelector": {"pool": "b"}}, {"nvidia.com/gpu": 8}, "b has 8 nvidia.com/gpu too few"),
        pytest.param({"nodeSelector": {"pool": "a"}}, {"cpu": 3}, "", id="enough, but not on one node"),
        pytest.param({"nodeSelector": {"pool": "c"}}, {"cpu": 1}, "", id="no node admits them"),
    ],
)
def test_a_shortage_names_pools_and_the_missing_amount(
    spec: dict[str, object], needed: dict[str, float], text: str
) -> None:
    requested = {"a-0": Counter({"cpu": 1}), "b-0": Counter({"cpu": 0})}
    assert shortage_of(msgspec.convert(spec, PodSpec), needed, NODES, requested) == text

"""Reclaim notices on a real API server: each signal, Evictions, false notices, and leaders that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.controlplane.floor.events import patching
from tests.controlplane.floor.harness import Controllers, controllers
from tests.controlplane.harness.api import Api, accepted, pods_in
from tests.controlplane.harness.cluster import start_cluster
from tests.controlplane.notice.harness import (
    CKS_DRAIN,
    CKS_MARGIN,
    CKS_REMOVAL,
    ON_RECLAIM,
    RECLAIM_AT,
    Checker,
    Reclaims,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster

JSON = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(binaries: dict[str, Path]) -> Iterator[Cluster]:
    """Start an etcd and an API server: without other controllers, only ours changes Pods."""
    with start_cluster(binaries, controllers=False) as running:
        running.kubectl("create", "namespace", "spotgate-system")
        yield running


@pytest.fixture(scope="module")
def running(cluster: Cluster) -> Iterator[Controllers]:
    with controllers(cluster, component="reclaim-notice", duty="notice") as candidates:
        yield candidates


@pytest.fixture
def reclaims(cluster: Cluster) -> Iterator[Reclaims]:
    api = Api(cluster)
    name = f"team-{random.randrange(16**8):08x}"  # noqa: S311 - no secret
    with api.created("/api/v1/namespaces", {"metadata": {"name": name}}):
        reclaims = Reclaims(api, name)
        try:
            yield reclaims
        finally:
            reclaims.remove()


def after(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def taint(key: str, **fields: str) -> JSON:
    return {"spec": {"taints": [{"key": key, "effect": "NoSchedule", **fields}]}}


def condition(message: str) -> JSON:
    item = {"type": "PreemptionScheduled", "status": "True", "message": message, "lastTransitionTime": after(0)}
    return {"status": {"conditions": [item]}}


def http_date(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%a, %d %b %Y %H:%M:%S GMT")


# What the provider writes to a Node, and the seconds until the removal.
SIGNALS: dict[str, tuple[Callable[[], JSON], int]] = {
    "CKS": (lambda: {"metadata": {"labels": {"qos.coreweave.cloud/pending-preemption": "true"}}}, 420),
    "AWS Node Termination Handler": (lambda: taint("aws-node-termination-handler/spot-itn", value="spot-itn-1"), 120),
    "AKS": (lambda: condition(f"Preempt Scheduled: {http_date(28)}. For more information, see the docs."), 28),
    "AKS, without a readable time": (lambda: condition("Preempt Scheduled."), 30),
    "GKE": (lambda: taint("cloud.google.com/impending-node-termination"), 30),
    "Huawei CCE": (
        lambda: taint(
            "node-problem-controller.cce.io/SpotPriceNodeReclaimNotification", effect="NoExecute", timeAdded=after(-1)
        ),
        179,
    ),
    "any handler": (lambda: {"metadata": {"annotations": {RECLAIM_AT: after(200)}}}, 200),
}


@pytest.mark.usefixtures("running")
def test_pods_learn_the_time_of_the_removal_from_each_signal(cluster: Cluster, reclaims: Reclaims) -> None:
    names = {signal: f"node-{number}" for number, signal in enumerate(SIGNALS)}
    for name in names.values():
        reclaims.node(name)
    with Checker(cluster, reclaims.namespace) as checker:
        pods = {signal: reclaims.pod(f"on-{name}", name) for signal, name in names.items()}
        unlabeled = [reclaims.pod(f"other-{name}", name, action="") for name in names.values()]
        began, ended = {}, {}
        for signal, (write, _) in SIGNALS.items():
            began[signal] = datetime.now(UTC)
            reclaims.signal(names[signal], write())
            ended[signal] = datetime.now(UTC)
        reclaims.wait_until_told(*pods.values())
        for signal, (_, seconds) in SIGNALS.items():
            told = datetime.fromisoformat(str(reclaims.told(pods[signal])))
            length = timedelta(seconds=seconds)
            assert began[signal] + length - timedelta(seconds=3) < told <= ended[signal] + length, signal
        assert [reclaims.told(pod) for pod in unlabeled] == [None] * len(unlabeled)
        events = f"/api/v1/namespaces/{reclaims.namespace}/events"
        reclaims.api.wait(lambda: len(reclaims.api.get(events)["items"]) == len(pods), "one Event for each Pod")
        assert set(checker.writes()["patch"]) == {pod.rpartition("/")[2] for pod in pods.values()}
        assert not checker.writes()["eviction"]


@pytest.mark.usefixtures("running")
def test_a_pod_is_evicted_at_once_with_the_time_until_the_removal(cluster: Cluster, reclaims: Reclaims) -> None:
    reclaims.node("a")
    with Checker(cluster, reclaims.namespace) as checker:
        evicted, informed = reclaims.pod("evicted", "a", "evict", grace=270), reclaims.pod("informed", "a", "inform")
        patient = reclaims.pod("patient", "a", "evict", grace=CKS_REMOVAL - CKS_MARGIN)
        daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1", "controller": True}
        agent = reclaims.pod("agent", "a", "evict", ownerReferences=[daemon])
        removal = reclaims.preempt("a")
        reclaims.wait_until_told(evicted, informed, patient, agent)
        reclaims.api.wait(lambda: reclaims.evicted(evicted), "the Pod is evicted")
        replacement = reclaims.pod("replacement", "a", "evict")  # it would return after each Eviction
        reclaims.wait_until_told(replacement)
        metadata = reclaims.api.get(evicted)["metadata"]
        assert CKS_REMOVAL - CKS_MARGIN - 10 < metadata["deletionGracePeriodSeconds"] <= CKS_REMOVAL - CKS_MARGIN
        time.sleep(1)
        names = ["evicted", "informed", "patient", "agent", "replacement"]
        assert not checker.problems(dict.fromkeys(names, removal), ["evicted"])


def budget(disruptions: int, **labels: str) -> JSON:
    return {
        "apiVersion": "policy/v1",
        "metadata": {"name": "app"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": disruptions,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
        },
    }


@pytest.mark.usefixtures("running")
def test_an_eviction_waits_for_the_budget_but_not_beyond_the_drain(cluster: Cluster, reclaims: Reclaims) -> None:
    budgets = f"/apis/policy/v1/namespaces/{reclaims.namespace}/poddisruptionbudgets"
    accepted(reclaims.api.create(budgets, budget(0, app="app")))
    accepted(reclaims.api.patch(f"{budgets}/app/status", budget(0)))
    reclaims.node("a")
    reclaims.node("drained")
    with Checker(cluster, reclaims.namespace) as checker:
        waiting = reclaims.pod("app", "a", "evict")
        removal = reclaims.preempt("a")
        reclaims.wait_until_told(waiting)
        time.sleep(2)
        assert not reclaims.evicted(waiting)
        accepted(reclaims.api.patch(f"{budgets}/app/status", budget(1)))
        reclaims.api.wait(lambda: reclaims.evicted(waiting), "the Pod is evicted")
        assert not checker.problems({"app": removal}, ["app"])

        # The drain has begun: one attempt, and the provider does the rest.
        accepted(reclaims.api.patch(f"{budgets}/app/status", budget(0)))
        accepted(reclaims.api.patch(f"{budgets}/app", {"spec": budget(0, app="hands-off")["spec"]}))
        hands_off = reclaims.pod("hands-off", "drained", "evict")
        began = after(-CKS_DRAIN - 1)
        reclaims.signal("drained", taint("aws-node-termination-handler/spot-itn", timeAdded=began))
        reclaims.wait_until_told(hands_off)
        time.sleep(3)
        refused = [
            event for event in cluster.audit_events() if "eviction" in str(event["objectRef"].get("subresource"))
        ]
        assert sum(event["objectRef"]["name"] == "hands-off" for event in refused) <= 1


@pytest.mark.usefixtures("running")
def test_a_false_notice_is_taken_back_and_evicts_nobody_twice(cluster: Cluster, reclaims: Reclaims) -> None:
    reclaims.node("a")
    with Checker(cluster, reclaims.namespace) as checker:
        informed, evicted = reclaims.pod("informed", "a", "inform"), reclaims.pod("evicted", "a", "evict")
        for _ in range(2):
            reclaims.preempt("a")
            reclaims.wait_until_told(informed)
            reclaims.api.wait(lambda: reclaims.evicted(evicted), "the Pod is evicted")
            reclaims.restore("a")
            reclaims.api.wait(lambda: reclaims.told(informed) is None, "the notice is taken back")
        assert checker.writes()["eviction"] == {"evicted": 1}
        checker.catch_up()
        values = checker.values["informed"]
        assert [value is None for value in values] == [True, False, True, False, True]


@pytest.mark.usefixtures("running")
def test_the_time_is_corrected_if_it_is_too_late_or_no_time(reclaims: Reclaims) -> None:
    reclaims.node("a")
    forged = [
        reclaims.pod(f"forged-{number}", "a", "inform", annotations={RECLAIM_AT: value})
        for number, value in enumerate((after(9999), "never", ""))
    ]
    removal = reclaims.preempt("a").strftime("%Y-%m-%dT%H:%M:%SZ")
    for pod in forged:
        reclaims.api.wait(lambda pod=pod: reclaims.told(pod) == removal, f"{pod} has the right time")  # type: ignore[misc]


def test_leaders_that_are_killed_or_paused_leave_nothing_undone_and_repeat_nothing(
    cluster: Cluster, running: Controllers, reclaims: Reclaims
) -> None:
    chosen = random.Random(47)  # noqa: S311 - no secret
    removals: dict[str, datetime] = {}
    with Checker(cluster, reclaims.namespace) as checker:
        for node, paused in (("a", False), ("b", False), ("c", False), ("d", True)):
            leader = running.wait_for_leader()
            reclaims.node(node)
            pods = [reclaims.pod(f"{node}-{i}", node, "evict" if i % 2 else "inform") for i in range(40)]
            removals |= dict.fromkeys((pod.rpartition("/")[2] for pod in pods), reclaims.preempt(node))
            time.sleep(chosen.uniform(0, 0.4))
            if paused:
                os.killpg(leader.pid, signal.SIGSTOP)
            else:
                leader.kill()
                leader.start()
            reclaims.wait_until_told(*pods)
            reclaims.api.wait(lambda pods=pods: all(map(reclaims.evicted, pods[1::2])), "all are evicted")  # type: ignore[misc]
        os.killpg(leader.pid, signal.SIGCONT)
        time.sleep(3)
        assert not checker.problems(removals, [name for name in removals if int(name.rpartition("-")[2]) % 2])


def test_the_duty_does_not_renew_the_lease_of_on_demand_floors(cluster: Cluster, running: Controllers) -> None:
    running.wait_for_leader()
    leases = Api(cluster).get("/apis/coordination.k8s.io/v1/namespaces/spotgate-system/leases")["items"]
    assert [lease["metadata"]["name"] for lease in leases] == ["spotgate-reclaim-notice"]


def test_the_controller_may_change_only_the_annotation_of_pods_that_ask_for_it(
    cluster: Cluster, running: Controllers, reclaims: Reclaims
) -> None:
    del running
    account = cluster.as_service_account("spotgate-system", "spotgate-reclaim-notice")
    controller = replace(account, namespace=reclaims.namespace)
    cluster.kubectl("create", "role", "reads", "--verb=get", "--resource=pods", f"--namespace={reclaims.namespace}")
    subject = "--serviceaccount=spotgate-system:spotgate-reclaim-notice"
    cluster.kubectl("create", "rolebinding", "reads", "--role=reads", subject, f"--namespace={reclaims.namespace}")
    reclaims.node("a")
    asking, other = reclaims.pod("asking", "a", annotations={"a": "b"}), reclaims.pod("other", "a", action="")

    def denied(path: str, patch: JSON) -> bool:
        name = path.rpartition("/")[2]
        arguments = ("patch", "pod", name, "--type=merge", f"--patch={json.dumps(patch)}", "--dry-run=server")
        done = controller.run(*arguments)
        assert done.returncode == 0 or "ValidatingAdmissionPolicy 'spotgate-reclaim-notice'" in done.stderr, done
        return done.returncode != 0

    def annotations(**values: str | None) -> JSON:
        return {"metadata": {"annotations": values}}

    told = annotations(**{RECLAIM_AT: after(100)})
    assert not denied(asking, told)
    assert not denied(asking, annotations(**{RECLAIM_AT: None}))
    assert denied(other, told)
    assert denied(asking, annotations(**{RECLAIM_AT: "run this"}))
    assert denied(asking, annotations(a="c"))
    assert denied(asking, annotations(b="c"))
    assert denied(asking, {"metadata": {"labels": {ON_RECLAIM: "evict"}}})
    assert denied(asking, {"metadata": {"finalizers": ["example.com/stays"]}})
    assert denied(asking, {"spec": {"activeDeadlineSeconds": 1}})

    def evicts(pod: str, **options: Any) -> str:
        namespace, name = pod.split("/")[-3], pod.rsplit("/", maxsplit=1)[-1]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        body = json.dumps({**eviction, "deleteOptions": {"dryRun": ["All"], **options}})
        return controller.run("create", "--raw", path, "--filename=-", documents=body).stderr

    metadata = reclaims.api.get(asking)["metadata"]
    exact = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    assert evicts(asking, preconditions=exact, gracePeriodSeconds=100) == ""
    for options in (
        {"preconditions": exact},
        {"preconditions": exact, "gracePeriodSeconds": 0},
        {"gracePeriodSeconds": 100},
        {"preconditions": {"uid": exact["uid"]}, "gracePeriodSeconds": 100},
    ):
        assert "ValidatingAdmissionPolicy 'spotgate-reclaim-notice-evictions'" in evicts(asking, **options)
    accepted(reclaims.api.patch(asking, {"metadata": {"labels": {"changed": "1"}}}))
    assert "the ResourceVersion in the precondition" in evicts(asking, preconditions=exact, gracePeriodSeconds=100)
    stale = reclaims.api.patch(
        asking, {"metadata": {"resourceVersion": exact["resourceVersion"], "labels": {"b": "2"}}}
    )
    assert "the object has been modified" in stale.message
    with reclaims.api.created(
        pods_in("kube-system"), {"metadata": {"name": "dns"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    ) as dns:
        system = {key: dns["metadata"][key] for key in ("uid", "resourceVersion")}
        stderr = evicts("/api/v1/namespaces/kube-system/pods/dns", preconditions=system, gracePeriodSeconds=100)
        assert "are not evicted" in stderr
    for forbidden in ("delete pod/asking", "get secrets", "patch node/a -p {}", "create -f -"):
        assert controller.run(*forbidden.split(), documents="{}").returncode != 0


def test_a_tenant_who_always_changes_pods_delays_nobody(
    cluster: Cluster, running: Controllers, reclaims: Reclaims
) -> None:
    running.wait_for_leader()
    reclaims.node("a")
    with reclaims.api.created("/api/v1/namespaces", {"metadata": {"name": f"hostile-{reclaims.namespace}"}}) as hostile:
        attacker = Reclaims(reclaims.api, hostile["metadata"]["name"])
        theirs = [attacker.pod(f"hostile-{number}", "a", "evict") for number in range(4)]
        ours = [reclaims.pod(f"pod-{number}", "a") for number in range(10)]
        with Checker(cluster, reclaims.namespace) as checker:
            with patching(cluster, theirs, "/metadata/labels/number"):
                removal = reclaims.preempt("a")
                reclaims.wait_until_told(*ours)
            assert not checker.problems(dict.fromkeys((f"pod-{number}" for number in range(10)), removal), [])
        attacker.wait_until_told(*theirs)
        attacker.remove()


def test_nothing_is_lost_while_the_api_server_is_down(
    cluster: Cluster, running: Controllers, reclaims: Reclaims
) -> None:
    running.wait_for_leader()
    reclaims.node("a")
    pods = [reclaims.pod(f"pod-{number}", "a", "evict") for number in range(20)]
    removal = reclaims.preempt("a")
    cluster.restart("kube-apiserver")
    reclaims.wait_until_told(*pods)
    reclaims.api.wait(lambda: all(map(reclaims.evicted, pods)), "all are evicted")
    with Checker(cluster, reclaims.namespace) as checker:
        assert {reclaims.told(pod) for pod in pods} == {removal.strftime("%Y-%m-%dT%H:%M:%SZ")}
        writes = checker.writes()
        assert all(writes[verb][f"pod-{number}"] <= 1 for verb in ("patch", "eviction") for number in range(20))

"""The on-demand floor on a real API server and scheduler, while leaders die or pause, and without any leader."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import node_pool, pod
from tests.controlplane.floor.events import Events
from tests.controlplane.floor.harness import ANNOTATION, LEASE, POOL, Checker, Controllers, floored, gates
from tests.controlplane.harness.api import Api
from tests.controlplane.harness.pages import ROOT, Terminal, commands
from tests.controlplane.harness.populate import nodes_of
from tests.controlplane.harness.webhook import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controlplane.harness.kubectl import Kubectl
    from tests.controlplane.harness.webhook import Webhook

JSON = dict[str, Any]


@pytest.fixture(scope="module")
def checker(webhook: Webhook, running: Controllers) -> Iterator[Checker]:
    del running
    with Checker(webhook.cluster) as watching:
        yield watching


def split(team: Kubectl, name: str) -> dict[str, int]:
    """Return the numbers of a workload's Pods on on-demand and on spot nodes."""
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"][POOL] for node in team.get("nodes")["items"]}
    pods = team.get("pods", f"--selector=app={name}")["items"]
    pools = [nodes[pod["spec"]["nodeName"]] for pod in pods if "nodeName" in pod["spec"]]
    return {"on-demand": sum("spot" not in pool for pool in pools), "spot": sum("spot" in pool for pool in pools)}


# Assignment


@pytest.mark.usefixtures("running")
def test_a_deployment_keeps_its_floor_through_creation_scaling_and_rollout(team: Kubectl) -> None:
    team.apply(floored("web", 10, "2 + 20%"))
    team("rollout", "status", "deployment/web", "--timeout=60s")
    assert split(team, "web") == {"on-demand": 4, "spot": 6}
    team("scale", "deployment/web", "--replicas=3")
    team("rollout", "status", "deployment/web", "--timeout=60s")
    team("rollout", "restart", "deployment/web")
    team("rollout", "status", "deployment/web", "--timeout=60s")
    team("wait", "--for=jsonpath={.status.replicas}=3", "deployment/web", "--timeout=60s")
    assert split(team, "web")["on-demand"] >= 3
    costs = {
        pod["metadata"]["labels"]["spotgate.dev/assigned"]: pod["metadata"]["annotations"].get(
            "controller.kubernetes.io/pod-deletion-cost"
        )
        for pod in team.get("pods", "--selector=app=web")["items"]
    }
    assert costs["on-demand"] == "100"


@pytest.mark.usefixtures("running")
def test_the_lowest_ordinals_of_a_statefulset_run_on_demand(team: Kubectl) -> None:
    thing = floored("db", 4, "50%")
    spec = {**thing["spec"], "serviceName": "db", "podManagementPolicy": "Parallel", "ordinals": {"start": 7}}
    team.apply({**thing, "kind": "StatefulSet", "spec": spec})
    team("rollout", "status", "statefulset/db", "--timeout=60s")
    nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in team.get("pods")["items"]}
    assert {name: "spot" in node for name, node in nodes.items()} == {
        "db-7": False,
        "db-8": True,
        "db-9": False,
        "db-10": True,
    }


@pytest.mark.usefixtures("running")
def test_a_rollout_without_on_demand_room_stops_until_max_unavailable_allows_it(team: Kubectl) -> None:
    thing = floored("gpus", 2, "1", gpus=8)  # the pool h100 has one node of 8 GPUs
    created = team.run("create", "--filename=-", documents=json.dumps(thing))
    assert "spot-placement/floor-no-room" in created.stderr, created
    team("rollout", "status", "deployment/gpus", "--timeout=60s")
    team("rollout", "restart", "deployment/gpus")
    assert team.run("rollout", "status", "deployment/gpus", "--timeout=6s").returncode != 0
    assert split(team, "gpus") == {"on-demand": 1, "spot": 1}
    more = {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": 1}}}}
    patched = team.run("patch", "deployment/gpus", f"--patch={json.dumps(more)}")
    assert "floor-no-room" not in patched.stderr, patched
    team("rollout", "status", "deployment/gpus", "--timeout=60s")
    assert split(team, "gpus") == {"on-demand": 1, "spot": 1}


# Admission


@pytest.mark.usefixtures("running")
def test_an_on_demand_pod_does_not_run_in_a_spot_pool_that_is_created_later(webhook: Webhook, team: Kubectl) -> None:
    thing = floored("gpus", 2, "2", gpus=8)  # the pool h100 has one node of 8 GPUs, so the second Pod waits
    team.apply(thing)
    team("wait", "--for=jsonpath={.status.readyReplicas}=1", "deployment/gpus", "--timeout=60s")
    webhook.wait(lambda: {*assignments(team, "gpus")} == {"on-demand"}, "both Pods are assigned")
    taint = {"key": "example.com/spot", "value": "true", "effect": "NoSchedule"}
    late = node_pool("late-spot", computeClass="spot", nodeTaints=[taint])
    team.apply(late, *nodes_of(late))
    try:
        team("wait", "--for=condition=Ready", "nodes", f"--selector={POOL}=late-spot", "--timeout=60s")
        probe = pod("probe", gpus=8, nodeSelector={POOL: "late-spot"}, tolerations=[{"operator": "Exists"}])
        team.apply(probe)
        team("wait", "--for=condition=Ready", "pod/probe", "--timeout=60s")  # now the scheduler has seen the pool
        team("delete", "pod/probe", "--grace-period=0", "--force")
        time.sleep(3)
        pods = team.get("pods", "--selector=app=gpus")["items"]
        assert sorted("nodeName" in pod["spec"] for pod in pods) == [False, True]
    finally:
        team("delete", "deployment/gpus", "nodepool/late-spot")
        team("delete", "nodes", f"--selector={POOL}=late-spot")


def assignments(team: Kubectl, name: str) -> list[str]:
    """Return the assignments of a workload's Pods; empty for a Pod without one."""
    pods = team.get("pods", f"--selector=app={name}")["items"]
    return [pod["metadata"]["labels"].get("spotgate.dev/assigned", "") for pod in pods]


@pytest.mark.usefixtures("running")
def test_a_workload_that_selects_its_pods_by_their_assignment_is_denied_and_loops_neither_without_the_webhook(
    webhook: Webhook, team: Kubectl
) -> None:
    thing = floored("loop", 2, "1")
    labels = {"app": "loop", "spotgate.dev/assigned": "spot"}
    thing["spec"]["selector"]["matchLabels"] = labels
    thing["spec"]["template"]["metadata"]["labels"] |= labels
    other = floored("other", 2, "1")
    expression = {"key": "spotgate.dev/assigned", "operator": "DoesNotExist"}
    other["spec"]["selector"]["matchExpressions"] = [expression]
    for denied in (thing, other):
        done = team.run("create", "--filename=-", documents=json.dumps(denied))
        assert "reserved-labels/reserved" in done.stderr
        assert done.returncode != 0
    webhook.stop()
    try:
        team.apply(thing)
    finally:
        webhook.start()
    time.sleep(5)
    assert len(team.get("pods")["items"]) <= 4  # a Pod of the first moments may have neither gate nor placement


@pytest.mark.usefixtures("running")
def test_gate_and_assignment_of_a_users_pod_are_removed(webhook: Webhook) -> None:
    thing = pod("bare", schedulingGates=[{"name": ANNOTATION}, {"name": "example.com/other"}])
    thing["metadata"]["labels"] = {"app": "bare"}
    assert webhook.try_out(thing)["spec"]["schedulingGates"] == [{"name": "example.com/other"}]
    marked = pod("marked")
    marked["metadata"]["labels"] = {"app": "marked", "spotgate.dev/assigned": "on-demand"}
    assert webhook.try_out(marked)["metadata"]["labels"] == {"app": "marked"}


# Chaos


def test_the_death_or_pause_of_a_leader_causes_no_violation(
    webhook: Webhook, namespace: str, running: Controllers, checker: Checker
) -> None:
    events = Events(webhook.cluster, namespace, workloads=9)
    before = checker.assigned
    events.create()
    first = running.wait_for_leader()
    ends = threading.Event()

    def happen() -> None:
        while not ends.is_set():
            events.run(5, threads=2)
            events.seed += 1
            ends.wait(1)

    happening = threading.Thread(target=happen)
    happening.start()
    try:
        first.kill()
        second = running.wait_for_leader(first)
        first.start()
        os.killpg(second.pid, signal.SIGSTOP)
        running.wait_for_leader(second)
        time.sleep(2)
        os.killpg(second.pid, signal.SIGCONT)
        time.sleep(2)
    finally:
        ends.set()
        happening.join()
        os.killpg(second.pid, signal.SIGCONT)
    checker.wait_until_none_is_gated()
    assert checker.violations == []
    assert checker.assigned - before > 20


# The Lease


def test_a_stopping_leader_releases_the_lease(webhook: Webhook, running: Controllers) -> None:
    def holder() -> str:
        identity: str = webhook.cluster.kubectl.get(*LEASE)["spec"].get("holderIdentity", "")
        return identity

    leader = running.wait_for_leader()
    before = holder()
    os.kill(leader.pid, signal.SIGTERM)
    webhook.wait(lambda: leader.exit_code is not None, "the leader stops")
    assert holder() != before  # not only after the end of the Lease
    assert leader.exit_code == 0
    running.wait_for_leader(leader)
    leader.start()


def test_a_pod_that_cannot_be_released_stops_no_other_pod(
    webhook: Webhook, team: Kubectl, running: Controllers
) -> None:
    name = f"no-{team.namespace}"
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["UPDATE"]}
    by_the_controller = "request.userInfo.username.endsWith(':spotgate-on-demand-floor')"
    denying = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [pods]},
            "validations": [{"expression": f"!{by_the_controller} || object.metadata.namespace != '{team.namespace}'"}],
        },
    }
    spec = {"policyName": name, "validationActions": ["Deny"]}
    team.apply(denying, {**denying, "kind": "ValidatingAdmissionPolicyBinding", "spec": spec})
    time.sleep(2)
    thing = floored("web", 1, "1")
    leader = running.wait_for_leader()
    try:
        team.apply(thing)
        with Api(webhook.cluster).namespace("other") as other:
            elsewhere = replace(team, namespace=other)
            webhook.wait(
                lambda: running.metric(leader, "spotgate_floor_oldest_gate_seconds") > 12, "a Pod waits for long"
            )
            assert gates(webhook, thing)
            elsewhere.apply(floored("web", 3, "1"))
            elsewhere("rollout", "status", "deployment/web", "--timeout=60s")
            assert split(elsewhere, "web") == {"on-demand": 1, "spot": 2}
            elsewhere("delete", "deployment", "web", "--cascade=foreground")
    finally:
        team("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", name)
    team("rollout", "status", "deployment/web", "--timeout=60s")
    assert running.leader() is leader


def test_the_lease_and_the_assignments_have_their_own_priority(webhook: Webhook, running: Controllers) -> None:
    del running
    controller = webhook.cluster.as_service_account(NAMESPACE, "spotgate-on-demand-floor")
    kubectl = webhook.cluster.kubectl
    names = {flow["metadata"]["uid"]: flow["metadata"]["name"] for flow in kubectl.get("flowschemas")["items"]}

    def flow_of(*command: str) -> list[str]:
        return [
            names[uid]
            for uid in re.findall(r"(?i)x-kubernetes-pf-flowschema-uid: (\S+)", controller.run(*command, "-v=8").stderr)
        ]

    assert set(flow_of("get", *LEASE)) == {"spotgate-on-demand-floor-lease"}
    assert set(flow_of("get", "pods", "--all-namespaces")) == {"spotgate-on-demand-floor"}


# Without controllers: keep these tests last


@pytest.fixture(scope="module")
def no_leader(running: Controllers) -> None:
    running.kill()


@pytest.mark.usefixtures("no_leader")
def test_without_controllers_new_pods_are_not_gated_and_gated_pods_can_be_released(
    webhook: Webhook, team: Kubectl, tmp_path: Path
) -> None:
    thing = floored("web", 3, "1")
    team.apply(thing)
    team("wait", "--for=create", "pods", "--selector=app=web", "--timeout=60s")
    time.sleep(1)
    waiting = [pod for pod in team.get("pods", "--selector=app=web")["items"] if "nodeName" not in pod["spec"]]
    assert len(waiting) == 3
    webhook.wait(lambda: not gates(webhook, thing), "the webhook gates no more Pods")
    team("scale", "deployment/web", "--replicas=5")
    team("wait", "--for=jsonpath={.status.readyReplicas}=2", "deployment/web", "--timeout=60s")
    created = team.run("create", "--filename=-", documents=json.dumps(floored("late", 1, "1")))
    assert "spot-placement/floor-not-kept" in created.stderr, created
    webhook.stop()  # it would remove the gate of this Pod, which only has the name of one of ours
    team.apply(pod("on-demand-floor", schedulingGates=[{"name": "example.com/other"}, {"name": ANNOTATION}]))
    webhook.start()
    terminal = Terminal(webhook.cluster.kubectl, tmp_path)
    (release,) = commands((ROOT / "docs" / "on-demand-floor.md").read_text().partition("## Troubleshooting")[2])
    assert terminal.run(f"{release} default") == "released 0 Pods\n"
    assert terminal.run(release) == "released 4 Pods\n"
    team("rollout", "status", "deployment/web", "--timeout=60s")
    assert split(team, "web")["on-demand"] >= 2  # the two that preferred it
    assert team.get("pod", "on-demand-floor")["spec"]["schedulingGates"] == [{"name": "example.com/other"}]
    assert terminal.run(release) == "released 0 Pods\n"


@pytest.mark.usefixtures("no_leader")
def test_the_controller_may_change_only_the_pods_that_it_gates(webhook: Webhook, team: Kubectl) -> None:
    account = webhook.cluster.as_service_account(NAMESPACE, "spotgate-on-demand-floor")
    controller = replace(account, namespace=team.namespace)
    team("create", "role", "reads", "--verb=get", "--resource=pods")  # kubectl reads what it patches
    team("create", "rolebinding", "reads", "--role=reads", f"--serviceaccount={NAMESPACE}:spotgate-on-demand-floor")
    gated = pod("gated", schedulingGates=[{"name": ANNOTATION}, {"name": "example.com/other"}])
    gated["metadata"]["labels"] = {"app": "x"}
    webhook.stop()  # it would remove the gate
    team.apply(gated, pod("other", schedulingGates=[{"name": "example.com/other"}]))
    webhook.start()

    def denied(name: str, *operations: JSON) -> bool:
        done = controller.run(
            "patch", "pod", name, "--type=json", f"--patch={json.dumps(operations)}", "--dry-run=server"
        )
        assert done.returncode == 0 or "ValidatingAdmissionPolicy 'spotgate-on-demand-floor'" in done.stderr, done
        return done.returncode != 0

    gate = {"op": "remove", "path": "/spec/schedulingGates/0"}
    label = {"op": "add", "path": "/metadata/labels", "value": {"spotgate.dev/assigned": "spot", "app": "x"}}
    placed = {"op": "add", "path": "/spec/nodeSelector", "value": {"a": "b"}}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}

    def tolerating(**toleration: str) -> JSON:
        return {"op": "add", "path": "/spec/tolerations/-", "value": toleration}

    spot = tolerating(key="example.com/spot", operator="Equal", value="true", effect="NoSchedule")
    assert not denied("gated", gate, label, placed, spot)
    assert denied("gated", gate, label, placed, tolerating(operator="Exists"))
    assert denied("gated", gate, label, placed, tolerating(operator="Exists", effect="NoSchedule"))
    assert denied("gated", gate, label, placed, tolerating(key="example.com/spot", operator="Exists"))
    assert denied(
        "gated",
        gate,
        label,
        placed,
        tolerating(key="node.coreweave.cloud/evict", operator="Exists", effect="NoExecute"),
    )
    assert denied("other", gate)
    assert denied("gated", label)
    assert denied("gated", gate, gate)
    assert denied("gated", gate, {**label, "value": {"app": "y"}})
    assert denied("gated", gate, {"op": "add", "path": "/metadata/ownerReferences", "value": [owner]})
    assert denied("gated", gate, {"op": "replace", "path": "/spec/containers/0/image", "value": "evil"})
    for forbidden in ("delete pod/gated", "create -f -", "get secrets", "patch deployment/a -p {}"):
        assert controller.run(*forbidden.split(), documents=json.dumps(pod("new"))).returncode != 0
    assert controller.run("get", *LEASE).returncode == 0

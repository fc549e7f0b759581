"""Placement of Pods: applied with kubectl, mutated by the webhook, and bound by the real scheduler."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.builders import deployment, labeled, pod
from tests.controlplane.harness.populate import nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.controlplane.harness.kubectl import Kubectl

pytestmark = pytest.mark.usefixtures("webhook")

SPOT = {"spotgate.dev/capacity": "spot"}
SPOT_PREFERRED = {"spotgate.dev/capacity": "spot-preferred"}
POOL = "compute.coreweave.com/node-pool"


def pools_of(team: Kubectl, selector: str) -> set[str]:
    """Return the pools on whose Nodes these Pods run; assert that all run, except terminating ones."""
    items = team.get("pods", f"--selector={selector}", "--field-selector=status.phase!=Succeeded")["items"]
    pods = [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"][POOL] for node in team.get("nodes")["items"]}
    return {nodes[pod["spec"]["nodeName"]] for pod in pods}


@contextmanager
def reclaimed(kubectl: Kubectl, name: str) -> Iterator[None]:
    """Delete all Nodes of a pool, as its provider does, and create new ones afterwards."""
    kubectl("delete", "nodes", f"--selector={POOL}={name}")
    try:
        yield
    finally:
        kubectl.apply(*nodes_of(kubectl.get("nodepools.compute.coreweave.com", name)))
        kubectl("wait", "--for=condition=Ready", "nodes", f"--selector={POOL}={name}", "--timeout=60s")


def test_scaling_and_rollouts_stay_on_spot(team: Kubectl) -> None:
    team.apply(labeled(deployment("web", 1), SPOT))
    team("scale", "deployment/web", "--replicas=4")
    team("rollout", "restart", "deployment/web")
    team("rollout", "status", "deployment/web", "--timeout=60s")
    assert pools_of(team, "app=web") == {"cpu-spot"}


def test_a_workload_that_switches_to_on_demand_leaves_spot(team: Kubectl) -> None:
    team.apply(labeled(deployment("web", 2), SPOT))
    team("rollout", "status", "deployment/web", "--timeout=60s")
    assert pools_of(team, "app=web") == {"cpu-spot"}
    team.apply(labeled(deployment("web", 2), {"spotgate.dev/capacity": "on-demand"}))
    team("rollout", "status", "deployment/web", "--timeout=60s")
    team("wait", "--for=delete", "pods", "--selector=spotgate.dev/capacity=spot", "--timeout=60s")
    assert pools_of(team, "app=web") <= {"cpu-control-plane", "h100"}


def test_without_spot_nodes_spot_preferred_pods_run_on_demand_and_spot_pods_wait(team: Kubectl) -> None:
    with reclaimed(team, "h100-spot"):
        team.apply(
            labeled(deployment("flexible", 1, gpus=8), SPOT_PREFERRED), labeled(deployment("strict", 1, gpus=8), SPOT)
        )
        team("rollout", "status", "deployment/flexible", "--timeout=60s")
        assert pools_of(team, "app=flexible") == {"h100"}
        team("wait", "--for=create", "pods", "--selector=app=strict", "--timeout=60s")
        team("wait", "--for=condition=PodScheduled=False", "pods", "--selector=app=strict", "--timeout=60s")
    team("rollout", "status", "deployment/strict", "--timeout=60s")
    assert pools_of(team, "app=strict") == {"h100-spot"}


# Drain


def test_a_spot_node_is_drained_within_the_providers_timeline(team: Kubectl) -> None:
    ours = {"drill": team.namespace}  # Pods of earlier tests may still be terminating
    web = deployment("web", 4)
    web["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 8080}]
    team.apply(*(labeled(thing, SPOT | ours) for thing in (web, deployment("worker", 2), pod("bare"))))
    for name in ("web", "worker"):
        team("rollout", "status", f"deployment/{name}", "--timeout=60s")
    team("wait", "--for=condition=Ready", "pod/bare", "--timeout=60s")
    node = team.get("pod", "bare")["spec"]["nodeName"]
    here = team.get("pods", f"--field-selector=spec.nodeName={node}")["items"]
    # CKS drains a reclaimed node 120 s after the notice and removes it after 420 s. The drain evicts all Pods at once.
    assert {pod["spec"]["terminationGracePeriodSeconds"] for pod in here} <= {60, 120}
    assert all(120 + pod["spec"]["terminationGracePeriodSeconds"] <= 420 for pod in here)
    try:
        drained = team.run("drain", node, "--force", f"--pod-selector=drill={team.namespace}", "--timeout=90s")
        assert drained.returncode == 0
        assert f"node/{node} drained\n" in drained.stdout
        for name in ("web", "worker"):
            team("rollout", "status", f"deployment/{name}", "--timeout=60s")
        assert pools_of(team, "app") == {"cpu-spot"}
        assert not team.get("pods", f"--field-selector=spec.nodeName={node}")["items"]
    finally:
        team("uncordon", node)

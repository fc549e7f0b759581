"""A rehearsal of a live cluster predicts the effect of the reclaim, and writes nothing to the cluster."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

from tests.rehearse.conftest import preferring

if TYPE_CHECKING:
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster


def pods(cluster: Cluster, namespace: str = "default") -> dict[str, tuple[str, str]]:
    """Return the Nodes and phases of the Pods."""
    return {
        pod["metadata"]["name"]: (pod["spec"].get("nodeName", ""), pod["status"]["phase"])
        for pod in cluster.kubectl.get("pods", "-n", namespace)["items"]
    }


def rehearsed(spotgate: Path, cluster: Cluster, *flags: str) -> list[dict[str, Any]]:
    """Rehearse the loss of pool spot, and return the results of the workloads."""
    done = subprocess.run(
        [
            *(str(spotgate), "rehearse", f"--kubeconfig={cluster.credentials.kubeconfig('admin')}"),
            *("--lose=spot", "--output=json", *flags),
        ],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    workloads: list[dict[str, Any]] = json.loads(done.stdout)["workloads"]
    return workloads


def custom_workload(cluster: Cluster) -> list[dict[str, Any]]:
    """Create a CloneSet without a controller, two Pods, and a budget that allows one disruption. Return all objects."""
    names = {"kind": "CloneSet", "plural": "clonesets"}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"scale": scale}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clonesets.acme.example"},
        "spec": {"group": "acme.example", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    owner = {
        "apiVersion": "acme.example/v1",
        "kind": "CloneSet",
        "metadata": {"name": "custom"},
        "spec": {"replicas": 2},
    }
    cluster.kubectl.apply(definition)
    cluster.kubectl("wait", "--for=condition=Established", "crd/clonesets.acme.example", "--timeout=30s")
    cluster.kubectl.apply(owner)
    uid = cluster.kubectl.get("clonesets", "custom")["metadata"]["uid"]
    reference = {"apiVersion": "acme.example/v1", "kind": "CloneSet", "name": "custom", "uid": uid, "controller": True}
    made = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"custom-{number}", "labels": {"app": "custom"}, "ownerReferences": [reference]},
            "spec": {"nodeName": "spot-0", "containers": [{"name": "main", "image": "acme/main"}]},
        }
        for number in range(2)
    ]
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "custom"},
        "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "custom"}}},
    }
    cluster.kubectl.apply(*made, budget)
    cluster.kubectl("wait", "--for=condition=Ready", "pods", "-l", "app=custom", "--timeout=60s")
    # The disruption controller discovers new kinds every 30 s, and doesn't recount existing budgets.
    counted = {"status": {"expectedPods": 2, "desiredHealthy": 1, "currentHealthy": 2, "disruptionsAllowed": 1}}
    patch = ("--subresource=status", "--type=merge", f"--patch={json.dumps(counted)}")
    cluster.kubectl("patch", "poddisruptionbudgets", "custom", *patch)
    return [*made, budget, owner, definition]


def test_a_given_manifest_is_rolled_out_first_and_custom_resources_keep_their_budgets(
    spotgate: Path, live: Cluster, tmp_path: Path
) -> None:
    made = custom_workload(live)
    changed = preferring("web", 2, "spot")
    changed["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 600
    (tmp_path / "web.json").write_text(json.dumps(changed))
    two, none = {"min": 2, "max": 2}, {"min": 0, "max": 0}
    try:
        said = {
            workload["name"]: workload for workload in rehearsed(spotgate, live, "--runs=1", str(tmp_path / "web.json"))
        }
    finally:
        for thing in made:
            live.kubectl("delete", thing["kind"], thing["metadata"]["name"], "--timeout=30s")
    figures = {
        name: [workload[key] for key in ("replicas", "lost", "moved", "killedEarly", "secondsBelowBudget")]
        for name, workload in said.items()
    }
    assert figures == {
        "web": [2, 2, two, two, none],
        "custom": [2, 2, two, none, none],
        "capped": [2, 2, none, none, none],
    }


def test_a_rehearsal_of_a_live_cluster_predicts_its_reclaim(spotgate: Path, live: Cluster) -> None:
    before, earlier = pods(live), len(live.audit_events())
    by_name = {workload["name"]: workload for workload in rehearsed(spotgate, live, "--runs=1")}
    assert by_name.keys() == {"web", "capped"}
    web = by_name["web"]
    assert pods(live) == before
    writes = [event for event in live.audit_events()[earlier:] if event["verb"] not in {"get", "list", "watch"}]
    assert not [event for event in writes if "spotgate" in event.get("userAgent", "")]
    assert web["lost"] == sum(node == "spot-0" for node, _ in before.values()) == 3

    live.kubectl("drain", "spot-0", "--ignore-daemonsets", "--timeout=60s")
    live.kubectl("delete", "node", "spot-0")
    deadline = time.monotonic() + 30
    while len(now := pods(live)) != 5 or any(node == "spot-0" for node, _ in now.values()):
        assert time.monotonic() < deadline, now
        time.sleep(0.2)
    live.kubectl(
        "wait", "--for=condition=PodScheduled=False", "pods", "--field-selector=spec.nodeName=", "--timeout=30s"
    )
    new = {name: where for name, where in pods(live).items() if name not in before}
    moved, pending = (sum(bool(node) is bound for node, _ in new.values()) for bound in (True, False))
    assert (moved, pending) == (2, 1)
    assert (web["moved"], web["pending"]) == ({"min": moved, "max": moved}, {"min": pending, "max": pending})
    assert any("Insufficient cpu" in reason for reason in web["reasons"])
    assert pods(live, "capped") == {}
    assert (by_name["capped"]["moved"], by_name["capped"]["missing"]) == ({"min": 0, "max": 0}, {"min": 2, "max": 2})
    assert any("exceeded quota: none" in reason for reason in by_name["capped"]["reasons"])

"""A live cluster for the tests of live rehearsals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import deployment
from tests.controlplane.harness.cluster import UNFAIR, start_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.controlplane.harness.cluster import Cluster

POOL = "compute.coreweave.com/node-pool"


def node(name: str, pool: str, cpu: int = 4) -> dict[str, Any]:
    resources = {"cpu": str(cpu), "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {POOL: pool, "kubernetes.io/hostname": name}},
        "status": {"allocatable": resources, "capacity": resources},
    }


def preferring(name: str, replicas: int, pool: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": POOL, "operator": "In", "values": [pool]}]}
    preferred = [{"weight": 100, "preference": term}]
    container = {
        "name": "main",
        "image": "acme/main",
        "env": [{"name": "TOKEN", "value": "s3cret"}],
        "resources": {"requests": {"cpu": "1"}},
    }
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    value = deployment(name, replicas, affinity=affinity, containers=[container])
    value["metadata"]["namespace"] = "default"
    return value


def spot_node(name: str, pool: str) -> dict[str, Any]:
    """Return a Karpenter spot Node that runs only Pods of `selecting`."""
    value = node(name, "")
    labels = {"karpenter.sh/nodepool": pool, "karpenter.sh/capacity-type": "spot", "kubernetes.io/hostname": name}
    taints = [{"key": "nightly", "effect": "NoSchedule"}]
    return {**value, "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}


def selecting(name: str, replicas: int, pool: str) -> dict[str, Any]:
    value = preferring(name, replicas, "")
    value["metadata"]["namespace"] = "nightly"
    spec = value["spec"]["template"]["spec"]
    spec |= {"nodeSelector": {"karpenter.sh/nodepool": pool}, "tolerations": [{"key": "nightly"}]}
    del spec["affinity"]
    return value


def stateful_set(name: str, pool: str) -> dict[str, Any]:
    value = preferring(name, 1, pool)
    return {**value, "kind": "StatefulSet", "spec": {**value["spec"], "serviceName": name}}


def capped() -> dict[str, Any]:
    """Return a Deployment with small Pods; its namespace later gets a quota that allows none of them.

    A quota for one Pod would sometimes admit both: the quota controller may count before it has seen the first.
    """
    value = preferring("capped", 2, "spot")
    value["metadata"]["namespace"] = "capped"
    del value["spec"]["template"]["spec"]["containers"][0]["resources"]
    return value


@pytest.fixture(scope="session")
def live(binaries: dict[str, Path]) -> Iterator[Cluster]:
    """Yield a cluster with a pool for tests to lose, and two Karpenter spot pools for the nightly run."""
    with start_cluster(binaries, UNFAIR) as cluster:
        cluster.kubectl.apply(
            *(node("spot-0", "spot"), node("on-demand-0", "on-demand")),
            *(spot_node("a-0", "spot-a"), spot_node("b-0", "spot-b")),
        )
        cluster.kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")
        cluster.kubectl.apply(
            preferring("web", 3, "spot"), preferring("batch", 1, "on-demand"), stateful_set("queue", "on-demand")
        )
        for namespace in ("capped", "nightly"):
            cluster.kubectl("create", "namespace", namespace)
        cluster.kubectl.apply(capped(), selecting("stuck", 2, "spot-a"))
        names = ("deployment/web", "deployment/batch", "statefulset/queue")
        for name in (*names, "-n=capped deployment/capped", "-n=nightly deployment/stuck"):
            cluster.kubectl("rollout", "status", *name.split(), "--timeout=60s")
        quota = {"metadata": {"name": "none", "namespace": "capped"}, "spec": {"hard": {"pods": "0"}}}
        cluster.kubectl.apply({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
        yield cluster

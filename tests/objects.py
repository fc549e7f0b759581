"""The smallest workloads and node pools as manifests: `spec` is added to that of the Pod, or of the node pool."""

from __future__ import annotations

from typing import Any

SPOT_NODES = {"example.com/capacity": "spot"}

# What makes a Pod run on the spot nodes of pools.yaml.
SPOT = {
    "nodeSelector": SPOT_NODES,
    "tolerations": [{"key": "example.com/spot", "operator": "Exists"}],
}


def pod_spec(gpus: int = 0, **spec: Any) -> dict[str, Any]:
    """Return the spec of a Pod with one container."""
    container: dict[str, Any] = {"name": "main", "image": "registry.example.com/app:1"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {"containers": [container], **spec}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """Return a bare Pod."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(**spec)}


def deployment(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    """Return a Deployment."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(**spec)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def saying(thing: dict[str, Any], labels: dict[str, str], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the workload, with these labels and annotations on its Pods."""
    where = thing if thing["kind"] == "Pod" else thing["spec"]["template"]
    metadata = where.setdefault("metadata", {})
    metadata["labels"] = metadata.get("labels", {}) | labels
    metadata["annotations"] = annotations or {}
    return thing


def job(name: str, **spec: Any) -> dict[str, Any]:
    """Return a Job with one Pod, which is never tried again."""
    template = {"spec": pod_spec(restartPolicy="Never", **spec)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


def node_pool(name: str, **spec: Any) -> dict[str, Any]:
    """Return a NodePool of CKS, with two H100 nodes on demand if `spec` says nothing else."""
    return {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"instanceType": "gd-8xh100ib-i128", "targetNodes": 2, **spec},
    }


def karpenter_pool(name: str, capacity: str, family: str) -> dict[str, Any]:
    """Return a node pool of Karpenter on AWS."""
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]},
        {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": [family]},
    ]
    node_class = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spec = {"template": {"spec": {"nodeClassRef": node_class, "requirements": requirements}}}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}

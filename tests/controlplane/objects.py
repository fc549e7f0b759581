"""The smallest workloads that tests send to an API server; `spec` is added to that of the Pod."""

from __future__ import annotations

from typing import Any

# What makes a Pod run on the spot nodes of pools.yaml.
SPOT = {
    "nodeSelector": {"example.com/capacity": "spot"},
    "tolerations": [{"key": "example.com/spot", "operator": "Exists"}],
}


def pod_spec(gpus: int = 0, **spec: Any) -> dict[str, Any]:
    """The spec of a Pod with one container."""
    container: dict[str, Any] = {"name": "main", "image": "registry.example.com/app:1"}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {"containers": [container], **spec}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A bare Pod."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(**spec)}


def deployment(name: str, replicas: int, **spec: Any) -> dict[str, Any]:
    """A Deployment."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(**spec)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def job(name: str, **spec: Any) -> dict[str, Any]:
    """A Job with one Pod, which is never tried again."""
    template = {"spec": pod_spec(restartPolicy="Never", **spec)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}

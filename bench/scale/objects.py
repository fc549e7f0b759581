"""The objects of a large EKS cluster: Nodes with the fields of kubelets and cloud provider, Namespaces, budgets, pools.

Half of the Nodes belong to Karpenter NodePools, the others to managed node groups, which exist only as Node labels.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from tests.builders import karpenter_pool
from webhook.rehearse.controlplane.binaries import KUBERNETES

_IMAGES: Final = 14
"""Container images in a Node's status. Kubelets report up to 50; a Node of 8 KB has about this many."""

_TYPES: Final = ("m7i.4xlarge", "c7i.8xlarge", "r7i.4xlarge", "m7i.8xlarge", "p5.48xlarge")
_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)

PROBE: Final = "probe"
"""The name of the Namespace and the NodePool whose changes measure staleness."""

PROBE_GROUP: Final = "probe-group"
"""The name of the Node whose changes measure staleness, and of its node group."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of objects by kind."""

    nodes: int
    namespaces: int
    budgets: int
    pools: int

    def over(self, number: int) -> Sizes:
        """Return these sizes divided by a number, each at least 1."""
        return Sizes(*(max(1, size // number) for size in (self.nodes, self.namespaces, self.budgets, self.pools)))


def namespace(number: int, tier: str = "web") -> dict[str, Any]:
    """Return a Namespace with the labels of a team, of Pod Security, and of Argo CD."""
    labels = {
        "app.kubernetes.io/managed-by": "argocd",
        "argocd.argoproj.io/instance": f"tenants-{number % 50}",
        "example.com/cost-center": f"cc-{number % 400}",
        "example.com/team": f"team-{number % 400}",
        "example.com/tier": tier,
        "pod-security.kubernetes.io/enforce": "restricted",
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number}", "labels": labels}}


def budget(number: int) -> dict[str, Any]:
    """Return a PodDisruptionBudget in the first Namespace."""
    spec = {"maxUnavailable": "25%", "selector": {"matchLabels": {"app.kubernetes.io/name": f"service-{number}"}}}
    metadata = {"name": f"service-{number}", "namespace": namespace(0)["metadata"]["name"]}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def pool(number: int) -> dict[str, Any]:
    """Return a Karpenter NodePool. Two of three are spot."""
    family = _TYPES[number % len(_TYPES)].partition(".")[0]
    value = karpenter_pool(f"pool-{number}", "spot" if number % 3 else "on-demand", family)
    value["spec"]["template"]["metadata"] = {"labels": {"example.com/team": f"team-{number % 40}"}}
    return value


def node(number: int, sizes: Sizes) -> dict[str, Any]:
    """Return a Node of 8 KB, including the managedFields that the API server adds."""
    of_pool = number % (2 * sizes.pools)
    spot, instance_type, zone = of_pool % 3 != 0, _TYPES[of_pool % len(_TYPES)], f"us-east-1{'abc'[number % 3]}"
    if number % 2:
        shown = {"eks.amazonaws.com/nodegroup": f"group-{of_pool}"}
        shown["eks.amazonaws.com/capacityType"] = "SPOT" if spot else "ON_DEMAND"
        shown["eks.amazonaws.com/nodegroup-image"] = "ami-0123456789abcdef0"
    else:
        shown = {"karpenter.sh/nodepool": f"pool-{of_pool // 2}", "karpenter.sh/registered": "true"}
        shown["karpenter.sh/capacity-type"] = "spot" if spot else "on-demand"
        shown |= {f"karpenter.k8s.aws/instance-{kind}": str(of_pool) for kind in ("cpu", "memory", "network-bandwidth")}
    return _node(f"ip-10-{number >> 16}-{number >> 8 & 255}-{number & 255}.ec2.internal", shown, instance_type, zone)


def _node(name: str, shown: dict[str, str], instance_type: str, zone: str) -> dict[str, Any]:
    labels = {
        **shown,
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/instance-type": instance_type,
        "beta.kubernetes.io/os": "linux",
        "failure-domain.beta.kubernetes.io/region": "us-east-1",
        "failure-domain.beta.kubernetes.io/zone": zone,
        "k8s.io/cloud-provider-aws": "f1c9e0d2a3b4c5d6e7f8091a2b3c4d5e",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": instance_type,
        "topology.ebs.csi.aws.com/zone": zone,
        "topology.k8s.aws/zone-id": f"use1-az{zone[-1]}",
        "topology.kubernetes.io/region": "us-east-1",
        "topology.kubernetes.io/zone": zone,
        # Like the labels of inventory tools, this makes every Node different.
        "example.com/serial": name.partition(".")[0],
    }
    annotations = {
        "alpha.kubernetes.io/provided-node-ip": "10.0.0.1",
        "csi.volume.kubernetes.io/nodeid": '{"ebs.csi.aws.com":"i-0123456789abcdef0"}',
        "node.alpha.kubernetes.io/ttl": "300",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    }
    resources = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "hugepages-2Mi": "0", "pods": "234"}
    if instance_type.startswith("p"):
        resources["nvidia.com/gpu"] = "8"
    spot = any("capacity" in key and value.lower() == "spot" for key, value in shown.items())
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            "podCIDR": "10.0.0.0/24",
            "providerID": f"aws:///{zone}/i-0123456789abcdef0",
            "taints": [{"key": "example.com/spot", "value": "true", "effect": "NoSchedule"}] if spot else [],
        },
        "status": {
            "addresses": [{"type": kind, "address": name} for kind in ("InternalIP", "InternalDNS", "Hostname")],
            "allocatable": resources,
            "capacity": resources,
            "conditions": conditions("2026-01-01T00:00:00Z"),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": [_image(number) for number in range(_IMAGES)],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "6d1e5f6c-0000-4000-8000-3a5b7c9d1e2f",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.12.40-63.114.amzn2023.x86_64",
                "kubeProxyVersion": KUBERNETES.version,
                "kubeletVersion": KUBERNETES.version,
                "machineID": "ec2f0a1b2c3d4e5f60718293a4b5c6d7",
                "operatingSystem": "linux",
                "osImage": "Amazon Linux 2023.8.20250818",
                "systemUUID": "ec2f0a1b-2c3d-4e5f-6071-8293a4b5c6d7",
            },
        },
    }


def conditions(now: str) -> list[dict[str, str]]:
    """Return a Node's conditions, which a kubelet reports every five minutes even without changes."""
    return [
        {
            "type": kind,
            "status": status,
            "lastHeartbeatTime": now,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": reason,
            "message": message,
        }
        for kind, status, reason, message in _CONDITIONS
    ]


def _image(number: int) -> dict[str, Any]:
    digest = random.Random(number).randbytes(32).hex()  # noqa: S311 - no secret
    repository = f"602401143452.dkr.ecr.us-east-1.amazonaws.com/platform/component-{number}"
    return {"names": [f"{repository}@sha256:{digest}", f"{repository}:v1.{number}.3"], "sizeBytes": 48_000_000 + number}


def probes() -> list[dict[str, Any]]:
    """Return the objects whose changes measure staleness."""
    group = {"eks.amazonaws.com/nodegroup": PROBE_GROUP, "eks.amazonaws.com/capacityType": "SPOT"}
    spot = karpenter_pool(PROBE, "spot", "m7i")
    spot["spec"]["template"]["metadata"] = {"labels": {"example.com/team": "green"}}
    return [namespace(0) | {"metadata": {"name": PROBE}}, spot, _node(PROBE_GROUP, group, _TYPES[0], "us-east-1a")]

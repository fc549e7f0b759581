"""What the nodes and node pools of each provider look like, from the providers' documentation.

The sources are those of `docs/providers.md`. A taint says by itself what it means only in the constants here.
"""

from __future__ import annotations

from typing import Any, Final

JSON = dict[str, Any]

GPU, TPU, NEURON = "nvidia.com/gpu", "google.com/tpu", "aws.amazon.com/neuron"
MIG: Final = "nvidia.com/mig-1g.10gb"
MEMORY: Final = "nvidia.com/gpumem"
"""The memory of a GPU, of which HAMi gives Pods a part."""
GPU_CLASS, NETWORK_CLASS = "gpu.nvidia.com", "dra.net"
"""Device classes."""
ACCELERATORS: Final = {"gpu": GPU, "tpu": TPU, "neuron": NEURON}
"""The resource of each kind of machine that has an accelerator."""

ARCH, SYSTEM, ZONE, TIER = "kubernetes.io/arch", "kubernetes.io/os", "topology.kubernetes.io/zone", "example.com/tier"
"""Labels; the last is the team's."""

POOL_LABELS: Final = {
    "cks": "compute.coreweave.com/node-pool",
    "gke": "cloud.google.com/gke-nodepool",
    "eks": "eks.amazonaws.com/nodegroup",
    "aks": "kubernetes.azure.com/agentpool",
    "karpenter": "karpenter.sh/nodepool",
}
SPOT_LABELS: Final[dict[str, dict[str, str]]] = {
    "cks": {},
    "gke": {"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-provisioning": "spot"},
    "eks": {"eks.amazonaws.com/capacityType": "SPOT"},
    "aks": {"kubernetes.azure.com/scalesetpriority": "spot", "kubernetes.azure.com/priority": "spot"},
    "karpenter": {"karpenter.sh/capacity-type": "spot"},
}
_ON_DEMAND_LABELS: Final[dict[str, dict[str, str]]] = {
    "gke": {"cloud.google.com/gke-provisioning": "standard"},
    "eks": {"eks.amazonaws.com/capacityType": "ON_DEMAND"},
    "karpenter": {"karpenter.sh/capacity-type": "on-demand"},
}
_ACCELERATOR_LABELS: Final = {
    ("gke", "gpu"): {"cloud.google.com/gke-accelerator": "nvidia-l4"},
    ("gke", "tpu"): {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"},
    ("aks", "gpu"): {"kubernetes.azure.com/accelerator": "nvidia"},
    ("karpenter", "gpu"): {"karpenter.k8s.aws/instance-gpu-name": "a10g", "karpenter.k8s.aws/instance-gpu-count": "1"},
    ("karpenter", "neuron"): {"karpenter.k8s.aws/instance-accelerator-name": "inferentia"},
}
OBJECTS: Final = ("cks", "karpenter")
"""The providers whose pools are objects of the cluster."""

_AWS: Final = {
    "cpu": "m6i.4xlarge",
    "arm": "m7g.4xlarge",
    "windows": "m6i.4xlarge",
    "gpu": "g5.4xlarge",
    "neuron": "inf2.xlarge",
}
TYPES: Final = {
    "cks": {"cpu": "turin-gp", "gpu": "gd-8xh100ib-i128"},
    "gke": {
        "cpu": "e2-standard-8",
        "arm": "t2a-standard-8",
        "windows": "n2-standard-8",
        "gpu": "g2-standard-12",
        "tpu": "ct5lp-hightpu-4t",
    },
    "eks": _AWS,
    "aks": {
        "cpu": "Standard_D8s_v5",
        "arm": "Standard_D8ps_v5",
        "windows": "Standard_D8s_v5",
        "gpu": "Standard_NC24ads_A100_v4",
    },
    "karpenter": _AWS,
}
"""The instance type of each kind of machine that the provider has."""
_CATEGORIES: Final = {"m6i": "m", "m7g": "m", "g5": "g", "inf2": "inf"}


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> JSON:
    """Return a taint."""
    return {"key": key, **({"value": value} if value else {}), "effect": effect}


INTERRUPTABLE: Final = taint("qos.coreweave.cloud/interruptable", "true", "NoExecute")
AKS_SPOT: Final = taint("kubernetes.azure.com/scalesetpriority", "spot")
GKE_SPOT: Final = taint("cloud.google.com/gke-spot", "true")
AUTOMATIC: Final = (INTERRUPTABLE, AKS_SPOT, GKE_SPOT)
"""The taints that providers put on spot nodes: CKS on some of them, AKS on all, GKE on those of auto-provisioning."""
SPOT_TAINTS: Final = (
    taint("spot", "true"),
    taint("spot"),
    taint("example.com/preemptible", "true", "NoExecute"),
    taint("lifecycle", "Ec2Spot"),
)
"""Taints of teams that say in a word that the node is spot."""
COMMON_TAINT: Final = taint("capacity", "cheap")
"""A taint that is on all spot pools of some clusters, and on no other pool."""
DEDICATED_TAINTS: Final = (taint("dedicated", "payments"), taint("example.com/team", "ml", "NoExecute"))
FORBIDDEN_TAINTS: Final = (
    taint("sunk.coreweave.com/lock", "true"),
    taint("node.coreweave.cloud/reserved", "x", "NoExecute"),
)
PASSING_TAINTS: Final = (taint("node.kubernetes.io/unschedulable"), taint("node.kubernetes.io/not-ready", "", "NoExecute"))  # fmt: skip
ACCELERATOR_TAINTS: Final = {
    "cks": {"gpu": taint("is_gpu", "true")},
    "eks": {"gpu": taint(GPU, "present"), "neuron": taint(NEURON, "true")},
    "aks": {"gpu": taint("sku", "gpu")},
    "karpenter": {"gpu": taint(GPU, "true"), "neuron": taint(NEURON, "true")},
    "gke": {"gpu": taint(GPU, "present"), "tpu": taint(TPU, "present")},
}
"""The taints that reserve machines for Pods that request the accelerator. Only GKE sets them by itself."""
PLATFORM_TAINTS: Final = {"arm": taint(ARCH, "arm64"), "windows": taint("node.kubernetes.io/os", "windows")}
"""The taints that GKE puts on Arm and Windows nodes."""


def automatic_taints(provider: str, kind: str, *, spot: bool, marked: bool) -> list[JSON]:
    """Return the taints that the provider sets; ``marked``: where it marks only some spot nodes, these are marked."""
    taints = {"cks": [INTERRUPTABLE] * marked, "gke": [GKE_SPOT] * marked, "aks": [AKS_SPOT]}.get(provider, [])
    taints = taints if spot else []
    if provider == "cks" and kind == "gpu":
        taints = [*taints, taint("is_gpu", "true", "PreferNoSchedule")]
    if provider == "gke":
        own = (PLATFORM_TAINTS.get(kind), ACCELERATOR_TAINTS["gke"].get(kind))
        taints = [*taints, *filter(None, own)]
    return taints


def labels_of(provider: str, pool: str, kind: str, *, spot: bool, cpus: str) -> dict[str, str]:
    """Return the labels that the provider sets."""
    instance = TYPES[provider][kind]
    labels = {
        ARCH: "arm64" if kind == "arm" else "amd64",
        SYSTEM: "windows" if kind == "windows" else "linux",
        "node.kubernetes.io/instance-type": instance,
        POOL_LABELS[provider]: pool,
        **(SPOT_LABELS[provider] if spot else _ON_DEMAND_LABELS.get(provider, {})),
        **_ACCELERATOR_LABELS.get((provider, kind), {}),
    }
    if provider == "cks":
        labels |= {"node.coreweave.cloud/type": instance, "node.coreweave.cloud/class": kind}
    if provider == "karpenter":
        family = instance.partition(".")[0]
        labels["karpenter.k8s.aws/instance-family"] = family
        labels["karpenter.k8s.aws/instance-category"] = _CATEGORIES[family]
        labels["karpenter.k8s.aws/instance-cpu"] = cpus
    return labels


def cks_pool(name: str, kind: str, *, spot: bool, up: bool, taints: list[JSON], labels: JSON) -> JSON:
    """Return a NodePool of CKS: with a Node, or autoscaled from zero."""
    size = {"targetNodes": 1} if up else {"targetNodes": 0, "autoscaling": True, "minNodes": 0, "maxNodes": 4}
    spec = {"computeClass": "spot" if spot else "default", "instanceType": TYPES["cks"][kind], **size}
    return {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {**spec, "nodeLabels": labels, "nodeTaints": taints},
    }


def karpenter_pool(
    name: str, kinds: tuple[str, ...], capacities: list[str], *, taints: list[JSON], labels: JSON
) -> JSON:
    """Return a NodePool of Karpenter on AWS."""
    machines = [labels_of("karpenter", name, kind, spot=True, cpus="") for kind in kinds]
    keys = (ARCH, SYSTEM, "karpenter.k8s.aws/instance-family")
    requirements = [
        {"key": key, "operator": "In", "values": sorted({machine[key] for machine in machines})} for key in keys
    ]
    requirements.append({"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacities})
    node_class = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spec = {"nodeClassRef": node_class, "requirements": requirements, "taints": taints}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": spec}},
    }

"""Random clusters: what the Nodes of each pool look like, and the part of it that spotgate can see.

A `Machine` is a potential Node. Each pool has one, whether or not it has Nodes now; a Karpenter NodePool of both capacity
types or architectures has one of each. spotgate sees all NodePools of CKS and Karpenter, and the Nodes that are up.
The facts are those of the providers' documentation, in the words of `docs/providers.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from random import Random

JSON = dict[str, Any]

FLAVORS: Final = ("cks", "gke", "eks", "aks", "karpenter", "eks+karpenter")

GPU, TPU, NEURON = "nvidia.com/gpu", "google.com/tpu", "aws.amazon.com/neuron"
MIG: Final = "nvidia.com/mig-1g.10gb"
GPU_CLASS, NETWORK_CLASS = "gpu.nvidia.com", "dra.net"

POOL_LABELS: Final = {
    "cks": "compute.coreweave.com/node-pool",
    "gke": "cloud.google.com/gke-nodepool",
    "eks": "eks.amazonaws.com/nodegroup",
    "aks": "kubernetes.azure.com/agentpool",
    "karpenter": "karpenter.sh/nodepool",
}
SPOT_LABELS: Final = {
    "gke": ("cloud.google.com/gke-spot", "true"),
    "eks": ("eks.amazonaws.com/capacityType", "SPOT"),
    "aks": ("kubernetes.azure.com/scalesetpriority", "spot"),
    "karpenter": ("karpenter.sh/capacity-type", "spot"),
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
    "gke": {"cpu": "e2-standard-8", "arm": "t2a-standard-8", "windows": "n2-standard-8", "gpu": "g2-standard-12", "tpu": "ct5lp-hightpu-4t"},
    "eks": _AWS,
    "aks": {"cpu": "Standard_D8s_v5", "arm": "Standard_D8ps_v5", "windows": "Standard_D8s_v5", "gpu": "Standard_NC24ads_A100_v4"},
    "karpenter": _AWS,
}  # fmt: skip
"""The instance type of each kind of machine."""
_ACCELERATORS: Final = {"gpu": GPU, "tpu": TPU, "neuron": NEURON}


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> JSON:
    """Return a taint."""
    return {"key": key, **({"value": value} if value else {}), "effect": effect}


SPOT_TAINTS: Final = (
    taint("spot", "true"),
    taint("spot"),
    taint("example.com/preemptible", "true", "NoExecute"),
    taint("lifecycle", "Ec2Spot"),
)
"""Taints that say in a word that the Node is spot."""
DEDICATED_TAINTS: Final = (taint("dedicated", "payments"), taint("example.com/team", "ml", "NoExecute"))
COMMON_TAINT: Final = taint("capacity", "cheap")
"""A taint on all spot pools of a cluster and no other."""
INTERRUPTABLE: Final = taint("qos.coreweave.cloud/interruptable", "true", "NoExecute")
AKS_SPOT: Final = taint("kubernetes.azure.com/scalesetpriority", "spot")
GKE_SPOT: Final = taint("cloud.google.com/gke-spot", "true")
AUTOMATIC: Final = (INTERRUPTABLE, AKS_SPOT, GKE_SPOT)
"""The taints that providers put on spot nodes by themselves."""
FORBIDDEN_TAINTS: Final = (taint("sunk.coreweave.com/lock", "true"), taint("node.coreweave.cloud/reserved", "x", "NoExecute"))  # fmt: skip
ACCELERATOR_TAINTS: Final = {
    **{(key, value): GPU for key in (GPU, "is_gpu", "sku") for value in ("present", "true", "gpu")},
    (TPU, "present"): TPU,
    (NEURON, "true"): NEURON,
}
"""The taints that reserve machines for the Pods that request an accelerator, with its resource."""
PLATFORM_TAINTS: Final = {
    ("kubernetes.io/arch", "arm64"): "kubernetes.io/arch",
    ("node.kubernetes.io/os", "windows"): "kubernetes.io/os",
}
"""The taints that GKE puts on Arm and Windows nodes, with the label that a Pod for them selects."""
_PASSING: Final = (taint("node.kubernetes.io/unschedulable"), taint("node.kubernetes.io/not-ready", "", "NoExecute"))


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A Node as it is or would be: the truth, which spotgate sees only in part.

    Attributes:
        node: its manifest.
        accelerator: its accelerator's resource, or empty.
        devices: the device classes of its devices.
        hidden: its taints that no object and no Node shows, and that the provider doesn't add by itself.
        shown: whether an object or a Node shows the pool.
    """

    pool: str
    provider: str
    spot: bool
    node: JSON
    accelerator: str
    devices: frozenset[str]
    up: bool
    shown: bool
    hidden: list[JSON] = field(default_factory=list)

    @property
    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = self.node["metadata"]["labels"]
        return labels

    @property
    def taints(self) -> list[JSON]:
        taints: list[JSON] = self.node["spec"]["taints"]
        return taints


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A random cluster: the machines of all its pools, and the objects that spotgate sees."""

    flavor: str
    machines: tuple[Machine, ...]
    state: tuple[JSON, ...]

    def without(self, pool: str) -> Cluster:
        """Return the cluster without a pool."""
        machines = tuple(machine for machine in self.machines if machine.pool != pool)
        state = tuple(thing for thing in self.state if _pool_of(thing) != pool)
        return Cluster(flavor=self.flavor, machines=machines, state=state)

    @property
    def pools(self) -> list[str]:
        return list(dict.fromkeys(machine.pool for machine in self.machines))


def _pool_of(thing: JSON) -> str:
    return str(thing["metadata"]["name"]).removesuffix("-0") if thing["kind"] in {"Node", "NodePool"} else ""


def maybe(random: Random, probability: float) -> bool:
    """Return whether an event of this probability happens; hypothesis shrinks it to False."""
    return random.random() >= 1 - probability


def cluster_of(random: Random, flavor: str) -> Cluster:
    """Return a random cluster with one on-demand pool that has Nodes, and three to six other pools."""
    providers = flavor.split("+")
    traits = {
        "common": maybe(random, 0.15),  # the common taint, in this cluster
        "interruptable": maybe(random, 0.5),  # CKS's taint, in this cluster
    }
    pools = [_pool(random, providers[0], "system", traits, system=True)]
    pools += [_pool(random, random.choice(providers), f"p{number}", traits) for number in range(random.randint(3, 6))]
    state: list[JSON] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
        *(_claim_template(name, device) for name, device in (("gpu", GPU_CLASS), ("network", NETWORK_CLASS))),
    ]
    state += [thing for _, shown in pools for thing in shown]
    return Cluster(flavor=flavor, machines=tuple(m for machines, _ in pools for m in machines), state=tuple(state))


def _claim_template(name: str, device: str) -> JSON:
    requests = [{"name": "device", "exactly": {"deviceClassName": device}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }


def _pool(
    random: Random, provider: str, name: str, traits: dict[str, bool], *, system: bool = False
) -> tuple[list[Machine], list[JSON]]:
    """Return the potential Nodes of a pool, and the objects that show it."""
    kinds = [
        kind
        for kind in ("cpu", "cpu", "cpu", "gpu", "gpu", "arm", "windows", "tpu", "neuron")
        if kind in TYPES[provider]
    ]
    kind = "cpu" if system else random.choice(kinds)
    spot, up = not system and maybe(random, 0.75), system or maybe(random, 0.5)
    both = provider == "karpenter" and not system and maybe(random, 0.15)
    arches = ("amd64", "arm64") if provider == "karpenter" and kind == "cpu" and both else ("",)
    own = _own_taints(random, provider, kind, spot=spot or both) if not system else []
    if traits["common"] and spot and not both:
        own.append(COMMON_TAINT)
    labels = {"example.com/tier": random.choice("ab")} if maybe(random, 0.5) else {}
    zone = random.choice("abc")
    undeclared = [random.choice((SPOT_TAINTS[0], DEDICATED_TAINTS[0]))] if maybe(random, 0.08) and not system else []
    objects = provider in OBJECTS
    machines: list[Machine] = []
    for capacity in (True, False) if both else (spot,):
        for arch in arches:
            automatic = _automatic_taints(random, provider, kind, traits, spot=capacity)
            taints = {
                (each["key"], each["effect"]): each for each in (*(undeclared if objects else ()), *automatic, *own)
            }
            hidden = ([] if up else undeclared) if objects else ([] if up else own)
            real = "arm" if arch == "arm64" else kind
            machines.append(
                Machine(
                    pool=name,
                    provider=provider,
                    spot=capacity,
                    accelerator=_ACCELERATORS.get(kind, ""),
                    devices=frozenset({NETWORK_CLASS, *((GPU_CLASS,) if kind == "gpu" else ())}),
                    up=up and not (both and machines),
                    shown=up or objects,
                    hidden=hidden,
                    node=_node(random, provider, name, real, len(machines), spot=capacity, zone=zone, taints=list(taints.values()), labels=labels),
                )
            )  # fmt: skip
    shown: list[JSON] = []
    if provider == "cks":
        shown.append(_cks_pool(name, kind, spot=spot, up=up, taints=own, labels=labels))
    elif provider == "karpenter":
        values = ["spot", "on-demand"] if both else ["spot" if spot else "on-demand"]
        shown.append(_karpenter_pool(name, kind, values, arches, taints=own, labels=labels))
    if up:
        shown.append(_as_seen(random, machines[0].node))
    return machines, shown


def _own_taints(random: Random, provider: str, kind: str, *, spot: bool) -> list[JSON]:
    """Return the taints that a pool declares."""
    taints = []
    if spot and maybe(random, 0.3):
        taints.append(random.choice(SPOT_TAINTS))
    if maybe(random, 0.15):
        taints.append(random.choice(DEDICATED_TAINTS))
    if maybe(random, 0.5):
        if kind == "gpu" and provider != "gke":
            taints.append(
                {"aks": taint("sku", "gpu"), "cks": taint("is_gpu", "true")}.get(provider, taint(GPU, "present"))
            )
        if kind == "neuron":
            taints.append(taint(NEURON, "true"))
    if provider == "cks" and maybe(random, 0.08):
        taints.append(random.choice(FORBIDDEN_TAINTS))
    return taints


def _automatic_taints(random: Random, provider: str, kind: str, traits: dict[str, bool], *, spot: bool) -> list[JSON]:
    """Return the taints that the provider puts on the Nodes by itself."""
    taints = []
    if provider == "cks":
        if kind == "gpu":
            taints.append(taint("is_gpu", "true", "PreferNoSchedule"))
        if spot and traits["interruptable"]:
            taints.append(INTERRUPTABLE)
    if provider == "aks" and spot:
        taints.append(AKS_SPOT)
    if provider == "gke":
        if spot and maybe(random, 0.3):  # a pool of auto-provisioning
            taints.append(GKE_SPOT)
        if kind == "arm":
            taints.append(taint("kubernetes.io/arch", "arm64"))
        if kind == "windows":
            taints.append(taint("node.kubernetes.io/os", "windows"))
        if kind in {"gpu", "tpu"}:
            taints.append(taint(GPU if kind == "gpu" else TPU, "present"))
    return taints


def _node(
    random: Random, provider: str, pool: str, kind: str, number: int, *, spot: bool, zone: str, taints: list[JSON], labels: JSON
) -> JSON:  # fmt: skip
    """Return the manifest of a Node."""
    name, instance, cpus = f"{pool}-{number}", TYPES[provider][kind], random.choice(("16", "16", "4"))
    allocatable = {"cpu": cpus, "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    if kind == "gpu":
        allocatable |= {MIG: "7"} if maybe(random, 0.2) else {GPU: "8", "nvidia.com/gpumem": "80000"}
    elif kind in _ACCELERATORS:
        allocatable[_ACCELERATORS[kind]] = "4"
    every = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "arm64" if kind == "arm" else "amd64",
        "kubernetes.io/os": "windows" if kind == "windows" else "linux",
        "node.kubernetes.io/instance-type": instance,
        "topology.kubernetes.io/zone": f"zone-{zone}",
        POOL_LABELS[provider]: pool,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**every, **_provider_labels(provider, kind, instance, cpus, spot=spot), **labels},
        },
        "spec": {"taints": taints},
        "status": {"allocatable": allocatable},
    }


def _provider_labels(provider: str, kind: str, instance: str, cpus: str, *, spot: bool) -> dict[str, str]:
    """Return the labels that the provider puts on the Nodes by itself."""
    family = instance.partition(".")[0]
    match provider:
        case "cks":
            return {"node.coreweave.cloud/type": instance, "node.coreweave.cloud/class": kind}
        case "gke":
            labels = {"cloud.google.com/gke-provisioning": "spot" if spot else "standard"}
            labels |= {"cloud.google.com/gke-spot": "true"} if spot else {}
            labels |= {"cloud.google.com/gke-accelerator": "nvidia-l4"} if kind == "gpu" else {}
            return labels | ({"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"} if kind == "tpu" else {})
        case "eks":
            return {"eks.amazonaws.com/capacityType": "SPOT" if spot else "ON_DEMAND"}
        case "aks":
            labels = {"kubernetes.azure.com/scalesetpriority": "spot"} if spot else {}
            return labels | ({"kubernetes.azure.com/accelerator": "nvidia"} if kind == "gpu" else {})
    labels = {
        "karpenter.sh/capacity-type": "spot" if spot else "on-demand",
        "karpenter.k8s.aws/instance-family": family,
        "karpenter.k8s.aws/instance-category": {"m6i": "m", "m7g": "m", "g5": "g", "inf2": "inf"}[family],
        "karpenter.k8s.aws/instance-cpu": cpus,
    }
    if kind == "gpu":
        labels |= {"karpenter.k8s.aws/instance-gpu-name": "a10g", "karpenter.k8s.aws/instance-gpu-count": "1"}
    if kind == "neuron":
        labels |= {"karpenter.k8s.aws/instance-accelerator-name": "inferentia"}
    return labels


def _cks_pool(name: str, kind: str, *, spot: bool, up: bool, taints: list[JSON], labels: JSON) -> JSON:
    size = {"targetNodes": 1} if up else {"targetNodes": 0, "autoscaling": True, "minNodes": 0, "maxNodes": 4}
    spec = {"computeClass": "spot" if spot else "default", "instanceType": TYPES["cks"][kind], **size}
    return {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {**spec, "nodeLabels": labels, "nodeTaints": taints},
    }


def _karpenter_pool(
    name: str, kind: str, capacities: list[str], arches: tuple[str, ...], *, taints: list[JSON], labels: JSON
) -> JSON:
    families = [TYPES["karpenter"][each].partition(".")[0] for each in ((kind, "arm") if len(arches) > 1 else (kind,))]
    requirements: list[JSON] = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": capacities},
        {"key": "kubernetes.io/arch", "operator": "In", "values": [*filter(None, arches)] or ["arm64" if kind == "arm" else "amd64"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["windows" if kind == "windows" else "linux"]},
        {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": families},
    ]  # fmt: skip
    node_class = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "metadata": {"labels": labels},
                "spec": {"nodeClassRef": node_class, "requirements": requirements, "taints": taints},
            }
        },
    }


def _as_seen(random: Random, node: JSON) -> JSON:
    """Return the Node as it is now: it may have a temporary taint."""
    passing = [random.choice(_PASSING)] if maybe(random, 0.1) else []
    return {**node, "spec": {"taints": [*node["spec"]["taints"], *passing]}}

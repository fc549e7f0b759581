"""Random Pods that ask for spot, with what a user writes: selectors, affinity, accelerators, claims, and tolerations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.placement_oracle.clusters import maybe
from tests.placement_oracle.providers import (
    AKS_SPOT,
    ARCH,
    DEDICATED_TAINTS,
    GPU,
    MEMORY,
    MIG,
    NEURON,
    POOL_LABELS,
    SPOT_LABELS,
    SPOT_TAINTS,
    SYSTEM,
    TIER,
    TPU,
    ZONE,
    taint,
)
from tests.placement_oracle.scheduler import REQUIRED

if TYPE_CHECKING:
    from random import Random

    from tests.placement_oracle.clusters import Cluster

JSON = dict[str, Any]

ACCELERATORS: Final[tuple[JSON, ...]] = (
    *({} for _ in range(14)),
    *({"limits": {GPU: "1"}} for _ in range(4)),
    {"limits": {MIG: "2"}},
    {"limits": {MEMORY: "4096"}},
    {"init": {GPU: "1"}},
    {"limits": {TPU: "4"}},
    {"limits": {NEURON: "1"}},
    {"annotation": "gpu-fraction"},
    {"claim": "gpu"},
    {"claim": "network"},
    {"claim": "unknown"},
)
"""Ways to request an accelerator or another device, by how often; ``unknown`` is a claim that spotgate can't read."""


def pod_of(random: Random, cluster: Cluster) -> JSON:
    """Return a random Pod for the cluster."""
    accelerator = random.choice(ACCELERATORS)
    requests = {"cpu": random.choice(("500m", "2", "8")), "memory": "1Gi"}
    resources = {"requests": requests, **({"limits": accelerator["limits"]} if "limits" in accelerator else {})}
    metadata: JSON = {"name": "pod", "namespace": "team-a", "labels": {}, "annotations": {}}
    container: JSON = {"name": "main", "image": "registry.example.com/app:1", "resources": resources}
    spec: JSON = {"containers": [container], "nodeSelector": {}, "tolerations": []}
    if "init" in accelerator:
        spec["initContainers"] = [{**container, "name": "init", "resources": {"limits": accelerator["init"]}}]
    if "annotation" in accelerator:
        metadata["annotations"][accelerator["annotation"]] = "0.5"
    if claim := accelerator.get("claim"):
        spec["resourceClaims"] = [{"name": "device", "resourceClaimTemplateName": claim}]
        resources["claims"] = [{"name": "device"}]
    _platform(random, spec)
    _ask(random, cluster, metadata, spec)
    if maybe(random, 0.2):
        tolerated = random.choice((*DEDICATED_TAINTS, SPOT_TAINTS[0], AKS_SPOT, taint(GPU)))
        spec["tolerations"].append({**tolerated, "operator": "Equal" if "value" in tolerated else "Exists"})
    elif maybe(random, 0.05):
        spec["tolerations"].append({"operator": "Exists", "effect": "NoSchedule"})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {k: v for k, v in spec.items() if v}}


def _platform(random: Random, spec: JSON) -> None:
    """Select an architecture or Windows, in one of seven Pods."""
    if maybe(random, 0.08):
        spec["nodeSelector"][ARCH] = random.choice(("arm64", "arm64", "amd64"))
    elif maybe(random, 0.05):
        spec["nodeSelector"][SYSTEM] = "windows"
        if maybe(random, 0.5):
            spec["os"] = {"name": "windows"}


def _ask(random: Random, cluster: Cluster, metadata: JSON, spec: JSON) -> None:
    """Ask for spot: by a label, with or without other constraints, by the provider's label, or by a pool's name."""
    how = random.choice(("spot", "spot", "spot", "spot", "spot-preferred", "spot-preferred", "own", "terms", "name"))
    spot = [machine for machine in cluster.machines if machine.spot]
    only_spot = [m for m in spot if not any(o.pool == m.pool and not o.spot for o in cluster.machines)]
    providers = cluster.flavor.split("+")
    marks = [(key, [value]) for provider in providers for key, value in SPOT_LABELS[provider].items()]
    names = [(POOL_LABELS[machine.provider], [machine.pool]) for machine in only_spot if machine.shown]
    if how == "name" and names:
        key, values = random.choice(names)
        if maybe(random, 0.5):
            metadata["annotations"]["spotgate.dev/node-pool"] = values[0]
        else:
            spec["nodeSelector"][key] = values[0]
    elif how == "own" and marks:
        key, values = random.choice(marks)
        spec["nodeSelector"][key] = values[0]
    elif how == "terms" and (marks or names):
        count = random.randint(1, 3)
        terms = [[_need(*random.choice(marks or names)), *_needs(random, cluster, 1)] for _ in range(count)]
        spec["affinity"] = _required(terms)
    else:
        metadata["labels"]["spotgate.dev/capacity"] = how if how.startswith("spot") else "spot"
        if maybe(random, 0.15):
            spec["nodeSelector"][ZONE] = f"zone-{random.choice('abc')}"
        elif maybe(random, 0.2):
            spec["affinity"] = _required([_needs(random, cluster, 2) for _ in range(random.randint(1, 3))])


def _required(terms: list[list[JSON]]) -> JSON:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}}}


def _need(key: str, values: list[str], operator: str = "In") -> JSON:
    return {"key": key, "operator": operator, **({"values": values} if values else {})}


def _needs(random: Random, cluster: Cluster, count: int) -> list[JSON]:
    """Return one or more requirements that have nothing to do with spot."""
    zones = [f"zone-{zone}" for zone in "abc"]
    pool = random.choice(cluster.machines)
    possible = [
        _need(ZONE, random.sample(zones, 2)),
        _need(ZONE, random.sample(zones, 1), "NotIn"),
        _need(TIER, ["a"]),
        _need(TIER, ["a"], "NotIn"),
        _need(TIER, [], random.choice(("Exists", "DoesNotExist"))),
        _need(ARCH, ["amd64", "arm64"]),
        _need(ARCH, ["arm64"]),
        _need(POOL_LABELS[pool.provider], [pool.pool], "NotIn"),
    ]
    if "karpenter" in cluster.flavor:
        possible.append(_need("karpenter.k8s.aws/instance-cpu", ["8"], random.choice(("Gt", "Lt"))))
    return random.sample(possible, random.randint(1, count))

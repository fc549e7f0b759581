"""Node pools for tests: CKS's as its reader reads them, and providers that label or taint spot nodes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tests.rules.conftest import shipped_provider
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, Taint
from webhook.capacity.providers.provider import Label, Provider
from webhook.cluster.protocol import ClusterView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.requirements import Requirements

CKS = shipped_provider("cks")
POOL_LABEL = CKS.pool_label

# Shaped like GKE, Karpenter and EKS, so that what holds for providers other than CKS does not hang on their documents.
GKE = replace(
    CKS,
    name="gke",
    title="GKE",
    pool_label="cloud.google.com/gke-nodepool",
    spot_labels=(Label("cloud.google.com/gke-spot", "true"), Label("cloud.google.com/gke-provisioning", "spot")),
    spot_taints=(Taint("cloud.google.com/gke-spot", "true", "NoSchedule"),),
    readers=(),
)
KARPENTER = replace(
    CKS,
    name="karpenter",
    title="Karpenter",
    pool_label="karpenter.sh/nodepool",
    spot_labels=(Label("karpenter.sh/capacity-type", "spot"),),
    readers=(),
)
EKS = replace(
    CKS,
    name="eks",
    title="EKS",
    pool_label="eks.amazonaws.com/nodegroup",
    spot_labels=(Label("eks.amazonaws.com/capacityType", "SPOT"),),
    readers=(),
)

ONLY_CKS: Mapping[str, Provider] = {"cks": CKS}
ALL: Mapping[str, Provider] = {each.name: each for each in (CKS, EKS, GKE, KARPENTER)}

GPU_TYPE = "gd-8xh100ib-i128"
CPU_TYPE = "cd-gp-a192-genoa"


def cks_pool(
    name: str,
    *,
    spot: bool = True,
    gpu: bool = True,
    labels: dict[str, str] | None = None,
    taints: tuple[str, ...] = (),
    instance_type: str = "",
    **metadata: Any,
) -> Pool:
    """Return a CKS node pool; taints are written ``key=value:Effect``."""
    (reader,) = CKS.readers
    spec = {
        "computeClass": "spot" if spot else "default",
        "instanceType": instance_type or (GPU_TYPE if gpu else CPU_TYPE),
        "targetNodes": 2,
        "nodeLabels": labels or {},
        "nodeTaints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in map(taint, taints)],
    }
    return reader.read({"metadata": {"name": name, **metadata}, "spec": spec})


def other_pool(
    provider: Provider,
    name: str,
    *,
    capacity: CapacityType = CapacityType.SPOT,
    gpu: Gpu = Gpu.ANY,
    labels: dict[str, str] | None = None,
    taints: tuple[str, ...] = (),
    cluster: str = "",
    requirements: Requirements | None = None,
) -> Pool:
    """Return a node pool of a provider that has no reader here."""
    return Pool(
        provider=provider.name,
        kind="NodePool",
        name=name,
        pool_name=name,
        capacity=capacity,
        gpu=gpu,
        labels={**(labels or {}), provider.pool_label: name},
        taints=tuple(map(taint, taints)),
        cluster=cluster,
        requirements=requirements,
    )


def taint(text: str) -> Taint:
    """Return a taint from ``key=value:Effect`` or ``key:Effect``."""
    key, _, effect = text.rpartition(":")
    key, _, value = key.partition("=")
    return Taint(key, value, effect)


def view_of(
    *pools: Pool,
    shown: tuple[str, ...] = (),
    spot_shown: tuple[str, ...] = (),
    namespace: dict[str, str] | None = None,
) -> ClusterView:
    """Return a cluster with these pools; ``shown`` are providers that only its Nodes show, ``spot_shown`` by spot Nodes."""
    return ClusterView(
        pools=pools,
        providers=frozenset((*shown, *spot_shown, *(pool.provider for pool in pools if not pool.cluster))),
        spot_providers=frozenset(spot_shown),
        namespaces={"team-a": namespace or {}},
    )

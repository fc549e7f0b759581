"""Pods that request spot, node pools, and the pools that admit the Pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.builders import ONLY_CKS, cks_pool, expression, view_of
from webhook.capacity.placement.target import NotTargeting, Target, target_of

if TYPE_CHECKING:
    from webhook.capacity.providers.pool import Pool
    from webhook.kube.pod import Pod

SPOT = {"spotgate.dev/capacity": "spot"}
DEVICE = {"deviceclass.resource.kubernetes.io/gpu": "1"}
PREFERRED = {"spotgate.dev/capacity": "spot-preferred"}
ON_DEMAND = {"spotgate.dev/capacity": "on-demand"}
GPU_SPOT = cks_pool("gpu-spot", labels={"example.com/tier": "spot"}, taints=("spot=true:NoSchedule",))
CPU_SPOT = cks_pool("cpu-spot", gpu=False)
GPU = cks_pool("gpu", spot=False, labels={"example.com/tier": "paid"})
CPU = cks_pool("cpu", spot=False, gpu=False)
CLUSTER = (CPU, CPU_SPOT, GPU, GPU_SPOT)


def target(pod: Pod, *pools: Pool, **changes: Any) -> Target | NotTargeting:
    arguments: dict[str, Any] = {"view": view_of(*(pools or CLUSTER)), "providers": ONLY_CKS, **changes}
    namespace_labels = arguments.pop("namespace_labels", {})
    return target_of(pod, namespace_labels, **arguments)


def landing(pod: Pod, *pools: Pool, **changes: Any) -> list[str] | None:
    """Return the names of the pools that admit the Pod; None if the pools can't be seen."""
    targeting = target(pod, *pools, **changes)
    assert isinstance(targeting, Target), targeting
    return None if targeting.pools is None else [pool.name for pool in targeting.pools]


def why_not(pod: Pod, *pools: Pool, **changes: Any) -> str:
    targeting = target(pod, *pools, **changes)
    assert isinstance(targeting, NotTargeting), targeting
    return targeting.because


AMD64 = expression("kubernetes.io/arch", "In", "amd64")

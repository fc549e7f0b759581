"""Node pools with requirements on labels, and the pools that admit a Pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.builders import expression, pod_of, view_of
from tests.rules.conftest import shipped_provider
from tests.rules.placement import SPOT
from webhook.capacity.placement.target import NotTargeting, Target, target_of

if TYPE_CHECKING:
    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.view import ClusterView
    from webhook.kube.pod import Pod

NAMES = ("aks", "cks", "eks", "gke", "karpenter")
ALL = {name: shipped_provider(name) for name in NAMES}
KARPENTER = ALL["karpenter"]
(READER,) = KARPENTER.readers
CAPACITY = "karpenter.sh/capacity-type"
POOL = "karpenter.sh/nodepool"
ARCH, ZONE, FAMILY = "kubernetes.io/arch", "topology.kubernetes.io/zone", "karpenter.k8s.aws/instance-family"
CPUS, TEAM = "karpenter.k8s.aws/instance-cpu", "example.com/team"


def karpenter(name: str, *requirements: dict[str, Any], capacity: tuple[str, ...] = ("spot",), **more: Any) -> Pool:
    required = [expression(CAPACITY, "In", *capacity)] if capacity else []
    spec = {"requirements": [*required, *requirements], "nodeClassRef": {"group": "karpenter.k8s.aws"}, **more}
    return READER.read({"metadata": {"name": name}, "spec": {"template": {"spec": spec}}})


def target(pod: Pod, *pools: Pool, view: ClusterView | None = None) -> Target | NotTargeting:
    return target_of(pod, {}, view or view_of(*pools), ALL)


def landing(pod: Pod, *pools: Pool, view: ClusterView | None = None) -> list[str]:
    targeting = target(pod, *pools, view=view)
    assert isinstance(targeting, Target), targeting
    return [str(nodes.pool.name if nodes.pool else nodes.provider.name) for nodes in targeting.nodes]


def asking(*terms: list[dict[str, Any]], selector: dict[str, str] | None = None, **more: Any) -> Pod:
    return pod_of(labels=SPOT, selector=selector, terms=list(terms) or None, **more)


def gke_pool(spec: dict[str, Any], name: str = "pool") -> Pool:
    reader = next(candidate for candidate in ALL["gke"].readers if candidate.kind == "ContainerNodePool")
    spot = {"spot": spec.pop("spot", True), "machineType": "n2-standard-4"}
    return reader.read({"metadata": {"name": name}, "spec": {"nodeConfig": spot, **spec}})

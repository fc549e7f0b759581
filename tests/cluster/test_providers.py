"""Pools and Nodes of a cluster reveal its providers; pools of other clusters don't."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.builders import BUNDLE
from webhook.inputs.state import FileState

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.capacity.view import ClusterView

PROVIDERS = BUNDLE.providers

KARPENTER = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}]
"""
FLEET_POOL = """
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: AWSManagedMachinePool
metadata: {name: gpu, namespace: fleet, labels: {cluster.x-k8s.io/cluster-name: workload-1}}
spec: {instanceType: p5.48xlarge, scaling: {minSize: 0, maxSize: 4}}
"""
MACHINE_POOL = """
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachinePool
metadata: {name: gpu, namespace: fleet}
spec:
  replicas: 3
  template: {spec: {infrastructureRef: {kind: AWSManagedMachinePool, name: gpu}}}
"""


def node(**labels: str) -> str:
    shown = ", ".join(f"{key}: {value!r}" for key, value in labels.items())
    return f"apiVersion: v1\nkind: Node\nmetadata: {{name: a, labels: {{{shown}}}}}\n"


def load(folder: Path, *documents: str) -> ClusterView:
    (folder / "state.yaml").write_text("---\n".join(documents))
    return FileState([folder / "state.yaml"], PROVIDERS).view()


@pytest.mark.parametrize(
    ("documents", "shown"),
    [
        ((), set()),
        ((KARPENTER,), {"karpenter"}),
        ((FLEET_POOL, MACHINE_POOL), {"eks"}),
        ((FLEET_POOL, MACHINE_POOL, node(**{"kubernetes.io/hostname": "a"})), set()),
        ((FLEET_POOL, FLEET_POOL.replace("gpu", "cpu").replace("workload-1", "workload-2")), set()),
        ((FLEET_POOL, FLEET_POOL.replace("gpu", "cpu")), {"eks"}),
        ((KARPENTER, FLEET_POOL), {"karpenter"}),
        ((node(**{"cloud.google.com/gke-nodepool": "a"}),), {"gke"}),
        ((node(**{"cloud.google.com/gke-spot": "true"}),), {"gke"}),
        ((node(**{"karpenter.sh/nodepool": "a", "karpenter.sh/capacity-type": "spot"}),), {"karpenter"}),
        ((node(**{"eks.amazonaws.com/nodegroup": "a"}),), {"eks"}),
        ((node(**{"eks.amazonaws.com/capacityType": "SPOT"}),), {"eks"}),
        ((node(**{"kubernetes.azure.com/agentpool": "a"}),), {"aks"}),
        ((node(**{"compute.coreweave.com/node-pool": "a"}),), {"cks"}),
        ((node(**{"kubernetes.io/hostname": "a"}),), set()),
        ((KARPENTER, node(**{"eks.amazonaws.com/nodegroup": "a"})), {"karpenter", "eks"}),
    ],
)
def test_only_pools_and_nodes_of_the_cluster_reveal_a_provider(
    tmp_path: Path, documents: tuple[str, ...], shown: set[str]
) -> None:
    assert load(tmp_path, *documents).providers == shown


@pytest.mark.parametrize("documents", [(FLEET_POOL, MACHINE_POOL), (MACHINE_POOL, FLEET_POOL)])
def test_a_machine_pool_sizes_its_pool_in_any_order(tmp_path: Path, documents: tuple[str, ...]) -> None:
    (pool,) = load(tmp_path, *documents).pools or ()
    assert (pool.cluster, pool.desired, pool.unusable) == ("fleet/workload-1", 3, "")


def test_the_later_of_two_machine_pools_with_one_name_wins(tmp_path: Path) -> None:
    (pool,) = load(tmp_path, FLEET_POOL, MACHINE_POOL, MACHINE_POOL.replace("replicas: 3", "replicas: 0")).pools or ()
    assert pool.desired == 0

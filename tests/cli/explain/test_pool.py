"""``spotgate explain`` of a node pool: what its provider's reader makes of it, and from which fields."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ON_DEMAND_POOL, POD, SPOT_POOL
from webhook.engine.bundle import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeAlias

    from tests.cli.conftest import Run

    Write: TypeAlias = Callable[[str, str | bytes], Path]

TITLE = "How the node pool is read"

GKE = """\
apiVersion: container.cnrm.cloud.google.com/v1beta1
kind: ContainerNodePool
metadata: {name: t4, namespace: infra}
spec:
  clusterRef: {name: prod}
  initialNodeCount: 3
  nodeLocations: [us-east1-c, us-east1-b]
  nodeConfig:
    spot: true
    machineType: n1-standard-4
    guestAccelerator: [{type: nvidia-tesla-t4, count: 2}]
    kubeletConfig: {shutdownGracePeriodSeconds: 90}
"""
KARPENTER = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: any}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: []
"""
MACHINES = """\
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: AWSManagedMachinePool
metadata: {name: od, namespace: infra}
spec: {eksNodegroupName: od, capacityType: onDemand, instanceType: p4d.24xlarge}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachinePool
metadata: {name: machines, namespace: infra}
spec:
  clusterName: prod
  replicas: 4
  template: {spec: {infrastructureRef: {kind: AWSManagedMachinePool, name: od}}}
"""


def reading(run: Run, *arguments: str | Path) -> dict[str, str]:
    """Return what is said of how the first object is read, by what it is."""
    done = run("explain", *arguments)
    assert (done.code, done.err) == (0, "")
    facts: dict[str, str] = {}
    for line in done.out.partition(TITLE)[2].partition("\n\n")[0].splitlines()[1:]:
        name, value = line[2:19].strip(), line[19:].strip()
        if not name:
            name, before = facts.popitem()
            value = f"{before} {value}"
        facts[name] = value
    return facts


def test_a_pool_of_CKS(run: Run, write: Write) -> None:
    write("pool.yaml", SPOT_POOL + '  nodeTaints: [{key: spot, value: "true", effect: NoSchedule}]\n')
    assert reading(run, "pool.yaml") == {
        "capacity": "spot  (spec.computeClass)",
        "GPUs": "yes  (spec.instanceType)",
        "instance types": "gd-8xh100ib-i128  (spec.instanceType)",
        "size": "2 nodes  (spec.targetNodes)",
        "autoscaled": "no  (no spec.autoscaling)",
        "can have nodes": "yes",
        "cluster": "this one",
        "taints": "spot=true:NoSchedule  (spec.nodeTaints)",
        "labels of nodes": (
            "compute.coreweave.com/node-pool=gpu-spot, node.coreweave.cloud/class=gpu, "
            "node.coreweave.cloud/type=gd-8xh100ib-i128, node.kubernetes.io/instance-type=gd-8xh100ib-i128, "
            "node.kubernetes.io/type=gd-8xh100ib-i128  (no spec.nodeLabels)"
        ),
        "zones": "not said",
        "time to stop": "300 s, of which 30 s are kept free  (of every CoreWeave CKS pool)",
    }


def test_a_pool_of_GKE_with_accelerators_a_cluster_and_a_window_of_its_own(run: Run, write: Write) -> None:
    facts = reading(run, write("pool.yaml", GKE))
    assert facts["GPUs"].startswith("yes, 2 in each node (nvidia-tesla-t4)  (spec.nodeConfig.guestAccelerator")
    assert facts["size"] == "3 nodes  (spec.initialNodeCount)"
    assert (
        facts["cluster"]
        == "infra/prod (taken for this one: the files describe no other, and no Nodes)  (spec.clusterRef.name)"
    )
    assert facts["zones"] == "us-east1-b, us-east1-c  (spec.nodeLocations)"
    assert facts["time to stop"] == "75 s  (the pool's own)"


def test_a_pool_of_Karpenter_is_what_its_requirements_say(run: Run, write: Write) -> None:
    facts = reading(run, write("pool.yaml", KARPENTER))
    assert facts["capacity"] == "both  (karpenter.sh/capacity-type in spec.template.spec.requirements)"
    assert facts["GPUs"] == "as its Pods ask  (spec.template.spec.requirements)"
    assert facts["autoscaled to"] == "no maximum  (no spec.replicas; no spec.limits)"


def test_a_size_that_another_object_gives_is_said_with_its_name(run: Run, write: Write) -> None:
    facts = reading(run, write("pools.yaml", MACHINES))
    assert facts["size"] == "4 nodes  (MachinePool machines)"
    assert facts["cluster"].startswith("infra/prod")


def test_what_keeps_a_pool_empty_and_what_cannot_be_read_is_said(run: Run, write: Write) -> None:
    write("pool.yaml", ON_DEMAND_POOL.replace("targetNodes: 2", 'targetNodes: 0\n  maxNodes: "2"'))
    facts = reading(run, "pool.yaml")
    assert facts["can have nodes"] == "no: it has 0 nodes and no autoscaling"
    assert facts["can't be read"] == "spec.maxNodes is not an integer"


def test_a_deleted_pool_is_read_as_it_was(run: Run, write: Write) -> None:
    assert reading(run, "--operation", "DELETE", write("pool.yaml", SPOT_POOL))["size"] == "2 nodes  (spec.targetNodes)"


def test_a_wrong_path_in_a_reader_of_ones_own_is_seen(run: Run, write: Write, tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path / "policies", ignore=shutil.ignore_patterns("tests"))
    cks = tmp_path / "policies" / "providers" / "cks.yaml"
    cks.write_text(cks.read_text().replace("from: spec.computeClass", "from: spec.class"))
    facts = reading(run, "--policies", tmp_path / "policies", write("pool.yaml", SPOT_POOL))
    assert facts["capacity"] == "on-demand  (no spec.class)"


def test_what_is_no_node_pool_is_not_read_as_one(run: Run, write: Write) -> None:
    assert TITLE not in run("explain", write("pod.yaml", POD)).out


def test_the_page_has_it_too_and_escapes_it(run: Run, write: Write) -> None:
    write("pool.yaml", SPOT_POOL.replace("gd-8xh100ib-i128", "<b>8x"))
    done = run("explain", "-o", "html", "pool.yaml")
    assert f"<h2>{TITLE}</h2>" in done.out
    assert '<td>&lt;b&gt;8x</td><td class="faint">spec.instanceType</td>' in done.out


@pytest.mark.parametrize(
    "text", ["spec: 5", "spec: {computeClass: [spot], instanceType: {a: 1}, nodeTaints: 7}", "spec: null"]
)
def test_a_pool_that_is_all_wrong_is_read_as_far_as_it_goes(run: Run, write: Write, text: str) -> None:
    write("pool.yaml", SPOT_POOL.partition("spec:")[0] + text + "\n")
    assert reading(run, "pool.yaml")["cluster"] == "this one"

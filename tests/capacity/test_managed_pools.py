"""Node pools that other declarative APIs describe, as manifests of their own documentation are shaped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.rules.conftest import shipped_provider
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, Taint

if TYPE_CHECKING:
    from webhook.capacity.providers.reader import PoolReader

READERS: dict[str, PoolReader] = {
    reader.kind: reader for name in ("gke", "eks", "aks") for reader in shipped_provider(name).readers
}
IN_TEAM = {"name": "a", "namespace": "team"}


def pool(kind: str, spec: object = None, status: object = None, **metadata: Any) -> Pool:
    return READERS[kind].read({"metadata": {**IN_TEAM, **metadata}, "spec": spec, "status": status})


def read(text: str) -> Pool:
    value = yaml.safe_load(text)
    reader = READERS[value["kind"]]
    group, _, version = value["apiVersion"].partition("/")
    assert group == reader.group
    assert version in reader.versions
    return reader.read(value)


CLUSTER = """
apiVersion: container.cnrm.cloud.google.com/v1beta1
kind: ContainerCluster
metadata: {name: prod, namespace: infra}
spec:
  location: us-east1
  initialNodeCount: 1
  nodeConfig: {machineType: n1-standard-4, taint: [{key: a, effect: NO_SCHEDULE}], labels: {team: web}}
  nodeLocations: [us-east1-b]
"""


def test_the_default_pool_of_a_container_cluster() -> None:
    found = read(CLUSTER)
    assert (found.capacity, found.gpu, found.unusable, found.problems) == (CapacityType.ON_DEMAND, Gpu.NO, "", ())
    assert (found.cluster, found.labels["cloud.google.com/gke-nodepool"]) == ("infra/prod", "default-pool")
    assert (found.taints, found.zones) == ((Taint("a"),), frozenset({"us-east1-b"}))
    assert READERS["ContainerCluster"].is_cluster
    assert not any(reader.is_cluster for kind, reader in READERS.items() if kind != "ContainerCluster")

    spot = {"machineType": "n1-standard-4", "spot": True, "guestAccelerator": [{"type": "nvidia-tesla-t4", "count": 1}]}
    found = pool("ContainerCluster", {"initialNodeCount": 1, "nodeConfig": spot})
    assert (found.capacity, found.gpu, found.cluster) == (CapacityType.SPOT, Gpu.YES, "team/a")


@pytest.mark.parametrize("resources", [None, [], {}, "x", [None, 3], [{"kind": "ManagedClustersAgentPool"}]])
def test_one_that_holds_none_is_read_as_far_as_it_goes(resources: object) -> None:
    found = pool("AzureASOManagedMachinePool", {"resources": resources})
    assert (found.gpu, found.instance_type) == (Gpu.UNKNOWN, "")
    assert found.problems


SPOT, ON_DEMAND, UNKNOWN = CapacityType.SPOT, CapacityType.ON_DEMAND, CapacityType.UNKNOWN


def test_a_node_group_that_could_not_be_created_gives_no_nodes() -> None:
    spec = {"scalingConfig": {"minSize": 1, "maxSize": 2, "desiredSize": 1}}
    assert pool("Nodegroup", spec, {"status": "ACTIVE"}).unusable == ""
    assert pool("Nodegroup", spec, {"status": "CREATE_FAILED"}).unusable.startswith("EKS says that it could not")


@pytest.mark.parametrize(
    ("kubelet", "said"),
    [
        ({"shutdownGracePeriodSeconds": 10}, (10, 15)),
        ({"shutdownGracePeriodSeconds": 0}, (0, 15)),
        ({"shutdownGracePeriodSeconds": 30, "shutdownGracePeriodCriticalPodsSeconds": 30}, (30, 30)),
        ({"shutdownGracePeriodSeconds": 30, "shutdownGracePeriodCriticalPodsSeconds": 90}, (30, 90)),
    ],
)
def test_a_window_of_GKE_that_leaves_nothing_is_said_and_the_usual_one_holds(
    kubelet: dict[str, int], said: tuple[int, int]
) -> None:
    found = pool("ContainerNodePool", {"nodeConfig": {"kubeletConfig": kubelet}})
    where = "spec.nodeConfig.kubeletConfig.shutdownGracePeriod"
    assert found.grace_seconds is None
    assert found.problems == (
        f"{where}Seconds is {said[0]} s, of which {where}CriticalPodsSeconds takes {said[1]} s: no time to stop is left",
    )


@pytest.mark.parametrize(
    ("version", "grace"),
    [("1.29.4-gke.100", None), ("1.34.9-gke.1", None), ("1.35.0-gke.1171000", 105), ("1.40.1", 105), (None, 105)],
)
def test_the_window_of_GKE_is_of_1_35_and_later(version: str | None, grace: int | None) -> None:
    kubelet = {"shutdownGracePeriodSeconds": 120}
    found = pool("ContainerNodePool", {"version": version, "nodeConfig": {"kubeletConfig": kubelet}})
    assert (found.grace_seconds, found.problems) == (grace, ())


@pytest.mark.parametrize(
    ("kind", "spec", "metadata", "cluster"),
    [
        ("ContainerNodePool", {"clusterRef": {"name": "prod"}}, {}, "team/prod"),
        ("ContainerNodePool", {"clusterRef": {"name": "prod", "namespace": "infra"}}, {}, "infra/prod"),
        (
            "ContainerNodePool",
            {"clusterRef": {"external": "projects/p/locations/l/clusters/c"}},
            {},
            "team/c",
        ),
        ("ContainerNodePool", {"clusterRef": {"name": "prod"}}, {"namespace": ""}, "prod"),
        ("ContainerNodePool", {}, {}, ""),
        ("ContainerNodePool", {"clusterRef": {"name": 7}}, {}, "team/? of a"),
        ("ContainerNodePool", {"clusterRef": "prod"}, {}, "team/? of a"),
        ("ContainerNodePool", {"clusterRef": {"name": "prod", "namespace": 5}}, {}, "team/? of a"),
        ("ManagedClustersAgentPool", {"owner": "prod"}, {}, "team/? of a"),
        ("AWSManagedMachinePool", {}, {"labels": ["x"]}, "team/? of a"),
        ("Nodegroup", {"clusterRef": {"from": {"name": "prod"}}}, {}, "team/prod"),
        ("AWSManagedMachinePool", {}, {"labels": {"cluster.x-k8s.io/cluster-name": "w"}}, "team/w"),
        ("AWSManagedMachinePool", {}, {}, ""),
        ("ManagedClustersAgentPool", {"owner": {"name": "prod"}}, {}, "team/prod"),
        ("ManagedClustersAgentPool", {"owner": {"armId": "/subscriptions/s/x"}}, {}, "team/x"),
    ],
)
def test_a_pool_belongs_to_the_cluster_that_it_names(
    kind: str, spec: object, metadata: dict[str, Any], cluster: str
) -> None:
    assert pool(kind, spec, **metadata).cluster == cluster


@pytest.mark.parametrize(
    ("written", "gpu", "readable"),
    [
        ([{"type": "nvidia-l4", "count": 1}], Gpu.YES, True),
        ([{"type": "a", "count": 0}, {"type": "nvidia-tesla-t4", "count": 1}], Gpu.YES, True),
        ([{"type": "a", "count": 0}], Gpu.NO, True),
        ([], Gpu.NO, True),
        (None, Gpu.NO, True),
        ({"type": "nvidia-l4", "count": 1}, Gpu.UNKNOWN, False),
        ("nvidia-l4", Gpu.UNKNOWN, False),
        (["nvidia-l4"], Gpu.UNKNOWN, False),
        ([{}], Gpu.UNKNOWN, False),
        ([{"acceleratorType": "nvidia-l4", "acceleratorCount": 1}], Gpu.UNKNOWN, False),
        ([{"type": "nvidia-l4"}], Gpu.YES, False),
        ([{"type": "nvidia-l4", "count": "1"}], Gpu.YES, False),
    ],
)
def test_accelerators_that_nobody_can_read_are_not_none(written: object, gpu: Gpu, *, readable: bool) -> None:
    config = {"machineType": "n1-standard-4", "spot": True, "guestAccelerator": written}
    found = pool("ContainerNodePool", {"nodeConfig": config, "nodeCount": 1})
    assert found.gpu is gpu
    assert (found.problems == ()) is readable


def test_accelerators_are_counted_together() -> None:
    both = [{"type": "a", "count": 0}, {"type": "nvidia-tesla-t4", "count": 2}, {"type": "b", "count": 1}]
    found = pool("ContainerNodePool", {"nodeConfig": {"guestAccelerator": both}})
    assert (found.gpu_type, found.gpu_count) == ("nvidia-tesla-t4", 3)


UNREAD = (CapacityType.UNKNOWN, Gpu.UNKNOWN, "")


@pytest.mark.parametrize(
    ("kind", "spec", "problem"),
    [
        ("ContainerNodePool", {"nodeConfig": "x"}, "spec.nodeConfig is not a map"),
        ("ContainerNodePool", {"nodeConfig": []}, "spec.nodeConfig is not a map"),
        ("ContainerNodePool", "x", "spec is not a map"),
        ("AWSManagedMachinePool", "x", "spec is not a map"),
        ("ManagedClustersAgentPool", 5, "spec is not a map"),
    ],
)
def test_below_a_field_that_is_no_map_no_default_holds(kind: str, spec: object, problem: str) -> None:
    found = pool(kind, spec)
    assert (found.capacity, found.gpu, found.instance_type) == UNREAD
    assert found.problems == (problem,)


@pytest.mark.parametrize(
    ("kind", "spec", "problem"),
    [
        ("ContainerNodePool", {"autoscaling": []}, "spec.autoscaling is not a map"),
        ("ContainerNodePool", {"nodeConfig": {"kubeletConfig": 5}}, "spec.nodeConfig.kubeletConfig is not a map"),
        ("ContainerNodePool", {"nodeLocations": 5}, "spec.nodeLocations is not a list"),
        ("ContainerNodePool", {"clusterRef": "prod"}, "spec.clusterRef is not a map"),
        ("GCPManagedMachinePool", {"scaling": "foo"}, "spec.scaling is not a map"),
        (
            "ManagedClustersAgentPool",
            {"vmSize": "Standard_D4s_v5", "availabilityZones": [1]},
            "spec.availabilityZones has items that are not strings",
        ),
        ("ManagedClustersAgentPool", {"vmSize": "Standard_D4s_v5", "owner": "prod"}, "spec.owner is not a map"),
    ],
)
def test_a_field_of_the_wrong_type_is_said(kind: str, spec: object, problem: str) -> None:
    found = pool(kind, spec)
    assert found.problems == (problem,)
    assert not found.autoscaling


def test_custom_machines_of_the_first_series_have_no_gpus() -> None:
    assert pool("ContainerNodePool", {"nodeConfig": {"machineType": "custom-4-8192"}}).gpu is Gpu.NO

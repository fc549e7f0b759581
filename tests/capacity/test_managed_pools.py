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


def test_a_container_node_pool_of_config_connector() -> None:
    found = read("""
apiVersion: container.cnrm.cloud.google.com/v1beta1
kind: ContainerNodePool
metadata: {name: t4-spot, namespace: infra}
spec:
  location: us-east1
  autoscaling: {minNodeCount: 0, maxNodeCount: 3}
  nodeLocations: [us-east1-b, us-east1-c]
  nodeConfig:
    machineType: n1-standard-8
    spot: true
    guestAccelerator:
      - {type: nvidia-tesla-t4, count: 2}
    labels: {team: ml}
    taint:
      - {key: cloud.google.com/gke-spot, value: "true", effect: NO_SCHEDULE}
    oauthScopes: [https://www.googleapis.com/auth/logging.write]
  management: {autoRepair: true, autoUpgrade: true}
  clusterRef: {name: prod}
""")
    assert found == Pool(
        provider="gke",
        kind="ContainerNodePool",
        name="t4-spot",
        pool_name="t4-spot",
        namespace="infra",
        capacity=CapacityType.SPOT,
        gpu=Gpu.YES,
        gpu_type="nvidia-tesla-t4",
        gpu_count=2,
        instance_type="n1-standard-8",
        autoscaling=True,
        maximum=3,
        taints=(Taint("cloud.google.com/gke-spot", "true", "NoSchedule"),),
        labels={
            "team": "ml",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "n1-standard-8",
            "cloud.google.com/gke-accelerator": "nvidia-tesla-t4",
            "cloud.google.com/gke-nodepool": "t4-spot",
        },
        zones=frozenset({"us-east1-b", "us-east1-c"}),
        cluster="infra/prod",
    )


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


REMOVED = {"annotations": {"cnrm.cloud.google.com/remove-default-node-pool": "true"}}


@pytest.mark.parametrize(
    ("spec", "metadata", "why"),
    [
        ({"initialNodeCount": 1}, REMOVED, "its default pool is removed once it is made"),
        ({"initialNodeCount": 1, "nodeConfig": {"spot": True}}, REMOVED, "its default pool is removed once it is made"),
        ({"initialNodeCount": 1, "enableAutopilot": True}, {}, "an Autopilot cluster has no node pools"),
        ({}, {}, "it does not say how many nodes it has"),
        ({"initialNodeCount": 0}, {}, "it has 0 nodes and no autoscaling"),
        ({"initialNodeCount": 1}, {"annotations": {"cnrm.cloud.google.com/remove-default-node-pool": "false"}}, ""),
    ],
)
def test_a_cluster_without_a_default_pool_gives_no_nodes(spec: Any, metadata: Any, why: str) -> None:
    found = pool("ContainerCluster", spec, **metadata)
    assert (found.capacity, found.unusable) == (CapacityType.ON_DEMAND, why)


def test_a_managed_machine_pool_that_holds_one_of_Azure_service_operator() -> None:
    found = read("""
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: AzureASOManagedMachinePool
metadata:
  name: gpu-spot
  namespace: fleet
  labels: {cluster.x-k8s.io/cluster-name: workload-1}
spec:
  resources:
    - apiVersion: v1
      kind: ConfigMap
      metadata: {name: notes}
    - apiVersion: containerservice.azure.com/v1api20240901
      kind: ManagedClustersAgentPool
      metadata: {name: gpu-spot-1}
      spec:
        azureName: gpuspot
        owner: {name: workload-1}
        mode: User
        vmSize: Standard_NC24ads_A100_v4
        scaleSetPriority: Spot
        enableAutoScaling: true
        minCount: 0
        maxCount: 4
        nodeTaints: ["team=ml:NoSchedule"]
        nodeLabels: {team: ml}
        availabilityZones: ["1", "2"]
""")
    assert found == Pool(
        provider="aks",
        kind="AzureASOManagedMachinePool",
        name="gpu-spot",
        pool_name="gpuspot",
        namespace="fleet",
        capacity=CapacityType.SPOT,
        gpu=Gpu.YES,
        instance_type="Standard_NC24ads_A100_v4",
        autoscaling=True,
        maximum=4,
        taints=(Taint("team", "ml", "NoSchedule"),),
        labels={
            "team": "ml",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "Standard_NC24ads_A100_v4",
            "kubernetes.azure.com/agentpool": "gpuspot",
        },
        zones=frozenset({"1", "2"}),
        cluster="fleet/workload-1",
    )


@pytest.mark.parametrize("resources", [None, [], {}, "x", [None, 3], [{"kind": "ManagedClustersAgentPool"}]])
def test_one_that_holds_none_is_read_as_far_as_it_goes(resources: object) -> None:
    found = pool("AzureASOManagedMachinePool", {"resources": resources})
    assert (found.gpu, found.instance_type) == (Gpu.UNKNOWN, "")
    assert found.problems


def test_a_managed_machine_pool_on_google_cloud() -> None:
    found = read("""
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: GCPManagedMachinePool
metadata:
  name: capg-gpu
  namespace: fleet
  labels: {cluster.x-k8s.io/cluster-name: workload-1}
spec:
  nodePoolName: gpu
  spot: true
  instanceType: a2-highgpu-1g
  scaling: {minCount: 0, maxCount: 4}
  nodeLocations: [us-central1-a]
  kubernetesLabels: {team: ml}
  kubernetesTaints: [{key: spot, value: "true", effect: NoSchedule}]
""")
    assert (found.capacity, found.gpu, found.autoscaling, found.maximum) == (CapacityType.SPOT, Gpu.YES, True, 4)
    assert (found.cluster, found.labels["cloud.google.com/gke-nodepool"]) == ("fleet/workload-1", "gpu")
    assert (found.taints, found.problems) == ((Taint("spot", "true", "NoSchedule"),), ())


def test_a_node_group_of_the_AWS_controllers() -> None:
    found = read("""
apiVersion: eks.services.k8s.aws/v1alpha1
kind: Nodegroup
metadata: {name: gpu-spot, namespace: infra}
spec:
  name: gpu-spot-1
  clusterName: prod
  capacityType: SPOT
  amiType: AL2023_x86_64_NVIDIA
  instanceTypes: [g5.2xlarge, g4dn.2xlarge]
  nodeRole: arn:aws:iam::111122223333:role/node
  subnets: [subnet-0a, subnet-0b]
  scalingConfig: {minSize: 0, maxSize: 6, desiredSize: 2}
  labels: {team: ml}
  taints: [{key: nvidia.com/gpu, value: present, effect: NO_SCHEDULE}]
""")
    assert (found.capacity, found.gpu, found.instance_type) == (CapacityType.SPOT, Gpu.YES, "g4dn.2xlarge, g5.2xlarge")
    assert (found.autoscaling, found.desired, found.maximum, found.unusable) == (True, 2, 6, "")
    assert found.labels == {
        "team": "ml",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "eks.amazonaws.com/nodegroup": "gpu-spot-1",
    }
    assert (found.cluster, found.problems) == ("infra/prod", ())
    assert found.taints == (Taint("nvidia.com/gpu", "present", "NoSchedule"),)


def test_a_managed_machine_pool_on_AWS_says_no_size_of_its_own() -> None:
    found = read("""
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: AWSManagedMachinePool
metadata:
  name: pool
  namespace: fleet
  labels: {cluster.x-k8s.io/cluster-name: workload-1}
spec:
  eksNodegroupName: fleet_pool
  capacityType: spot
  instanceType: p4d.24xlarge
  scaling: {minSize: 0, maxSize: 5}
  availabilityZones: [us-east-1a]
  labels: {team: ml}
  taints: [{key: spot, value: "true", effect: no-schedule}]
""")
    assert (found.capacity, found.gpu, found.desired, found.maximum) == (CapacityType.SPOT, Gpu.YES, None, 5)
    assert found.unusable == "it does not say how many nodes it has"
    assert found.taints == (Taint("spot", "true", "NoSchedule"),)
    assert (found.zones, found.cluster) == (frozenset({"us-east-1a"}), "fleet/workload-1")
    assert found.labels["eks.amazonaws.com/nodegroup"] == "fleet_pool"


def test_a_managed_machine_pool_on_azure() -> None:
    found = read("""
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: AzureManagedMachinePool
metadata:
  name: spotgpu
  namespace: fleet
  labels: {cluster.x-k8s.io/cluster-name: workload-1}
spec:
  mode: User
  sku: Standard_NC6s_v3
  scaleSetPriority: Spot
  scaling: {minSize: 0, maxSize: 5}
  availabilityZones: ["1", "2"]
  nodeLabels: {team: ml}
  taints: [{key: sku, value: gpu, effect: NoSchedule}]
""")
    assert (found.capacity, found.gpu, found.autoscaling, found.unusable) == (CapacityType.SPOT, Gpu.YES, True, "")
    assert found.labels["kubernetes.azure.com/agentpool"] == "spotgpu"
    assert (found.zones, found.taints) == (frozenset({"1", "2"}), (Taint("sku", "gpu", "NoSchedule"),))


def test_an_agent_pool_of_the_azure_service_operator() -> None:
    found = read("""
apiVersion: containerservice.azure.com/v1api20240901
kind: ManagedClustersAgentPool
metadata: {name: gpu, namespace: infra}
spec:
  owner: {name: prod}
  azureName: gpuspot
  mode: User
  vmSize: Standard_NC24ads_A100_v4
  scaleSetPriority: Spot
  count: 1
  enableAutoScaling: true
  minCount: 0
  maxCount: 4
  availabilityZones: ["1"]
  nodeLabels: {team: ml}
  nodeTaints: ["sku=gpu:NoSchedule", "kubernetes.azure.com/scalesetpriority=spot:NoSchedule", "plain:NoExecute"]
""")
    assert (found.capacity, found.gpu, found.unusable) == (CapacityType.SPOT, Gpu.YES, "")
    assert found.taints == (
        Taint("sku", "gpu", "NoSchedule"),
        Taint("kubernetes.azure.com/scalesetpriority", "spot", "NoSchedule"),
        Taint("plain", "", "NoExecute"),
    )
    assert (found.cluster, found.labels["kubernetes.azure.com/agentpool"]) == ("infra/prod", "gpuspot")


SPOT, ON_DEMAND, UNKNOWN = CapacityType.SPOT, CapacityType.ON_DEMAND, CapacityType.UNKNOWN


@pytest.mark.parametrize(
    ("kind", "spec", "capacity"),
    [
        ("ContainerNodePool", {"nodeConfig": {"spot": True}}, SPOT),
        ("ContainerNodePool", {"nodeConfig": {"preemptible": True}}, SPOT),
        ("ContainerNodePool", {"nodeConfig": {"spot": False, "preemptible": True}}, SPOT),
        ("ContainerNodePool", {"nodeConfig": {"spot": False}}, ON_DEMAND),
        ("ContainerNodePool", {}, ON_DEMAND),
        ("ContainerNodePool", {"nodeConfig": {"spot": "yes"}}, UNKNOWN),
        ("GCPManagedMachinePool", {"spot": True}, SPOT),
        ("GCPManagedMachinePool", {"preemptible": True}, SPOT),
        ("GCPManagedMachinePool", {}, ON_DEMAND),
        ("Nodegroup", {"capacityType": "SPOT"}, SPOT),
        ("Nodegroup", {"capacityType": "ON_DEMAND"}, ON_DEMAND),
        ("Nodegroup", {"capacityType": "CAPACITY_BLOCK"}, ON_DEMAND),
        ("Nodegroup", {}, ON_DEMAND),
        ("Nodegroup", {"capacityType": "FARGATE"}, UNKNOWN),
        ("AWSManagedMachinePool", {"capacityType": "spot"}, SPOT),
        ("AWSManagedMachinePool", {"capacityType": "onDemand"}, ON_DEMAND),
        ("AWSManagedMachinePool", {}, ON_DEMAND),
        ("AzureManagedMachinePool", {"scaleSetPriority": "Spot"}, SPOT),
        ("AzureManagedMachinePool", {"scaleSetPriority": "Regular"}, ON_DEMAND),
        ("AzureManagedMachinePool", {}, ON_DEMAND),
        ("ManagedClustersAgentPool", {"scaleSetPriority": "Spot"}, SPOT),
        ("ManagedClustersAgentPool", {"scaleSetPriority": "Low"}, UNKNOWN),
        ("ManagedClustersAgentPool", {}, ON_DEMAND),
    ],
)
def test_each_kind_says_its_capacity_in_its_own_way(kind: str, spec: object, capacity: CapacityType) -> None:
    assert pool(kind, spec).capacity is capacity


@pytest.mark.parametrize(
    ("kind", "spec", "gpu"),
    [
        ("ContainerNodePool", {"nodeConfig": {"machineType": "n1-standard-8"}}, Gpu.NO),
        ("ContainerNodePool", {"nodeConfig": {"machineType": "a3-highgpu-8g"}}, Gpu.YES),
        ("ContainerNodePool", {"nodeConfig": {"machineType": "g2-standard-4"}}, Gpu.YES),
        ("ContainerNodePool", {"nodeConfig": {"machineType": "c4a-standard-4"}}, Gpu.NO),
        ("ContainerNodePool", {"nodeConfig": {"machineType": "h4d-highmem-192"}}, Gpu.NO),
        ("ContainerNodePool", {"nodeConfig": {"machineType": "ct5lp-hightpu-4t"}}, Gpu.YES),
        ("ContainerNodePool", {"nodeConfig": {"machineType": "q1-standard-4"}}, Gpu.UNKNOWN),
        ("ContainerNodePool", {"nodeConfig": {}}, Gpu.NO),
        ("ContainerNodePool", {"nodeConfig": {"guestAccelerator": [{"type": "nvidia-l4", "count": 1}]}}, Gpu.YES),
        ("ContainerNodePool", {"nodeConfig": {"guestAccelerator": [{"type": "nvidia-l4", "count": 0}]}}, Gpu.NO),
        ("ContainerNodePool", {"nodeConfig": {"guestAccelerator": [{"type": 4, "count": 0}]}}, Gpu.NO),
        ("GCPManagedMachinePool", {"machineType": "g2-standard-4"}, Gpu.YES),
        ("GCPManagedMachinePool", {"machineType": "g2-standard-4", "instanceType": "e2-medium"}, Gpu.NO),
        ("GCPManagedMachinePool", {}, Gpu.NO),
        ("Nodegroup", {"instanceTypes": ["m5.large"]}, Gpu.NO),
        ("Nodegroup", {"instanceTypes": ["m5.large", "g5.xlarge"]}, Gpu.UNKNOWN),
        ("Nodegroup", {"instanceTypes": ["m5.large", "zz9.large"]}, Gpu.UNKNOWN),
        ("Nodegroup", {"instanceTypes": ["m5.large", 7]}, Gpu.UNKNOWN),
        ("Nodegroup", {"launchTemplate": {"name": "custom"}}, Gpu.UNKNOWN),
        ("Nodegroup", {"launchTemplate": {"name": "custom"}, "amiType": "AL2_x86_64_GPU"}, Gpu.YES),
        ("Nodegroup", {}, Gpu.NO),  # t3.medium
        ("AWSManagedMachinePool", {"instanceType": "trn1.32xlarge"}, Gpu.YES),
        ("AWSManagedMachinePool", {}, Gpu.NO),  # t3.medium
        ("AWSManagedMachinePool", {"awsLaunchTemplate": {"name": "x"}}, Gpu.UNKNOWN),
        ("AWSManagedMachinePool", {"awsLaunchTemplate": {"name": "x", "instanceType": "p5.48xlarge"}}, Gpu.YES),
        ("AzureManagedMachinePool", {"sku": "Standard_D2s_v3"}, Gpu.NO),
        ("AzureManagedMachinePool", {"sku": "standard_nv6ads_a10_v5"}, Gpu.YES),
        ("AzureManagedMachinePool", {"sku": "Standard_NP10s"}, Gpu.NO),
        ("AzureManagedMachinePool", {}, Gpu.UNKNOWN),
        ("ManagedClustersAgentPool", {"vmSize": "Standard_ND96isr_H100_v5"}, Gpu.YES),
        ("ManagedClustersAgentPool", {"vmSize": "Custom_1"}, Gpu.UNKNOWN),
    ],
)
def test_GPUs_come_from_accelerators_images_or_the_machine_family(kind: str, spec: object, gpu: Gpu) -> None:
    assert pool(kind, spec).gpu is gpu


@pytest.mark.parametrize(
    ("kind", "spec", "unusable"),
    [
        ("ContainerNodePool", {"nodeCount": 1}, ""),
        ("ContainerNodePool", {"initialNodeCount": 1}, ""),
        ("ContainerNodePool", {"nodeCount": 0, "initialNodeCount": 1}, "it has 0 nodes and no autoscaling"),
        ("ContainerNodePool", {}, "it does not say how many nodes it has"),
        ("ContainerNodePool", {"nodeCount": 0, "autoscaling": {"minNodeCount": 0, "maxNodeCount": 2}}, ""),
        ("ContainerNodePool", {"autoscaling": {"totalMinNodeCount": 0, "totalMaxNodeCount": 2}}, ""),
        (
            "ContainerNodePool",
            {"nodeCount": 0, "autoscaling": {"minNodeCount": 0, "maxNodeCount": 0}},
            "it has 0 nodes and no autoscaling",
        ),
        ("ContainerNodePool", {"nodeCount": 2, "autoscaling": {"minNodeCount": 0, "maxNodeCount": 0}}, ""),
        ("ContainerNodePool", {"nodeCount": "2"}, "it does not say how many nodes it has"),
        ("GCPManagedMachinePool", {"scaling": {"maxCount": 2}}, ""),
        ("GCPManagedMachinePool", {"scaling": {"maxCount": 0}}, "it is autoscaled to at most 0 nodes"),
        ("GCPManagedMachinePool", {"scaling": {}}, "it is autoscaled and does not say its maximum size"),
        (
            "GCPManagedMachinePool",
            {"scaling": {"enableAutoscaling": False, "maxCount": 2}},
            "it does not say how many nodes it has",
        ),
        ("Nodegroup", {"scalingConfig": {"minSize": 0, "maxSize": 2, "desiredSize": 0}}, ""),
        ("Nodegroup", {"scalingConfig": {"minSize": 2, "maxSize": 2, "desiredSize": 2}}, ""),
        (
            "Nodegroup",
            {"scalingConfig": {"minSize": 0, "maxSize": 0, "desiredSize": 0}},
            "it has 0 nodes and no autoscaling",
        ),
        ("Nodegroup", {}, "it does not say how many nodes it has"),
        ("AzureManagedMachinePool", {"scaling": {"minSize": 0, "maxSize": 0}}, "it is autoscaled to at most 0 nodes"),
        ("ManagedClustersAgentPool", {"count": 1}, ""),
        ("ManagedClustersAgentPool", {"count": 0}, "it has 0 nodes and no autoscaling"),
        ("ManagedClustersAgentPool", {"count": 0, "enableAutoScaling": True, "maxCount": 3}, ""),
        ("ManagedClustersAgentPool", {"count": 3, "powerState": {"code": "Stopped"}}, "it is stopped"),
    ],
)
def test_a_pool_is_usable_when_it_can_have_nodes(kind: str, spec: object, unusable: str) -> None:
    assert pool(kind, spec).unusable == unusable


def test_a_node_group_that_could_not_be_created_gives_no_nodes() -> None:
    spec = {"scalingConfig": {"minSize": 1, "maxSize": 2, "desiredSize": 1}}
    assert pool("Nodegroup", spec, {"status": "ACTIVE"}).unusable == ""
    assert pool("Nodegroup", spec, {"status": "CREATE_FAILED"}).unusable.startswith("EKS says that it could not")


@pytest.mark.parametrize(
    ("kubelet", "grace"),
    [
        ({}, None),
        ({"shutdownGracePeriodSeconds": 120, "shutdownGracePeriodCriticalPodsSeconds": 20}, 100),
        ({"shutdownGracePeriodSeconds": 120}, 105),
        ({"shutdownGracePeriodSeconds": 31, "shutdownGracePeriodCriticalPodsSeconds": 30}, 1),
        ({"shutdownGracePeriodSeconds": "long"}, None),
        ({"shutdownGracePeriodCriticalPodsSeconds": 20}, None),
    ],
)
def test_GKEs_window_is_what_the_kubelet_leaves_ordinary_Pods(kubelet: dict[str, Any], grace: int | None) -> None:
    found = pool("ContainerNodePool", {"nodeConfig": {"kubeletConfig": kubelet}})
    assert found.grace_seconds == grace
    assert found.safety_margin_seconds == (None if grace is None else 0)
    assert bool(found.problems) is (kubelet.get("shutdownGracePeriodSeconds") == "long")


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
    ("kind", "spec", "problem"),
    [
        ("ContainerNodePool", {"nodeConfig": {"spot": "yes"}}, "spec.nodeConfig.spot is 'yes', not one of true, false"),
        (
            "ContainerNodePool",
            {"nodeConfig": {"taint": [{"key": "a", "effect": "NoSchedule"}]}},
            "spec.nodeConfig.taint[0] has effect 'NoSchedule', not one of NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE",
        ),
        (
            "ContainerNodePool",
            {"nodeConfig": {"taint": [{"key": "a", "value": 1, "effect": "NO_EXECUTE"}]}},
            "spec.nodeConfig.taint[0] has a value that is not text",
        ),
        ("ContainerNodePool", {"clusterRef": {"name": 7}}, "spec.clusterRef.name is not text"),
        ("Nodegroup", {"instanceTypes": ["m5.large", 7]}, "spec.instanceTypes has items that are not strings"),
        (
            "Nodegroup",
            {"instanceTypes": {}, "launchTemplate": {"name": "x"}},
            "spec.instanceTypes names no instance type",
        ),
        (
            "ManagedClustersAgentPool",
            {"vmSize": "Standard_D2s_v3", "nodeTaints": ["a"]},
            "spec.nodeTaints[0] has no key and effect",
        ),
        (
            "ManagedClustersAgentPool",
            {"vmSize": "Standard_D2s_v3", "nodeTaints": ["a=b:Never"]},
            "spec.nodeTaints[0] has effect 'Never', not one of NoSchedule, PreferNoSchedule, NoExecute",
        ),
    ],
)
def test_what_cannot_be_read_is_a_problem(kind: str, spec: object, problem: str) -> None:
    assert pool(kind, spec).problems == (problem,)


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

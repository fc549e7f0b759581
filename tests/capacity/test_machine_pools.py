"""Node pools of OpenShift (MachineSets), Crossplane (NodeGroups of Amazon EKS) and GKE (ComputeClasses)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.conftest import shipped_provider
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, Taint
from webhook.capacity.providers.provider import readers_by_resource

SPOT, ON_DEMAND, BOTH, UNKNOWN = CapacityType.SPOT, CapacityType.ON_DEMAND, CapacityType.BOTH, CapacityType.UNKNOWN
READERS = readers_by_resource(shipped_provider(name) for name in ("eks", "gke", "openshift"))

MAX_SIZE = "machine.openshift.io/cluster-api-autoscaler-node-group-max-size"
OF_NODES = "machine.openshift.io/cluster-api-machineset"


def machine_set(machine: object, *, annotations: dict[str, str] | None = None, **spec: Any) -> Pool:
    template = {"spec": {"providerSpec": {"value": machine}, **spec.pop("machines", {})}, **spec.pop("template", {})}
    return READERS["machine.openshift.io", "machinesets"].read(
        {
            "metadata": {"name": "a", "namespace": "openshift-machine-api", "annotations": annotations or {}},
            "spec": {"template": template, **spec},
        }
    )


def node_group(for_provider: object, **metadata: Any) -> Pool:
    return READERS["eks.aws.upbound.io", "nodegroups"].read(
        {"metadata": {"name": "a", **metadata}, "spec": {"forProvider": for_provider}}
    )


def test_a_machine_set_of_openshift_makes_nodes_of_the_cluster_that_it_is_in() -> None:
    found = machine_set(
        {
            "instanceType": "g5.xlarge",
            "spotMarketOptions": {},
            "placement": {"availabilityZone": "us-east-1a", "region": "us-east-1"},
        },
        replicas=2,
        machines={
            "metadata": {"labels": {"team": "ml", OF_NODES: "a"}},
            "taints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}],
        },
    )
    assert found == Pool(
        provider="openshift",
        kind="MachineSet",
        name="a",
        namespace="openshift-machine-api",
        pool_name="a",
        capacity=SPOT,
        gpu=Gpu.YES,
        instance_type="g5.xlarge",
        desired=2,
        taints=(Taint("spot", "true", "NoSchedule"),),
        labels={
            "team": "ml",
            OF_NODES: "a",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "g5.xlarge",
        },
        zones=frozenset({"us-east-1a"}),
        grace_seconds=120,
        safety_margin_seconds=15,
    )


@pytest.mark.parametrize(
    ("machine", "capacity", "gpu", "zones"),
    [
        ({"instanceType": "m6i.large"}, ON_DEMAND, Gpu.NO, set()),
        ({"instanceType": "m6i.large", "marketType": "Spot"}, SPOT, Gpu.NO, set()),
        ({"instanceType": "m6i.large", "spotMarketOptions": {}, "marketType": "OnDemand"}, ON_DEMAND, Gpu.NO, set()),
        ({"instanceType": "p5.48xlarge", "marketType": "CapacityBlock"}, ON_DEMAND, Gpu.YES, set()),
        ({"instanceType": "m6i.large", "marketType": "Borrowed"}, UNKNOWN, Gpu.NO, set()),
        (
            {"vmSize": "Standard_NC24ads_A100_v4", "spotVMOptions": {}, "location": "eastus", "zone": "2"},
            SPOT,
            Gpu.YES,
            {"eastus-2"},
        ),
        ({"vmSize": "Standard_D8s_v5", "location": "eastus", "zone": ""}, ON_DEMAND, Gpu.NO, set()),
        (
            {"machineType": "n1-standard-8", "gpus": [{"type": "nvidia-tesla-t4", "count": 1}], "preemptible": True},
            SPOT,
            Gpu.YES,
            set(),
        ),
        (
            {"machineType": "n2-standard-8", "provisioningModel": "Spot", "zone": "us-central1-a"},
            SPOT,
            Gpu.NO,
            {"us-central1-a"},
        ),
        ({"machineType": "a2-highgpu-1g", "preemptible": False}, ON_DEMAND, Gpu.YES, set()),
        ({"kind": "VSphereMachineProviderSpec", "numCPUs": 4}, ON_DEMAND, Gpu.UNKNOWN, set()),
    ],
)
def test_a_machine_set_says_spot_as_its_cloud_does(
    machine: object, capacity: CapacityType, gpu: Gpu, zones: set[str]
) -> None:
    found = machine_set(machine)
    assert (found.capacity, found.gpu, set(found.zones)) == (capacity, gpu, zones)


@pytest.mark.parametrize(
    ("annotations", "spec", "unusable"),
    [
        ({}, {}, ""),  # one replica is the default
        ({}, {"replicas": 0}, "it has 0 nodes and no autoscaling"),
        ({MAX_SIZE: "3"}, {"replicas": 0}, ""),
        ({MAX_SIZE: "0"}, {"replicas": 0}, "it is autoscaled to at most 0 nodes"),
        ({MAX_SIZE: "many"}, {"replicas": 0}, "it is autoscaled and does not say its maximum size"),
    ],
)
def test_a_machine_autoscaler_says_how_large_a_machine_set_may_become(
    annotations: dict[str, str], spec: dict[str, Any], unusable: str
) -> None:
    assert machine_set({"instanceType": "m6i.large"}, annotations=annotations, **spec).unusable == unusable


def test_nodes_have_the_name_of_their_machine_set_only_where_it_says_so() -> None:
    assert machine_set({"instanceType": "m6i.large"}).pool_name == ""


def test_windows_machine_sets_are_labelled_as_such() -> None:
    windows = {"metadata": {"labels": {"machine.openshift.io/os-id": "Windows"}}}
    assert machine_set({"vmSize": "Standard_D8s_v5"}, template=windows).labels["kubernetes.io/os"] == "windows"


@pytest.mark.parametrize("listed", [True, False])  # v1beta1 has a list of one, v1beta2 an object
def test_a_node_group_of_crossplane(*, listed: bool) -> None:
    scaling: object = {"minSize": 0, "maxSize": 6, "desiredSize": 2}
    found = node_group(
        {
            "clusterName": "prod",
            "capacityType": "SPOT",
            "amiType": "AL2023_x86_64_NVIDIA",
            "instanceTypes": ["g5.2xlarge", "g4dn.2xlarge"],
            "scalingConfig": [scaling] if listed else scaling,
            "labels": {"team": "ml"},
            "taint": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
        },
        annotations={"crossplane.io/external-name": "gpu-spot"},
    )
    assert (found.capacity, found.gpu, found.instance_type) == (SPOT, Gpu.YES, "g4dn.2xlarge, g5.2xlarge")
    assert (found.autoscaling, found.desired, found.maximum, found.unusable) == (True, 2, 6, "")
    assert found.labels == {
        "team": "ml",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "eks.amazonaws.com/nodegroup": "gpu-spot",
    }
    assert found.taints == (Taint("nvidia.com/gpu", "present", "NoSchedule"),)
    assert (found.cluster, found.problems) == ("prod", ())


@pytest.mark.parametrize(
    ("spec", "cluster"),
    [
        ({"clusterName": "prod"}, "prod"),
        ({"clusterNameRef": {"name": "prod"}}, "prod"),
        ({"clusterNameSelector": {"matchLabels": {"a": "b"}}}, "/? of a"),  # one of its own, until it is resolved
    ],
)
def test_a_node_group_of_crossplane_belongs_to_the_cluster_that_it_names(spec: object, cluster: str) -> None:
    assert node_group(spec).cluster == cluster


@pytest.mark.parametrize(
    ("spec", "types", "unusable"),
    [
        ({"scalingConfig": {"minSize": 0, "maxSize": 0, "desiredSize": 0}}, "t3.medium", "it has 0 nodes"),
        ({"scalingConfig": [], "launchTemplate": []}, "t3.medium", "it does not say how many nodes"),
        ({"scalingConfig": [{"desiredSize": 3}], "launchTemplate": [{"id": "lt-1"}]}, "", ""),
        ({"scalingConfig": {"desiredSize": 3}, "launchTemplate": {"id": "lt-1"}}, "", ""),
    ],
)
def test_a_node_group_of_crossplane_is_as_large_as_it_says(spec: object, types: str, unusable: str) -> None:
    found = node_group(spec)
    assert found.instance_type == types
    assert found.unusable.startswith(unusable)
    assert bool(found.unusable) is bool(unusable)


def compute_class(spec: object) -> Pool:
    return READERS["cloud.google.com", "computeclasses"].read({"metadata": {"name": "a"}, "spec": spec})


def kubelet(total: int, critical: int | None = None) -> dict[str, Any]:
    config = {"shutdownGracePeriodSeconds": total, "shutdownGracePeriodCriticalPodsSeconds": critical}
    return {"nodeSystemConfig": {"kubeletConfig": {key: seconds for key, seconds in config.items() if seconds}}}


L4 = {"gpu": {"type": "nvidia-l4", "count": 1}}


@pytest.mark.parametrize(
    ("priorities", "capacity", "gpu"),
    [
        ([{"machineFamily": "n4", "spot": True}], SPOT, Gpu.NO),
        ([{"machineFamily": "n4", "spot": True}, {"machineFamily": "n4", "spot": False}], BOTH, Gpu.NO),
        ([{"machineType": "n4-standard-8"}], ON_DEMAND, Gpu.NO),
        ([{"spot": True, **L4}], SPOT, Gpu.YES),
        ([{"spot": True, **L4}, {"spot": False, **L4}], BOTH, Gpu.YES),
        ([{"spot": True, **L4}, {"machineFamily": "n4"}], SPOT, Gpu.YES),  # no GPUs there
        ([{"spot": True, "tpu": {"type": "tpu-v5-lite-podslice", "count": 4}}], SPOT, Gpu.YES),
        ([{"spot": True, "machineFamily": "a2"}], SPOT, Gpu.YES),
        ([{"spot": True, **L4}, {"nodepools": ["l4"]}], SPOT, Gpu.YES),
        ([{"machineFamily": "n4", "spot": True}, {"nodepools": ["standard"]}], BOTH, Gpu.NO),
        ("spot", UNKNOWN, Gpu.NO),
        (None, ON_DEMAND, Gpu.NO),
    ],
)
def test_a_compute_class_is_one_pool_of_all_its_priorities(
    priorities: object, capacity: CapacityType, gpu: Gpu
) -> None:
    found = compute_class({"priorities": priorities})
    assert (found.capacity, found.gpu) == (capacity, gpu)


def test_Pods_choose_a_compute_class_by_its_label() -> None:
    found = compute_class(
        {
            "priorities": [{"machineFamily": "c4a", "spot": True}],
            "nodePoolAutoCreation": {"enabled": True},
            "nodePoolConfig": {
                "nodeLabels": {"team": "ml"},
                "taints": [{"key": "team", "value": "ml", "effect": "NoExecute"}],
            },
        }
    )
    assert (found.chosen_by, found.cluster, found.pool_name) == ("cloud.google.com/compute-class", "", "")
    assert found.labels == {"cloud.google.com/compute-class": "a", "team": "ml", "kubernetes.io/arch": "arm64"}
    assert found.taints == (
        Taint("cloud.google.com/compute-class", "a", "NoSchedule"),
        Taint("team", "ml", "NoExecute"),
    )
    assert (found.autoscaling, found.unusable, found.problems) == (True, "", ())


@pytest.mark.parametrize(
    ("spec", "grace"),
    [
        ({"priorities": [{"spot": True, **kubelet(120, 30)}]}, 90),
        ({"priorities": [{"spot": True, **kubelet(120)}]}, 105),
        ({"priorities": [{"spot": True, **kubelet(120, 30)}, {"spot": True, **kubelet(60, 20)}]}, 30),
        ({"priorities": [{"spot": True, **kubelet(120, 30)}, {"spot": False, **kubelet(30, 20)}]}, 90),
        ({"priorities": [{"spot": True, **kubelet(120, 30)}, {"spot": True}]}, None),  # the provider's
        ({"priorities": [{"spot": True}], "priorityDefaults": kubelet(100, 20)}, 80),
    ],
)
def test_the_window_of_a_compute_class_is_what_its_spot_priorities_leave_ordinary_Pods(
    spec: object, grace: int | None
) -> None:
    assert compute_class(spec).grace_seconds == grace

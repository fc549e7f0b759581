"""Node pools that describe other clusters, as somebody with kubectl meets them: GPU spot needs its on-demand pool first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.controlplane.kubectl import as_list

if TYPE_CHECKING:
    from tests.controlplane.kubectl import Kubectl

JSON = dict[str, Any]


def config_connector(machine: str, **node: object) -> JSON:
    spec = {
        "location": "us-central1",
        "clusterRef": {"name": "fleet"},
        "nodeCount": 1,
        "nodeConfig": {"machineType": machine, **node},
    }
    return {"apiVersion": "container.cnrm.cloud.google.com/v1beta1", "kind": "ContainerNodePool", "spec": spec}


def cluster_api(version: str, kind: str, **spec: object) -> JSON:
    return {
        "apiVersion": f"infrastructure.cluster.x-k8s.io/{version}",
        "kind": kind,
        "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": f"fleet-{kind.lower()}"}},
        "spec": spec,
    }


def machine_pool(kind: str, name: str) -> JSON:
    """Return what says how many nodes a pool of Cluster API has."""
    reference = {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": kind, "name": name}
    template = {"spec": {"clusterName": f"fleet-{kind.lower()}", "infrastructureRef": reference}}
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "MachinePool",
        "metadata": {"name": name},
        "spec": {"replicas": 1, "template": template},
    }


def ack(capacity: str) -> JSON:
    spec = {"name": "gpu", "clusterName": "fleet", "capacityType": capacity, "instanceTypes": ["p5.48xlarge"]}
    scaling = {"minSize": 1, "maxSize": 3, "desiredSize": 1}
    return {
        "apiVersion": "eks.services.k8s.aws/v1alpha1",
        "kind": "Nodegroup",
        "spec": spec | {"scalingConfig": scaling},
    }


def aso(priority: str) -> JSON:
    spec = {"owner": {"name": "fleet"}, "mode": "User", "scaleSetPriority": priority, "count": 1}
    machine = {"vmSize": "Standard_ND96isr_H100_v5"}
    version = "containerservice.azure.com/v1api20240901"
    return {"apiVersion": version, "kind": "ManagedClustersAgentPool", "spec": spec | machine}


SIZES = {"minSize": 1, "maxSize": 3}
AWS = {"instanceType": "p5.48xlarge", "scaling": SIZES}
AZURE = {"mode": "User", "sku": "Standard_ND96isr_H100_v5", "scaling": SIZES}
COUNTS = {"minCount": 1, "maxCount": 3}


def held(priority: str) -> JSON:
    """Return the pool of Azure Service Operator that one of Cluster API holds."""
    size = {"enableAutoScaling": True, "minCount": 0, "maxCount": 2}
    spec = {"vmSize": "Standard_NC24ads_A100_v4", "scaleSetPriority": priority, **size}
    return {"apiVersion": "containerservice.azure.com/v1api20240901", "kind": "ManagedClustersAgentPool", "spec": spec}


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize(
    ("spot", "fallback", "missing"),
    [
        pytest.param(
            config_connector("a3-highgpu-8g", spot=True),
            config_connector("n2-standard-8"),
            "on-demand pool without GPUs",
            id="Config Connector",
        ),
        pytest.param(
            cluster_api("v1beta2", "AWSManagedMachinePool", capacityType="spot", **AWS),
            cluster_api("v1beta2", "AWSManagedMachinePool", capacityType="onDemand", **AWS),
            "on-demand fallback",
            id="Cluster API, AWS",
        ),
        pytest.param(
            cluster_api("v1beta1", "GCPManagedMachinePool", spot=True, machineType="a3-highgpu-8g", scaling=COUNTS),
            cluster_api("v1beta1", "GCPManagedMachinePool", machineType="n2-standard-8", scaling=COUNTS),
            "on-demand pool without GPUs",
            id="Cluster API, Google Cloud",
        ),
        pytest.param(
            cluster_api("v1beta1", "AzureManagedMachinePool", scaleSetPriority="Spot", **AZURE),
            cluster_api("v1beta1", "AzureManagedMachinePool", scaleSetPriority="Regular", **AZURE),
            "on-demand fallback",
            id="Cluster API, Azure",
        ),
        pytest.param(
            cluster_api("v1beta1", "AzureASOManagedMachinePool", resources=[held("Spot")]),
            cluster_api("v1beta1", "AzureASOManagedMachinePool", resources=[held("Regular")]),
            "on-demand fallback",
            id="Cluster API, Azure Service Operator",
        ),
        pytest.param(ack("SPOT"), ack("ON_DEMAND"), "on-demand fallback", id="ACK"),
        pytest.param(aso("Spot"), aso("Regular"), "on-demand fallback", id="Azure Service Operator"),
    ],
)
def test_a_gpu_spot_pool_needs_its_on_demand_pool_first(
    spot: JSON, fallback: JSON, missing: str, alice: Kubectl, namespace: str
) -> None:
    team = replace(alice, policy="on-demand-fallback", namespace=namespace)
    spot, fallback = named(spot, f"{namespace}-spot"), named(fallback, f"{namespace}-fallback")

    refused = team.run("apply", "--filename=-", documents=as_list(spot))
    assert refused.returncode == 1
    assert "denied the request: [on-demand-fallback] GPU spot pool" in refused.stderr
    assert f"has no {missing}" in refused.stderr

    if fallback["kind"] == "AWSManagedMachinePool":
        team.apply(machine_pool(fallback["kind"], f"{namespace}-fallback"))
    team.apply(fallback)
    try:
        team.apply(spot)
        kept = team.run("delete", "--filename=-", documents=as_list(fallback))
        assert kept.returncode == 1
        assert "[on-demand-fallback]" in kept.stderr
        team("delete", "--filename=-", documents=as_list(spot))
    finally:
        team("delete", "--filename=-", documents=as_list(fallback))


def named(pool: JSON, name: str) -> JSON:
    return {**pool, "metadata": {**pool.get("metadata", {}), "name": name}}

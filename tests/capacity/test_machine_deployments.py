"""Pools of Cluster API's MachineDeployments, whose machines are those of a template."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.conftest import shipped_provider
from webhook.capacity.providers.joins import join, with_template
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, Taint
from webhook.capacity.providers.provider import readers_by_resource

SPOT, ON_DEMAND, UNKNOWN = CapacityType.SPOT, CapacityType.ON_DEMAND, CapacityType.UNKNOWN
READERS = readers_by_resource([shipped_provider("cluster-api")])
RESOURCES = {each.any.kind: key for key, each in READERS.items()}
MAX_SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"


def read(kind: str, spec: object, **metadata: Any) -> Pool:
    return READERS[RESOURCES[kind]].read({"metadata": {"name": "a", "namespace": "infra", **metadata}, "spec": spec})


def deployment(kind: str, machines: dict[str, Any] | None = None, **metadata: Any) -> Pool:
    machines = machines or {}
    of_nodes = {"spec": {"infrastructureRef": {"kind": kind, "name": "a"}, **machines.pop("spec", {})}, **machines}
    return read("MachineDeployment", {"clusterName": "blue", "replicas": 2, "template": of_nodes}, **metadata)


def joined(kind: str, machine: object) -> Pool:
    (pool,) = join([deployment(kind), read(kind, {"template": {"spec": machine}})]).pools
    return pool


def test_a_deployment_has_the_machines_of_its_template() -> None:
    machines = {
        "metadata": {
            "labels": {
                "node.cluster.x-k8s.io/node-pool": "gpu",
                "node-role.kubernetes.io/worker": "",
                "cluster.x-k8s.io/deployment-name": "a",  # stays on the Machine
            }
        },
        "spec": {
            "failureDomain": "us-east-1a",
            "taints": [{"key": "spot", "value": "true", "effect": "NoSchedule", "propagation": "Always"}],
        },
    }
    own = deployment("AWSMachineTemplate", machines, annotations={MAX_SIZE: "5"})
    template = read(
        "AWSMachineTemplate", {"template": {"spec": {"instanceType": "g6.xlarge", "spotMarketOptions": {}}}}
    )
    found, templates = join([own, template])
    assert templates == (template,)
    assert found == (with_template(own, template),)
    (pool,) = found
    assert (pool.kind, pool.pool_name, pool.capacity, pool.gpu, pool.cluster) == (
        "MachineDeployment",
        "gpu",
        SPOT,
        Gpu.YES,
        "infra/blue",
    )
    assert (pool.desired, pool.autoscaling, pool.maximum) == (2, True, 5)
    assert pool.zones == {"us-east-1a"}
    assert pool.taints == (Taint("spot", "true", "NoSchedule"),)
    assert pool.labels == {
        "node.cluster.x-k8s.io/node-pool": "gpu",
        "node-role.kubernetes.io/worker": "",
        "node.kubernetes.io/instance-type": "g6.xlarge",
        "kubernetes.io/arch": "amd64",
    }
    assert (pool.grace_seconds, pool.safety_margin_seconds) == (120, 15)


@pytest.mark.parametrize(
    ("kind", "machine", "expected"),
    [
        ("AWSMachineTemplate", {"instanceType": "m7i.large"}, (ON_DEMAND, Gpu.NO)),
        ("AWSMachineTemplate", {"instanceType": "m7i.large", "marketType": "Spot"}, (SPOT, Gpu.NO)),
        (
            "AWSMachineTemplate",
            {"instanceType": "p5.48xlarge", "spotMarketOptions": {}, "marketType": "CapacityBlock"},
            (ON_DEMAND, Gpu.YES),
        ),
        ("AWSMachineTemplate", {"instanceType": "m7i.large", "marketType": "Lent"}, (UNKNOWN, Gpu.NO)),
        ("AzureMachineTemplate", {"vmSize": "Standard_NC24ads_A100_v4", "spotVMOptions": {}}, (SPOT, Gpu.YES)),
        ("AzureMachineTemplate", {"vmSize": "Standard_D4s_v5"}, (ON_DEMAND, Gpu.NO)),
        ("GCPMachineTemplate", {"instanceType": "n2-standard-4", "preemptible": True}, (SPOT, Gpu.NO)),
        ("GCPMachineTemplate", {"instanceType": "n2-standard-4", "provisioningModel": "Spot"}, (SPOT, Gpu.NO)),
        # Compute Engine calls it preemptible then, which is reclaimed all the same.
        (
            "GCPMachineTemplate",
            {"instanceType": "n2-standard-4", "preemptible": True, "provisioningModel": "Standard"},
            (SPOT, Gpu.NO),
        ),
        (
            "GCPMachineTemplate",
            {"instanceType": "n1-standard-4", "guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 2}]},
            (ON_DEMAND, Gpu.YES),
        ),
    ],
)
def test_spot_stands_in_the_template_of_each_infrastructure(
    kind: str, machine: object, expected: tuple[CapacityType, Gpu]
) -> None:
    pool = joined(kind, machine)
    assert (pool.capacity, pool.gpu) == expected


def test_the_name_of_a_template_is_no_label_of_its_nodes() -> None:
    pool = joined("GCPMachineTemplate", {"instanceType": "n2-standard-4", "preemptible": True})
    assert pool.pool_name == ""
    assert "node.cluster.x-k8s.io/node-pool" not in pool.labels


def test_the_machines_of_a_template_that_is_not_there_are_unknown() -> None:
    (pool,) = join([deployment("AWSMachineTemplate")]).pools
    assert (pool.capacity, pool.gpu) == (UNKNOWN, Gpu.UNKNOWN)
    assert pool.problems == ("AWSMachineTemplate a is not known",)
    (nameless,) = join([read("MachineDeployment", {"clusterName": "blue"})]).pools
    assert nameless.problems == ("template (without a name) is not known",)


def test_a_template_that_nothing_uses_is_no_pool() -> None:
    assert join([read("AWSMachineTemplate", {"template": {"spec": {"instanceType": "g6.xlarge"}}})]).pools == ()


def test_only_machines_of_AWS_are_labelled_as_interruptible() -> None:
    assert joined("AWSMachineTemplate", {"instanceType": "m7i.large", "spotMarketOptions": {}}).marked
    assert not joined("AzureMachineTemplate", {"vmSize": "Standard_D4s_v5", "spotVMOptions": {}}).marked

"""NodePoolRules against the node pools of AKS, GKE and EKS, as other clusters declare them."""

from __future__ import annotations

import pytest
import yaml

from tests.rules.nodepools import JSON, judge, told
from webhook.decision import Outcome

DENY, WARN = Outcome.DENY, Outcome.WARN

ASO = ("containerservice.azure.com", "managedclustersagentpools")
CAPZ = ("infrastructure.cluster.x-k8s.io", "azuremanagedmachinepools")
CONFIG_CONNECTOR = ("container.cnrm.cloud.google.com", "containernodepools")
CAPG = ("infrastructure.cluster.x-k8s.io", "gcpmanagedmachinepools")
ACK = ("eks.services.k8s.aws", "nodegroups")
CAPA = ("infrastructure.cluster.x-k8s.io", "awsmanagedmachinepools")


def named(spec: JSON) -> JSON:
    return {"metadata": {"name": "pool", "namespace": "fleet"}, "spec": spec}


@pytest.mark.parametrize(
    ("resource", "spec"),
    [
        (ASO, {"scaleSetPriority": "Spot", "vmSize": "Standard_NC24ads_A100_v4", "count": 1}),
        (CAPZ, {"scaleSetPriority": "Spot", "sku": "Standard_D4s_v5", "mode": "User"}),
        (ASO, {"scaleSetPriority": "Regular", "vmSize": "Standard_D4s_v5", "mode": "System", "count": 3}),
    ],
)
def test_aks_taints_its_spot_pools_itself(resource: tuple[str, str], spec: JSON) -> None:
    assert judge(resource, named(spec)) == []


@pytest.mark.parametrize(("resource", "type_field"), [(ASO, "vmSize"), (CAPZ, "sku")])
def test_a_system_pool_of_aks_cannot_be_spot(resource: tuple[str, str], type_field: str) -> None:
    user = named({"scaleSetPriority": "Spot", type_field: "Standard_D4s_v5", "mode": "User", "count": 1})
    system = named({**user["spec"], "mode": "System"})
    assert told(judge(resource, system)) == [(DENY, "spec.mode", "a system pool can't be spot")]
    assert told(judge(resource, system, user)) == [(DENY, "spec.mode", "a system pool can't be spot")]
    assert judge(resource, named({**system["spec"], "count": 2}), system) == []
    regular = named({**system["spec"], "scaleSetPriority": "Regular"})
    assert told(judge(resource, system, regular)) == [(DENY, "spec.scaleSetPriority", "a system pool can't be spot")]


GKE_TAINT = {"key": "example.com/spot", "value": "true", "effect": "NO_SCHEDULE"}


def test_gke_taints_no_spot_pool_that_somebody_declares() -> None:
    config = {"machineType": "e2-standard-4", "spot": True}
    (finding,) = judge(CONFIG_CONNECTOR, named({"nodeConfig": config, "nodeCount": 1}))
    assert told([finding]) == [
        (
            WARN,
            "spec.nodeConfig.taint",
            "no taint keeps Pods that did not ask for spot off ContainerNodePool fleet/pool",
        )
    ]
    copied = yaml.safe_load(finding.fix.partition(":\n")[2])["spec"]["nodeConfig"]
    assert copied == {"taint": [GKE_TAINT]}
    assert judge(CONFIG_CONNECTOR, named({"nodeConfig": {**config, **copied}, "nodeCount": 1})) == []


@pytest.mark.parametrize(
    ("resource", "spec", "field", "reason"),
    [
        (
            CONFIG_CONNECTOR,
            {"nodeConfig": {"preemptible": True, "taint": [GKE_TAINT]}},
            "spec.nodeConfig.preemptible",
            "preemptible VMs end after 24 hours at the latest",
        ),
        (
            CONFIG_CONNECTOR,
            {"version": "1.34.1-gke.100", "nodeConfig": {"kubeletConfig": {"shutdownGracePeriodSeconds": 60}}},
            "spec.nodeConfig.kubeletConfig.shutdownGracePeriodSeconds",
            "GKE 1.34.1-gke.100 has no shutdownGracePeriodSeconds",
        ),
        (
            CONFIG_CONNECTOR,
            {"nodeConfig": {"kubeletConfig": {"shutdownGracePeriodSeconds": 10}}},
            "spec.nodeConfig.kubeletConfig.shutdownGracePeriodSeconds",
            "ContainerNodePool fleet/pool can't be read in full",
        ),
        (
            CONFIG_CONNECTOR,
            {
                "nodeConfig": {"spot": True, "taint": [GKE_TAINT]},
                "autoscaling": {"maxNodeCount": 3, "locationPolicy": "BALANCED"},
            },
            "spec.autoscaling.locationPolicy",
            "a spot pool that is balanced over zones is preempted more often",
        ),
        (
            CAPG,
            {"preemptible": True, "kubernetesTaints": [{"key": "a", "effect": "NoSchedule"}]},
            "spec.preemptible",
            "preemptible VMs end after 24 hours at the latest",
        ),
        (
            CAPG,
            {
                "spot": True,
                "kubernetesTaints": [{"key": "a", "effect": "NoSchedule"}],
                "scaling": {"maxCount": 3, "locationPolicy": "balanced"},
            },
            "spec.scaling.locationPolicy",
            "a spot pool that is balanced over zones is preempted more often",
        ),
    ],
)
def test_what_makes_a_spot_pool_of_gke_short_lived_is_warned_of(
    resource: tuple[str, str], spec: JSON, field: str, reason: str
) -> None:
    assert (WARN, field, reason) in told(judge(resource, named(spec)))


@pytest.mark.parametrize(
    "spec",
    [
        {
            "nodeConfig": {"spot": True, "taint": [GKE_TAINT]},
            "autoscaling": {"maxNodeCount": 3, "locationPolicy": "ANY"},
        },
        {
            "nodeConfig": {"machineType": "n2-standard-4"},
            "autoscaling": {"maxNodeCount": 3, "locationPolicy": "BALANCED"},
        },
    ],
)
def test_other_pools_of_gke_are_right(spec: JSON) -> None:
    assert judge(CONFIG_CONNECTOR, named(spec)) == []


@pytest.mark.parametrize(
    ("resource", "spec"),
    [
        (
            ACK,
            {"capacityType": "SPOT", "instanceTypes": ["m5.xlarge", "m6i.xlarge"], "scalingConfig": {"desiredSize": 1}},
        ),
        (CAPA, {"capacityType": "spot", "instanceType": "m5.xlarge", "scaling": {"minSize": 1}}),
    ],
)
def test_eks_taints_no_spot_pool(resource: tuple[str, str], spec: JSON) -> None:
    (finding,) = judge(resource, named(spec))
    assert (finding.outcome, finding.field) == (WARN, "spec.taints")
    copied = yaml.safe_load(finding.fix.partition(":\n")[2])["spec"]
    assert judge(resource, named({**spec, **copied})) == []


def test_a_spot_node_group_of_one_type_is_warned_of() -> None:
    taint = [{"key": "example.com/spot", "effect": "NO_SCHEDULE"}]
    one = {"capacityType": "SPOT", "instanceTypes": ["m5.xlarge"], "scalingConfig": {"desiredSize": 1}, "taints": taint}
    reason = "a spot node group of one instance type is reclaimed all at once: m5.xlarge"
    assert told(judge(ACK, named(one))) == [(WARN, "spec.instanceTypes", reason)]
    assert judge(ACK, named({**one, "capacityType": "ON_DEMAND"})) == []
    assert judge(ACK, named({**one, "instanceTypes": ["m5.xlarge", "m6i.xlarge"]})) == []
    assert judge(ACK, named({**one, "scalingConfig": {"desiredSize": 2}}), named(one)) == []


@pytest.mark.parametrize(
    ("resource", "field", "value", "reason"),
    [
        (ACK, "instanceTypes", "m5.xlarge", "spec.instanceTypes is a string, not an array"),
        (CAPA, "instanceType", ["m5.xlarge"], "spec.instanceType is an array, not a string"),
        (ASO, "vmSize", ["Standard_D4s_v5"], "spec.vmSize is an array, not a string"),
        (CAPZ, "sku", ["Standard_D4s_v5"], "spec.sku is an array, not a string"),
        (CAPG, "instanceType", ["n1-standard-4"], "spec.instanceType is an array, not a string"),
        (CAPG, "machineType", ["n1-standard-4"], "spec.machineType is an array, not a string"),
    ],
)
def test_a_list_of_one_type_is_no_type(resource: tuple[str, str], field: str, value: object, reason: str) -> None:
    assert (DENY, f"spec.{field}", reason) in told(judge(resource, named({field: value})))


def test_a_machine_type_of_config_connector_is_a_string() -> None:
    reason = "spec.nodeConfig.machineType is an array, not a string"
    for resource in (CONFIG_CONNECTOR, ("container.cnrm.cloud.google.com", "containerclusters")):
        found = told(judge(resource, named({"nodeConfig": {"machineType": ["n1-standard-4"]}})))
        assert (DENY, "spec.nodeConfig.machineType", reason) in found


def test_a_system_pool_that_a_machine_pool_of_Azure_service_operator_holds_cannot_be_spot() -> None:
    held: JSON = {"kind": "ManagedClustersAgentPool", "spec": {"vmSize": "Standard_D4s_v5", "mode": "System"}}
    spot = {**held, "spec": {**held["spec"], "scaleSetPriority": "Spot"}}
    resource = ("infrastructure.cluster.x-k8s.io", "azureasomanagedmachinepools")
    assert told(judge(resource, named({"resources": [spot]}))) == [
        (DENY, "spec.resources", "a system pool can't be spot")
    ]
    assert judge(resource, named({"resources": [held]})) == []


@pytest.mark.parametrize(("mode", "priority"), [("system", "spot"), ("SYSTEM", "SPOT")])
def test_letter_case_hides_no_system_pool(mode: str, priority: str) -> None:
    system = named({"scaleSetPriority": priority, "vmSize": "Standard_D4s_v5", "mode": mode, "count": 1})
    assert (DENY, "spec.mode", "a system pool can't be spot") in told(judge(ASO, system))


@pytest.mark.parametrize(
    ("config", "warned"),
    [
        ({"machineType": "g2-standard-8"}, False),
        ({"machineType": "n1-standard-4", "guestAccelerator": [{"type": "nvidia-l4", "count": 1}]}, False),
        ({"machineType": "n1-standard-4"}, True),
    ],
)
def test_gke_taints_gpu_nodes_itself(config: JSON, *, warned: bool) -> None:
    found = judge(CONFIG_CONNECTOR, named({"nodeConfig": {"spot": True, **config}, "nodeCount": 1}))
    assert [finding.field for finding in found] == ["spec.nodeConfig.taint"] * warned


@pytest.mark.parametrize("written", [{"type": "nvidia-l4", "count": 1}, "nvidia-l4", ["nvidia-l4"], [{}]])
def test_accelerators_that_nobody_can_read_are_said(written: object) -> None:
    config = {"machineType": "n1-standard-4", "spot": True, "taint": [GKE_TAINT], "guestAccelerator": written}
    assert told(judge(CONFIG_CONNECTOR, named({"nodeConfig": config, "nodeCount": 1}))) == [
        (WARN, "spec.nodeConfig.guestAccelerator", "ContainerNodePool fleet/pool can't be read in full")
    ]

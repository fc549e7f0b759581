"""Karpenter's NodePools: on AWS, as EKS Auto Mode, and on Azure."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.objects import expression
from tests.rules.conftest import shipped_provider
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool

(READER,) = shipped_provider("karpenter").readers

TYPE = "node.kubernetes.io/instance-type"
CAPACITY = "karpenter.sh/capacity-type"
CPUS, GPUS = "karpenter.k8s.aws/instance-cpu", "karpenter.k8s.aws/instance-gpu-count"

# Shaped like the NodePool of a guide to spot in production, with the nodeClassRef that v1 has.

# Shaped like the GPU pool in the documentation of EKS Auto Mode.
AUTO_MODE_GPU = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec:
  template:
    spec:
      nodeClassRef: {group: eks.amazonaws.com, kind: NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: eks.amazonaws.com/instance-family, operator: In, values: [g6, g6e]}
      taints:
        - {key: nvidia.com/gpu, effect: NoSchedule}
"""

# Shaped like a NodePool of AKS node auto-provisioning.


def pool(*requirements: Any, group: str = "karpenter.k8s.aws", template: Any = None, **spec: Any) -> Pool:
    inner = {"requirements": list(requirements), "nodeClassRef": {"group": group}, **(template or {})}
    return READER.read({"metadata": {"name": "a"}, "spec": {"template": {"spec": inner}, **spec}})


@pytest.mark.parametrize(
    ("requirements", "capacity"),
    [
        ([], CapacityType.BOTH),
        ([expression(CAPACITY, "Exists")], CapacityType.BOTH),
        ([expression(CAPACITY, "In", "spot")], CapacityType.SPOT),
        ([expression(CAPACITY, "In", "spot", "on-demand")], CapacityType.BOTH),
        ([expression(CAPACITY, "In", "on-demand")], CapacityType.ON_DEMAND),
        ([expression(CAPACITY, "In", "reserved")], CapacityType.ON_DEMAND),
        ([expression(CAPACITY, "NotIn", "spot")], CapacityType.ON_DEMAND),
        ([expression(CAPACITY, "NotIn", "on-demand", "reserved")], CapacityType.SPOT),
        (
            [expression(CAPACITY, "In", "spot", "on-demand"), expression(CAPACITY, "NotIn", "spot")],
            CapacityType.ON_DEMAND,
        ),
        ([expression(CAPACITY, "DoesNotExist")], CapacityType.UNKNOWN),
        ([expression(CAPACITY, "In", "sopt")], CapacityType.UNKNOWN),
        ([expression(CAPACITY, "In", "spot", "sopt")], CapacityType.SPOT),
        ([expression(CAPACITY, "Inn", "spot")], CapacityType.UNKNOWN),
        ([{"key": CAPACITY}], CapacityType.UNKNOWN),
        (["spot"], CapacityType.UNKNOWN),
    ],
)
def test_the_capacity_comes_from_requirements(requirements: list[Any], capacity: CapacityType) -> None:
    assert pool(*requirements).capacity is capacity


def test_a_label_of_the_template_is_a_requirement_too() -> None:
    value = yaml.safe_load(AUTO_MODE_GPU)
    value["spec"]["template"]["metadata"] = {"labels": {CAPACITY: "spot"}}
    value["spec"]["template"]["spec"]["requirements"].pop(0)
    assert READER.read(value).capacity is CapacityType.SPOT


@pytest.mark.parametrize(
    ("requirements", "gpu"),
    [
        ([], Gpu.ANY),
        ([expression(TYPE, "In", "p5.48xlarge")], Gpu.YES),
        ([expression(TYPE, "In", "p5.48xlarge", "g6e.12xlarge", "gr6.4xlarge", "p6-b200.48xlarge")], Gpu.YES),
        ([expression(TYPE, "In", "trn2.48xlarge", "inf2.xlarge")], Gpu.YES),
        (
            [expression(TYPE, "In", "m5.large", "x2gd.medium", "u7i-12tb.224xlarge", "im4gn.large", "hpc7a.96xlarge")],
            Gpu.NO,
        ),
        ([expression(TYPE, "In", "m5.large", "p5.48xlarge")], Gpu.ANY),
        ([expression(TYPE, "In", "quantum.large")], Gpu.UNKNOWN),
        ([expression(TYPE, "In", "m5.large", "quantum.large")], Gpu.UNKNOWN),
        ([expression(TYPE, "NotIn", "m5.large")], Gpu.ANY),
        ([expression(TYPE, "In", "Standard_NC24ads_A100_v4")], Gpu.YES),
        ([expression(TYPE, "In", "Standard_D4s_v5", "Standard_NP10s")], Gpu.NO),
        ([expression("karpenter.azure.com/sku-name", "In", "Standard_NC24ads_A100_v4")], Gpu.YES),
        ([expression("karpenter.azure.com/sku-family", "In", "N")], Gpu.YES),
        ([expression("karpenter.azure.com/sku-family", "In", "D", "E")], Gpu.NO),
        ([expression("karpenter.azure.com/sku-family", "In", "ZZ")], Gpu.UNKNOWN),
        ([expression("karpenter.k8s.aws/instance-category", "In", "zz")], Gpu.UNKNOWN),
        ([expression("eks.amazonaws.com/instance-category", "In", "c", "q")], Gpu.UNKNOWN),
        ([expression("karpenter.azure.com/sku-gpu-count", "Gt", "0")], Gpu.YES),
        ([expression("karpenter.k8s.aws/instance-category", "In", "c", "m", "r")], Gpu.NO),
        ([expression("karpenter.k8s.aws/instance-category", "In", "g", "p")], Gpu.YES),
        ([expression("karpenter.k8s.aws/instance-category", "NotIn", "g", "p")], Gpu.ANY),
        ([expression("karpenter.k8s.aws/instance-category", "NotIn", "g", "gr", "p", "inf", "trn", "dl")], Gpu.NO),
        ([expression("karpenter.k8s.aws/instance-family", "In", "p5", "g5")], Gpu.YES),
        ([expression("karpenter.k8s.aws/instance-family", "NotIn", "p5", "g5")], Gpu.ANY),
        ([expression("karpenter.k8s.aws/instance-gpu-count", "Exists")], Gpu.YES),
        ([expression("karpenter.k8s.aws/instance-gpu-name", "In", "h100")], Gpu.YES),
        ([expression("karpenter.k8s.aws/instance-gpu-count", "Gte", "1")], Gpu.YES),
        ([expression("karpenter.k8s.aws/instance-gpu-count", "DoesNotExist")], Gpu.NO),
        ([expression("karpenter.k8s.aws/instance-gpu-count", "NotIn", "8")], Gpu.ANY),
        ([expression("karpenter.k8s.aws/instance-accelerator-name", "Exists")], Gpu.YES),
        ([expression("eks.amazonaws.com/instance-gpu-manufacturer", "In", "nvidia")], Gpu.YES),
        ([expression("eks.amazonaws.com/instance-category", "In", "m")], Gpu.NO),
        ([expression("karpenter.k8s.aws/instance-gpu-count", "Foo", "8")], Gpu.UNKNOWN),
        ([expression(TYPE, "Inn", "m5.large")], Gpu.UNKNOWN),
        ([expression("example.com/team", "Foo", "a")], Gpu.ANY),
        ([7], Gpu.UNKNOWN),
        (
            [expression(TYPE, "In", "p5.48xlarge"), expression("karpenter.k8s.aws/instance-category", "In", "m")],
            Gpu.UNKNOWN,
        ),
    ],
)
def test_GPUs_come_from_requirements(requirements: list[Any], gpu: Gpu) -> None:
    assert pool(*requirements).gpu is gpu


@pytest.mark.parametrize(
    ("spec", "unusable"),
    [
        ({}, ""),
        ({"limits": {"cpu": "1000"}}, ""),
        ({"limits": {"cpu": 0}}, "its limits allow 0 of cpu"),
        ({"limits": {"cpu": "0"}}, "its limits allow 0 of cpu"),
        ({"limits": {"memory": "0Gi"}}, "its limits allow 0 of memory"),
        ({"limits": {"nodes": "0"}}, "its limits allow 0 of nodes"),
        ({"limits": {"cpu": "0.5"}}, "its limits allow 0.5 of cpu, and a machine has at least 1"),
        ({"limits": {"cpu": "10m"}}, "its limits allow 0.01 of cpu, and a machine has at least 1"),
        ({"limits": {"cpu": "1"}}, "its limits allow 1 of cpu, and a machine with GPUs has at least 2"),
        ({"limits": {"cpu": 1.5}}, "its limits allow 1.5 of cpu, and a machine with GPUs has at least 2"),
        ({"limits": {"cpu": "2"}}, ""),
        ({"limits": {"cpu": "-5"}}, "its limits allow 0 of cpu"),
        ({"limits": {"nodes": "0.5"}}, "its limits allow 0.5 of nodes, and a machine has at least 1"),
        ({"limits": {"memory": "1Mi"}}, "its limits allow 1Mi of memory, and a machine has at least 400Mi"),
        (
            {"limits": {"memory": 4294967296}},
            "its limits allow 4Gi of memory, and a machine with GPUs has at least 7Gi",
        ),
        ({"limits": {"memory": "7Gi"}}, ""),
        ({"limits": {"nvidia.com/gpu": 0}}, "its limits allow 0 of nvidia.com/gpu"),
        (
            {"limits": {"nvidia.com/gpu": "500m"}},
            "its limits allow 0.5 of nvidia.com/gpu, and a machine has at least 1",
        ),
        (
            {"limits": {"cpu": "lots", "memory": True, "nodes": [1], "nvidia.com/gpu": None}},
            "its spec.limits can't be read",
        ),
        ({"limits": ["cpu"]}, "its spec.limits can't be read"),
        ({"limits": {"cpu": "lots", "memory": 0}}, "its limits allow 0 of memory"),
        ({"limits": {"cpu": "0e3"}}, "its limits allow 0 of cpu"),
        ({"limits": {"nvidia.com/gpu": "0"}}, "its limits allow 0 of nvidia.com/gpu"),
        ({"limits": {"nvidia.com/gpu": "8"}}, ""),
        ({"replicas": 3}, ""),
        ({"replicas": 0}, "it has 0 nodes and no autoscaling"),
        ({"replicas": 3, "limits": {"nodes": "0"}}, "its limits allow 0 of nodes"),
        ({"replicas": "3"}, "it does not say how many nodes it has"),
    ],
)
def test_a_pool_is_usable_when_replicas_and_limits_leave_it_nodes(spec: dict[str, Any], unusable: str) -> None:
    assert pool(expression(TYPE, "In", "p5.48xlarge"), **spec).unusable == unusable


def test_a_pool_of_any_machines_whose_limits_allow_no_GPUs_has_none() -> None:
    found = pool(limits={"nvidia.com/gpu": 0})
    assert (found.gpu, found.unusable) == (Gpu.NO, "")


def test_a_pool_of_any_machines_whose_limits_allow_no_machine_with_GPUs_has_none() -> None:
    found = pool(limits={"cpu": "1"})
    assert (found.gpu, found.unusable) == (Gpu.NO, "")
    unknown = pool(expression(TYPE, "In", "brand-new"), limits={"nvidia.com/gpu": 0})
    assert (unknown.gpu, unknown.unusable) == (Gpu.NO, "")


@pytest.mark.parametrize(
    ("found", "limits", "unusable"),
    [
        (expression(CPUS, "In", "96", "192"), {"cpu": "95"}, "its limits allow 95 of cpu, and a machine has at least 96"),
        (expression(CPUS, "In", "96", "192"), {"cpu": "96"}, ""),
        (expression(CPUS, "Gt", "7"), {"cpu": "7500m"}, "its limits allow 7.5 of cpu, and a machine has at least 8"),
        (expression(CPUS, "Lt", "7"), {"cpu": "1"}, ""),
        (expression(CPUS, "Exists"), {"cpu": "1"}, ""),
        (expression(CPUS, "In", "many"), {"cpu": "1"}, ""),
        (expression(GPUS, "In", "8"), {"nvidia.com/gpu": 4}, "its limits allow 4 of nvidia.com/gpu, and a machine has at least 8"),
        (expression(GPUS, "In", "8"), {"nvidia.com/gpu": 8}, ""),
        (expression(GPUS, "Gte", "1"), {"nvidia.com/gpu": 8, "amd.com/gpu": 8}, ""),
    ],
)  # fmt: skip
def test_limits_below_what_the_pool_requires_of_a_machine_leave_none(
    found: dict[str, Any], limits: dict[str, Any], unusable: str
) -> None:
    assert pool(found, limits=limits).unusable == unusable


def test_requirements_that_no_node_can_meet_leave_no_nodes() -> None:
    found = pool(expression(CAPACITY, "In", "spot"), expression(CAPACITY, "In", "on-demand"))
    assert found.unusable == "no node can meet its requirements on karpenter.sh/capacity-type"


@pytest.mark.parametrize(
    ("group", "limit", "grace", "margin"),
    [
        ("karpenter.k8s.aws", None, None, None),
        ("eks.amazonaws.com", None, None, None),
        ("karpenter.azure.com", None, 30, 5),
        ("karpenter.k8s.aws", "60s", 60, 0),
        ("karpenter.k8s.aws", "1m30s", 90, 0),
        ("karpenter.k8s.aws", "105s", None, None),
        ("karpenter.k8s.aws", "110s", None, None),
        ("karpenter.k8s.aws", "48h", None, None),
        ("karpenter.azure.com", "1h", 30, 5),
        ("karpenter.azure.com", "20s", 20, 0),
        ("karpenter.azure.com", "25s", 30, 5),
        ("karpenter.k8s.aws", "0s", 0, 0),
        ("karpenter.k8s.gcp", None, 15, 0),
        ("karpenter.k8s.gcp", "10s", 10, 0),
        ("", None, 15, 0),
        (None, None, 15, 0),
        (5, None, 15, 0),
    ],
)
def test_the_budget_is_the_platforms_or_the_pools_own_limit(
    group: str, limit: str | None, grace: int | None, margin: int | None
) -> None:
    found = pool(group=group, template={"terminationGracePeriod": limit})
    assert (found.grace_seconds, found.safety_margin_seconds) == (grace, margin)


def test_an_older_nodeClassRef_names_its_group_in_apiVersion() -> None:
    found = pool(template={"nodeClassRef": {"apiVersion": "karpenter.azure.com/v1alpha2", "name": "default"}})
    assert found.grace_seconds == 30


@pytest.mark.parametrize("limit", ["soon", "", "-5s", "1.5h", -1, True, [], 10**30])
def test_a_limit_that_cannot_be_read_is_said_and_does_not_hold(limit: object) -> None:
    found = pool(template={"terminationGracePeriod": limit})
    assert found.grace_seconds is None
    assert found.problems == (
        "spec.template.spec.terminationGracePeriod is neither a number of seconds nor a duration such as 90s",
    )


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"spec": {}}, "spec.template.spec.requirements is missing"),
        ({"spec": {"template": {"spec": {"requirements": {}}}}}, "spec.template.spec.requirements is not a list"),
        (
            {"spec": {"template": {"spec": {"requirements": [expression(CAPACITY, "In", "sopt")]}}}},
            "spec.template.spec.requirements has karpenter.sh/capacity-type 'sopt', not one of spot, on-demand, reserved",
        ),
        (
            {"spec": {"template": {"spec": {"requirements": []}}, "limits": ["cpu"]}},
            "spec.limits is not a map",
        ),
        (
            {"spec": {"template": {"spec": {"requirements": []}}, "limits": {"cpu": "lots"}}},
            "spec.limits['cpu'] is not a quantity",
        ),
    ],
)
def test_what_cannot_be_read_is_a_problem(value: dict[str, Any], problem: str) -> None:
    assert READER.read(value).problems == (problem,)


def test_a_pool_without_requirements_is_neither_spot_nor_a_fallback_for_anybody_who_looks() -> None:
    found = READER.read({"metadata": {"name": "a"}, "spec": {}})
    assert (found.capacity, found.gpu) == (CapacityType.UNKNOWN, Gpu.UNKNOWN)

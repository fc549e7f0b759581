"""What nobody can read of a pool is unknown: no default takes its place, and the pool stands in for no other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.conftest import shipped_provider
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool
from webhook.capacity.providers.query import Query

READERS = {
    reader.kind: reader for name in ("gke", "eks", "aks", "karpenter") for reader in shipped_provider(name).readers
}


def pool(kind: str, spec: object = None, **metadata: Any) -> Pool:
    return READERS[kind].read({"metadata": {"name": "a", "namespace": "team", **metadata}, "spec": spec})


@pytest.mark.parametrize(
    ("text", "value", "obstacle"),
    [
        ("lower(spec.a)", {"spec": {"a": "X"}}, ""),
        ("lower(spec.a)", {"spec": {}}, ""),
        ("lower(spec.a)", {"spec": {"a": 5}}, "spec.a can't be read as it is"),
        ("lower(spec.a)", {"spec": []}, "spec is not a map"),
        ("length(spec.a)", {"spec": {}}, "spec.a is missing"),
        ("spec.a > `1`", {"spec": {"a": "2"}}, "spec.a can't be read as it is"),
        ("sum([spec.a, spec.b])", {"spec": {"b": 1}}, "spec.b can't be read as it is"),
        ("spec.a", {"spec": {"a": []}}, ""),
    ],
)
def test_an_expression_says_what_stands_in_its_way(text: str, value: dict[str, Any], obstacle: str) -> None:
    assert Query(text).answer(value)[1] == obstacle


@pytest.mark.parametrize(
    ("text", "value", "place"),
    [
        ("not_null(spec.a, spec.b)", {"spec": {"a": 1, "b": 2}}, "spec.a"),
        ("not_null(spec.a, spec.b)", {"spec": {"b": 2}}, "spec.b"),
        ("not_null(spec.a, spec.b)", {"spec": {}}, "spec.a"),
        ("[spec.a, spec.b][?@] | [0]", {"spec": {"a": False, "b": "x"}}, "spec.b"),
        ("lower(spec.b)", {"spec": {"b": "X"}}, "spec.b"),
        ("spec.a", {"spec": {"b": 2}}, "spec.a"),
    ],
)
def test_a_result_is_told_the_field_that_it_is_from(text: str, value: dict[str, Any], place: str) -> None:
    assert Query(text).place(value) == place


@pytest.mark.parametrize(
    ("config", "capacity", "problems"),
    [
        ({}, CapacityType.ON_DEMAND, ()),
        ({"spot": False}, CapacityType.ON_DEMAND, ()),
        ({"spot": False, "preemptible": True}, CapacityType.SPOT, ()),
        ({"spot": "false", "preemptible": True}, CapacityType.SPOT, ()),
        ({"spot": "False", "preemptible": "True"}, CapacityType.SPOT, ()),
        ({"spot": "false", "preemptible": None}, CapacityType.ON_DEMAND, ()),
        ({"spot": []}, CapacityType.UNKNOWN, ("spot is a list or map, not one of true, false",)),
        ({"spot": {}}, CapacityType.UNKNOWN, ("spot is a list or map, not one of true, false",)),
        ({"spot": ""}, CapacityType.UNKNOWN, ("spot is '', not one of true, false",)),
        ({"spot": 0}, CapacityType.UNKNOWN, ("spot is a number, not one of true, false",)),
        (
            {"spot": False, "preemptible": "y"},
            CapacityType.UNKNOWN,
            ("preemptible is 'y', not one of true, false",),
        ),
    ],
)
@pytest.mark.parametrize("kind", ["ContainerNodePool", "ContainerCluster", "GCPManagedMachinePool"])
def test_of_two_flags_neither_hides_the_other(
    kind: str, config: dict[str, Any], capacity: CapacityType, problems: tuple[str, ...]
) -> None:
    place, spec = ("spec", config) if kind == "GCPManagedMachinePool" else ("spec.nodeConfig", {"nodeConfig": config})
    found = pool(kind, spec)
    assert found.capacity is capacity
    assert found.problems == tuple(f"{place}.{each}" for each in problems)


def test_a_default_pool_that_is_removed_is_not_spot() -> None:
    removed = {"cnrm.cloud.google.com/remove-default-node-pool": "true"}
    found = pool("ContainerCluster", {"nodeConfig": {"preemptible": True}}, annotations=removed)
    assert found.capacity is CapacityType.ON_DEMAND


@pytest.mark.parametrize(
    ("kind", "spec", "problem"),
    [
        (
            "ContainerNodePool",
            {"nodeConfig": {"machineType": ""}},
            "spec.nodeConfig.machineType names no instance type",
        ),
        (
            "ContainerNodePool",
            {"nodeConfig": {"machineType": {}}},
            "spec.nodeConfig.machineType names no instance type",
        ),
        ("GCPManagedMachinePool", {"machineType": []}, "spec.machineType names no instance type"),
        ("Nodegroup", {"instanceTypes": ""}, "spec.instanceTypes names no instance type"),
        ("Nodegroup", {"instanceTypes": []}, "spec.instanceTypes names no instance type"),
        ("Nodegroup", {"launchTemplate": []}, "spec.launchTemplate names no instance type"),
        ("Nodegroup", {"instanceTypes": ["m5.large"], "amiType": {}}, "spec.amiType can't be read as it is"),
        ("AWSManagedMachinePool", {"instanceType": False}, "spec.instanceType names no instance type"),
    ],
)
def test_a_type_in_the_wrong_type_is_not_the_default_one(kind: str, spec: object, problem: str) -> None:
    found = pool(kind, spec)
    assert found.gpu is Gpu.UNKNOWN
    assert found.problems == (problem,)


@pytest.mark.parametrize(
    ("kind", "spec", "unusable"),
    [
        ("ContainerNodePool", {"nodeCount": [], "initialNodeCount": 3}, "it does not say how many nodes it has"),
        ("ContainerNodePool", {"nodeCount": "", "initialNodeCount": 3}, "it does not say how many nodes it has"),
        (
            "ContainerNodePool",
            {"nodeCount": 3, "autoscaling": {"maxNodeCount": "5"}},
            "its spec.autoscaling.maxNodeCount can't be read",
        ),
        ("ContainerNodePool", {"nodeCount": 3, "nodeConfig": {"taint": {}}}, "its spec.nodeConfig.taint can't be read"),
        ("NodePool", {"replicas": []}, "it does not say how many nodes it has"),
        ("NodePool", {"limits": {"cpu": "lots"}}, "its spec.limits can't be read"),
        ("NodePool", {"limits": []}, "its spec.limits can't be read"),
        ("NodePool", {"template": {"spec": {"taints": "x"}}}, "its spec.template.spec.taints can't be read"),
        (
            "NodePool",
            {"template": {"spec": {"taints": [{"key": "a", "effect": "No"}]}}},
            "its spec.template.spec.taints can't be read",
        ),
        ("ManagedClustersAgentPool", {"count": 1, "enableAutoScaling": "yes"}, "its spec.enableAutoScaling can't be read"),
        ("ManagedClustersAgentPool", {"count": 1, "powerState": "Stopped"}, "its spec.powerState.code can't be read"),
    ],
)  # fmt: skip
def test_a_pool_that_may_have_no_nodes_for_all_that_anybody_knows_is_not_usable(
    kind: str, spec: object, unusable: str
) -> None:
    found = pool(kind, spec)
    assert found.unusable == unusable
    assert found.problems
    assert not found.closed


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("ManagedClustersAgentPool", {"count": 1, "powerState": {"code": "Stopped"}}, "spec.powerState.code"),
        ("NodePool", {"limits": {"cpu": 0}}, "spec.limits"),
        ("NodePool", {"limits": {"cpu": "lots"}}, "spec.limits"),
        ("ContainerCluster", {"initialNodeCount": 1, "enableAutopilot": True}, "spec.enableAutopilot"),
        ("ManagedClustersAgentPool", {"count": 1}, ""),
    ],
)
def test_what_leaves_a_pool_without_nodes_has_a_place(kind: str, spec: object, field: str) -> None:
    assert pool(kind, spec).held_by == field


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        (None, "spec.resources is missing"),
        ([], "spec.resources can't be read as it is"),
        ({"kind": "ManagedClustersAgentPool"}, "spec.resources can't be read as it is"),
        ([{"kind": "ManagedClustersAgentPool", "spec": "x"}], "spec.resources can't be read as it is"),
        ([None, {"kind": "ManagedClustersAgentPool", "spec": None}], "spec.resources can't be read as it is"),
        ([{"kind": "ManagedClustersAgentPool", "spec": {}}], "spec.resources names no instance type"),
    ],
)
def test_a_machine_pool_that_holds_nothing_readable_may_be_spot(resources: object, problem: str) -> None:
    found = pool("AzureASOManagedMachinePool", {"resources": resources})
    assert found.problems == (problem,)
    assert found.gpu is Gpu.UNKNOWN
    readable = problem.endswith("instance type")
    assert found.capacity is (CapacityType.ON_DEMAND if readable else CapacityType.UNKNOWN)


@pytest.mark.parametrize(
    ("kind", "spec", "problem"),
    [
        ("ContainerNodePool", {"clusterRef": {"name": ""}}, "spec.clusterRef.name is no name of a cluster"),
        ("ContainerNodePool", {"clusterRef": {"name": [], "external": "a/b"}}, "spec.clusterRef.name is not text"),
        ("ManagedClustersAgentPool", {"owner": {"armId": 7}, "vmSize": "Standard_D2s_v3"}, "spec.owner.armId is not text"),
        ("ContainerNodePool", {"resourceID": [], "clusterRef": {"name": "b"}}, "spec.resourceID is not text"),
        ("ContainerNodePool", {"initialNodeCount": "1"}, "spec.initialNodeCount is not an integer"),
    ],
)  # fmt: skip
def test_the_problem_is_told_at_the_field_that_has_it(kind: str, spec: object, problem: str) -> None:
    assert pool(kind, spec).problems == (problem,)

"""OnDemandFallback where something of a pool can't be read, or the pool goes with what is being deleted."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.rules import nodepools
from tests.rules.test_on_demand_fallback_providers import DENY, GKE_CPU, GKE_SPOT, Json, gke_cluster, judge, said
from webhook.documents.model import placeholder_in

SOON = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
NODE_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
SPOT_TAINT = {"key": "spot", "value": "true", "effect": "NoSchedule"}


def karpenter_pool(name: str, capacity: str, *, taints: Any = (SPOT_TAINT,), **spec: Any) -> Json:
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]},
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["p"]},
    ]
    taints = list(taints) if isinstance(taints, tuple) else taints
    inner = {"requirements": requirements, "nodeClassRef": NODE_CLASS, "taints": taints}
    metadata = {"name": name}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": metadata,
        "spec": {"template": {"spec": inner}, **spec},
    }


SPOT, FALLBACK = karpenter_pool("spot", "spot"), karpenter_pool("od", "on-demand")


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        (karpenter_pool("od", "on-demand", limits={"cpu": "lots"}), "its spec.limits can't be read"),
        (karpenter_pool("od", "on-demand", limits=["cpu"]), "its spec.limits can't be read"),
        (karpenter_pool("od", "on-demand", limits={"memory": "1Mi"}), "its limits allow 1Mi of memory"),
        (karpenter_pool("od", "on-demand", taints="x"), "its spec.template.spec.taints can't be read"),
        (
            karpenter_pool("od", "on-demand", taints=[{"key": "karpenter.sh/disrupted", "effect": "No"}]),
            "its spec.template.spec.taints can't be read",
        ),
    ],
)
def test_a_pool_of_which_nobody_can_tell_does_not_count(pool: Json, why: str) -> None:
    assert judge(SPOT, None, [FALLBACK]) == []
    (created,) = judge(SPOT, None, [pool])
    assert created.outcome is DENY
    assert f"What does not count: NodePool od: {why}" in created.detail
    (updated,) = judge(pool, FALLBACK, [SPOT, FALLBACK])
    assert said([updated]) == [(DENY, "NodePool od is the last on-demand fallback of GPU spot pool NodePool spot")]
    assert updated.field in {"spec.limits", "spec.template.spec.taints"}


def agent_pool(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "containerservice.azure.com/v1api20240901",
        "kind": "ManagedClustersAgentPool",
        "metadata": {"name": name, "namespace": "infra"},
        "spec": {"owner": {"name": "prod"}, "vmSize": "Standard_NC24ads_A100_v4", "count": 1, **spec},
    }


def test_a_pool_that_is_stopped_is_told_so_where_it_says_it() -> None:
    running, stopped = agent_pool("od"), agent_pool("od", powerState={"code": "Stopped"})
    (finding,) = judge(stopped, running, [agent_pool("spot", scaleSetPriority="Spot"), running])
    assert finding.outcome is DENY
    assert finding.field == "spec.powerState.code"


def test_only_the_instance_types_that_nobody_knows_are_said_to_be_unknown() -> None:
    value: Json = {
        "apiVersion": "eks.services.k8s.aws/v1alpha1",
        "kind": "Nodegroup",
        "metadata": {"name": "a", "namespace": "infra"},
        "spec": {"clusterName": "prod", "capacityType": "SPOT", "instanceTypes": ["zz9.large", "m5.large"]},
    }
    (finding,) = judge(value, None, [])
    assert "zz9.large is in no list of CapacityProvider eks: it counts as GPU." in finding.detail
    assert finding.fix.startswith("add zz9.large to `instanceTypes`")
    value["spec"]["instanceTypes"].append("foo")
    (finding,) = judge(value, None, [])
    assert "foo, zz9.large are in no list of CapacityProvider eks: they count as GPU." in finding.detail


def test_the_pools_of_a_cluster_that_is_being_deleted_may_go() -> None:
    cluster = gke_cluster()
    assert said(judge(None, GKE_CPU, [GKE_SPOT, GKE_CPU, gke_cluster(initialNodeCount=0)])) != []
    going = deepcopy(cluster)
    going["metadata"] |= SOON
    assert judge(None, GKE_CPU, [GKE_SPOT, GKE_CPU, going]) == []
    other = gke_cluster("another")
    other["metadata"] |= SOON
    assert said(judge(None, GKE_CPU, [GKE_SPOT, GKE_CPU, other])) != []


def machine_pool(name: str, instance_type: str, *, spot: bool = False) -> Json:
    template = {"instanceType": instance_type, **({"spotMarketOptions": {}} if spot else {})}
    return {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
        "kind": "AWSMachinePool",
        "metadata": {"name": name, "namespace": "infra"},
        "spec": {"maxSize": 4, "awsLaunchTemplate": template},
    }


REQUIREMENTS = "spec.template.spec.requirements"
CKS_SPOT = nodepools.pool(computeClass="spot", autoscaling=True, minNodes=0, maxNodes=4, targetNodes=1, nodeLabels={})


@pytest.mark.parametrize("placeholder", ["${P}", "$P", "{{ .Values.p }}"])
@pytest.mark.parametrize(
    ("resource", "pool", "field"),
    [
        *((nodepools.KARPENTER, SPOT, f"{REQUIREMENTS}{rest}") for rest in ("", ".0.values.0", ".0.values", ".1.key")),
        *((nodepools.KARPENTER, SPOT, f"{REQUIREMENTS}.1.{rest}") for rest in ("operator", "values", "values.0")),
        *((nodepools.KARPENTER, SPOT, field) for field in ("spec", "spec.disruption", "spec.template.spec.taints")),
        *(
            (nodepools.KARPENTER, karpenter_pool("spot", "spot", disruption={"budgets": [{"nodes": "1"}]}), field)
            for field in ("spec.disruption.budgets.0", "spec.disruption.budgets.0.nodes")
        ),
        *(
            (nodepools.CKS, CKS_SPOT, f"spec.{field}")
            for field in ("instanceType", "computeClass", "targetNodes", "targetRacks", "minNodes", "maxNodes")
        ),
        *(
            (nodepools.CKS, CKS_SPOT, f"spec.{field}")
            for field in ("autoscaling", "nodeTaints", "nodeLabels", "schedulingPriority", "schedulingPriority.value")
        ),
    ],
)
def test_a_placeholder_in_any_field_is_never_denied(resource: Any, pool: Json, field: str, placeholder: str) -> None:
    value = deepcopy(pool)
    *parents, last = (int(step) if step.isdigit() else step for step in field.split("."))
    inside: Any = value
    for step in parents:
        inside = inside[step] if isinstance(step, int) else inside.setdefault(step, {})
    inside[last] = placeholder
    fallback = FALLBACK if resource == nodepools.KARPENTER else nodepools.pool()
    fallback = {**fallback, "metadata": {"name": "od"}}
    denied = [
        each for each in [*nodepools.judge(resource, value), *judge(value, None, [fallback])] if each.outcome is DENY
    ]
    assert [each for each in denied if not each.unknown] == []
    assert [each for each in denied if not each.fix.startswith(f"{placeholder} is a placeholder: fill")] == []


def test_a_placeholder_in_a_fallback_hides_whether_it_is_one() -> None:
    fallback = karpenter_pool("od", "on-demand", limits="$LIMITS")
    assert [each.unknown for each in judge(SPOT, None, [fallback])] == [True]


@pytest.mark.parametrize("text", ["$1", "a$TYPE", "$TYPE.large", "<TYPE>", "((type))", "$"])
def test_a_name_after_a_dollar_is_a_placeholder_only_as_the_whole_value(text: str) -> None:
    assert (placeholder_in(text), placeholder_in(["m5.large", "$_TYPE2"])) == ("", "$_TYPE2")


def test_a_placeholder_is_neither_a_GPU_nor_none() -> None:
    """What is written there decides both whether a pool needs a fallback and whether another pool is one."""
    (needs,) = judge(machine_pool("spot", "${TYPE}", spot=True), None, [])
    assert (needs.id, needs.unknown) == ("missing", True)
    assert needs.fix.startswith("${TYPE} is a placeholder: fill it in first")
    spot = machine_pool("spot", "p4d.24xlarge", spot=True)
    (may_be_met,) = judge(spot, None, [machine_pool("base", "${TYPE}")])
    (is_not,) = judge(spot, None, [machine_pool("base", "m7i.large")])
    assert (may_be_met.unknown, is_not.unknown) == (True, False)

"""OnDemandFallback where the pools are GKE's, Karpenter's, or those of another cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.conftest import FakeSubject, request_for, shipped_provider
from webhook.capacity.providers.joins import Joined, join, sizes_in
from webhook.capacity.providers.provider import readers_by_resource, sizers_by_resource
from webhook.capacity.view import ClusterView
from webhook.kube.pod import Pod
from webhook.model.decision import Outcome, Violation
from webhook.model.review import GroupVersionResource
from webhook.rules.context import Context, Phase, utc_now
from webhook.rules.on_demand_fallback.rule import KIND, OnDemandFallback
from webhook.rules.on_demand_fallback.spec import OnDemandFallbackSpec
from webhook.rules.protocol import Facts

PROVIDERS = {name: shipped_provider(name) for name in ("cks", "karpenter", "gke", "eks", "aks", "cluster-api")}
FACTS = Facts(PROVIDERS)
READERS = readers_by_resource(PROVIDERS.values())
SIZERS = sizers_by_resource(PROVIDERS.values())
RESOURCES = {each.any.kind + each.any.group: key for key, each in READERS.items()}

Json = dict[str, Any]
DENY, WARN = Outcome.DENY, Outcome.WARN


def rule_of(**spec: Any) -> OnDemandFallback:
    rule = KIND.compile(OnDemandFallbackSpec.model_validate(spec), FACTS)
    assert isinstance(rule, OnDemandFallback)
    return rule


RULE = rule_of()


def resource_of(value: Json) -> GroupVersionResource:
    group, _, version = value["apiVersion"].partition("/")
    if value["kind"] == "MachinePool":
        return GroupVersionResource(group, version, "machinepools")
    return GroupVersionResource(group, version, RESOURCES[value["kind"] + group][1])


def context_of(cluster: list[Json] | None) -> Context:
    joined: Joined | None = None
    if cluster is not None:
        items = [(resource_of(value), value) for value in cluster]
        joined = join(
            sizes_in(value, SIZERS[kind.group, kind.resource])
            if kind.resource == "machinepools"
            else READERS[kind.group, kind.resource].read(value)
            for kind, value in items
        )
    pools, templates = joined or (None, ())
    view = ClusterView(pools=pools, templates=templates, why_unknown="it is down")
    return Context(phase=Phase.VALIDATE, now=utc_now(), view=view)


def judge(
    new: Json | None,
    old: Json | None,
    cluster: list[Json] | None,
    rule: OnDemandFallback = RULE,
    *,
    scale: bool = False,
) -> list[Violation]:
    value = new or old or {}
    operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
    metadata = value["metadata"]
    request = request_for(
        metadata.get("namespace", ""),
        operation,
        resource=resource_of(value),
        name=metadata["name"],
        sub_resource="scale" if scale else "",
    )
    return list(rule.validate(FakeSubject(Pod(), request, operation, object=new, old_object=old), context_of(cluster)))


def said(violations: list[Violation]) -> list[tuple[Outcome, str]]:
    return [(each.outcome, each.reason) for each in violations]


def gke_pool(name: str, cluster: str = "prod", **spec: Any) -> Json:
    return {
        "apiVersion": "container.cnrm.cloud.google.com/v1beta1",
        "kind": "ContainerNodePool",
        "metadata": {"name": name, "namespace": "infra"},
        "spec": {"clusterRef": {"name": cluster}, "nodeCount": 1, **spec},
    }


GPU = {"machineType": "g2-standard-4"}
GKE_SPOT = gke_pool("l4-spot", nodeConfig={**GPU, "spot": True})
GKE_GPU = gke_pool("l4", nodeConfig=GPU)
GKE_CPU = gke_pool("default")
GKE_EMPTY_CPU = gke_pool("default", nodeCount=0)
GKE_CPU_SPOT = gke_pool("cpu-spot", nodeConfig={"spot": True})

L4_SPOT = "GPU spot pool ContainerNodePool infra/l4-spot"
NO_STANDARD = (DENY, "GPU spot pool ContainerNodePool infra/l4-spot has no on-demand pool without GPUs")
NO_GPU = (WARN, "GPU spot pool ContainerNodePool infra/l4-spot has no on-demand fallback")


def gke_cluster(name: str = "prod", *, removed: bool = False, **spec: Any) -> Json:
    annotations = {"cnrm.cloud.google.com/remove-default-node-pool": "true"} if removed else {}
    return {
        "apiVersion": "container.cnrm.cloud.google.com/v1beta1",
        "kind": "ContainerCluster",
        "metadata": {"name": name, "namespace": "infra", "annotations": annotations},
        "spec": {"initialNodeCount": 1, **spec},
    }


def test_the_default_pool_of_a_cluster_is_its_standard_pool() -> None:
    assert said(judge(GKE_SPOT, None, [gke_cluster(), GKE_GPU])) == []
    assert said(judge(GKE_SPOT, None, [gke_cluster("test"), GKE_GPU])) == [NO_STANDARD]
    (found,) = judge(GKE_SPOT, None, [gke_cluster(removed=True), GKE_GPU])
    assert "ContainerCluster infra/prod: its default pool is removed once it is made" in found.detail


def test_a_cluster_takes_its_spot_pools_along() -> None:
    assert judge(None, gke_cluster(), [gke_cluster(), GKE_SPOT, GKE_GPU]) == []
    (found,) = judge(gke_cluster(nodeConfig={"spot": True}), gke_cluster(), [gke_cluster(), GKE_SPOT, GKE_GPU])
    assert (found.outcome, found.field) == (DENY, "spec.nodeConfig.spot")
    assert found.reason == f"ContainerCluster infra/prod is the last on-demand pool without GPUs of {L4_SPOT}"


def test_a_cluster_does_not_begin_with_GPU_spot_nodes() -> None:
    cluster = gke_cluster(nodeConfig={**GPU, "spot": True})
    found = judge(cluster, None, [])
    assert [each.outcome for each in found] == [DENY, WARN]
    assert found[0].fix == (
        "let the cluster begin with an on-demand pool without GPUs, and declare this pool by itself, after it"
    )


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ([], [NO_STANDARD, NO_GPU]),
        ([GKE_CPU], [NO_GPU]),
        ([GKE_GPU], [NO_STANDARD]),
        ([GKE_CPU, GKE_GPU], []),
        ([GKE_EMPTY_CPU], [NO_STANDARD, NO_GPU]),
        ([GKE_CPU_SPOT], [NO_STANDARD, NO_GPU]),
        ([gke_pool("default", "test")], [NO_STANDARD, NO_GPU]),
    ],
)
def test_GKE_needs_a_standard_pool_before_any_GPU_spot_pool(
    others: list[Json], found: list[tuple[Outcome, str]]
) -> None:
    assert said(judge(GKE_SPOT, None, others)) == found


def test_the_last_standard_pool_of_GKE_stays_while_there_are_GPU_spot_pools() -> None:
    (found,) = judge(None, GKE_CPU, [GKE_SPOT, GKE_CPU, GKE_GPU])
    assert (found.outcome, found.reason) == (
        DENY,
        f"ContainerNodePool infra/default is the last on-demand pool without GPUs of {L4_SPOT}",
    )
    assert "system Pods land on them" in found.detail
    assert said(judge(None, GKE_GPU, [GKE_SPOT, GKE_CPU, GKE_GPU])) == [
        (
            WARN,
            "ContainerNodePool infra/l4 is the last on-demand fallback of GPU spot pool ContainerNodePool infra/l4-spot",
        )
    ]


def test_a_policy_may_require_something_else_of_GKE() -> None:
    rule = rule_of(requireByProvider={"gke": "any"})
    assert judge(GKE_SPOT, None, [GKE_CPU], rule) == []
    assert [each.outcome for each in judge(GKE_SPOT, None, [], rule)] == [DENY]


def test_the_same_accelerator_is_the_same_type() -> None:
    def t4(name: str, machine: str, accelerator: str, **more: Any) -> Json:
        accelerators = [{"type": accelerator, "count": 1}]
        return gke_pool(name, nodeConfig={"machineType": machine, "guestAccelerator": accelerators, **more})

    rule = rule_of(requireByProvider={"gke": "same-type"})
    spot = t4("spot", "n1-standard-8", "nvidia-tesla-t4", spot=True)
    assert judge(spot, None, [t4("a", "n1-standard-4", "nvidia-tesla-t4")], rule) == []
    (found,) = judge(spot, None, [t4("a", "n1-standard-8", "nvidia-tesla-v100")], rule)
    assert "its GPUs are nvidia-tesla-v100, not nvidia-tesla-t4" in found.detail


@pytest.mark.parametrize(
    "written", ["nvidia-l4", [{}], [{"type": "nvidia-l4"}], {"type": "nvidia-l4"}, [{"count": "1"}]]
)
def test_a_spot_pool_with_accelerators_that_nobody_can_read_needs_a_fallback_all_the_same(written: Any) -> None:
    spot = gke_pool("odd", nodeConfig={"machineType": "n1-standard-4", "spot": True, "guestAccelerator": written})
    (found,) = judge(spot, None, [], rule_of(requireByProvider={"gke": "gpu"}))
    named = isinstance(written, list) and "type" in written[0]
    kind = "GPU spot pool" if named else "spot pool"
    assert (found.outcome, found.reason) == (DENY, f"{kind} ContainerNodePool infra/odd has no on-demand fallback")
    assert "Not readable: spec.nodeConfig.guestAccelerator" in found.detail
    assert "is in no list" not in found.detail
    create = "create an on-demand pool first: a ContainerNodePool like odd that is not spot"
    assert found.fix.startswith(create if named else f"mend what can't be read; if it has GPUs, {create}")


def node_pool(name: str, capacity: tuple[str, ...], types: tuple[str, ...] = ("p5.48xlarge",), **spec: Any) -> Json:
    def requirement(key: str, values: tuple[str, ...]) -> Json:
        return {"key": key, "operator": "In", "values": list(values)}

    requirements = [requirement("karpenter.sh/capacity-type", capacity)]
    if types:
        requirements.append(requirement("node.kubernetes.io/instance-type", types))
    if zones := spec.pop("zones", ()):
        requirements.append(requirement("topology.kubernetes.io/zone", zones))
    node_class = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {"spec": {"requirements": requirements, "nodeClassRef": node_class}}
    metadata = {"name": name}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": metadata,
        "spec": {"template": template, **spec},
    }


def tainted(value: Json, effect: str = "NoSchedule", key: str = "nvidia.com/gpu") -> Json:
    value["spec"]["template"]["spec"]["taints"] = [{"key": key, "effect": effect}]
    return value


MIXED = "spot pool NodePool mixed has no on-demand fallback"
SPOT = node_pool("gpu-spot", ("spot",))
ON_DEMAND = node_pool("gpu", ("on-demand",))
UNCOVERED = [(DENY, "GPU spot pool NodePool gpu-spot has no on-demand fallback")]


@pytest.mark.parametrize(
    ("new", "others", "found"),
    [
        (SPOT, [], UNCOVERED),
        (SPOT, [ON_DEMAND], []),
        (SPOT, [node_pool("gpu", ("reserved",))], []),
        (SPOT, [node_pool("any", ("on-demand",), ())], []),
        (SPOT, [node_pool("both", ("spot", "on-demand"))], []),
        (SPOT, [node_pool("cpu", ("on-demand",), ("m5.large",))], UNCOVERED),
        (SPOT, [node_pool("odd", ("on-demand",), ("quantum.large",))], UNCOVERED),
        (SPOT, [node_pool("gpu", ("on-demand",), limits={"cpu": "0"})], UNCOVERED),
        (SPOT, [node_pool("gpu", ("on-demand",), replicas=0)], UNCOVERED),
        (SPOT, [node_pool("gpu", ("on-demand",), replicas=2)], []),
        (node_pool("both", ("spot", "on-demand")), [], []),
        (node_pool("any", ("spot",), ()), [], []),
        (node_pool("mixed", ("spot",), ("p5.48xlarge", "c5.large")), [], [(WARN, MIXED)]),
        (node_pool("mixed", ("spot",), ("p5.48xlarge", "c5.large")), [ON_DEMAND], []),
        (tainted(node_pool("any", ("spot",), ())), [], [(DENY, "spot pool NodePool any has no on-demand fallback")]),
        (tainted(node_pool("any", ("spot",), ()), "PreferNoSchedule"), [], []),
        (tainted(node_pool("any", ("spot",), ()), key="team"), [], []),
        (tainted(node_pool("any", ("spot",), ())), [ON_DEMAND], []),
        (
            node_pool("odd", ("spot",), ("quantum.large",)),
            [],
            [(DENY, "spot pool NodePool odd has no on-demand fallback")],
        ),
        (SPOT, [gke_pool("l4", nodeConfig=GPU)], UNCOVERED),
    ],
)
def test_a_Karpenter_pool_of_GPU_spot_nodes_needs_an_on_demand_one(
    new: Json, others: list[Json], found: list[tuple[Outcome, str]]
) -> None:
    assert said(judge(new, None, others)) == found


def test_what_gives_GPUs_to_the_Pods_that_ask_needs_a_fallback_by_what_it_says_of_them() -> None:
    (named,) = judge(node_pool("mixed", ("spot",), ("p5.48xlarge", "c5.large", "g5.xlarge")), None, [])
    assert named.detail.startswith(
        "It names machines with GPUs (g5.xlarge, p5.48xlarge) beside others. When Karpenter reclaims them, Pods that "
        "request GPUs stay pending"
    )
    (kept,) = judge(tainted(node_pool("any", ("spot",), ())), None, [])
    assert kept.detail.startswith("Its taint nvidia.com/gpu:NoSchedule admits only Pods that request GPUs.")


def test_a_pool_that_begins_to_let_in_only_GPU_Pods_begins_to_need_a_fallback() -> None:
    mixed = ("p5.48xlarge", "c5.large")
    bare, named = node_pool("any", ("spot",), ()), node_pool("any", ("spot",), mixed)
    for old, new in (
        (bare, tainted(node_pool("any", ("spot",), ()))),
        (named, tainted(node_pool("any", ("spot",), mixed))),
    ):
        assert [each.outcome for each in judge(new, old, [old])] == [DENY]
    assert [each.outcome for each in judge(named, bare, [bare])] == [WARN]
    assert judge(bare, named, [named]) == []
    assert [each.outcome for each in judge(node_pool("any", ("spot",)), named, [named])] == [DENY]
    assert [each.outcome for each in judge(None, ON_DEMAND, [named, ON_DEMAND])] == [WARN]


def node_group(name: str, *types: str, cluster: str | None = "prod", capacity: str = "ON_DEMAND") -> Json:
    sizes = {"minSize": 0, "maxSize": 5, "desiredSize": 1}
    spec = {"clusterName": cluster, "capacityType": capacity, "instanceTypes": list(types), "scalingConfig": sizes}
    return {
        "apiVersion": "eks.services.k8s.aws/v1alpha1",
        "kind": "Nodegroup",
        "metadata": {"name": name, "namespace": "infra"},
        "spec": spec,
    }


def test_of_the_types_that_a_node_group_lists_nobody_knows_which_it_gets() -> None:
    mixed = node_group("spot", "p5.48xlarge", "m5.large", capacity="SPOT")
    (found,) = judge(mixed, None, [])
    assert (found.outcome, found.reason) == (DENY, "spot pool Nodegroup infra/spot has no on-demand fallback")
    assert "Some of its instance types have GPUs, and Amazon EKS takes which it likes." in found.detail
    assert "is in no list" not in found.detail
    assert judge(mixed, None, [node_group("od", "p5.48xlarge", "g6.xlarge")]) == []
    (found,) = judge(mixed, None, [node_group("od", "c5.large", "g6.xlarge")])
    why = "Nodegroup infra/od: not all of its instance types are known to have GPUs: c5.large, g6.xlarge"
    assert found.detail.endswith(f"What does not count: {why}.")


def test_the_last_Karpenter_fallback_is_kept_from_going_in_every_way() -> None:
    cluster = [SPOT, ON_DEMAND]
    for new in (
        None,
        node_pool("gpu", ("spot",)),
        node_pool("gpu", ("on-demand",), ("m5.large",)),
        node_pool("gpu", ("on-demand",), limits={"nvidia.com/gpu": 0}),
    ):
        assert DENY in [each.outcome for each in judge(new, ON_DEMAND, cluster)], new
    assert judge(node_pool("gpu", ("spot", "on-demand")), ON_DEMAND, cluster) == []


def test_a_finding_names_the_field_that_takes_the_fallback_away() -> None:
    def field(**spec: Any) -> str:
        return judge(node_pool("gpu", ("on-demand",), **spec), ON_DEMAND, [SPOT, ON_DEMAND])[0].field

    assert field(limits={"cpu": 0}) == "spec.limits"
    assert field(types=("m5.large",)) == "spec.template.spec.requirements"


def test_a_static_pool_of_Karpenter_can_be_scaled_away() -> None:
    static = node_pool("gpu", ("on-demand",), replicas=2)
    scale = {**static, "spec": {}}
    assert [each.outcome for each in judge(scale, static, [SPOT, static], scale=True)] == [DENY]
    assert judge({**static, "spec": {"replicas": 1}}, static, [SPOT, static], scale=True) == []


def fleet_pool(name: str, cluster: str = "w1", **spec: Any) -> Json:
    return {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
        "kind": "AWSManagedMachinePool",
        "metadata": {"name": name, "namespace": "fleet", "labels": {"cluster.x-k8s.io/cluster-name": cluster}},
        "spec": {"instanceType": "p5.48xlarge", **spec},
    }


def machine_pool(name: str, replicas: int | None = 1) -> Json:
    reference = {"kind": "AWSManagedMachinePool", "name": name}
    sized = {} if replicas is None else {"replicas": replicas}
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachinePool",
        "metadata": {"name": f"mp-{name}", "namespace": "fleet"},
        "spec": {"template": {"spec": {"infrastructureRef": reference}}, **sized},
    }


FLEET_SPOT = fleet_pool("spot", capacityType="spot")
FLEET_GPU = fleet_pool("od")
FLEET = [FLEET_SPOT, FLEET_GPU, machine_pool("od", 2)]
LAST = "AWSManagedMachinePool fleet/od is the last on-demand fallback of GPU spot pool AWSManagedMachinePool fleet/spot"


@pytest.mark.parametrize(
    ("others", "denied"),
    [
        ([FLEET_GPU, machine_pool("od", 2)], False),
        ([FLEET_GPU, machine_pool("od", None)], False),
        ([FLEET_GPU, machine_pool("od", 0)], True),
        ([FLEET_GPU], True),
        ([fleet_pool("od", "w2"), machine_pool("od", 2)], True),
    ],
)
def test_the_size_of_a_cluster_API_pool_is_its_machine_pools(others: list[Json], *, denied: bool) -> None:
    assert bool(judge(FLEET_SPOT, None, others)) is denied


def test_a_machine_pool_that_sizes_the_last_fallback_can_be_neither_deleted_nor_emptied() -> None:
    sizing = machine_pool("od", 2)
    for new in (None, machine_pool("od", 0)):
        assert said(judge(new, sizing, FLEET)) == [(DENY, LAST)]
    assert said(judge({**sizing, "spec": {}}, sizing, FLEET, scale=True)) == [(DENY, LAST)]
    assert judge(machine_pool("od", 1), sizing, FLEET) == []
    assert judge({**sizing, "spec": {"replicas": 1}}, sizing, FLEET, scale=True) == []
    assert judge(machine_pool("spot", 0), machine_pool("spot", 1), [*FLEET, machine_pool("spot", 1)]) == []


AUTOSCALED = {"cluster.x-k8s.io/replicas-managed-by": "external-autoscaler"}


def annotated(value: Json, annotations: Json) -> Json:
    return {**value, "metadata": {**value["metadata"], "annotations": annotations}}


@pytest.mark.parametrize(
    ("old", "new", "denied"),
    [
        pytest.param(machine_pool("od", 1), annotated(machine_pool("od", 0), AUTOSCALED), False, id="handed over"),
        pytest.param(annotated(machine_pool("od", 1), AUTOSCALED), machine_pool("od", 0), True, id="taken back, at 0"),
        pytest.param(
            annotated(machine_pool("od", 0), AUTOSCALED), machine_pool("od", 0), True, id="no longer autoscaled"
        ),
        pytest.param(annotated(machine_pool("od", 2), AUTOSCALED), machine_pool("od", 2), False, id="fixed at 2"),
        pytest.param(
            machine_pool("od", 2),
            {**machine_pool("other", 2), "metadata": machine_pool("od")["metadata"]},
            True,
            id="sizes another pool from now on",
        ),
    ],
)
@pytest.mark.parametrize("seen", ["before", "after"])
def test_what_a_machine_pool_gives_up_counts_whatever_the_cluster_shows_already(
    old: Json, new: Json, seen: str, *, denied: bool
) -> None:
    cluster = [FLEET_SPOT, FLEET_GPU, fleet_pool("other", "w3"), old if seen == "before" else new]
    assert (DENY in [each.outcome for each in judge(new, old, cluster)]) is denied


def test_the_last_fallback_of_cluster_API_can_be_neither_deleted_nor_made_spot() -> None:
    assert said(judge(None, FLEET_GPU, FLEET)) == [(DENY, LAST)]
    assert DENY in [each.outcome for each in judge(fleet_pool("od", capacityType="spot"), FLEET_GPU, FLEET)]
    assert judge(fleet_pool("od", labels={"a": "b"}), FLEET_GPU, FLEET) == []


def aso_pool(name: str, priority: str) -> Json:
    spec = {"vmSize": "Standard_NC24ads_A100_v4", "scaleSetPriority": priority, "mode": "User"}
    return {
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1",
        "kind": "AzureASOManagedMachinePool",
        "metadata": {"name": name, "namespace": "fleet", "labels": {"cluster.x-k8s.io/cluster-name": "w1"}},
        "spec": {"resources": [{"kind": "ManagedClustersAgentPool", "spec": spec}]},
    }


def test_a_pool_that_holds_one_of_Azure_service_operator_needs_a_fallback_too() -> None:
    spot, fallback = aso_pool("spot", "Spot"), aso_pool("od", "Regular")
    sizing = machine_pool("od")
    sizing["spec"]["template"]["spec"]["infrastructureRef"]["kind"] = "AzureASOManagedMachinePool"
    assert said(judge(spot, None, [])) == [
        (DENY, "GPU spot pool AzureASOManagedMachinePool fleet/spot has no on-demand fallback")
    ]
    assert judge(spot, None, [fallback, sizing]) == []
    assert [each.outcome for each in judge(None, fallback, [spot, fallback, sizing])] == [DENY]


def test_where_the_pools_are_unknown_so_is_what_a_request_takes_away() -> None:
    assert [each.unknown for each in judge(None, FLEET_GPU, None)] == [True]
    assert [each.unknown for each in judge(None, machine_pool("od", 2), None)] == [True]
    assert judge(fleet_pool("od", labels={"a": "b"}), FLEET_GPU, None) == []


def test_it_is_asked_for_every_kind_of_pool_its_scale_and_what_says_its_size() -> None:
    matched = {
        (group, resource, operation)
        for rule in KIND.rules(FACTS)
        for group in rule.api_groups
        for resource in rule.resources
        for operation in rule.operations
    }
    assert {(group, resource, "DELETE") for group, resource in READERS} <= matched
    assert {
        ("karpenter.sh", "nodepools/scale", "UPDATE"),
        ("cluster.x-k8s.io", "machinepools", "UPDATE"),
        ("cluster.x-k8s.io", "machinepools", "DELETE"),
        ("cluster.x-k8s.io", "machinepools/scale", "UPDATE"),
    } <= matched

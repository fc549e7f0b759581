"""OnDemandFallback against CKS node pools: what each request would leave behind, and how it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.conftest import FakeSubject, request_for, shipped_provider, with_fields
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool
from webhook.capacity.providers.provider import Provider
from webhook.capacity.providers.schema import CapacityProviderSpec
from webhook.capacity.view import ClusterView, Needs
from webhook.kube.pod import Pod
from webhook.model.decision import Outcome, Trace, Violation
from webhook.model.review import GroupVersionResource
from webhook.policy.errors import SpecError
from webhook.rules.context import Context, Phase, utc_now
from webhook.rules.on_demand_fallback.rule import KIND, OnDemandFallback
from webhook.rules.on_demand_fallback.spec import OnDemandFallbackSpec
from webhook.rules.protocol import Facts

POLICIES = Path(__file__).parents[2] / "policies"
CKS = shipped_provider("cks")
FACTS = Facts({"cks": CKS})
(READER,) = CKS.readers
NODE_POOLS = GroupVersionResource("compute.coreweave.com", "v1alpha1", "nodepools")

Json = dict[str, Any]

H100 = "gd-8xh100ib-i128"
A100 = "gd-8xa100-i128"
CPU = "turin-gp"
FORBIDDEN = {"key": "node.coreweave.cloud/reserved", "effect": "NoSchedule"}


def pool(name: str, instance_type: str | None = H100, **spec: Any) -> Json:
    """Return a NodePool: on-demand, one H100 node, unless the fields say otherwise; None leaves one out."""
    fields = {"instanceType": instance_type, "targetNodes": 1, **spec}
    return {"metadata": {"name": name}, "spec": {key: value for key, value in fields.items() if value is not None}}


def spot_pool(name: str = "h100-spot", instance_type: str | None = H100, **spec: Any) -> Json:
    return pool(name, instance_type, **{"computeClass": "spot", **spec})


def changed(value: Json, **spec: Any) -> Json:
    return {**value, "spec": {**value["spec"], **spec}}


def deleting(value: Json) -> Json:
    return {**value, "metadata": {**value["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


SPOT = spot_pool()
ON_DEMAND = pool("h100-od")
CPU_POOL = pool("cpu-control-plane", CPU)


def rule_of(facts: Facts = FACTS, **spec: Any) -> OnDemandFallback:
    rule = KIND.compile(OnDemandFallbackSpec.model_validate(spec), facts)
    assert isinstance(rule, OnDemandFallback)
    return rule


RULE = rule_of()


def context_of(cluster: list[Json | Pool] | None) -> Context:
    """Return a cluster with these node pools; None: they are unknown."""
    pools = None
    if cluster is not None:
        pools = tuple(each if isinstance(each, Pool) else READER.read(each) for each in cluster)
    view = ClusterView(pools=pools, why_unknown="the API server did not answer within 1.0 s", remedy="try again later")
    return Context(phase=Phase.VALIDATE, now=utc_now(), view=view)


def subject_of(new: Json | None, old: Json | None) -> FakeSubject:
    """Return the request that makes ``new`` of ``old``."""
    operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
    request = request_for("", operation, resource=NODE_POOLS)
    return FakeSubject(Pod(), request, operation, object=new, old_object=old)


def judge(
    new: Json | None, old: Json | None, cluster: list[Json | Pool] | None, rule: OnDemandFallback = RULE
) -> list[Violation]:
    return list(rule.validate(subject_of(new, old), context_of(cluster)))


def scale_subject(name: str, replicas: object = None, **changes: Any) -> FakeSubject:
    """Return a request to ``nodepools/scale``; the API server leaves ``replicas`` out where it is 0."""
    request = request_for("", "UPDATE", resource=NODE_POOLS, sub_resource="scale", name=name)
    scale = {"kind": "Scale", "metadata": {"name": name}, "spec": {} if replicas is None else {"replicas": replicas}}
    return FakeSubject(Pod(), request, "UPDATE", object=scale, old_object={"kind": "Scale"}, **changes)


def scale(name: str, cluster: list[Json | Pool] | None, replicas: object = None) -> list[Violation]:
    return list(RULE.validate(scale_subject(name, replicas), context_of(cluster)))


def outcomes(violations: list[Violation]) -> list[Outcome]:
    return [each.outcome for each in violations]


DENIED = [Outcome.DENY]


# Updates that do not say what was there.


def update_of(new: Json, cluster: list[Json | Pool], old: Json | None = None) -> list[Violation]:
    request = request_for("", "UPDATE", resource=NODE_POOLS, name=new["metadata"]["name"])
    subject = FakeSubject(Pod(), request, "UPDATE", object=new, old_object=old)
    return list(RULE.validate(subject, context_of(cluster)))


@pytest.mark.parametrize("old", [None, {"metadata": {"name": "h100-spot"}}])
@pytest.mark.parametrize("cluster", [[], [SPOT]])
def test_an_update_without_the_old_pool_needs_a_fallback_as_a_new_one_does(
    cluster: list[Json | Pool], old: Json | None
) -> None:
    assert outcomes(update_of(SPOT, cluster, old)) == [Outcome.DENY]
    assert update_of(SPOT, [*cluster, ON_DEMAND], old) == []


# Creating a spot pool.


@pytest.mark.parametrize(
    ("others", "denied"),
    [
        pytest.param([], True, id="nothing else"),
        pytest.param([ON_DEMAND], False, id="on-demand GPU pool"),
        pytest.param([pool("a", A100)], False, id="on-demand GPU pool of another type"),
        pytest.param([pool("a", computeClass="Default")], False, id="letter case of the class"),
        pytest.param([pool("a", targetNodes=0, autoscaling=True, maxNodes=1)], False, id="autoscaled from zero"),
        pytest.param([pool("a", targetNodes=1, autoscaling=True, maxNodes=0)], True, id="autoscaled to at most zero"),
        pytest.param([pool("a", targetNodes=0)], True, id="no node and no autoscaling"),
        pytest.param([pool("a", targetNodes=None)], True, id="size not said"),
        pytest.param([CPU_POOL], True, id="CPU pool only"),
        pytest.param([spot_pool("other")], True, id="another spot pool"),
        pytest.param([pool("a", "mi400")], True, id="on-demand pool of an unknown type"),
        pytest.param([pool("a", computeClass="sopt")], True, id="class that nobody knows"),
        pytest.param([deleting(ON_DEMAND)], True, id="fallback being deleted"),
        pytest.param([pool("a", nodeTaints=[FORBIDDEN])], True, id="fallback nobody may tolerate"),
        pytest.param([pool("a", nodeTaints=[{**FORBIDDEN, "effect": "NoExecute"}])], True, id="the same by NoExecute"),
        pytest.param([pool("a", nodeTaints=[{**FORBIDDEN, "effect": "PreferNoSchedule"}])], False, id="soft taint"),
        pytest.param([pool("a", nodeTaints=[{"key": "team", "effect": "NoSchedule"}])], False, id="ordinary taint"),
        pytest.param([SPOT], True, id="the view already has the reviewed pool"),
        pytest.param([SPOT, ON_DEMAND], False, id="the view has both"),
        pytest.param([pool("h100-spot")], True, id="the view has an older pool of the same name"),
    ],
)
def test_a_gpu_spot_pool_needs_a_usable_on_demand_gpu_pool(others: list[Json | Pool], *, denied: bool) -> None:
    assert outcomes(judge(SPOT, None, others)) == DENIED * denied


@pytest.mark.parametrize(
    ("created", "denied"),
    [
        pytest.param(spot_pool(computeClass="Spot"), True, id="Spot with a capital"),
        pytest.param(spot_pool(instance_type="mi400"), True, id="unknown type"),
        pytest.param(spot_pool(instance_type=None), True, id="no type"),
        pytest.param(spot_pool(instance_type=CPU), False, id="CPU"),
        pytest.param(spot_pool(targetNodes=0), True, id="no nodes yet"),
        pytest.param(ON_DEMAND, False, id="on-demand"),
        pytest.param(pool("a", targetNodes=0), False, id="on-demand without nodes"),
        pytest.param(deleting(SPOT), False, id="already being deleted"),
    ],
)
def test_only_a_spot_pool_that_may_have_gpus_needs_one(created: Json, *, denied: bool) -> None:
    assert outcomes(judge(created, None, [])) == DENIED * denied


def test_blocking_conditions_of_the_fallback_count() -> None:
    blocked = {**ON_DEMAND, "status": {"currentNodes": 0, "conditions": [{"type": "Quota", "reason": "Over"}]}}
    (violation,) = judge(SPOT, None, [blocked])
    assert "NodePool h100-od: it has no nodes, and its Quota condition says Over" in violation.detail


# Superchips.


@pytest.mark.parametrize("superchip", ["gd-1xgh200", "gb200-4x", "gb300-4x-e", "verarubin-4x-e"])
@pytest.mark.parametrize("cluster", [None, [], [ON_DEMAND]])
def test_superchips_cannot_be_spot_whatever_else_exists(superchip: str, cluster: list[Json | Pool] | None) -> None:
    created = spot_pool("gb", superchip)
    assert judge(created, None, cluster) == judge(created, changed(created, computeClass="default"), cluster)
    assert [(each.id, each.field, each.outcome) for each in judge(created, None, cluster)] == [
        ("superchip", "spec.computeClass", Outcome.DENY)
    ]


# Updates.


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        pytest.param(ON_DEMAND, changed(ON_DEMAND, targetNodes=0), "spec.targetNodes", id="to zero nodes"),
        pytest.param(
            pool("h100-od", targetNodes=0, autoscaling=True, maxNodes=4),
            pool("h100-od", targetNodes=0, autoscaling=False, maxNodes=4),
            "spec.autoscaling",
            id="autoscaling off at zero nodes",
        ),
        pytest.param(
            pool("h100-od", autoscaling=True, maxNodes=4),
            pool("h100-od", autoscaling=True, maxNodes=0),
            "spec.maxNodes",
            id="maximum zero",
        ),
        pytest.param(ON_DEMAND, changed(ON_DEMAND, instanceType=CPU), "spec.instanceType", id="no GPUs any more"),
        pytest.param(ON_DEMAND, changed(ON_DEMAND, nodeTaints=[FORBIDDEN]), "spec.nodeTaints", id="forbidden taint"),
    ],
)
def test_an_update_may_not_take_the_last_fallback_away(old: Json, new: Json, field: str) -> None:
    denied = [each for each in judge(new, old, [SPOT, CPU_POOL, old]) if each.outcome is Outcome.DENY]
    assert [(each.reason, each.field) for each in denied] == [
        ("NodePool h100-od is the last on-demand fallback of GPU spot pool NodePool h100-spot", field)
    ]
    assert not [each for each in judge(new, old, [SPOT, pool("another"), old]) if each.outcome is Outcome.DENY]
    assert not [each for each in judge(new, old, [CPU_POOL, old]) if each.outcome is Outcome.DENY]
    assert not [each for each in judge(new, old, [deleting(SPOT), old]) if each.outcome is Outcome.DENY]


def test_turning_the_last_fallback_into_spot_leaves_both_pools_without_one() -> None:
    found = judge(changed(ON_DEMAND, computeClass="Spot"), ON_DEMAND, [SPOT, ON_DEMAND])
    assert [(each.outcome, each.reason, each.field) for each in found] == [
        (Outcome.DENY, "GPU spot pool NodePool h100-od has no on-demand fallback", "spec.computeClass"),
        (
            Outcome.DENY,
            "NodePool h100-od is the last on-demand fallback of GPU spot pool NodePool h100-spot",
            "spec.computeClass",
        ),
    ]


def test_turning_a_pool_into_gpu_spot_needs_a_fallback() -> None:
    assert outcomes(judge(SPOT, changed(SPOT, computeClass="default"), [])) == DENIED
    assert outcomes(judge(SPOT, changed(SPOT, instanceType=CPU), [])) == DENIED
    assert not judge(SPOT, changed(SPOT, computeClass="default"), [ON_DEMAND])


@pytest.mark.parametrize("old", [SPOT, ON_DEMAND, pool("h100-od", autoscaling=True, maxNodes=4), CPU_POOL])
@pytest.mark.parametrize("change", [{"nodeLabels": {"a": "b"}}, {"targetNodes": 3}, {"minNodes": 0}, {"lifecycle": {}}])
@pytest.mark.parametrize("cluster", [None, [], [SPOT], [SPOT, spot_pool("b200-spot")]])
def test_an_update_that_changes_nothing_relevant_passes_whatever_is_known(
    old: Json, change: Json, cluster: list[Json | Pool] | None
) -> None:
    assert not judge(changed(old, **change), old, cluster)


@pytest.mark.parametrize("require", ["gpu", "same-type"])
def test_a_spot_pool_without_fallback_may_not_become_another_type_without_one(require: str) -> None:
    assert outcomes(judge(changed(SPOT, instanceType=A100), SPOT, [], rule_of(require=require))) == DENIED


def test_the_autoscaler_may_scale_to_zero_while_autoscaling_is_on() -> None:
    autoscaled = pool("h100-od", autoscaling=True, maxNodes=4, targetNodes=2)
    assert not judge(changed(autoscaled, targetNodes=0), autoscaled, [SPOT, autoscaled])


def test_a_spot_pool_whose_fallback_has_long_been_gone_can_still_be_updated_and_the_trace_says_why() -> None:
    trace = Trace()
    subject = subject_of(changed(SPOT, targetNodes=0), SPOT).but(trace=trace)
    assert not list(RULE.validate(subject, context_of([SPOT])))
    assert [text for _, _, text in trace.steps] == [
        "the request changes neither what the pool needs nor what it gives as a fallback"
    ]


def test_a_pool_that_loses_what_nobody_was_covered_by_can_be_changed() -> None:
    trace = Trace()
    subject = subject_of(changed(CPU_POOL, targetNodes=0), CPU_POOL).but(trace=trace)
    assert not list(RULE.validate(subject, context_of([SPOT, CPU_POOL])))
    assert [text for _, _, text in trace.steps] == ["no GPU spot pool is left with less to fall back on"]


@pytest.mark.parametrize(
    "change",
    [
        {"targetNodes": 0},
        {"computeClass": "spot"},
        {"computeClass": "sopt"},
        {"computeClass": "spot", "instanceType": "gb200-4x"},
    ],
)
def test_updates_of_a_pool_that_is_being_deleted_are_never_denied(change: Json) -> None:
    old = deleting(ON_DEMAND)
    assert not judge(changed(old, **change), old, [SPOT, old])
    assert not judge(changed(old, **change), old, None)


# Deletion.


def test_the_last_usable_fallback_may_not_be_deleted_before_the_spot_pools() -> None:
    assert [(each.id, each.field, each.outcome) for each in judge(None, ON_DEMAND, [SPOT, CPU_POOL, ON_DEMAND])] == [
        ("last-fallback", "", Outcome.DENY)
    ]


EXAMPLE = f"""\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata:
  name: h100-spot-fallback
spec:
  computeClass: default
  instanceType: {H100}
  autoscaling: true
  maxNodes: 1
  targetNodes: 0"""


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param([ON_DEMAND], id="no spot pool"),
        pytest.param([ON_DEMAND, spot_pool(instance_type=CPU)], id="CPU spot pool only"),
        pytest.param([ON_DEMAND, deleting(SPOT)], id="spot pool being deleted too"),
        pytest.param([ON_DEMAND, SPOT, pool("another")], id="another fallback"),
        pytest.param([SPOT, pool("another")], id="a view that does not have it any more"),
    ],
)
def test_a_fallback_that_nobody_depends_on_may_be_deleted(cluster: list[Json | Pool]) -> None:
    assert not judge(None, ON_DEMAND, cluster)


def test_several_spot_pools_are_counted_and_named_in_order() -> None:
    spots: list[Json | Pool] = [spot_pool(f"spot-{number:02}") for number in reversed(range(11))]
    (violation,) = judge(None, ON_DEMAND, [*spots, ON_DEMAND])
    assert violation.reason == "NodePool h100-od is the last on-demand fallback of 11 GPU spot pools"
    assert violation.detail == f"Left without: {', '.join(f'NodePool spot-{n:02}' for n in range(8))}, 3 more."
    assert "name: spot-00-fallback" in violation.fix


# Scaling.


def test_a_fallback_without_autoscaling_may_not_be_scaled_to_zero() -> None:
    for replicas in (None, 0):
        (violation,) = scale("h100-od", [SPOT, ON_DEMAND], replicas)
        assert violation.reason == "NodePool h100-od is the last on-demand fallback of GPU spot pool NodePool h100-spot"
        assert violation.field == "spec.replicas"
        assert violation.detail == (
            "Left without: NodePool h100-spot. "
            "What does not count: NodePool h100-od: it has 0 nodes and no autoscaling."
        )
        assert violation.fix.startswith(
            "turn on spec.autoscaling, with spec.maxNodes above 0, to run it at 0 nodes, or delete the spot pools first"
        )


@pytest.mark.parametrize(
    ("name", "replicas", "cluster"),
    [
        pytest.param("h100-od", 1, [SPOT, ON_DEMAND], id="to one node"),
        pytest.param("h100-od", 5, None, id="up, with unknown pools"),
        pytest.param("h100-od", 0, [ON_DEMAND], id="no spot pool"),
        pytest.param("h100-od", 0, [SPOT, ON_DEMAND, pool("another")], id="another fallback"),
        pytest.param("h100-spot", 0, [SPOT, ON_DEMAND], id="the spot pool itself"),
        pytest.param("h100-spot", 9, [SPOT], id="a spot pool without fallback"),
        pytest.param("a", 0, [SPOT, pool("a", autoscaling=True, maxNodes=3)], id="autoscaled"),
        pytest.param("unknown", 0, [SPOT, ON_DEMAND], id="a pool the cluster does not have"),
        pytest.param("h100-od", 0, [SPOT, deleting(ON_DEMAND)], id="being deleted"),
    ],
)
def test_scaling_that_takes_nothing_away_passes(name: str, replicas: int, cluster: list[Json | Pool] | None) -> None:
    assert not scale(name, cluster, replicas)


def test_a_replicas_field_that_cannot_be_read_counts_as_zero() -> None:
    assert outcomes(scale("h100-od", [SPOT, ON_DEMAND], "many")) == DENIED


def test_scaling_to_zero_is_not_judged_on_unknown_pools() -> None:
    (violation,) = scale("h100-od", None)
    assert violation.unknown


def test_other_subresources_and_other_kinds_say_nothing() -> None:
    status = request_for("", "UPDATE", resource=NODE_POOLS, sub_resource="status", name="h100-od")
    emptied = changed(ON_DEMAND, targetNodes=0)
    assert not list(RULE.validate(subject_of(emptied, ON_DEMAND).but(request=status), context_of([SPOT, ON_DEMAND])))
    pods = subject_of(SPOT, None).but(request=request_for())
    assert not list(RULE.validate(pods, context_of([])))


# What is unknown.


@pytest.mark.parametrize(
    ("new", "old"),
    [(SPOT, None), (None, ON_DEMAND), (changed(ON_DEMAND, targetNodes=0), ON_DEMAND)],
)
def test_unknown_pools_are_no_empty_cluster(new: Json | None, old: Json | None) -> None:
    assert [(each.id, each.field, each.outcome) for each in judge(new, old, None)] == [
        ("pools-unknown", "", Outcome.DENY)
    ]


@pytest.mark.parametrize(("new", "old"), [(ON_DEMAND, None), (spot_pool(instance_type=CPU), None), (None, SPOT)])
def test_unknown_pools_do_not_matter_where_nothing_can_get_worse(new: Json | None, old: Json | None) -> None:
    assert not judge(new, old, None)


ODD_CLASSES = ("preemptible", ["spot"], {"spot": True}, 5, True)


@pytest.mark.parametrize("odd_class", ODD_CLASSES)
def test_a_gpu_pool_whose_class_can_not_be_read_may_be_spot_and_needs_a_fallback(odd_class: object) -> None:
    odd = pool("h100-odd", computeClass=odd_class)
    (violation,) = judge(odd, None, [CPU_POOL])
    assert violation.reason == "NodePool h100-odd (it may be spot) has no on-demand fallback"
    assert (violation.field, violation.outcome) == ("spec.computeClass", Outcome.DENY)
    assert "Not readable: spec.computeClass is " in violation.detail
    assert "What does not count: NodePool cpu-control-plane: it has no GPUs." in violation.detail
    assert violation.fix.startswith(
        "write one of: spot, default; if the pool is spot, create an on-demand pool first, for example:\n"
    )


@pytest.mark.parametrize("odd_class", ODD_CLASSES)
def test_a_class_that_can_not_be_read_is_a_warning_where_there_is_a_fallback(odd_class: object) -> None:
    odd = pool("h100-odd", computeClass=odd_class)
    (violation,) = judge(odd, None, [ON_DEMAND])
    assert violation.id == "unreadable-capacity"
    assert (violation.field, violation.outcome) == ("spec.computeClass", Outcome.WARN)
    assert violation.fix == "write one of: spot, default"
    assert not judge(changed(odd, targetNodes=3), odd, [])
    assert not judge(pool("cpu", CPU, computeClass=odd_class), None, [])


@pytest.mark.parametrize("odd_class", ODD_CLASSES)
def test_the_last_fallback_of_a_pool_that_may_be_spot_may_not_be_deleted(odd_class: object) -> None:
    odd = pool("h100-odd", computeClass=odd_class)
    (violation,) = judge(None, ON_DEMAND, [odd, ON_DEMAND])
    assert violation.reason == "NodePool h100-od is the last on-demand fallback of NodePool h100-odd (it may be spot)"


# What is required.


@pytest.mark.parametrize(
    ("require", "fallback", "denied"),
    [
        ("any", CPU_POOL, False),
        ("any", pool("a", "mi400"), False),
        ("any", pool("a", CPU, targetNodes=0), True),
        ("any", pool("a", CPU, nodeTaints=[FORBIDDEN]), True),
        ("gpu", CPU_POOL, True),
        ("gpu", pool("a", A100), False),
        ("same-type", pool("a", A100), True),
        ("same-type", ON_DEMAND, False),
        ("same-type", CPU_POOL, True),
    ],
)
def test_what_counts_as_a_fallback_is_a_choice(require: str, fallback: Json, *, denied: bool) -> None:
    everywhere = rule_of(require=require)
    for_cks = rule_of(require="any" if require == "gpu" else "gpu", requireByProvider={"cks": require})
    assert outcomes(judge(SPOT, None, [fallback], everywhere)) == DENIED * denied
    assert outcomes(judge(SPOT, None, [fallback], for_cks)) == DENIED * denied


def test_the_same_type_can_be_one_that_is_in_no_list_but_not_one_that_is_missing() -> None:
    rule = rule_of(require="same-type")
    assert not judge(spot_pool(instance_type="mi400"), None, [pool("a", "mi400")], rule)
    assert judge(spot_pool(instance_type=None), None, [pool("a", None)], rule)


def test_a_provider_that_does_not_exist_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(SpecError) as caught:
        rule_of(requireByProvider={"ckz": "gpu"})
    assert caught.value.path == ("requireByProvider", "ckz")
    assert caught.value.problem == "there is no CapacityProvider 'ckz', did you mean `cks`?"


def a_pool(name: str, capacity: CapacityType, gpu: Gpu, **fields: Any) -> Pool:
    """Return a pool as a reader of another kind could give it."""
    return Pool(kind="NodePool", name=name, capacity=capacity, gpu=gpu, **{"provider": "cks", "desired": 1, **fields})


@pytest.mark.parametrize(
    ("other", "denied"),
    [
        (a_pool("a", CapacityType.ON_DEMAND, Gpu.ANY), False),
        (a_pool("a", CapacityType.BOTH, Gpu.YES), False),
        (a_pool("a", CapacityType.BOTH, Gpu.ANY), False),
        (a_pool("a", CapacityType.SPOT, Gpu.ANY), True),
        (a_pool("a", CapacityType.ON_DEMAND, Gpu.UNKNOWN), True),
        (a_pool("a", CapacityType.ON_DEMAND, Gpu.YES, cluster="other"), True),
    ],
)
def test_a_pool_for_any_pod_is_a_gpu_fallback_and_one_of_another_cluster_is_none(other: Pool, *, denied: bool) -> None:
    assert outcomes(judge(SPOT, None, [other])) == DENIED * denied


@pytest.mark.parametrize(
    "spot",
    [
        a_pool("a", CapacityType.BOTH, Gpu.YES),
        a_pool("a", CapacityType.SPOT, Gpu.ANY),
        a_pool("a", CapacityType.SPOT, Gpu.NO),
        a_pool("a", CapacityType.SPOT, Gpu.YES, cluster="other"),
    ],
)
def test_pools_that_did_not_depend_on_the_fallback_do_not_keep_it_from_being_deleted(spot: Pool) -> None:
    assert not judge(None, ON_DEMAND, [spot, ON_DEMAND])


def test_a_spot_pool_of_a_provider_without_reader_is_answered_in_words() -> None:
    other = a_pool("a", CapacityType.SPOT, Gpu.UNKNOWN, provider="gone")
    (violation,) = judge(None, ON_DEMAND, [other, ON_DEMAND])
    assert violation.id == "last-fallback"
    assert violation.fix.endswith(": a NodePool like a that is not spot and may have at least 1 node")


# Zones.


def zoned_rule() -> OnDemandFallback:
    """CKS as if its pools named their zone."""
    document = yaml.safe_load((POLICIES / "providers" / "cks.yaml").read_text())
    document["spec"]["nodePools"][0]["zones"] = "spec.zone"
    return rule_of(Facts({"cks": Provider.of("cks", CapacityProviderSpec.model_validate(document["spec"]))}))


ZONED = zoned_rule()


def in_zone(name: str, *zones: str) -> Pool:
    return a_pool(name, CapacityType.ON_DEMAND, Gpu.YES, zones=frozenset(zones))


@pytest.mark.parametrize(
    ("zone", "others", "warned"),
    [
        ("a", [in_zone("od", "b")], True),
        ("a", [in_zone("od", "a", "b")], False),
        ("a", [in_zone("od")], False),
        (None, [in_zone("od", "b")], False),
        ("a", [in_zone("od", "b"), in_zone("od2", "a")], False),
        ("a", [in_zone("od", "b"), in_zone("od2")], False),
    ],
)
def test_a_fallback_in_another_zone_is_a_warning(zone: str | None, others: list[Json | Pool], *, warned: bool) -> None:
    assert outcomes(judge(spot_pool(zone=zone), None, others, ZONED)) == [Outcome.WARN] * warned


def test_moving_the_last_fallback_of_a_zone_is_a_warning_that_names_both() -> None:
    spot = a_pool("h100-spot", CapacityType.SPOT, Gpu.YES, zones=frozenset({"a"}))
    old = pool("h100-od", zone="a")
    (violation,) = judge(changed(old, zone="b"), old, [spot], ZONED)
    assert violation == Violation(
        id="other-zone",
        reason="GPU spot pool NodePool h100-spot can only fall back to another zone",
        field="spec.zone",
        detail="NodePool h100-spot is in a, NodePool h100-od in b: volumes of one zone can't follow.",
        fix="create an on-demand pool in a too",
        outcome=Outcome.WARN,
    )
    assert not judge(changed(old, targetNodes=2), old, [spot], ZONED)


# Wording.


def test_the_denial_names_every_pool_that_does_not_count_and_shows_one_that_would() -> None:
    others: list[Json | Pool] = [
        CPU_POOL,
        pool("a100-od", A100, targetNodes=0),
        pool("odd", "mi400", maxNodes="2"),
        spot_pool("b200-spot", "b200-8x"),
        pool("tainted", nodeTaints=[FORBIDDEN]),
        a_pool("far", CapacityType.ON_DEMAND, Gpu.YES, cluster="far"),
    ]
    (violation,) = judge(spot_pool(autoscaling=True, maxNodes=16), None, others)
    assert (violation.id, violation.field) == ("missing", "spec.computeClass")
    assert violation.detail.partition("What does not count: ")[2].split("; ") == [
        "NodePool a100-od: it has 0 nodes and no autoscaling",
        "NodePool cpu-control-plane: it has no GPUs",
        "NodePool far: it belongs to cluster far",
        "NodePool odd: it is unknown whether mi400 has GPUs (spec.maxNodes is not an integer)",
        "NodePool tainted: no Pod may tolerate its taint node.coreweave.cloud/reserved:NoSchedule.",
    ]
    assert violation.fix.endswith(EXAMPLE.replace("maxNodes: 1", "maxNodes: 16"))


@pytest.mark.parametrize("instance_type", ["y", "1e3"])
def test_the_example_is_the_same_to_kubectl(instance_type: str) -> None:
    (violation,) = judge(spot_pool(instance_type=instance_type), None, [], rule_of(require="same-type"))
    assert violation.fix.count(f"\n  instanceType: '{instance_type}'\n") == 1


def test_an_instance_type_in_no_list_counts_as_gpu_and_the_fix_is_to_list_it() -> None:
    (violation,) = judge(spot_pool(instance_type="mi400"), None, [])
    assert violation.id == "missing"
    assert violation.fix.startswith("add mi400 to `instanceTypes`")
    assert "instanceType: <an instance type with GPUs>" in violation.fix


def test_no_example_names_a_type_that_would_not_count() -> None:
    (violation,) = judge(None, ON_DEMAND, [spot_pool(instance_type="mi400"), ON_DEMAND])
    assert "mi400" not in violation.fix
    assert "instanceType: <an instance type with GPUs>" in violation.fix
    (same,) = judge(spot_pool(instance_type="mi400"), None, [], rule_of(require="same-type"))
    assert same.fix.startswith("create an on-demand pool first, for example:\n")
    assert "instanceType: mi400" in same.fix


def test_the_example_for_a_pool_whose_name_is_to_be_made_up_is_named_after_its_beginning() -> None:
    nameless = {**SPOT, "metadata": {"generateName": "h100-spot-"}}
    (violation,) = judge(nameless, None, [])
    assert "name: h100-spot-fallback\n" in violation.fix


def test_what_could_not_be_read_in_the_pool_is_said() -> None:
    (violation,) = judge(spot_pool(instance_type=None, targetNodes="x"), None, [])
    assert "Not readable: spec.instanceType is missing; spec.targetNodes is not an integer." in violation.detail
    assert "instanceType: <an instance type with GPUs>" in violation.fix


# The kind.


def test_it_matches_node_pools_and_the_way_round_by_scale() -> None:
    assert [(rule.api_groups, rule.resources, rule.operations) for rule in KIND.rules(FACTS)] == [
        (("compute.coreweave.com",), ("nodepools",), ("CREATE", "UPDATE", "DELETE")),
        (("compute.coreweave.com",), ("nodepools/scale",), ("UPDATE",)),
    ]


def test_a_reader_without_scale_has_no_rule_for_it() -> None:
    unscaled = with_fields(READER, scale=False)
    facts = Facts({"cks": with_fields(CKS, readers=(unscaled,))})
    assert [rule.resources for rule in KIND.rules(facts)] == [("nodepools",)]


def test_it_needs_the_pools_fresh_and_denies_what_it_cannot_know() -> None:
    assert KIND.needs == Needs(pools=True, fresh=True)
    assert KIND.unknown_outcome is Outcome.DENY


# Invariants.

pools = st.builds(
    lambda name, instance_type, fields: pool(name, instance_type, **fields),
    st.sampled_from(("a", "b", "c", "d")),
    st.sampled_from((H100, A100, CPU, "mi400", None)),
    st.fixed_dictionaries(
        {},
        optional={
            "computeClass": st.sampled_from(("spot", "Spot", "default", "odd")),
            "targetNodes": st.sampled_from((0, 1, "x", None)),
            "autoscaling": st.booleans(),
            "maxNodes": st.sampled_from((0, 1, None)),
            "nodeTaints": st.sampled_from(([], [FORBIDDEN])),
        },
    ),
)
clusters = st.lists(st.one_of(pools, pools.map(deleting)), max_size=4, unique_by=lambda each: each["metadata"]["name"])
rules = st.sampled_from((RULE, rule_of(require="any"), rule_of(require="same-type")))


def denied(violations: list[Violation]) -> bool:
    return Outcome.DENY in outcomes(violations)


@given(pools, clusters, rules)
def test_an_update_that_changes_nothing_is_never_denied(each: Json, cluster: list[Json | Pool], rule: Any) -> None:
    assert not judge(each, each, cluster, rule)


@given(pools, clusters, rules)
def test_whether_the_view_has_the_reviewed_pool_makes_no_difference(
    each: Json, cluster: list[Json], rule: OnDemandFallback
) -> None:
    without: list[Json | Pool] = [other for other in cluster if other["metadata"]["name"] != each["metadata"]["name"]]
    assert judge(each, None, without, rule) == judge(each, None, [*without, each], rule)
    assert judge(None, each, without, rule) == judge(None, each, [*without, each], rule)


@given(pools, pools, clusters, rules)
def test_what_is_denied_as_an_update_is_denied_as_a_deletion_or_as_a_creation(
    old: Json, new: Json, cluster: list[Json | Pool], rule: OnDemandFallback
) -> None:
    new = {**new, "metadata": old["metadata"]}
    if denied(judge(new, old, cluster, rule)):
        assert denied(judge(None, old, cluster, rule)) or denied(judge(new, None, cluster, rule))


@given(pools, clusters, rules)
def test_a_healthy_pool_of_the_same_type_lets_every_request_pass(
    each: Json, cluster: list[Json], rule: OnDemandFallback
) -> None:
    types = (each["spec"].get("instanceType"), *(other["spec"].get("instanceType") for other in cluster))
    healthy: list[Json | Pool] = [
        pool(f"healthy-{number}", kind) for number, kind in enumerate({*types, H100} - {None})
    ]
    if None in types:
        rule = rule_of(require="gpu")
    assert not denied(judge(each, None, [*cluster, *healthy], rule))
    assert not denied(judge(None, each, [*cluster, *healthy], rule))


@given(pools, clusters, rules, st.randoms(use_true_random=False))
def test_the_order_of_the_pools_makes_no_difference(
    each: Json, cluster: list[Json | Pool], rule: OnDemandFallback, random: Any
) -> None:
    shuffled = random.sample(cluster, len(cluster))
    assert judge(None, each, cluster, rule) == judge(None, each, shuffled, rule)
    assert judge(each, None, cluster, rule) == judge(each, None, shuffled, rule)


@pytest.mark.parametrize("old", [None, {}, {"spec": []}])
@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
def test_where_the_request_does_not_say_what_was_there_the_cluster_does(old: Any, operation: str) -> None:
    after = changed(ON_DEMAND, targetNodes=0, autoscaling=False) if operation == "UPDATE" else None
    request = msgspec.structs.replace(
        request_for("", operation, resource=NODE_POOLS), name=ON_DEMAND["metadata"]["name"]
    )
    subject = subject_of(after, ON_DEMAND).but(request=request, old_object=old)
    assert outcomes(list(RULE.validate(subject, context_of([SPOT, ON_DEMAND])))) == DENIED


def test_a_change_of_status_alone_is_the_providers_word_and_never_denied() -> None:
    invalid = {**ON_DEMAND, "status": {"conditions": [{"type": "Validated", "reason": "Invalid"}]}}
    assert not list(RULE.validate(subject_of(invalid, ON_DEMAND), context_of([SPOT, ON_DEMAND])))

"""What is said about a Pod that targets spot and can't have it, or seems to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from tests.objects import ALL, EKS, GKE, KARPENTER, POOL_LABEL, cks_pool, expression, other_pool, view_of
from tests.rules.conftest import shipped_provider, subject_of
from tests.rules.placement import (
    CLUSTER,
    CPU,
    CPU_SPOT,
    GPU,
    GPU_SPOT,
    JSON,
    ON_DEMAND,
    PREFERRED,
    REQUIRED,
    SPOT,
    changes,
    context_of,
    pod_of,
    required,
    rule,
    said,
)
from webhook.capacity.providers.nodes import KIND as NODE_GROUP
from webhook.capacity.providers.pool import CapacityType, Gpu, Taint
from webhook.model.decision import Outcome, Trace

if TYPE_CHECKING:
    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.view import ClusterView

NODE_POOL = 'metadata.annotations["spotgate.dev/node-pool"]'
CAPACITY = 'metadata.labels["spotgate.dev/capacity"]'


def test_an_unknown_value_on_the_namespace_is_said_of_pods_that_do_not_say_themselves() -> None:
    view = view_of(*CLUSTER, namespace={"spotgate.dev/capacity": "sopt"})
    violation = said(pod_of(), view)

    assert (violation.id, violation.field) == ("unknown-capacity", "")
    assert changes(pod_of(labels=ON_DEMAND), view=view) == {}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gpu", "NodePool gpu is not a spot pool: its capacity is on-demand"),
        ("gpu-sopt", "there is no node pool `gpu-sopt`, did you mean `gpu-spot`?"),
        ("there", "NodePool there belongs to another cluster, west"),
        ("", "there is no node pool ``"),
        ("x" * 9999, f"there is no node pool `{'x' * 63}`"),
    ],
)
@pytest.mark.parametrize("labels", [{}, SPOT])
def test_an_annotation_that_names_no_spot_pool_is_said(name: str, reason: str, labels: JSON) -> None:
    pod = pod_of(labels=labels, annotations={"spotgate.dev/node-pool": name})
    violation = said(pod, view_of(*CLUSTER, other_pool(GKE, "there", cluster="west")))

    assert (violation.reason, violation.field) == (reason, NODE_POOL)
    assert "Spot pools that take Pods: cpu-spot, gpu-spot." in violation.detail
    fix = "name one of these pools, or remove the annotation"
    if name == "there":
        this = "`--cluster west`, or `thisCluster: west` in the CapacityProvider"
        fix = f"if that is this cluster, say so: {this}; else {fix}"
    assert violation.fix == fix


def test_a_pool_of_a_provider_of_which_only_nodes_are_seen_may_well_be_spot() -> None:
    view = view_of(*CLUSTER, spot_shown=("gke",))
    for labels in ({}, SPOT):
        pod = pod_of(labels=labels, annotations={"spotgate.dev/node-pool": "sp"})
        violation = said(pod, view, providers=ALL)
        assert violation.id == "pool-unseen"
        assert violation.fix.endswith(" and the nodeSelector `cloud.google.com/gke-nodepool: sp`")
    misspelt = said(pod_of(annotations={"spotgate.dev/node-pool": "gpu-sopt"}), view, providers=ALL)
    assert misspelt.reason.endswith(", did you mean `gpu-spot`?")
    known = said(pod_of(annotations={"spotgate.dev/node-pool": "gpu"}), view, providers=ALL)
    assert known.reason == "NodePool gpu is not a spot pool: its capacity is on-demand"


CLOSED = (
    cks_pool("h100-leaving", deletionTimestamp="2026-01-01T00:00:00Z"),
    cks_pool("h100-reserved", taints=("node.coreweave.cloud/reserved=x:NoSchedule",)),
)


def test_pools_that_take_no_pods_are_not_proposed() -> None:
    pod = pod_of(annotations={"spotgate.dev/node-pool": "h100"})
    violation = said(pod, view_of(*CLOSED, GPU_SPOT))
    assert violation.reason == "there is no node pool `h100`"
    assert "Spot pools that take Pods: gpu-spot." in violation.detail
    for pools in ((), CLOSED):
        violation = said(pod, view_of(*pools))
        assert "No spot pool of this cluster takes Pods." in violation.detail
        assert violation.fix == "remove the annotation"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"annotations": {"spotgate.dev/node-pool": "gpu-spot"}}, NODE_POOL),
        ({"nodeSelector": {POOL_LABEL: "gpu-spot"}}, "spec.nodeSelector"),
        (
            {"affinity": required([expression(POOL_LABEL, "In", "gpu-spot")])},
            f"spec.affinity.nodeAffinity.{REQUIRED}",
        ),
    ],
)
def test_on_demand_by_label_and_spot_by_choice_contradict_each_other(changes: JSON, field: str) -> None:
    violation = said(pod_of(labels=ON_DEMAND, gpu=True, **changes))

    assert violation.id == "on-demand-and-spot"
    assert violation.field == field


def test_on_demand_by_label_does_not_undo_a_preference_for_spot_or_the_choice_of_a_compute_class() -> None:
    preference = {"weight": 1, "preference": {"matchExpressions": [expression(POOL_LABEL, "In", "gpu-spot")]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    preferring = said(pod_of(labels=ON_DEMAND, affinity=affinity, tolerations=[{"key": "spot", "operator": "Exists"}]))
    key = "cloud.google.com/compute-class"
    spot_class = replace(other_pool(GKE, "spot-only"), chosen_by=key, labels={key: "spot-only"})
    choosing = said(
        pod_of(labels=ON_DEMAND, nodeSelector={key: "spot-only"}),
        view_of(spot_class),
        providers={"gke": shipped_provider("gke")},
    )

    assert (preferring.id, choosing.id) == ("on-demand-and-spot", "on-demand-and-spot")
    assert preferring.field == "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    assert choosing.fix == f"select a {spot_class.kind} without spot nodes, or remove the label"


EXPRESSIONS = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions"


@pytest.mark.parametrize(
    ("own", "field", "demand"),
    [
        ({"nodeSelector": {"example.com/tier": "paid"}}, 'spec.nodeSelector["example.com/tier"]', "example.com/tier: paid"),
        ({"nodeSelector": {POOL_LABEL: "gpu"}}, f'spec.nodeSelector["{POOL_LABEL}"]', f"{POOL_LABEL}: gpu"),
        ({"affinity": required([expression("example.com/tier", "NotIn", "spot")])}, f"{EXPRESSIONS}[0]", "example.com/tier NotIn [spot]"),
        ({"affinity": required([expression("example.com/tier", "DoesNotExist")])}, f"{EXPRESSIONS}[0]", "example.com/tier DoesNotExist"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("labels", [SPOT, PREFERRED])
def test_own_constraints_that_exclude_every_spot_pool_are_said(
    own: JSON, field: str, demand: str, labels: JSON
) -> None:
    violation = said(pod_of(labels=labels, gpu=True, **own), view_of(GPU_SPOT, GPU))

    assert (violation.id, violation.field) == ("own-selector-excludes", field)
    assert f"demands `{demand}`" in violation.detail


def test_the_field_that_contradicts_is_said_although_other_pools_drop_out_for_another_reason() -> None:
    pod = pod_of(labels=SPOT, gpu=True, nodeSelector={"example.com/tier": "paid"})
    violation = said(pod, view_of(*CLUSTER, *CLOSED))

    assert (violation.id, violation.field) == ("own-selector-excludes", 'spec.nodeSelector["example.com/tier"]')
    assert "NodePool cpu-spot: it has no GPUs" in violation.detail


def test_a_field_is_not_said_to_contradict_where_no_pool_would_take_the_pod_without_it() -> None:
    violation = said(pod_of(labels=SPOT, gpu=True, nodeSelector={"example.com/tier": "paid"}), view_of(CPU_SPOT))

    assert violation.id == "no-pool-fits"
    assert violation.field == CAPACITY


@pytest.mark.parametrize(
    ("value", "hint"), [("cpu-spott", ", did you mean `cpu-spot`? "), ("cpu-spot-of-ours", "`. "), ("gpu", "`. ")]
)
def test_a_misspelt_pool_in_its_own_selector_is_named(value: str, hint: str) -> None:
    in_affinity = {"key": POOL_LABEL, "operator": "In", "values": [value]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [in_affinity]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    for constraint in ({"nodeSelector": {POOL_LABEL: value}}, {"affinity": affinity}):
        violation = said(pod_of(labels=SPOT, **constraint))
        assert violation.id == "own-selector-excludes"
        demanded = violation.detail.partition("and demands `")[2]
        assert hint in demanded.partition("admits")[0].replace("]`", "`")
        assert "?." not in violation.detail


def test_a_selector_against_the_pool_that_the_annotation_names_is_said() -> None:
    pod = pod_of(annotations={"spotgate.dev/node-pool": "gpu-spot"}, gpu=True, nodeSelector={POOL_LABEL: "gpu"})
    violation = said(pod)

    assert (violation.id, violation.field) == ("own-selector-excludes", f'spec.nodeSelector["{POOL_LABEL}"]')


def test_a_selector_of_on_demand_pools_says_which_they_are() -> None:
    pod = pod_of(labels=SPOT, gpu=True, nodeSelector={"example.com/tier": "paid"})
    assert "It admits on-demand capacity instead: NodePool gpu." in said(pod, view_of(GPU_SPOT, GPU)).detail


def test_a_selector_against_the_providers_label_is_said_where_its_pools_cannot_be_seen() -> None:
    pod = pod_of(labels=SPOT, nodeSelector={"cloud.google.com/gke-spot": "false"})
    violation = said(pod, view_of(shown=("gke",)), providers=ALL)

    assert violation.field == 'spec.nodeSelector["cloud.google.com/gke-spot"]'


def test_a_cluster_without_spot_pools_is_said() -> None:
    violation = said(pod_of(labels=SPOT), view_of(CPU, GPU))

    assert (violation.id, violation.field) == ("no-spot-pool", CAPACITY)


def test_where_no_known_provider_is_seen_the_fix_names_the_ways_to_make_one_known() -> None:
    violation = said(pod_of(labels=SPOT), view_of())

    assert violation.id == "no-spot-pool"
    assert "of a provider that spotgate knows" in violation.detail
    assert "`spec.provider`" in violation.fix
    assert "CapacityProvider" in violation.fix


def test_in_a_workload_the_pod_template_is_what_is_to_be_labelled() -> None:
    twins = (other_pool(KARPENTER, "twin"), other_pool(KARPENTER, "twin", capacity=CapacityType.ON_DEMAND))
    third = other_pool(KARPENTER, "third", gpu=Gpu.YES)
    for pod, pools, remedy in (
        (pod_of(labels=SPOT), (CPU, GPU), "label the pod template `spotgate.dev/capacity: on-demand`"),
        (pod_of(labels=SPOT), CLOSED, "label the pod template `spotgate.dev/capacity: on-demand`"),
        (
            pod_of(labels=SPOT, nodeSelector={"compute.coreweave.com/node-pool": "cpu-control-plane"}),
            CLUSTER,
            "label the pod template `spotgate.dev/capacity: on-demand`",
        ),
        (pod_of(labels=SPOT), (*twins, third), "annotate the pod template `spotgate.dev/node-pool: POOL`"),
    ):
        (violation,) = rule(ALL).validate(subject_of(pod, template=True), context_of(view_of(*pools)))
        assert violation.fix.endswith(f", or {remedy}"), violation.fix


def test_why_the_pod_can_land_on_no_spot_pool_is_said_for_each() -> None:
    pools = (
        cks_pool("a", gpu=False),
        cks_pool("b", deletionTimestamp="2026-01-01T00:00:00Z"),
        cks_pool("c", taints=("node.coreweave.cloud/reserved=x:NoSchedule",)),
    )
    violation = said(pod_of(labels=SPOT, gpu=True), view_of(*pools))

    assert violation.id == "no-pool-fits"
    assert (
        "NodePool a: it has no GPUs, and the Pod requests some; "
        "NodePool b: it is being deleted; "
        "NodePool c: its taint node.coreweave.cloud/reserved=x:NoSchedule must never be tolerated."
    ) in violation.detail


def test_many_pools_are_counted_not_listed() -> None:
    pools = [cks_pool(f"p{number}", gpu=False) for number in range(9)]
    assert "; and 4 more." in said(pod_of(labels=SPOT, gpu=True), view_of(*pools)).detail


def test_a_named_pool_that_can_not_be_landed_on_is_said() -> None:
    leaving = cks_pool("leaving", deletionTimestamp="2026-01-01T00:00:00Z")
    pod = pod_of(annotations={"spotgate.dev/node-pool": "leaving"}, gpu=True)

    violation = said(pod, view_of(leaving, GPU_SPOT))
    assert "NodePool leaving: it is being deleted." in violation.detail
    assert violation.field == NODE_POOL


GUARDED = cks_pool("guarded", taints=("spot:NoSchedule", "nvidia.com/gpu=present:NoSchedule"))


@pytest.mark.parametrize(
    ("own", "field"),
    [
        ({"annotations": {"spotgate.dev/node-pool": "guarded"}}, NODE_POOL),
        ({"nodeSelector": {POOL_LABEL: "guarded"}}, "spec.nodeSelector"),
        ({"labels": SPOT, "affinity": required([expression(POOL_LABEL, "In", "guarded")])}, f"spec.affinity.nodeAffinity.{REQUIRED}"),
    ],
)  # fmt: skip
def test_a_named_gpu_pool_that_keeps_the_pod_off_is_said_and_nothing_is_injected(own: JSON, field: str) -> None:
    violation = said(pod_of(**own), view_of(GUARDED, CPU_SPOT))

    assert violation.id == "pool-for-gpus-only"
    assert violation.field == field
    assert "Its taint nvidia.com/gpu=present:NoSchedule keeps other Pods off GPU nodes." in violation.detail
    assert violation.detail.endswith("Nothing was changed about where it may run.")


def test_a_named_gpu_pool_whose_taint_the_pod_tolerates_itself_takes_it() -> None:
    own = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    pod = pod_of(annotations={"spotgate.dev/node-pool": "guarded"}, tolerations=own)

    assert changes(pod, GUARDED)["nodeSelector"] == {POOL_LABEL: "guarded"}


def test_of_several_pools_that_a_pod_names_those_that_can_not_run_it_are_left_out() -> None:
    both = required([expression(POOL_LABEL, "In", "cpu-spot", "gpu-spot")])
    assert changes(pod_of(gpu=True, affinity=both))["nodeSelector"] == {"example.com/tier": "spot"}


def group(
    name: str, *taints: Taint, gpu: Gpu = Gpu.NO, capacity: CapacityType = CapacityType.SPOT, **labels: str
) -> Pool:
    """Return the node group that Nodes of EKS stand for."""
    if name:
        labels["eks.amazonaws.com/nodegroup"] = name
    pool = other_pool(EKS, name, capacity=capacity, gpu=gpu)
    labels["eks.amazonaws.com/capacityType"] = "SPOT" if capacity is CapacityType.SPOT else "ON_DEMAND"
    return replace(
        pool, kind=NODE_GROUP, pool_name=name, taints=taints, labels=labels, label_keys=frozenset(labels), cluster=""
    )


def seen(*groups: Pool) -> ClusterView:
    return replace(view_of(shown=("eks",)), node_groups=groups)


def test_a_taint_on_gpu_nodes_is_for_the_provider_document_where_the_pod_requests_gpus() -> None:
    nodes = seen(group("gpu", Taint("gpu", "true", "NoSchedule"), gpu=Gpu.YES))
    violation = said(pod_of(labels=SPOT, gpu=True), nodes, providers=ALL)
    assert violation.id == "pool-dedicated"
    assert "add `- {key: gpu, value: 'true'}` to `spec.gpu.taints` of CapacityProvider eks" in violation.fix


def test_nobody_is_told_to_write_the_name_of_a_pool_that_has_none() -> None:
    other = group("", Taint("team", "ml", "NoSchedule"))
    violation = said(
        pod_of(labels=SPOT), seen(group(""), other, group("b", capacity=CapacityType.ON_DEMAND)), providers=ALL
    )
    assert violation.id == "no-common-label"
    assert "annotate" not in violation.fix
    twins = (other_pool(KARPENTER, "twin"), other_pool(KARPENTER, "twin", capacity=CapacityType.ON_DEMAND))
    third = other_pool(KARPENTER, "third", gpu=Gpu.YES)
    unnamed = view_of(*(replace(each, pool_name="") for each in (*twins, third)))
    violation = said(pod_of(labels=SPOT), unnamed, providers=ALL)
    assert (violation.id, "annotate" in violation.fix) == ("no-common-label", False)


def test_a_label_that_no_node_shows_may_be_of_a_pool_that_is_scaled_to_0() -> None:
    violation = said(pod_of(labels=SPOT, nodeSelector={"disktype": "ssd"}), seen(group("web")), providers=ALL)
    assert violation.id == "own-selector-excludes"
    assert "scaled to 0" in violation.detail


def test_pools_that_nothing_tells_apart_are_said() -> None:
    pools = (other_pool(KARPENTER, "twin"), other_pool(KARPENTER, "twin", capacity=CapacityType.ON_DEMAND), other_pool(KARPENTER, "third", gpu=Gpu.YES))  # fmt: skip
    violation = said(pod_of(labels=SPOT), view_of(*pools), providers=ALL)

    assert violation.id == "no-common-label"
    assert "It can land on NodePool twin." in violation.detail


def test_terms_that_would_multiply_beyond_reason_are_said_and_nothing_is_injected() -> None:
    pools = (other_pool(KARPENTER, "k"), other_pool(EKS, "e"))
    terms = [[expression("topology.kubernetes.io/zone", "In", f"z{number}")] for number in range(33)]
    violation = said(pod_of(labels=SPOT, affinity=required(*terms)), view_of(*pools), providers=ALL)

    assert violation.id == "too-many-terms"
    assert "the 33 terms of its own affinity are too many" in violation.reason
    assert "at most 32 can" in violation.detail
    assert len(changes(pod_of(labels=SPOT, affinity=required(*terms[1:])), *pools, providers=ALL)["affinity"]) == 1
    assert changes(pod_of(labels=PREFERRED, affinity=required(*terms)), *pools, providers=ALL)


@pytest.mark.parametrize(
    ("labels", "pools", "fix"),
    [
        (SPOT, (CPU_SPOT, CPU), "nodeSelector `compute.coreweave.com/node-pool: cpu-spot`"),
        (SPOT, (CPU_SPOT, cks_pool("b", gpu=False), CPU), "required node affinity `compute.coreweave.com/node-pool In [b, cpu-spot]`"),
        (SPOT, (CPU_SPOT, other_pool(EKS, "e"), CPU), "required node affinity `compute.coreweave.com/node-pool: cpu-spot` or `eks.amazonaws.com/capacityType: SPOT`"),
        (PREFERRED, (CPU_SPOT, CPU), "preferred node affinity `compute.coreweave.com/node-pool: cpu-spot`"),
    ],
)  # fmt: skip
def test_validation_says_what_a_skipped_mutation_left_out(labels: JSON, pools: tuple[Pool, ...], fix: str) -> None:
    (violation,) = rule(ALL).validate(subject_of(pod_of(labels=labels)), context_of(view_of(*pools)))

    assert violation.id == "not-placed"
    assert violation.field == "spec.tolerations"
    assert violation.outcome is Outcome.WARN
    toleration = "toleration `{key: spot, operator: Equal, value: 'true', effect: NoSchedule}`"
    assert violation.fix == f"add {toleration}, {fix}"


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (pod_of(), ["not placed on spot: nothing says that it targets spot"]),
        (
            pod_of(labels=SPOT, annotations={"spotgate.dev/keep": "tolerations"}),
            [
                "targets spot: label spotgate.dev/capacity: spot",
                "NodePool gpu-spot: it has GPUs, and the Pod requests none",
                "it keeps its tolerations",
                "lacks the requirement compute.coreweave.com/node-pool In [cpu-spot]",
            ],
        ),
        (
            pod_of(gpu=True, nodeSelector={"example.com/tier": "spot"}),
            [
                "targets spot: its own nodeSelector or affinity admits only spot",
                "NodePool cpu-spot: it has no GPUs, and the Pod requests some",
                "its own nodeSelector and affinity admit nothing else: no selector is added",
                "lacks a toleration of spot=true:NoSchedule",
                "lacks a toleration of is_gpu=true:PreferNoSchedule",
            ],
        ),
    ],
)
def test_the_trace_says_why(pod: JSON, expected: list[str]) -> None:
    trace = Trace()
    rule().plan(subject_of(pod, trace=trace), context_of(view_of(*CLUSTER)))

    assert [text for _, _, text in trace.steps] == expected

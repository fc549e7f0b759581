"""What a Pod that targets spot gets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.objects import ALL, CKS, EKS, GKE, KARPENTER, POOL_LABEL, cks_pool, expression, other_pool, view_of
from tests.rules.placement import (
    CLUSTER,
    GPU_SPOT_2,
    JSON,
    PREFER,
    PREFERRED,
    REQUIRED,
    SPOT,
    TOLERATE_GPU,
    TOLERATE_PREEMPTIBLE,
    TOLERATE_SPOT,
    changes,
    placed,
    pod_of,
    required,
    rule,
)
from webhook.capacity.providers.pool import CapacityType, Gpu
from webhook.capacity.view import ClusterView, Needs
from webhook.policy.match import PODS_CREATE
from webhook.rules.protocol import Facts, Mutator, Validator
from webhook.rules.spot_placement.rule import KIND


def test_several_pools_that_share_no_label_become_a_required_affinity_on_the_pool_name() -> None:
    assert changes(pod_of(labels=SPOT, gpu=True), *CLUSTER, GPU_SPOT_2) == {
        "tolerations": [TOLERATE_SPOT, TOLERATE_GPU, TOLERATE_PREEMPTIBLE],
        "affinity": required([expression(POOL_LABEL, "In", "gpu-spot", "gpu-spot-2")]),
    }


def test_the_affinity_is_anded_into_every_term_that_is_there() -> None:
    zones = [[expression("topology.kubernetes.io/zone", "In", zone)] for zone in ("a", "b")]
    pod = pod_of(labels=SPOT, gpu=True, affinity=required(*zones))
    pod["spec"]["affinity"]["podAntiAffinity"] = {"x": 1}
    ours = expression(POOL_LABEL, "In", "gpu-spot", "gpu-spot-2")

    affinity = changes(pod, *CLUSTER, GPU_SPOT_2)["affinity"]
    assert affinity == {**required(*([*zone, ours] for zone in zones)), "podAntiAffinity": {"x": 1}}


def test_spot_preferred_gets_the_same_tolerations_and_a_preference_instead_of_the_selector() -> None:
    preference = {"matchExpressions": [expression("example.com/tier", "In", "spot")]}
    assert changes(pod_of(labels=PREFERRED, gpu=True)) == {
        "tolerations": [TOLERATE_SPOT, TOLERATE_GPU],
        "affinity": {"nodeAffinity": {PREFER: [{"weight": 100, "preference": preference}]}},
    }


def test_a_preference_that_is_there_already_is_not_repeated() -> None:
    term = {"weight": 7, "preference": {"matchExpressions": [expression("example.com/tier", "In", "spot")]}}
    pod = pod_of(labels=PREFERRED, gpu=True, affinity={"nodeAffinity": {PREFER: [term]}})

    assert changes(pod) == {"tolerations": [TOLERATE_SPOT, TOLERATE_GPU]}


def test_a_preference_for_one_node_is_not_taken_for_it() -> None:
    preference = {"matchExpressions": [expression("example.com/tier", "In", "spot")]}
    narrower = {**preference, "matchFields": [expression("metadata.name", "In", "node-1")]}
    pod = pod_of(labels=PREFERRED, gpu=True)
    pod["spec"]["affinity"] = {"nodeAffinity": {PREFER: [{"weight": 7, "preference": narrower}]}}

    assert changes(pod)["affinity"]["nodeAffinity"][PREFER][1:] == [{"weight": 100, "preference": preference}]


def test_an_annotation_names_the_pool_also_if_its_gpus_do_not_fit() -> None:
    assert changes(pod_of(annotations={"spotgate.dev/node-pool": "gpu-spot"})) == {
        "tolerations": [TOLERATE_SPOT],
        "nodeSelector": {"example.com/tier": "spot"},
    }


@pytest.mark.parametrize(
    "own",
    [
        {"nodeSelector": {POOL_LABEL: "gpu-spot"}},
        {"nodeSelector": {"example.com/tier": "spot"}},
        {"affinity": required([expression(POOL_LABEL, "In", "gpu-spot")])},
        {"nodeSelector": {"kubernetes.io/arch": "amd64"}, "affinity": required([expression("example.com/tier", "Exists"), expression("example.com/tier", "NotIn", "paid")])},
    ],
)  # fmt: skip
@pytest.mark.parametrize("labels", [{}, SPOT, PREFERRED])
def test_a_selector_that_keeps_to_spot_already_gets_nothing_but_tolerations(own: JSON, labels: JSON) -> None:
    assert changes(pod_of(labels=labels, gpu=True, **own)) == {"tolerations": [TOLERATE_SPOT, TOLERATE_GPU]}


def test_a_selector_that_does_not_keep_to_spot_stays_beside_the_injected_one() -> None:
    own = {"kubernetes.io/arch": "amd64"}
    assert changes(pod_of(labels=SPOT, nodeSelector=own))["nodeSelector"] == {**own, POOL_LABEL: "cpu-spot"}


@pytest.mark.parametrize(
    ("existing", "expected"),
    [
        ([{"key": "spot", "operator": "Exists"}], [TOLERATE_GPU]),
        ([{"operator": "Exists"}], []),
        ([TOLERATE_SPOT], [TOLERATE_GPU]),
        ([{"key": "spot", "value": "true"}], [TOLERATE_GPU]),
        ([{**TOLERATE_SPOT, "effect": "NoExecute"}], [TOLERATE_SPOT, TOLERATE_GPU]),
        ([{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}], [TOLERATE_SPOT, TOLERATE_GPU]),
    ],
)  # fmt: skip
def test_a_toleration_that_is_covered_is_not_added(existing: list[JSON], expected: list[JSON]) -> None:
    pod = pod_of(labels=SPOT, gpu=True, tolerations=existing)
    result, _, _ = placed(pod, view_of(*CLUSTER))

    assert result["spec"]["tolerations"] == [*existing, *expected]


def test_every_effect_is_tolerated_exactly_and_only_once() -> None:
    taints = ("a=spot:NoSchedule", "a=spot:NoExecute", "spot:PreferNoSchedule")
    pools = (cks_pool("x", gpu=False, taints=taints), cks_pool("y", gpu=False, taints=taints[:1]))

    assert changes(pod_of(labels=SPOT), *pools)["tolerations"] == [
        {"key": "a", "operator": "Equal", "value": "spot", "effect": "NoSchedule"},
        {"key": "a", "operator": "Equal", "value": "spot", "effect": "NoExecute"},
        {"key": "spot", "operator": "Exists", "effect": "PreferNoSchedule"},
    ]


@pytest.mark.parametrize(
    "taint", ["node.coreweave.cloud/evict=true:PreferNoSchedule", "sunk.coreweave.com/lock:PreferNoSchedule"]
)
def test_a_forbidden_taint_that_keeps_nobody_off_is_not_tolerated(taint: str) -> None:
    assert "tolerations" not in changes(pod_of(labels=SPOT), cks_pool("x", gpu=False, taints=(taint,)))


def test_what_no_node_can_be_tainted_with_is_not_tolerated() -> None:
    pool = other_pool(CKS, "x", taints=(":NoSchedule", "a:", "b:Sometimes", "two words:NoSchedule"))
    assert changes(pod_of(labels=SPOT), pool) == {"nodeSelector": {POOL_LABEL: "x"}}


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ("node-selector", {"tolerations"}),
        ("tolerations", {"nodeSelector"}),
        ("node-selector,tolerations", set()),
        ("grace-period", {"tolerations", "nodeSelector"}),
    ],
)
def test_a_pod_keeps_what_it_asks_to_keep(keep: str, expected: set[str]) -> None:
    assert changes(pod_of(labels=SPOT, annotations={"spotgate.dev/keep": keep})).keys() == expected
    preferred = changes(pod_of(labels=PREFERRED, annotations={"spotgate.dev/keep": keep}))
    assert ("affinity" in preferred) is ("node-selector" not in keep)


def test_the_policy_names_the_label_to_select_by() -> None:
    labels = {"a.example.com/team": "x", "example.com/tier": "spot"}
    pod, pool = pod_of(labels=SPOT, gpu=True), cks_pool("p", labels=labels)

    assert changes(pod, pool)["nodeSelector"] == {"a.example.com/team": "x"}
    named = [{"key": "example.com/none", "value": "x"}, {"key": "example.com/tier", "value": "spot"}]
    assert changes(pod, pool, selectorLabels=named)["nodeSelector"] == {"example.com/tier": "spot"}


# Other providers


TOLERATE_GKE = {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
GKE_SPOT = {"cloud.google.com/gke-spot": "true"}


@pytest.mark.parametrize(
    ("view", "provider"), [(view_of(shown=("gke",)), ""), (view_of(), "gke"), (ClusterView(), "gke")]
)
def test_where_pools_cannot_be_seen_the_providers_own_label_and_taint_stand_for_them(
    view: ClusterView, provider: str
) -> None:
    how: Any = {"providers": ALL, "provider": provider, "view": view}
    assert changes(pod_of(labels=SPOT), **how) == {"tolerations": [TOLERATE_GKE], "nodeSelector": GKE_SPOT}
    assert changes(pod_of(nodeSelector=GKE_SPOT), **how) == {"tolerations": [TOLERATE_GKE]}
    assert changes(pod_of(labels=PREFERRED), **how).keys() == {"tolerations", "affinity"}
    assert changes(pod_of(), **how) == {}


def test_the_providers_own_taint_is_tolerated_beside_those_that_its_pool_declares() -> None:
    pool = other_pool(GKE, "p", taints=("team=spot:NoSchedule",))
    tolerate_team = {"key": "team", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}

    assert changes(pod_of(labels=SPOT), pool, providers=ALL)["tolerations"] == [tolerate_team, TOLERATE_GKE]


def test_a_pool_of_both_capacities_is_used_by_its_spot_nodes_alone() -> None:
    both = other_pool(KARPENTER, "both", capacity=CapacityType.BOTH, taints=("team=spot:NoSchedule",))
    gpu = other_pool(KARPENTER, "gpu", capacity=CapacityType.BOTH, gpu=Gpu.YES)
    spot, name = {"karpenter.sh/capacity-type": "spot"}, {"karpenter.sh/nodepool": "both"}
    expressions = [expression(key, "In", value) for key, value in {**spot, **name}.items()]

    assert changes(pod_of(labels=SPOT), both, providers=ALL)["nodeSelector"] == spot
    assert changes(pod_of(labels=SPOT), both, gpu, providers=ALL)["nodeSelector"] == {**spot, **name}
    (term,) = changes(pod_of(labels=PREFERRED), both, gpu, providers=ALL)["affinity"]["nodeAffinity"][PREFER]
    assert term == {"weight": 100, "preference": {"matchExpressions": expressions}}


KARPENTER_SPOT = expression("karpenter.sh/capacity-type", "In", "spot")
EKS_SPOT = expression("eks.amazonaws.com/capacityType", "In", "SPOT")
TWO_PROVIDERS = (other_pool(KARPENTER, "k", taints=("team=spot:NoSchedule",)), other_pool(EKS, "e"))
ZONES = [[expression("topology.kubernetes.io/zone", "In", zone)] for zone in ("a", "b")]


def test_pools_of_two_providers_without_a_common_label_become_terms_of_the_required_affinity() -> None:
    assert changes(pod_of(labels=SPOT), *TWO_PROVIDERS, providers=ALL) == {
        "tolerations": [{"key": "team", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}],
        "affinity": required([EKS_SPOT], [KARPENTER_SPOT]),
    }


def test_the_terms_of_two_providers_are_multiplied_with_those_that_are_there() -> None:
    pod = pod_of(labels=SPOT, affinity=required(*ZONES), nodeSelector={"kubernetes.io/arch": "arm64"})
    expected = required(
        [*ZONES[0], EKS_SPOT], [*ZONES[1], EKS_SPOT], [*ZONES[0], KARPENTER_SPOT], [*ZONES[1], KARPENTER_SPOT]
    )

    assert changes(pod, *TWO_PROVIDERS, providers=ALL)["affinity"] == expected


def test_a_term_that_names_nodes_is_multiplied_as_a_whole_and_one_that_is_empty_is_left_alone() -> None:
    node = {"matchFields": [expression("metadata.name", "NotIn", "node-1")]}
    pod = pod_of(labels=SPOT, affinity=required())
    pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] = [node, {}]

    affinity = changes(pod, *TWO_PROVIDERS, providers=ALL)["affinity"]
    assert affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        {**node, "matchExpressions": [EKS_SPOT]},
        {},
        {**node, "matchExpressions": [KARPENTER_SPOT]},
    ]


def test_spot_preferred_prefers_the_pools_of_each_of_two_providers() -> None:
    terms = changes(pod_of(labels=PREFERRED), *TWO_PROVIDERS, providers=ALL)["affinity"]["nodeAffinity"][PREFER]

    assert terms == [{"weight": 100, "preference": {"matchExpressions": [each]}} for each in (EKS_SPOT, KARPENTER_SPOT)]


def test_several_providers_whose_pools_cannot_be_seen_are_each_selected_by_their_label() -> None:
    view = view_of(shown=("gke", "eks"))
    gke = expression("cloud.google.com/gke-spot", "In", "true")

    assert changes(pod_of(labels=SPOT), providers=ALL, view=view) == {
        "tolerations": [TOLERATE_GKE],
        "affinity": required([EKS_SPOT], [gke]),
    }


def test_the_kind_asks_for_pools_and_namespaces_and_looks_at_new_pods() -> None:
    assert KIND.needs == Needs(namespaces=True, pools=True)
    assert KIND.rules(Facts({})) == (PODS_CREATE,)
    assert isinstance(rule(), Mutator)
    assert isinstance(rule(), Validator)

"""Labels and taints of declared pools from their Nodes, Nodes that a Pod names, and pools with complete labels."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace

from tests.builders import cks_pool, expression, pod_of, taint, view_of
from tests.capacity.requiring import ALL, ARCH, CAPACITY, POOL, READER, TEAM, ZONE, gke_pool, landing
from tests.rules.conftest import subject_of
from tests.rules.placement import SPOT, placed, rule
from tests.rules.placement import pod_of as rule_pod
from webhook.capacity.placement.target import NotTargeting, Target, target_of
from webhook.capacity.providers.nodes import Node
from webhook.capacity.providers.pool import CapacityType, Pool, Taint
from webhook.capacity.view import ClusterView
from webhook.cluster.view import NodeFacts, NodeTally, node_facts, with_nodes

CKS = "compute.coreweave.com/node-pool"
TYPE = "node.coreweave.cloud/type"
HOST = "kubernetes.io/hostname"
INTERRUPTABLE = "qos.coreweave.cloud/interruptable"
JSON = dict[str, Any]


def view(*nodes: dict[str, str], pools: tuple[Pool, ...] = ()) -> ClusterView:
    """Return a cluster of Nodes with these labels, named n0, n1, and so on."""
    facts = (
        node_facts({HOST: f"host-{number}", **labels}, Node(), ALL.values(), f"n{number}")
        for number, labels in enumerate(nodes)
    )
    return with_nodes(ClusterView(pools=pools), facts)


A, B = (cks_pool(name, instance_type="x1-gp", labels=labels) for name, labels in (("a", {}), ("b", {"team": "b"})))
AMD, ARM = {ARCH: "amd64", ZONE: "z1"}, {ARCH: "arm64", ZONE: "z2"}


@pytest.mark.parametrize(
    ("nodes", "selector", "expected"),
    [
        ((), {ARCH: "arm64"}, ["a", "b"]),  # unknown is not absent
        (({CKS: "a", **AMD},), {ARCH: "arm64"}, ["b"]),
        (({CKS: "a", **AMD},), {ARCH: "amd64"}, ["a", "b"]),
        (({CKS: "a", **ARM},), {}, ["b"]),  # a Pod runs on Arm only if it requests Arm
        (({CKS: "a", **AMD}, {CKS: "a", **AMD, ZONE: "z3"}), {ZONE: "z3"}, ["a", "b"]),
        (({CKS: "a", **AMD},), {ZONE: "z3"}, ["b"]),
        (({CKS: "a", "topology.kubernetes.io/region": "r1"},), {"topology.kubernetes.io/region": "r2"}, ["b"]),
        # Labels of Nodes override only labels that the provider document infers.
        ((), {TYPE: "x1-gp"}, ["a", "b"]),
        ((), {TYPE: "H100_NVLINK_80GB"}, []),
        (({CKS: "a", TYPE: "H100_NVLINK_80GB"},), {TYPE: "H100_NVLINK_80GB"}, ["a"]),
        (({CKS: "a", TYPE: "x"}, {CKS: "a", TYPE: "x1-gp"}), {TYPE: "x"}, ["a"]),
        (({CKS: "b", "team": "old"},), {"team": "b"}, ["a", "b"]),
        # No Node has the label; one has it; a network label, which may differ on other nodes.
        (({CKS: "a"},), {"disk": "ssd"}, ["b"]),
        (({CKS: "a", "disk": "ssd"}, {CKS: "a"}), {"disk": "ssd"}, ["a", "b"]),
        (({CKS: "a", "backend.coreweave.cloud/leafgroup": "1"},), {"backend.coreweave.cloud/leafgroup": "2"}, ["a", "b"]),
    ],
)  # fmt: skip
def test_nodes_supply_labels_that_their_pool_does_not_declare(
    nodes: tuple[JSON, ...], selector: JSON, expected: list[str]
) -> None:
    assert landing(pod_of(labels=SPOT, selector=selector), view=view(*nodes, pools=(A, B))) == expected


def tainted(labels: JSON, *written: str) -> NodeFacts:
    taints = [{"key": parsed.key, "value": parsed.value, "effect": parsed.effect} for parsed in map(taint, written)]
    return node_facts(labels, convert({"spec": {"taints": taints}}, Node), ALL.values(), written[0])


MARKED, TEAMS_ONLY = "lifecycle=spot:NoSchedule", "team=x:NoSchedule"


@pytest.mark.parametrize(
    ("taints", "tolerated"),
    [
        ([[MARKED], [MARKED, TEAMS_ONLY]], ["lifecycle"]),  # a taint that only some Nodes have isn't the pool's
        ([[MARKED], [TEAMS_ONLY]], []),
        ([[TEAMS_ONLY], [TEAMS_ONLY]], None),
        ([["node.coreweave.cloud/evict=true:NoExecute"]], []),  # new nodes don't have it
        ([["node.kubernetes.io/not-ready:NoSchedule"]], []),
    ],
)
def test_a_taint_that_all_nodes_of_a_declared_pool_have_counts_as_the_pools(
    taints: list[list[str]], tolerated: list[str] | None
) -> None:
    nodes = with_nodes(ClusterView(pools=(A,)), (tainted({CKS: "a"}, *written) for written in taints))
    targeting = target_of(pod_of(labels=SPOT), {}, nodes, ALL)
    assert isinstance(targeting, Target)
    assert [pool.name for pool in targeting.pools or ()] == ([] if tolerated is None else ["a"])
    assert [toleration.key for toleration in targeting.tolerations] == (
        [] if tolerated is None else [*tolerated, INTERRUPTABLE]
    )


def test_karpenter_declares_all_taints_of_its_nodes() -> None:
    nodes = with_nodes(ClusterView(pools=(PLAIN,)), [tainted({POOL: "plain", CAPACITY: "spot"}, TEAMS_ONLY)])
    assert landing(pod_of(labels=SPOT), view=nodes) == ["plain"]


def test_nodes_of_a_provider_without_a_spot_label_do_not_act_as_a_pool() -> None:
    assert isinstance(target_of(pod_of(selector={CKS: "a"}), {}, view({CKS: "a"}), ALL), NotTargeting)
    assert landing(pod_of(labels=SPOT), view=view({CKS: "gone"}, pools=(A,))) == ["a"]


def test_future_nodes_of_a_pool_with_several_machine_types_may_have_other_labels() -> None:
    reader = next(candidate for candidate in ALL["eks"].readers if candidate.kind == "Nodegroup")
    spec = {"name": "m", "capacityType": "SPOT", "instanceTypes": ["m5.large", "m6i.large"]}
    node = {
        "eks.amazonaws.com/nodegroup": "m",
        "node.kubernetes.io/instance-type": "m5.large",
        "chip": "v1",
        ARCH: "amd64",
    }
    seen = view(node, pools=(reader.read({"metadata": {"name": "m"}, "spec": spec}),))
    for key, value, lands in (
        ("node.kubernetes.io/instance-type", "m6i.large", True),
        ("chip", "v2", True),
        (ARCH, "arm64", False),
    ):
        assert bool(landing(pod_of(labels=SPOT, selector={key: value}), view=seen)) is lands


OF_TWO = view({CKS: "a"}, {CKS: "b"}, pools=(A, B))


@pytest.mark.parametrize("named", [{HOST: "host-0"}, {HOST: "n0"}])
def test_a_pod_that_names_a_node_gets_its_pools_tolerations_and_no_selector(named: JSON) -> None:
    pod = rule_pod(labels=SPOT, nodeSelector=named)
    tainted = replace(A, taints=(Taint("spot", "true"),))
    result, _, violations = placed(pod, view({CKS: "a"}, {CKS: "b"}, pools=(tainted, B)), rule(ALL))
    assert violations == []
    assert result["spec"]["nodeSelector"] == named
    assert [toleration["key"] for toleration in result["spec"]["tolerations"]] == ["spot", INTERRUPTABLE]


def test_a_pod_that_also_names_an_on_demand_node_is_restricted_to_spot_if_it_requests_spot() -> None:
    paid = replace(B, capacity=CapacityType.ON_DEMAND)
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression(HOST, "In", "n0", "n1")]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    nodes = view({CKS: "a"}, {CKS: "b"}, pools=(A, paid))
    result, _, violations = placed(rule_pod(labels=SPOT, affinity=affinity), nodes, rule(ALL))
    assert (violations, result["spec"]["nodeSelector"]) == ([], {CKS: "a"})
    _, patch, violations = placed(rule_pod(affinity=affinity), nodes, rule(ALL))
    assert (violations, patch) == ([], [])


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ({"matchFields": [expression("metadata.name", "In", "n1")]}, ["b"]),
        ({"matchFields": [expression("metadata.name", "NotIn", "n1")]}, ["a", "b"]),
        ({"matchExpressions": [expression(HOST, "In", "n0", "host-1")]}, ["a", "b"]),
        ({"matchExpressions": [expression(HOST, "In", "n0", "gone")]}, ["a"]),
        ({"matchExpressions": [expression(HOST, "In", "gone")]}, []),
        ({"matchExpressions": [expression(HOST, "Exists")]}, ["a", "b"]),
    ],
)
def test_node_names_in_affinity_select_the_nodes_pools(term: JSON, expected: list[str]) -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    pod = rule_pod(labels=SPOT, affinity={"nodeAffinity": required})
    _, patch, violations = placed(pod, OF_TWO, rule(ALL))
    if not expected:
        (violation,) = violations
        assert (patch, violation.id) == ([], "no-pool-fits")
        assert "the Pod's own nodeSelector or affinity excludes it" in violation.detail
    assert landing(decoded(pod), view=OF_TWO) == expected


def decoded(pod: JSON) -> Any:
    return subject_of(pod).pod


def test_an_on_demand_node_of_a_mixed_pool_is_not_spot() -> None:
    both = READER.read({"metadata": {"name": "k"}, "spec": {"template": {"spec": {"requirements": []}}}})
    nodes = view({POOL: "k", CAPACITY: "spot"}, {POOL: "k", CAPACITY: "on-demand"}, pools=(both,))
    assert landing(pod_of(labels=SPOT, selector={HOST: "n0"}), view=nodes) == ["k"]
    assert landing(pod_of(labels=SPOT, selector={HOST: "n1"}), view=nodes) == []


def test_naming_a_spot_node_does_not_target_spot() -> None:
    # The API server doesn't send these Pods to the webhook: see `neutral_keys` in webhook.registration.object_conditions.
    assert isinstance(target_of(pod_of(selector={HOST: "n0"}), {}, OF_TWO, ALL), NotTargeting)


def with_labels(name: str, *requirements: JSON, **labels: str) -> Pool:
    template = {"metadata": {"labels": labels}, "spec": {"requirements": list(requirements)}}
    return READER.read({"metadata": {"name": name}, "spec": {"template": template}})


STABLE = with_labels("stable", expression(CAPACITY, "In", "on-demand"), tier="stable")
PLAIN = with_labels("plain", expression(CAPACITY, "In", "spot"))
TEAMS = with_labels("teams", expression(CAPACITY, "In", "spot"), expression(TEAM, "Exists"))
GRAVITON = with_labels(
    "graviton",
    expression(CAPACITY, "In", "spot", "on-demand"),
    expression(ARCH, "In", "arm64"),
    NodeGroupType="Graviton",
)


@pytest.mark.parametrize(
    ("selector", "nodes", "expected"),
    [
        ({"tier": "stable"}, (), []),
        ({TEAM: "a"}, (), ["teams"]),
        ({"karpenter.k8s.aws/instance-new": "1"}, (), ["plain", "teams"]),  # a label in Karpenter's domain
        ({"node.kubernetes.io/instance-type": "m5.large"}, (), ["plain", "teams"]),
        ({"topology.ebs.csi.aws.com/zone": "a"}, (), ["plain", "teams"]),
        ({"feature.node.kubernetes.io/avx": "true"}, (), []),
        ({"feature.node.kubernetes.io/avx": "true"}, ({POOL: "plain", "feature.node.kubernetes.io/avx": "true"},), ["plain"]),
        ({ARCH: "amd64"}, ({POOL: "plain", ARCH: "arm64"},), ["plain", "teams"]),  # its next node may be a different machine
        ({"NodeGroupType": "Graviton"}, (), ["graviton"]),
    ],
)  # fmt: skip
def test_selecting_an_undeclared_label_excludes_a_karpenter_pool(
    selector: JSON, nodes: tuple[JSON, ...], expected: list[str]
) -> None:
    pools = (STABLE, PLAIN, TEAMS, GRAVITON)
    assert landing(pod_of(labels=SPOT, selector=selector), view=view(*nodes, pools=pools)) == expected


def test_a_pool_with_unreadable_requirements_may_have_any_label() -> None:
    pool = READER.read({"metadata": {"name": "k"}, "spec": {"template": {"spec": {"requirements": [7]}}}})
    assert pool.label_keys is None


PREEMPTIBLE = "cloud.google.com/gke-preemptible"
GKE_SPOT = "cloud.google.com/gke-spot"
GKE_POOL = "cloud.google.com/gke-nodepool"


def preemptible(name: str) -> Pool:
    reader = next(candidate for candidate in ALL["gke"].readers if candidate.kind == "ContainerNodePool")
    spec = {"nodeCount": 1, "nodeConfig": {"preemptible": True, "machineType": "n2-standard-4"}}
    return reader.read({"metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ((preemptible("p"),), {PREEMPTIBLE: "true"}),
        ((preemptible("p"), gke_pool({"nodeCount": 1}, "s")), None),
        ((gke_pool({"nodeCount": 1}, "s"),), {GKE_SPOT: "true"}),
    ],
)
def test_preemptible_pools_are_selected_by_their_own_label(pools: tuple[Pool, ...], expected: JSON | None) -> None:
    result, _, violations = placed(rule_pod(labels=SPOT), view_of(*pools), rule(ALL))
    assert violations == []
    assert result["spec"].get("nodeSelector") == expected


@pytest.mark.parametrize("pools", [(), (preemptible("p"),)])
def test_a_pod_that_selects_preemptible_nodes_targets_spot_without_another_selector(pools: tuple[Pool, ...]) -> None:
    pod = rule_pod(nodeSelector={PREEMPTIBLE: "true"})
    result, _, violations = placed(pod, view({PREEMPTIBLE: "true", GKE_POOL: "p"}, pools=pools), rule(ALL))
    assert violations == []
    assert result["spec"]["nodeSelector"] == {PREEMPTIBLE: "true"}
    assert isinstance(target_of(decoded(pod), {}, view({PREEMPTIBLE: "true", GKE_POOL: "p"}, pools=pools), ALL), Target)


def compute_class() -> Pool:
    reader = next(candidate for candidate in ALL["gke"].readers if candidate.kind == "ComputeClass")
    return reader.read({"metadata": {"name": "c"}, "spec": {"priorities": [{"spot": True}, {"spot": False}]}})


@pytest.mark.parametrize(
    ("pools", "nodes", "unknown"),
    [
        ((compute_class(),), (), True),
        ((compute_class(),), ({GKE_POOL: "other"},), False),
        ((compute_class(), gke_pool({"nodeCount": 1}, "s")), (), False),
    ],
)
def test_with_only_a_compute_class_the_node_pools_are_unknown(
    pools: tuple[Pool, ...], nodes: tuple[JSON, ...], *, unknown: bool
) -> None:
    targeting = target_of(pod_of(selector={GKE_POOL: "p"}), {}, view(*nodes, pools=pools), ALL)
    assert isinstance(targeting, NotTargeting)
    assert targeting.unknown is unknown


EKS = "eks.amazonaws.com/nodegroup"
MARK = "eks.amazonaws.com/capacityType"


@pytest.mark.parametrize(
    ("spot", "other", "targets"),
    [
        ({"lifecycle": "Ec2Spot"}, {"lifecycle": "OnDemand"}, True),
        ({"node.kubernetes.io/lifecycle": "spot"}, {}, True),
        ({"workload": "batch"}, {"workload": "web"}, True),
        ({"workload": "batch"}, {"workload": "batch"}, False),
        ({"nvidia.com/gpu.product": "L4"}, {}, False),
        ({"topology.ebs.csi.aws.com/zone": "a"}, {}, False),
        ({"node.kubernetes.io/instance-type": "m5.large"}, {"node.kubernetes.io/instance-type": "m6i.large"}, False),
        ({"accelerator": "nvidia"}, {}, False),
    ],
)
def test_selecting_a_label_of_visible_spot_nodes_only_targets_spot_unless_it_describes_the_machine(
    spot: JSON, other: JSON, *, targets: bool
) -> None:
    nodes = view({EKS: "s", MARK: "SPOT", **spot}, {EKS: "o", MARK: "ON_DEMAND", **other})
    targeting = target_of(pod_of(selector=spot), {}, nodes, ALL)
    assert isinstance(targeting, Target) is targets
    if targets:
        result, _, _ = placed(rule_pod(nodeSelector=spot), nodes, rule(ALL))
        assert result["spec"]["nodeSelector"] == {**spot, MARK: "SPOT"}  # unseen on-demand nodes may have the label


def test_a_label_does_not_target_spot_if_all_nodes_are_spot() -> None:
    nodes = view({EKS: "s", MARK: "SPOT", "workload": "batch"})
    assert isinstance(target_of(pod_of(selector={"workload": "batch"}), {}, nodes, ALL), NotTargeting)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(("a", "b", "", None))), max_size=12))
def test_moved_and_deleted_nodes_give_the_same_view_as_reading_all_nodes(changes: list[tuple[int, str | None]]) -> None:
    tally, there = NodeTally(), dict[int, NodeFacts]()
    for number, pool in changes:
        labels = {} if pool is None else {CKS: pool}
        after = None if pool == "" else node_facts({HOST: f"h{number}", **labels}, Node(), ALL.values(), f"n{number}")
        tally.replace(there.pop(number, None), after)
        if after is not None:
            there[number] = after
    assert tally.added_to(ClusterView()) == with_nodes(ClusterView(), there.values())

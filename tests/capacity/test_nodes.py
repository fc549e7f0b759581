"""Groups of Nodes act as pools, and are the same from files and from an API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import cks_pool, expression, other_pool, pod_of
from tests.capacity.requiring import ALL, landing
from tests.rules.placement import REQUIRED, SPOT, changes, placed, rule
from tests.rules.placement import pod_of as rule_pod
from webhook.capacity.placement.target import Target, target_of
from webhook.capacity.providers.nodes import Node
from webhook.capacity.providers.pool import CapacityType, Gpu
from webhook.capacity.view import ClusterView
from webhook.cluster.resources import all_nodes
from webhook.cluster.source import metadata_of
from webhook.cluster.view import NodeFacts, NodeTally, node_facts, with_nodes
from webhook.inputs.state import FileState, StateErrors

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.capacity.providers.pool import Pool

EKS_POOL, EKS_SPOT = "eks.amazonaws.com/nodegroup", "eks.amazonaws.com/capacityType"
ZONE, ARCH, OS = "topology.kubernetes.io/zone", "kubernetes.io/arch", "kubernetes.io/os"
GKE_POOL, KARPENTER_POOL = "cloud.google.com/gke-nodepool", "karpenter.sh/nodepool"
RESERVATION = "karpenter.k8s.aws/capacity-reservation"
JSON = dict[str, Any]


def node(name: str, pool: str, *taints: str, spot: bool = True, zone: str = "a", gpus: int = 0, **labels: str) -> JSON:
    parts = [(key, *value.split(":")) for key, value in (text.split("=") for text in taints)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                EKS_POOL: pool,
                EKS_SPOT: "SPOT" if spot else "ON_DEMAND",
                ZONE: zone,
                "kubernetes.io/hostname": name,
                ARCH: "amd64",
                **{key.replace("_", "-"): value for key, value in labels.items()},
            },
        },
        "spec": {"taints": [{"key": key, "value": value, "effect": effect} for key, value, effect in parts]},
        "status": {"allocatable": {"cpu": "4", "nvidia.com/gpu": str(gpus)}, "nodeInfo": {"kubeletVersion": "v1.34.2"}},
    }


def view(*nodes: JSON, pools: tuple[Pool, ...] | None = ()) -> ClusterView:
    """Return the view of the pools and the Nodes, decoded like answers of the API server."""
    read, encoded = all_nodes(ALL.values()).read, map(msgspec.Raw, map(msgspec.json.encode, nodes))
    return with_nodes(ClusterView(pools=pools), (read(metadata_of(raw), raw) for raw in encoded))


def summary(*nodes: JSON) -> ClusterView:
    """Return the view of the Nodes."""
    return view(*nodes, pools=None)


NODES = (
    node("n1", "spot", "lifecycle=Ec2Spot:NoSchedule", team="web"),
    node("n2", "spot", "lifecycle=Ec2Spot:NoSchedule", "maintenance=now:NoSchedule", zone="b", team="data"),
    node("n3", "gpu", "lifecycle=Ec2Spot:NoSchedule", "node.kubernetes.io/not-ready=:NoSchedule", gpus=8),
    node("n4", "system", spot=False),
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "without-pool", "labels": {ARCH: "amd64"}}},
)


def test_a_group_has_the_properties_that_all_of_its_nodes_share() -> None:
    gpu, spot, system = summary(*NODES).node_groups
    assert [(group.name, group.capacity, group.gpu) for group in (gpu, spot, system)] == [
        ("gpu", CapacityType.SPOT, Gpu.YES),
        ("spot", CapacityType.SPOT, Gpu.NO),
        ("system", CapacityType.ON_DEMAND, Gpu.NO),
    ]
    # No taint or label of a single Node, no temporary taint, and no label with different values.
    assert [list(map(str, group.taints)) for group in (gpu, spot)] == [["lifecycle=Ec2Spot:NoSchedule"]] * 2
    assert spot.labels == {EKS_POOL: "spot", EKS_SPOT: "SPOT", ARCH: "amd64"}
    assert spot.zones == {"a", "b"}
    assert (str(spot), spot.unusable) == ("node group spot", "")


@pytest.mark.parametrize(
    ("labels", "capacity"),
    [
        ({EKS_POOL: "a", EKS_SPOT: "CAPACITY_BLOCK"}, CapacityType.LIMITED),
        ({GKE_POOL: "a", "cloud.google.com/gke-flex-start": "true"}, CapacityType.LIMITED),
        ({GKE_POOL: "a", "cloud.google.com/gke-provisioning": "flex-start"}, CapacityType.LIMITED),
        ({GKE_POOL: "a", "cloud.google.com/gke-provisioning": "standard"}, CapacityType.ON_DEMAND),
        ({GKE_POOL: "a", "cloud.google.com/gke-provisioning": "preemptible"}, CapacityType.SPOT),
        ({KARPENTER_POOL: "a", f"{RESERVATION}-type": "capacity-block"}, CapacityType.LIMITED),
        ({KARPENTER_POOL: "a", f"{RESERVATION}-type": "default"}, CapacityType.ON_DEMAND),
        ({KARPENTER_POOL: "a", f"{RESERVATION}-interruptible": "true"}, CapacityType.SPOT),
        ({KARPENTER_POOL: "a", f"{RESERVATION}-interruptible": "false"}, CapacityType.ON_DEMAND),
    ],
)
def test_the_labels_of_a_node_tell_its_capacity(labels: dict[str, str], capacity: CapacityType) -> None:
    (group,) = with_nodes(ClusterView(), [node_facts(labels, Node(), ALL.values())]).node_groups
    assert group.capacity is capacity


def test_files_and_an_API_server_give_the_same_groups(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump_all(NODES))
    from_files = FileState([tmp_path], ALL).view()
    assert from_files.node_groups == summary(*NODES).node_groups
    assert (from_files.providers, from_files.spot_providers) == (frozenset({"eks"}), frozenset({"eks"}))
    assert from_files.oldest_kubelet == (1, 34)


@pytest.mark.parametrize(
    ("taints", "message"),
    [
        ("none", "13:3: spec.taints: expected a list, got text; give"),
        (
            [{"key": "spot", "value": True, "effect": "NoSchedule"}],
            "16:5: spec.taints[0].value: expected text, got the boolean true (YAML reads y, yes and on as true); write it in quotes",
        ),
    ],
)
def test_a_node_with_taints_of_wrong_types_is_an_error(taints: object, message: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump({**NODES[0], "spec": {"taints": taints}}))
    with pytest.raises(StateErrors) as error:
        FileState([tmp_path], ALL)
    assert f"nodes.yaml:{message}" in str(error.value)


def test_a_null_in_a_node_counts_as_absent(tmp_path: Path) -> None:
    null = {**NODES[0], "spec": {"taints": [{"key": "spot", "value": None, "effect": "NoSchedule"}]}, "status": None}
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(null))
    (group,) = FileState([tmp_path], ALL).view().node_groups
    assert list(map(str, group.taints)) == ["spot:NoSchedule"]


def test_a_node_of_two_providers_belongs_to_the_one_with_pools_in_the_cluster() -> None:
    labels = {"karpenter.sh/nodepool": "default", "kubernetes.azure.com/scalesetpriority": "spot"}
    facts = node_facts(labels, Node(), ALL.values())
    assert facts.kind is not None
    assert facts.kind.provider == "karpenter"
    assert facts.providers == {"aks", "karpenter"}


def test_conditions_of_nodes_do_not_affect_their_groups() -> None:
    """CoreWeave's conditions are internal: https://docs.coreweave.com/products/cks/nodes/nodes-and-node-pools."""
    conditions = [{"type": name, "status": "True"} for name in ("Ready", "PendingPreemption", "DrainInProgress")]

    def with_conditions(value: JSON) -> JSON:
        return {**value, "status": {**value.get("status", {}), "conditions": conditions}}

    assert summary(*map(with_conditions, NODES)).node_groups == summary(*NODES).node_groups


def test_nodes_without_a_pool_name_are_grouped_by_taints() -> None:
    gke = {"cloud.google.com/gke-spot": "true"}
    one, other = (
        {"metadata": {"name": name, "labels": gke}, "spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}
        for name, key in (("a", "spot"), ("b", "dedicated"))
    )
    assert [list(map(str, group.taints)) for group in summary(one, one, other).node_groups] == [
        ["dedicated:NoSchedule"],
        ["spot:NoSchedule"],
    ]


def test_equal_nodes_share_one_kind() -> None:
    nodes = [node(f"n{number}", "spot", "lifecycle=Ec2Spot:NoSchedule") for number in range(2_000)]
    read = all_nodes(ALL.values()).read
    facts = [read(metadata_of(raw), raw) for raw in map(msgspec.Raw, map(msgspec.json.encode, nodes))]
    assert len({id(fact.kind) for fact in facts}) == 1
    assert facts[0] == read(metadata_of(raw := msgspec.Raw(msgspec.json.encode(nodes[0]))), raw)  # a heartbeat


TOLERATE = [{"key": "lifecycle", "operator": "Equal", "value": "Ec2Spot", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("nodes", "pod", "expected"),
    [
        (NODES, {}, ["spot", "eks"]),
        (NODES, {"gpu": True}, ["gpu", "eks"]),
        (NODES, {"selector": {ZONE: "b"}}, ["spot", "eks"]),
        (NODES, {"selector": {ZONE: "c"}}, ["eks"]),
        (NODES, {"selector": {EKS_POOL: "spot"}}, ["spot"]),
        (NODES, {"selector": {EKS_POOL: "batch"}}, ["eks"] * 3),  # a pool that the Pod names may have any platform
        (NODES, {"selector": {EKS_POOL: "system"}}, []),  # it isn't spot
        (NODES, {"named": "spot"}, ["spot"]),
        (NODES[3:], {}, ["eks"]),
        (NODES[:1], {"gpu": True}, ["eks"]),
        ((node("n", "payments", "dedicated=payments:NoExecute"),), {}, ["eks"]),
        # Groups lack a label that none of their Nodes has, unless it may differ from Node to Node.
        (NODES, {"selector": {"team": "web"}}, ["spot", "eks"]),
        (NODES, {"selector": {"disktype": "ssd"}}, ["eks"]),
        (NODES, {"selector": {"topology.ebs.csi.aws.com/zone": "x"}}, ["spot", "eks"]),
        (NODES, {"selector": {"node.kubernetes.io/instance-type": "x"}}, ["spot", "eks"]),
        (NODES, {"selector": {"feature.node.kubernetes.io/cpu": "x"}}, ["spot", "eks"]),
    ],
)
def test_a_pod_lands_on_groups_of_nodes_and_on_unseen_nodes(
    nodes: tuple[JSON, ...], pod: JSON, expected: list[str]
) -> None:
    """Unseen nodes are those of groups that are scaled to zero, and of groups that are created later."""
    assert landing(pod_of(labels=SPOT, **pod), view=view(*nodes)) == expected


def test_a_pod_tolerates_the_taints_of_a_group_and_excludes_foreign_machines() -> None:
    pod = {"metadata": {"name": "a", "labels": SPOT}, "spec": {"containers": [{"name": "a"}]}}
    result, _, violations = placed(pod, view(*NODES), rule(ALL))
    assert violations == []
    assert result["spec"]["tolerations"] == TOLERATE
    assert result["spec"]["nodeSelector"] == {EKS_SPOT: "SPOT"}
    (term,) = result["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        expression(EKS_POOL, "NotIn", "gpu"),
        expression(ARCH, "NotIn", "arm64"),
        expression(OS, "NotIn", "windows"),
    ]


def test_only_selecting_a_spot_group_by_name_targets_spot() -> None:
    labelled = (node("n", "spot"), node("m", "system", spot=False))
    labelled[0]["metadata"]["labels"]["nvidia.com/gpu.product"] = "L4"
    assert landing(pod_of(selector={EKS_POOL: "spot"}), view=view(*labelled)) == ["spot"]
    assert not isinstance(
        target_of(pod_of(selector={"nvidia.com/gpu.product": "L4"}), {}, view(*labelled), ALL), Target
    )


def test_nodes_of_undeclared_pools_do_not_count_if_all_pools_are_declared() -> None:
    label = "compute.coreweave.com/node-pool"
    of_cks = {"metadata": {"name": "a", "labels": {label: "other"}}}
    assert landing(pod_of(labels=SPOT), view=view(of_cks, pools=(cks_pool("ours", gpu=False),))) == ["ours"]


def declared(provider: str, name: str, pool_name: str) -> Pool:
    pool = other_pool(ALL[provider], name, gpu=Gpu.NO)
    return msgspec.structs.replace(pool, pool_name=pool_name)


GROUPS = (node("a", "a"), node("tf", "tf", "spot=true:NoSchedule"), node("tfgpu", "tfgpu", gpus=8))


@pytest.mark.parametrize(
    ("pool", "nodes", "pod", "expected"),
    [
        (declared("eks", "a", "a"), GROUPS, {}, ["a", "tf"]),
        (declared("eks", "a", "a"), GROUPS, {"gpu": True}, ["tfgpu"]),
        (declared("eks", "in-git", "a"), GROUPS, {}, ["in-git", "tf"]),  # its Nodes are not a second pool
        (declared("eks", "a", ""), GROUPS, {}, ["a"]),  # any group may belong to this pool
        (declared("eks", "b", "b"), (node("x", "x", "dedicated=y:NoSchedule"),), {}, ["b"]),
        (declared("eks", "b", "b"), (node("x", ""),), {}, ["b"]),
        (declared("karpenter", "k", "k"), GROUPS, {}, ["a", "tf", "k", "eks"]),
    ],
)
def test_groups_without_a_declared_pool_count_in_addition_to_declared_pools(
    pool: Pool, nodes: tuple[JSON, ...], pod: JSON, expected: list[str]
) -> None:
    assert landing(pod_of(labels=SPOT, **pod), view=view(*nodes, pools=(pool,))) == expected


def test_a_node_of_a_deleted_pool_does_not_count() -> None:
    labels = {"karpenter.sh/nodepool": "deleted", "karpenter.sh/capacity-type": "spot"}
    old = {"metadata": {"name": "a", "labels": labels}}
    assert landing(pod_of(labels=SPOT), view=view(old, pools=(declared("karpenter", "k", "k"),))) == ["k"]


WINDOWS = {
    "metadata": {
        "name": "win",
        "labels": {"cloud.google.com/gke-nodepool": "win", "cloud.google.com/gke-spot": "true", OS: "windows"},
    },
    "spec": {"taints": [{"key": "node.kubernetes.io/os", "value": "windows", "effect": "NoSchedule"}]},
}


@pytest.mark.parametrize("own", [{"os": {"name": "windows"}}, {"nodeSelector": {OS: "windows"}}])
def test_a_taint_for_the_operating_system_is_tolerated_only_for_pods_that_request_it(own: JSON) -> None:
    result, _, violations = placed(rule_pod(labels=SPOT, **own), view(WINDOWS), rule(ALL))
    assert violations == []
    assert [toleration["key"] for toleration in result["spec"]["tolerations"]] == [
        "cloud.google.com/gke-spot",
        "node.kubernetes.io/os",
    ]
    # For other Pods, the taint is enough to keep them off.
    assert changes(rule_pod(labels=SPOT), view=view(WINDOWS), providers=ALL) == {
        "nodeSelector": {"cloud.google.com/gke-spot": "true"},
        "tolerations": result["spec"]["tolerations"][:1],
    }


SOME: tuple[NodeFacts | None, ...] = (
    None,
    *(
        node_facts(value["metadata"]["labels"], msgspec.convert(value, Node), ALL.values())
        for value in cast(
            "tuple[JSON, ...]",
            (
                *NODES,
                node("n5", "spot", spot=True, zone="c", gpus=1),
                node("n6", "spot", spot=False),
                {"metadata": {"labels": {"cloud.google.com/gke-spot": "true"}}, "spec": {"taints": [{"key": "spot"}]}},
            ),
        )
    ),
)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(SOME), st.booleans())))
def test_incremental_changes_of_Nodes_give_the_same_view_as_reading_all_of_them(
    changes: list[tuple[int, NodeFacts | None, bool]],
) -> None:
    tally, there = NodeTally(), dict[int, NodeFacts]()
    for number, sampled, is_viewed in changes:
        after = sampled and msgspec.structs.replace(sampled, names=(f"n{number}",))  # Node names are unique
        tally.replace(there.pop(number, None), after)
        if after is not None:
            there[number] = after
        if is_viewed:
            tally.added_to(ClusterView())
    assert tally.added_to(ClusterView()) == with_nodes(ClusterView(), there.values())


def test_node_groups_stay_the_same_tuple_if_Node_changes_do_not_affect_them() -> None:
    # Rules use the tuple as a cache key.
    tally = NodeTally()
    for facts in SOME:
        tally.replace(None, facts)
    before = tally.added_to(ClusterView()).node_groups
    tally.replace(None, SOME[1])
    assert tally.added_to(ClusterView()).node_groups is before
    tally.replace(SOME[1], None)
    assert tally.added_to(ClusterView()).node_groups is before

"""Node groups of eksctl's ClusterConfig, a file with several pools; pools/eks.yaml tests how each group is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.builders import pod_of
from tests.rules.conftest import shipped_provider
from webhook.capacity.placement.selector import select
from webhook.capacity.placement.supply import supply_of
from webhook.capacity.placement.target import Target, target_of
from webhook.capacity.providers.pool import CapacityType, Pool
from webhook.inputs.objects import read_manifests
from webhook.inputs.state import ListedPool, list_problems, view_of, with_listed_pools
from webhook.kube.pod import Requirement

if TYPE_CHECKING:
    from pathlib import Path

EKS = {"eks": shipped_provider("eks")}


def config(folder: Path, name: str = "blue", **groups: Any) -> Path:
    value = {"apiVersion": "eksctl.io/v1alpha5", "kind": "ClusterConfig", "metadata": {"name": name}, **groups}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(value, sort_keys=False))
    return file


def pools(*files: Path) -> dict[str, Pool]:
    pools_read = view_of(read_manifests(files).objects, EKS, complete=True).pools or ()
    return {f"{pool.namespace}/{pool.name}": pool for pool in pools_read}


def test_each_group_is_a_pool_of_the_files_cluster(tmp_path: Path) -> None:
    blue = config(tmp_path, managedNodeGroups=[{"name": "a"}, {"name": "b", "spot": True}], nodeGroups=[{"name": "c"}])
    green = config(tmp_path, "green", managedNodeGroups=[{"name": "a"}])
    pools_by_name = pools(blue, green)
    assert set(pools_by_name) == {"blue/a", "blue/b", "blue/c", "green/a"}
    assert {pool.cluster for pool in pools_by_name.values()} == {"blue", "green"}
    assert pools_by_name["blue/b"].capacity is CapacityType.SPOT
    assert all(pool.assumed_here for pool in pools(blue).values())


@pytest.mark.parametrize(("group", "chosen"), [("web", ["web"]), ("base", None)])
def test_pods_can_select_a_group_by_eksctls_label(tmp_path: Path, group: str, chosen: list[str] | None) -> None:
    groups = [{"name": "base"}, {"name": "web", "spot": True}, {"name": "batch", "spot": True}]
    view = view_of(read_manifests([config(tmp_path, managedNodeGroups=groups)]).objects, EKS, complete=True)
    targeting = target_of(pod_of(selector={"alpha.eksctl.io/nodegroup-name": group}), {}, view, EKS)
    assert ((isinstance(targeting, Target) and [pool.name for pool in targeting.pools or ()]) or None) == chosen


def test_fields_of_a_group_have_their_path_in_the_file(tmp_path: Path) -> None:
    file = config(tmp_path, managedNodeGroups=[{"name": "a"}, {"name": "b", "spot": True}])
    whole, _, second = with_listed_pools(read_manifests([file]).objects, EKS.values())
    assert isinstance(second, ListedPool)
    assert (whole.kind, second.kind) == ("ClusterConfig", "ManagedNodeGroup")
    assert second.written_field("spec.spot") == "managedNodeGroups[1].spot"
    assert second.written_field("metadata.name") == "managedNodeGroups[1].name"
    lines = file.read_text().splitlines()
    line, _ = second.position_of(("managedNodeGroups", 1, "spot"))
    assert lines[line - 1].strip() == "spot: true"


@pytest.mark.parametrize(
    ("groups", "messages"),
    [
        (None, []),
        ([{"name": 1}], []),
        ({}, ["managedNodeGroups: expected a list, got a map"]),
        ("a", ["managedNodeGroups: expected a list, got text"]),
        (
            [None, []],
            ["managedNodeGroups[0]: expected a map, got nothing", "managedNodeGroups[1]: expected a map, got a list"],
        ),
    ],
)
def test_an_invalid_list_of_groups_is_reported(tmp_path: Path, groups: object, messages: list[str]) -> None:
    file = config(tmp_path, managedNodeGroups=groups)
    assert all(isinstance(pool, Pool) for pool in pools(file).values())
    problems = list_problems(read_manifests([file]).objects, EKS.values())
    assert [f"{problem.field}: {problem.text}" for problem in problems] == messages


def test_a_lifecycle_label_selects_the_spot_nodes_of_a_mixed_group(tmp_path: Path) -> None:
    """Eksctl's boot scripts of Amazon Linux 2 and Ubuntu label each node with its lifecycle."""
    mixed = {"instanceTypes": ["m5.large", "m5a.large"], "onDemandPercentageAboveBaseCapacity": 50}
    web = {"name": "web", "amiFamily": "Ubuntu2204", "instancesDistribution": mixed}
    file = config(tmp_path, managedNodeGroups=[{"name": "base"}], nodeGroups=[web])
    view = view_of(read_manifests([file]).objects, EKS, complete=True)
    supply = supply_of(view, EKS)
    assert select(supply.spot, supply, (), by_name=False) == ((Requirement("node-lifecycle", "In", ("spot",)),),)
    targeting = target_of(pod_of(selector={"node-lifecycle": "spot"}), {}, view, EKS)
    assert isinstance(targeting, Target)
    assert [pool.name for pool in targeting.pools or ()] == ["web"]

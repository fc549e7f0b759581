"""The nodes of every provider are recognized. policies/tests/clouds.yaml has the nodes, and the Pods placed on them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.builders import BUNDLE, pod_of
from webhook.capacity.placement.target import Target, target_of
from webhook.capacity.providers.nodes import Node
from webhook.capacity.view import ClusterView
from webhook.cluster.view import node_facts
from webhook.engine.bundle import SHIPPED

PROVIDERS = BUNDLE.providers
TEST, _ = yaml.safe_load_all((SHIPPED / "tests" / "clouds.yaml").read_text())
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in TEST["spec"]["cases"]}
CLOUDS = [name for name, provider in PROVIDERS.items() if provider.spot_node_labels]


def test_every_provider_that_labels_spot_nodes_has_a_case() -> None:
    assert set(CLOUDS) == PROVIDERS.keys() & CASES
    assert PROVIDERS.keys() - CLOUDS == {"cks", "spot-ocean"}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_spot_node_is_recognized_and_an_on_demand_node_is_not_spot(cloud: str) -> None:
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in CASES[cloud]["state"]["objects"]}
    spot, on_demand = (node_facts(labels[name], Node(), PROVIDERS.values()).kind for name in ("spot", "on-demand"))
    assert spot is not None
    assert (spot.provider, spot.spot) == (cloud, True)
    assert on_demand is None or (on_demand.provider, on_demand.spot) == (cloud, False)
    assert not PROVIDERS[cloud].is_spot_node(labels["on-demand"])


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_selector_for_the_spot_label_targets_spot_in_a_cluster_that_shows_no_provider(cloud: str) -> None:
    for label in PROVIDERS[cloud].spot_node_labels:
        target = target_of(pod_of(selector={label.key: label.value}), {}, ClusterView(pools=()), PROVIDERS)
        assert isinstance(target, Target)
        assert [provider.name for provider in target.providers] == [cloud]


def test_a_node_that_another_tool_added_to_a_cloud_belongs_to_the_tool() -> None:
    (on_gke, _) = CASES["a node of Cast AI on GKE"]["state"]["objects"]
    facts = node_facts(on_gke["metadata"]["labels"], Node(), PROVIDERS.values())
    assert facts.kind is not None
    assert facts.kind.provider == "cast-ai"
    assert facts.providers == {"cast-ai", "gke"}

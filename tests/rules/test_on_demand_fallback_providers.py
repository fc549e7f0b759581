"""OnDemandFallback where the pools are GKE's, Karpenter's, or those of another cluster."""

from __future__ import annotations

from tests.rules.conftest import shipped_provider
from webhook.capacity.providers.provider import readers_by_resource
from webhook.rules.on_demand_fallback.rule import KIND
from webhook.rules.protocol import Facts

PROVIDERS = {name: shipped_provider(name) for name in ("cks", "karpenter", "gke", "eks", "aks", "cluster-api")}
FACTS = Facts(PROVIDERS)
READERS = readers_by_resource(PROVIDERS.values())


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

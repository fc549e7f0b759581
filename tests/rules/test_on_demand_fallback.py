"""OnDemandFallback: invariants, and the requests that it evaluates."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import BUNDLE
from tests.rules.conftest import change_of, shipped_provider, with_fields
from tests.specs import spec_of
from webhook.base.placeholders import placeholder_in
from webhook.capacity.providers.provider import readers_by_resource
from webhook.capacity.view import ClusterView
from webhook.model.decision import Outcome, Violation
from webhook.rules.context import Context, Phase, utc_now
from webhook.rules.on_demand_fallback.rule import KIND, OnDemandFallback
from webhook.rules.on_demand_fallback.spec import OnDemandFallbackSpec
from webhook.rules.protocol import Facts

CKS = shipped_provider("cks")
FACTS = Facts({"cks": CKS})
(READER,) = CKS.readers
NODE_POOLS = ("compute.coreweave.com", "nodepools")

Json = dict[str, Any]

H100 = "gd-8xh100ib-i128"
A100 = "gd-8xa100-i128"
CPU = "turin-gp"
FORBIDDEN = {"key": "node.coreweave.cloud/reserved", "effect": "NoSchedule"}


def pool_manifest(name: str, instance_type: str | None = H100, **spec: Any) -> Json:
    """Return a NodePool with one on-demand H100 node; fields override that, and None removes a field."""
    fields = {"instanceType": instance_type, "targetNodes": 1, **spec}
    return {"metadata": {"name": name}, "spec": {key: value for key, value in fields.items() if value is not None}}


def changed(value: Json, **spec: Any) -> Json:
    return {**value, "spec": {**value["spec"], **spec}}


def deleting(value: Json) -> Json:
    return {**value, "metadata": {**value["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


SPOT = pool_manifest("h100-spot", computeClass="spot")
ON_DEMAND = pool_manifest("h100-od")


def rule_of(facts: Facts = FACTS, **spec: Any) -> OnDemandFallback:
    rule = KIND.compile(spec_of(OnDemandFallbackSpec, spec), facts)
    assert isinstance(rule, OnDemandFallback)
    return rule


RULE = rule_of()


def context_of(cluster: list[Json] | None) -> Context:
    """Return the context of a cluster with these node pools; None if they are unknown."""
    pools = tuple(map(READER.read, cluster)) if cluster is not None else None
    view = ClusterView(pools=pools, why_unknown="the API server did not answer within 1.0 s", remedy="try again later")
    return Context(phase=Phase.VALIDATE, now=utc_now(), view=view)


def losses(
    new: Json | None, old: Json | None, cluster: list[Json] | None, rule: OnDemandFallback = RULE
) -> list[Violation]:
    return list(rule.validate(change_of(NODE_POOLS, new, old), context_of(cluster)))


def outcomes(violations: list[Violation]) -> list[Outcome]:
    return [violation.outcome for violation in violations]


DENIED = [Outcome.DENY]


# The kind.


def test_the_kind_matches_all_pools_their_scale_and_the_objects_that_set_their_size() -> None:
    rules = KIND.rules(Facts(BUNDLE.providers))
    matched = {match for rule in rules for match in product(rule.api_groups, rule.resources, rule.operations)}
    pools = {pool for pool in readers_by_resource(BUNDLE.providers.values()) if not pool[0].startswith("eksctl")}
    assert {(*pool, operation) for pool in pools for operation in ("CREATE", "UPDATE", "DELETE")} <= matched
    sized = {("cluster.x-k8s.io", "machinepools", operation) for operation in ("UPDATE", "DELETE")}
    scaled = {("karpenter.sh", "nodepools/scale", "UPDATE"), ("cluster.x-k8s.io", "machinepools/scale", "UPDATE")}
    assert sized | scaled | {("compute.coreweave.com", "nodepools/scale", "UPDATE")} <= matched


def test_a_reader_without_scale_has_no_rule_for_scale() -> None:
    unscaled = with_fields(READER, scale=False)
    facts = Facts({"cks": with_fields(CKS, readers=(unscaled,))})
    assert [rule.resources for rule in KIND.rules(facts)] == [("nodepools",)]


def test_the_kind_needs_current_pools_and_denies_unknown_results() -> None:
    assert KIND.fresh_pools
    assert KIND.unknown_outcome is Outcome.DENY


# Invariants.

pools = st.builds(
    lambda name, instance_type, fields: pool_manifest(name, instance_type, **fields),
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
clusters = st.lists(st.one_of(pools, pools.map(deleting)), max_size=4, unique_by=lambda pool: pool["metadata"]["name"])
rules = st.sampled_from((RULE, rule_of(require="any"), rule_of(require="same-type")))


def denied(violations: list[Violation]) -> bool:
    return Outcome.DENY in outcomes(violations)


@given(pools, clusters, rules)
def test_an_update_that_changes_nothing_is_never_denied(pool: Json, cluster: list[Json], rule: Any) -> None:
    assert not losses(pool, pool, cluster, rule)


@given(pools, clusters, rules)
def test_the_result_does_not_depend_on_whether_the_view_has_the_reviewed_pool(
    pool: Json, cluster: list[Json], rule: OnDemandFallback
) -> None:
    without = [other for other in cluster if other["metadata"]["name"] != pool["metadata"]["name"]]
    assert losses(pool, None, without, rule) == losses(pool, None, [*without, pool], rule)
    assert losses(None, pool, without, rule) == losses(None, pool, [*without, pool], rule)


@given(pools, pools, clusters, rules)
def test_a_denied_update_is_also_denied_as_a_deletion_or_creation(
    old: Json, new: Json, cluster: list[Json], rule: OnDemandFallback
) -> None:
    new = {**new, "metadata": old["metadata"]}
    if denied(losses(new, old, cluster, rule)):
        assert denied(losses(None, old, cluster, rule)) or denied(losses(new, None, cluster, rule))


@given(pools, clusters, rules)
def test_no_request_is_denied_if_there_is_a_healthy_pool_of_the_same_type(
    pool: Json, cluster: list[Json], rule: OnDemandFallback
) -> None:
    types = (pool["spec"].get("instanceType"), *(other["spec"].get("instanceType") for other in cluster))
    healthy: list[Json] = [
        pool_manifest(f"healthy-{number}", kind) for number, kind in enumerate({*types, H100} - {None})
    ]
    if None in types:
        rule = rule_of(require="gpu")
    assert not denied(losses(pool, None, [*cluster, *healthy], rule))
    assert not denied(losses(None, pool, [*cluster, *healthy], rule))


@given(pools, clusters, rules, st.randoms(use_true_random=False))
def test_the_result_does_not_depend_on_the_order_of_pools(
    pool: Json, cluster: list[Json], rule: OnDemandFallback, random: Any
) -> None:
    shuffled = random.sample(cluster, len(cluster))
    assert losses(None, pool, cluster, rule) == losses(None, pool, shuffled, rule)
    assert losses(pool, None, cluster, rule) == losses(pool, None, shuffled, rule)


@pytest.mark.parametrize("old", [None, {}, {"spec": []}])
@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
def test_the_cluster_supplies_an_old_object_that_the_request_lacks(old: Any, operation: str) -> None:
    after = changed(ON_DEMAND, targetNodes=0, autoscaling=False) if operation == "UPDATE" else None
    subject = change_of(NODE_POOLS, after, ON_DEMAND)
    request = msgspec.structs.replace(subject.request, name=ON_DEMAND["metadata"]["name"])
    subject.but(request=request, old_object=old)
    assert outcomes(list(RULE.validate(subject, context_of([SPOT, ON_DEMAND])))) == DENIED


@pytest.mark.parametrize("text", ["$1", "a$TYPE", "$TYPE.large", "<TYPE>", "((type))", "$"])
def test_a_placeholder_is_a_whole_value_with_a_dollar_and_a_name(text: str) -> None:
    assert (placeholder_in(text), placeholder_in(["m5.large", "$_TYPE2"])) == ("", "$_TYPE2")

"""Which requests a policy applies to: the matching ones without the exempt ones."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.engine.rules import (
    EVERYTHING,
    POD,
    POOLS,
    WRONG,
    Finds,
    JudgesPools,
    Tolerates,
    index,
    mutate,
    outcomes,
    policy,
    request,
    validate,
)
from tests.specs import spec_of
from webhook.capacity.view import ClusterView
from webhook.model.decision import Finding, Outcome
from webhook.policy.common import ExemptSpec, MatchSpec
from webhook.policy.match import PODS_CREATE, Exemption, Matcher, ResourceRule
from webhook.rules.context import Phase


def exempt(**parts: Any) -> Exemption:
    return Exemption(spec_of(ExemptSpec, {"reason": "agreed", **parts}), "exempt[0]", "policy.yaml:9")


@pytest.mark.parametrize(
    ("parts", "exempted"),
    [
        ({"users": ["jane"]}, True),
        ({"users": ["jo*"]}, False),
        ({"groups": ["devs"]}, True),
        ({"namespaces": ["team-*"]}, True),
        ({"names": ["web"]}, True),
        ({"users": ["jane"], "namespaces": ["team-b"]}, False),
        ({"users": ["jane"], "expires": "2026-11-21"}, True),
        ({"users": ["jane"], "expires": "2026-11-20"}, False),
        ({"serviceAccounts": ["team-a:*"]}, False),
    ],
)
def test_an_exemption_applies_if_all_of_its_fields_match(parts: dict[str, Any], *, exempted: bool) -> None:
    exempting = index(policy(Finds(), exemptions=(exempt(**parts),)))
    decision = validate(exempting, request(POD, name="web"))
    assert (not decision.findings) is exempted


def test_an_unknown_user_is_not_exempt() -> None:
    exempting = index(policy(Finds(), exemptions=(exempt(users=["*"], groups=["*"]),)))
    assert outcomes(validate(exempting, request(POD, userInfo={}))) == ["deny"]


@pytest.mark.parametrize(
    ("user", "exempted"),
    [
        ("system:serviceaccount:ci:deployer", True),
        ("system:serviceaccount:ci:web", False),
        ("system:serviceaccount:evil:x:deployer", False),  # a certificate can have any name
        ("system:serviceaccount:deployer", False),
        ("ci:deployer", False),
    ],
)
def test_a_service_account_is_exempt_by_namespace_and_name(user: str, *, exempted: bool) -> None:
    exempting = index(policy(Finds(), exemptions=(exempt(serviceAccounts=["*:deploy*"]),)))
    assert (not validate(exempting, request(POD, userInfo={"username": user})).findings) is exempted


@pytest.mark.parametrize(
    ("resource", "operation", "exempted"),
    [
        ("pods", "CREATE", True),
        ("pods/status", "UPDATE", True),
        ("pods/ephemeralcontainers", "UPDATE", True),
        ("pods/eviction", "CREATE", False),
        ("pods/binding", "CREATE", False),
        ("deployments/scale", "UPDATE", False),
        ("serviceaccounts/token", "CREATE", False),
        ("pods/exec", "CONNECT", False),
    ],
)
def test_labels_exempt_only_objects_and_not_requests_such_as_evictions(
    resource: str, operation: str, *, exempted: bool
) -> None:
    for selector in (
        {"matchLabels": {"app": "web"}},
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
    ):
        exempting = index(policy(Finds(), rules=(EVERYTHING,), exemptions=(exempt(objectSelector=selector),)))
        sent = {"metadata": {"labels": {"app": "web"}}}
        asked = request(sent, resource=resource, operation=operation)
        assert (not validate(exempting, asked).findings) is exempted


def test_an_exemption_by_namespace_covers_a_namespace_with_a_generated_name() -> None:
    namespaces = ResourceRule(api_groups=("",), resources=("namespaces",), operations=("*",))
    exempting = index(policy(Finds(), rules=(namespaces,), exemptions=(exempt(namespaces=["team-*"]),)))
    for name, exempted in (("team-x7k2p", True), ("prod-x7k2p", False), ("", False)):
        asked = request({"metadata": {}}, resource="namespaces", namespace="", name=name)
        assert (not validate(exempting, asked).findings) is exempted


def match(**parts: Any) -> Matcher:
    return Matcher(spec_of(MatchSpec, parts))


VIEW = ClusterView(namespaces={"team-a": {"tier": "batch"}})


@pytest.mark.parametrize(
    ("parts", "matches"),
    [
        ({"namespaces": {"include": ["team-*"]}}, True),
        ({"namespaces": {"include": ["prod-*"]}}, False),
        ({"namespaces": {"exclude": ["team-a"]}}, False),
        ({"namespaceSelector": {"matchLabels": {"tier": "batch"}}}, True),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["batch"]}]}},
            False,
        ),
        ({"objectSelector": {"matchLabels": {"app": "web"}}}, False),
        ({"objectSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, True),
    ],
)
def test_every_field_of_match_restricts_a_policy(parts: dict[str, Any], *, matches: bool) -> None:
    decision = validate(index(policy(Finds(), matcher=match(**parts))), request(POD), view=VIEW)
    assert bool(decision.findings) is matches


def test_an_unknown_namespace_has_only_its_name() -> None:
    by_name = match(namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "team-a"}})
    assert validate(index(policy(Finds(), matcher=by_name)), request(POD)).findings


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE", "CONNECT"])
def test_a_namespace_is_selected_by_the_labels_in_its_request(operation: str) -> None:
    by_label = policy(Finds(), rules=(EVERYTHING,), matcher=match(namespaceSelector={"matchLabels": {"tier": "batch"}}))
    namespace = {"metadata": {"name": "team-b", "labels": {"tier": "batch"}}}
    decision = validate(index(by_label), request(namespace, resource="namespaces", operation=operation))
    assert bool(decision.findings) is (operation != "CONNECT")


BATCH = {"matchLabels": {"tier": "batch"}}
NOT_BATCH = {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["batch"]}]}
NOT_HERE = {"matchLabels": {"tier": "batch", "kubernetes.io/metadata.name": "team-b"}}


@pytest.mark.parametrize(
    ("parts", "view", "expected"),
    [
        ({"namespaceSelector": BATCH}, ClusterView(), ["indeterminate"]),
        ({"namespaceSelector": NOT_BATCH}, ClusterView(), ["deny"]),
        ({"namespaceSelector": BATCH}, VIEW, ["deny"]),
        ({"namespaceSelector": NOT_BATCH}, VIEW, []),
        ({"namespaceSelector": NOT_HERE}, ClusterView(), []),
        ({"namespaceSelector": BATCH, "namespaces": {"exclude": ["team-a"]}}, ClusterView(), []),
        ({"namespaceSelector": BATCH, "objectSelector": {"matchLabels": {"app": "web"}}}, ClusterView(), []),
        ({"namespaces": {"include": ["team-*"]}}, ClusterView(), ["deny"]),
    ],
)
def test_a_match_that_depends_on_unknown_namespace_labels_is_indeterminate(
    parts: dict[str, Any], view: ClusterView, expected: list[str]
) -> None:
    decision = validate(index(policy(Finds(), matcher=match(**parts))), request(POD), view=view, offline=True)
    assert outcomes(decision) == expected
    assert decision.unknown == expected.count("indeterminate")


def test_an_indeterminate_finding_names_the_missing_facts_and_the_possible_outcome() -> None:
    matcher = match(namespaceSelector=BATCH)
    judging = index(policy(Finds(), matcher=matcher))
    (finding,) = validate(judging, request(POD), offline=True).findings
    assert finding == Finding(
        policy="policy",
        id="object/namespace-unknown",
        outcome=Outcome.INDETERMINATE,
        reason="the labels of namespace team-a are unknown, so spotgate can't evaluate match.namespaceSelector",
        detail="If the selector matches the namespace, the outcome is `deny`: it is wrong.",
        field="spec.x",
        fix="pass the manifest of Namespace team-a, as a PATH or with --state",
    )
    unknown = replace(WRONG, reason="it is wrong.", unknown=True)
    both = Finds((replace(unknown, yaml={"a": 1}), replace(unknown, other={"a": 1})))
    (other,) = validate(index(policy(both, matcher=matcher)), request(POD), offline=True).findings
    assert other == replace(
        finding, detail="If the selector matches the namespace, the outcome is `indeterminate`: it is wrong."
    )
    assert not validate(index(policy(Finds(()), matcher=matcher)), request(POD), offline=True).findings
    assert not validate(judging, request(POD)).findings  # a server treats it as a namespace without labels


def test_the_labels_in_a_namespaces_request_are_known() -> None:
    rules = (ResourceRule(api_groups=("",), resources=("namespaces",), operations=("*",)),)
    judging = index(policy(Finds(), rules=rules, matcher=match(namespaceSelector=BATCH)))
    for labels, expected in (({"tier": "batch"}, ["deny"]), ({}, [])):
        asked = request({"metadata": {"name": "team-a", "labels": labels}}, resource="namespaces", name="team-a")
        assert outcomes(validate(judging, asked, offline=True)) == expected


def test_mutation_changes_nothing_if_the_match_is_indeterminate() -> None:
    judging = index(policy(Tolerates(), matcher=match(namespaceSelector=BATCH)))
    assert not mutate(judging, request(POD), offline=True).patch
    assert mutate(judging, request(POD), offline=True, view=VIEW).patch
    (finding,) = validate(judging, request(POD), offline=True).findings
    assert finding.outcome is Outcome.INDETERMINATE
    assert finding.detail == "The policy injected nothing. The Pod as written has this finding: no toleration."


def test_the_trace_explains_why_a_policy_was_skipped() -> None:
    skipped = policy(Finds(), name="skipped", matcher=match(namespaces={"exclude": ["team-a"]}))
    decision = validate(index(policy(Finds(), name="looked"), skipped), request(POD), trace=True)
    assert tuple((name, where, step.text) for name, where, step in decision.steps) == (
        ("looked", "", "it looked at CREATE in validate"),
        ("skipped", "", "match.namespaces.exclude names namespace team-a"),
    )


@pytest.mark.parametrize("trace", [False, True])
def test_an_object_over_a_bound_is_denied_only_by_policies_that_match_it_and_its_user(*, trace: bool) -> None:
    large = {"spec": {"containers": [{}], "nodeSelector": dict.fromkeys(map(str, range(1000)), "")}}
    elsewhere = policy(Tolerates(), name="elsewhere", matcher=match(namespaces={"exclude": ["team-a"]}))
    selecting = policy(Tolerates(), name="selecting", matcher=match(objectSelector={"matchLabels": {"app": "other"}}))
    exempting = policy(Tolerates(), name="exempting", exemptions=(exempt(users=["jane"]),))
    judging = index(policy(Tolerates(), enforcement=Outcome.WARN), elsewhere, selecting, exempting)
    decision = validate(judging, request(large), trace=trace)
    assert outcomes(decision) == ["warn"]
    assert any(step.text.startswith("not evaluated: spec.nodeSelector") for *_, step in decision.steps) is trace
    assert outcomes(validate(judging, request(large, namespace="team-b"), trace=trace)) == ["deny"]


def test_the_cache_of_policies_by_namespace_is_bounded() -> None:
    route = index(policy(Finds())).route(Phase.VALIDATE, request(POD))
    assert route is not None
    names = ["x" * 254, *map(str, range(4097))]
    assert [route.within(name) is route.within(name) for name in names] == [False, *[True] * 4096, False]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, {"pools": "", "updates": "match.resourceRules names pods on UPDATE, not on CREATE"}),
        ({"operation": "DELETE"}, {"pods": "match.resourceRules names pods on CREATE, not on DELETE"}),
        (
            {"resource": "deployments", "group": "apps"},
            {"excluded": "match.excludeResourceRules[0] names deployments on CREATE"},
        ),
        ({"resource": "pools", "group": "example.com"}, {"pods": "", "updates": "", "excluded": ""}),
    ],
)
def test_a_skipped_policy_names_the_field_of_match_that_excludes_the_request(
    asked: dict[str, str], expected: dict[str, str]
) -> None:
    updates = replace(PODS_CREATE, operations=("UPDATE",))
    deployments = ResourceRule(api_groups=("apps",), resources=("deployments",), operations=("*",))
    policies = index(
        policy(Finds(), name="pods"),
        policy(JudgesPools(), name="pools", rules=(POOLS,)),
        policy(Finds(), name="updates", rules=(updates,)),
        policy(Finds(), name="excluded", exclude=(deployments,)),
    )
    left_out = {policy.name: why for policy, why in policies.left_out(request(POD, **asked))}

    assert expected.items() <= left_out.items()

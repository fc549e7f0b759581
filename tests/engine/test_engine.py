"""What the engine does with violations and edits: each step, alone."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest
from msgspec.structs import replace

from tests.engine.rules import (
    DEPLOYMENT,
    POD,
    POOLS,
    REPLICASET_CONTROLLER,
    WRONG,
    JudgesPools,
    Says,
    Tolerates,
    index,
    mutate,
    outcomes,
    policy,
    request,
    validate,
)
from webhook.capacity.view import Needs
from webhook.engine.engine import needs
from webhook.model.decision import Decision, Outcome
from webhook.policy.common import MatchSpec
from webhook.policy.match import Matcher, ResourceRule
from webhook.rules.context import Phase


@pytest.mark.parametrize(
    ("enforcement", "said", "expected"),
    [
        (Outcome.DENY, Outcome.DENY, "deny"),
        (Outcome.DENY, Outcome.WARN, "warn"),
        (Outcome.WARN, Outcome.DENY, "warn"),
        (Outcome.AUDIT, Outcome.DENY, "audit"),
        (Outcome.AUDIT, Outcome.WARN, "audit"),
    ],
)
def test_enforcement_only_lowers_what_a_rule_says(enforcement: Outcome, said: Outcome, expected: str) -> None:
    rule = Says((replace(WRONG, outcome=said),))
    decision = validate(index(policy(rule, enforcement=enforcement)), request(POD))
    assert outcomes(decision) == [expected]
    assert decision.audit == {"policy": f"{expected} test/unwanted: it is wrong"}
    assert decision.findings[0].would_deny is (said is Outcome.DENY and enforcement is not Outcome.DENY)


@pytest.mark.parametrize("enforcement", [Outcome.AUDIT, Outcome.WARN])
@pytest.mark.parametrize(
    ("changes", "would_deny"),
    [
        ({"userInfo": {"username": REPLICASET_CONTROLLER}}, False),
        ({"userInfo": {"username": "system:serviceaccount:kube-system:namespace-controller"}}, False),
        ({"userInfo": {"username": "jane"}}, True),
    ],
)
def test_what_would_be_denied_is_told_while_a_policy_does_not_deny(
    enforcement: Outcome, changes: dict[str, Any], *, would_deny: bool
) -> None:
    trying = index(policy(Says(), enforcement=enforcement))
    assert [each.would_deny for each in validate(trying, request(POD, **changes)).findings] == [would_deny]
    warning = index(policy(Says(), enforcement=enforcement, declared=Outcome.WARN))
    assert [each.would_deny for each in validate(warning, request(POD, **changes)).findings] == [False]
    of_template = validate(trying, request(DEPLOYMENT, group="apps", resource="deployments"))
    assert [each.would_deny for each in of_template.findings] == [False]


def test_a_request_that_nobody_matches_is_not_even_decoded() -> None:
    decision = validate(index(policy(Says())), request("no object at all", resource="configmaps"))
    assert decision == Decision()


def test_wildcards_match_resources_nobody_declared() -> None:
    everything = ResourceRule(api_groups=("*",), resources=("*",), operations=("CREATE",))
    wild = index(policy(Says(), rules=(everything,), exclude=(replace(everything, resources=("secrets",)),)))
    assert outcomes(validate(wild, request(POD, group="a", resource="bs"))) == ["deny"]
    assert outcomes(validate(wild, request(POD, group="a", resource="secrets"))) == []
    assert outcomes(validate(wild, request(POD, group="a", resource="bs/status"))) == []


@pytest.mark.parametrize("namespace", ["kube-system", "kube-node-lease", "spotgate-system"])
def test_system_namespaces_are_never_touched(namespace: str) -> None:
    both = index(policy(Tolerates()))
    assert not validate(both, request(POD, namespace=namespace)).findings
    assert not mutate(both, request(POD, namespace=namespace)).patch


MIRROR = {**POD, "metadata": {"name": "web", "annotations": {"kubernetes.io/config.mirror": "x"}}}


@pytest.mark.parametrize(
    ("user", "outcome"),
    [
        ({"username": "system:node:a", "groups": ["system:nodes", "system:authenticated"]}, []),
        ({"username": "system:node:a", "groups": ["devs"]}, ["deny"]),
        ({"username": "jane", "groups": ["devs"]}, ["deny"]),
        ({"username": ""}, ["deny"]),
    ],
)
def test_only_a_node_makes_a_mirror_pod_that_is_never_touched(user: dict[str, Any], outcome: list[str]) -> None:
    assert outcomes(validate(index(policy(Says())), request(MIRROR, userInfo=user))) == outcome
    assert bool(mutate(index(policy(Tolerates())), request(MIRROR, userInfo=user)).patch) is bool(outcome)


def test_a_policy_that_names_a_system_namespace_may_warn_there_and_no_more() -> None:
    include = {"namespaces": {"include": ["*", "kube-system"]}}
    naming = index(policy(Tolerates(), matcher=Matcher(MatchSpec.model_validate(include))))
    there = request(POD, namespace="kube-system")
    (finding,) = validate(naming, there).findings
    assert finding.outcome is Outcome.WARN
    assert finding.detail.endswith("Not denied: kube-system is a system namespace.")
    assert not mutate(naming, there).patch
    assert not validate(naming, request(POD, namespace="kube-node-lease")).findings
    malformed = validate(naming, request({"metadata": 3}, namespace="kube-system"))
    assert not malformed.findings
    assert not malformed.malformed


def test_an_edit_becomes_a_patch_that_names_its_policy_and_a_second_pass_makes_none() -> None:
    both = index(policy(Tolerates(), name="adds"))
    decision = mutate(both, request(POD))
    assert [operation.policy for operation in decision.patch] == ["adds"]
    patched = jsonpatch.apply_patch(POD, [operation.as_json() for operation in decision.patch])
    assert not mutate(both, request(patched)).patch
    assert not validate(both, request(patched)).findings


def test_under_audit_nothing_is_changed_but_recorded() -> None:
    both = index(policy(Tolerates(), enforcement=Outcome.AUDIT))
    assert not mutate(both, request(POD)).patch
    assert outcomes(validate(both, request(POD))) == ["audit"]


@pytest.mark.parametrize("user", [REPLICASET_CONTROLLER, "system:kube-controller-manager"])
def test_a_built_in_controller_is_warned_and_not_denied(user: str) -> None:
    decision = validate(index(policy(Says())), request(POD, userInfo={"username": user}))
    assert outcomes(decision) == ["warn"]
    assert decision.audit["controller-created"] == user


def test_a_policy_may_insist_on_denying_controllers() -> None:
    strict = index(policy(Says(), controller_denies=True))
    assert outcomes(validate(strict, request(POD, userInfo={"username": REPLICASET_CONTROLLER}))) == ["deny"]


@pytest.mark.parametrize("name", ["namespace-controller", "generic-garbage-collector"])
def test_who_cleans_up_is_never_denied(name: str) -> None:
    strict = index(policy(Says(), controller_denies=True))
    user = {"username": f"system:serviceaccount:kube-system:{name}"}
    assert outcomes(validate(strict, request(POD, userInfo=user))) == ["warn"]


def test_a_service_account_of_that_name_elsewhere_is_no_controller() -> None:
    user = {"username": "system:serviceaccount:team-a:replicaset-controller"}
    assert outcomes(validate(index(policy(Says())), request(POD, userInfo=user))) == ["deny"]


UNKNOWN = replace(WRONG, unknown=True)


@pytest.mark.parametrize(("at_most", "expected"), [(Outcome.WARN, "warn"), (Outcome.DENY, "deny")])
def test_the_unknown_is_counted_and_never_a_pass(at_most: Outcome, expected: str) -> None:
    decision = validate(index(policy(Says((UNKNOWN,)), unknown_outcome=at_most)), request(POD))
    assert outcomes(decision) == [expected]
    assert decision.unknown == 1


def test_offline_the_unknown_is_indeterminate() -> None:
    decision = validate(index(policy(Says((UNKNOWN,)), unknown_outcome=Outcome.DENY)), request(POD), offline=True)
    assert outcomes(decision) == ["indeterminate"]


def test_a_pod_of_the_wrong_types_is_refused_with_the_field() -> None:
    malformed = {"spec": {"tolerations": "all"}}
    for decision in (
        mutate(index(policy(Tolerates())), request(malformed)),
        validate(index(policy(Tolerates())), request(malformed)),
    ):
        assert decision.malformed
        assert decision.denied
        assert decision.findings[0].field == "spec.tolerations"
        assert not decision.patch


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": None},
        {
            "containers": [],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": None}}
            },
        },
    ],
)
def test_an_empty_list_that_the_api_server_writes_as_null_is_left_for_it_to_refuse(spec: dict[str, Any]) -> None:
    pod = {"spec": spec}
    assert mutate(index(policy(Tolerates())), request(pod)).patch
    assert [each.reason for each in validate(index(policy(Tolerates())), request(pod)).findings] == ["no toleration"]


def test_needs_are_those_of_the_policies_that_match() -> None:
    both = index(
        policy(Says(), needs=Needs(namespaces=True)),
        policy(JudgesPools(), name="p", rules=(POOLS,), needs=Needs(pools=True, fresh=True)),
    )
    assert needs(both.route(Phase.VALIDATE, request(POD))) == Needs(namespaces=True)
    assert needs(both.route(Phase.VALIDATE, request({}, group="example.com", resource="pools"))).fresh
    assert needs(both.route(Phase.VALIDATE, request({}, resource="secrets"))) == Needs()


def test_without_a_trace_a_decision_keeps_no_word_of_it() -> None:
    deployment = request(DEPLOYMENT, resource="deployments", group="apps")
    traced = validate(index(policy(Says())), deployment, trace=True)
    silent = validate(index(policy(Says())), deployment)

    assert [finding.lowered for finding in traced.findings] == ["warn, not deny: it is about a pod template"]
    assert [finding.lowered for finding in silent.findings] == [""]
    assert silent.steps == ()
    assert silent.audit == traced.audit

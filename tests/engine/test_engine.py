"""The engine's handling of violations and edits, step by step."""

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
from webhook.model.decision import Decision, Outcome
from webhook.policy.common import MatchSpec
from webhook.policy.match import Matcher, ResourceRule
from webhook.rules.context import Phase


@pytest.mark.parametrize(
    ("enforcement", "reported", "expected"),
    [
        (Outcome.DENY, Outcome.DENY, "deny"),
        (Outcome.DENY, Outcome.WARN, "warn"),
        (Outcome.WARN, Outcome.DENY, "warn"),
        (Outcome.AUDIT, Outcome.DENY, "audit"),
        (Outcome.AUDIT, Outcome.WARN, "audit"),
    ],
)
def test_enforcement_only_lowers_an_outcome(enforcement: Outcome, reported: Outcome, expected: str) -> None:
    rule = Finds((replace(WRONG, outcome=reported),))
    decision = validate(index(policy(rule, enforcement=enforcement)), request(POD))
    assert outcomes(decision) == [expected]
    assert decision.audit == {"policy": f"{expected} test/unwanted: it is wrong"}
    assert decision.findings[0].would_deny is (reported is Outcome.DENY and enforcement is not Outcome.DENY)


@pytest.mark.parametrize("enforcement", [Outcome.AUDIT, Outcome.WARN])
@pytest.mark.parametrize(
    ("changes", "would_deny"),
    [
        ({"userInfo": {"username": REPLICASET_CONTROLLER}}, False),
        ({"userInfo": {"username": "system:serviceaccount:kube-system:namespace-controller"}}, False),
        ({"userInfo": {"username": "jane"}}, True),
    ],
)
def test_a_finding_records_whether_an_enforced_policy_would_deny(
    enforcement: Outcome, changes: dict[str, Any], *, would_deny: bool
) -> None:
    trying = index(policy(Finds(), enforcement=enforcement, template_outcome=Outcome.WARN))
    assert [finding.would_deny for finding in validate(trying, request(POD, **changes)).findings] == [would_deny]
    warning = index(policy(Finds(), enforcement=enforcement, declared=Outcome.WARN))
    assert [finding.would_deny for finding in validate(warning, request(POD, **changes)).findings] == [False]
    of_template = validate(trying, request(DEPLOYMENT, group="apps", resource="deployments"))
    assert [finding.would_deny for finding in of_template.findings] == [False]


def test_an_object_that_no_policy_matches_is_not_decoded() -> None:
    decision = validate(index(policy(Finds())), request("no object at all", resource="configmaps"))
    assert decision == Decision()


def test_wildcards_match_undeclared_resources() -> None:
    everything = ResourceRule(api_groups=("*",), resources=("*",), operations=("CREATE",))
    wild = index(policy(Finds(), rules=(everything,), exclude=(replace(everything, resources=("secrets",)),)))
    assert outcomes(validate(wild, request(POD, group="a", resource="bs"))) == ["deny"]
    assert outcomes(validate(wild, request(POD, group="a", resource="secrets"))) == []
    assert outcomes(validate(wild, request(POD, group="a", resource="bs/status"))) == []


@pytest.mark.parametrize("namespace", ["kube-system", "kube-node-lease", "spotgate-system"])
def test_system_namespaces_are_never_judged_or_changed(namespace: str) -> None:
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
def test_a_mirror_pod_is_exempt_only_if_a_node_creates_it(user: dict[str, Any], outcome: list[str]) -> None:
    assert outcomes(validate(index(policy(Finds())), request(MIRROR, userInfo=user))) == outcome
    assert bool(mutate(index(policy(Tolerates())), request(MIRROR, userInfo=user)).patch) is bool(outcome)


def test_a_policy_that_names_a_system_namespace_only_warns_there() -> None:
    include = {"namespaces": {"include": ["*", "kube-system"]}}
    naming = index(policy(Tolerates(), matcher=Matcher(spec_of(MatchSpec, include))))
    there = request(POD, namespace="kube-system")
    (finding,) = validate(naming, there).findings
    assert finding.outcome is Outcome.WARN
    assert finding.detail.endswith("Not denied: kube-system is a system namespace.")
    assert not mutate(naming, there).patch
    assert not validate(naming, request(POD, namespace="kube-node-lease")).findings
    malformed = validate(naming, request({"metadata": 3}, namespace="kube-system"))
    assert not malformed.findings
    assert not malformed.malformed


def test_a_patch_names_its_policy_and_a_second_mutation_is_empty() -> None:
    both = index(policy(Tolerates(), name="adds"))
    decision = mutate(both, request(POD))
    assert [operation.policy for operation in decision.patch] == ["adds"]
    patched = jsonpatch.apply_patch(POD, [operation.as_json() for operation in decision.patch])
    assert not mutate(both, request(patched)).patch
    assert not validate(both, request(patched)).findings


def test_an_audit_policy_records_findings_and_changes_nothing() -> None:
    both = index(policy(Tolerates(), enforcement=Outcome.AUDIT))
    assert not mutate(both, request(POD)).patch
    assert outcomes(validate(both, request(POD))) == ["audit"]


@pytest.mark.parametrize("user", [REPLICASET_CONTROLLER, "system:kube-controller-manager"])
def test_a_built_in_controller_gets_a_warning_instead_of_a_denial(user: str) -> None:
    decision = validate(index(policy(Finds())), request(POD, userInfo={"username": user}))
    assert outcomes(decision) == ["warn"]
    assert decision.audit["controller-created"] == user


def test_a_policy_can_deny_controllers() -> None:
    strict = index(policy(Finds(), controller_denies=True))
    assert outcomes(validate(strict, request(POD, userInfo={"username": REPLICASET_CONTROLLER}))) == ["deny"]


@pytest.mark.parametrize("name", ["namespace-controller", "generic-garbage-collector"])
def test_the_garbage_collector_and_namespace_controller_are_never_denied(name: str) -> None:
    strict = index(policy(Finds(), controller_denies=True))
    user = {"username": f"system:serviceaccount:kube-system:{name}"}
    assert outcomes(validate(strict, request(POD, userInfo=user))) == ["warn"]


def test_a_controllers_name_in_another_namespace_is_an_ordinary_user() -> None:
    user = {"username": "system:serviceaccount:team-a:replicaset-controller"}
    assert outcomes(validate(index(policy(Finds())), request(POD, userInfo=user))) == ["deny"]


UNKNOWN = replace(WRONG, unknown=True)


@pytest.mark.parametrize(("at_most", "expected"), [(Outcome.WARN, "warn"), (Outcome.DENY, "deny")])
def test_an_unknown_result_is_counted_and_never_passes(at_most: Outcome, expected: str) -> None:
    decision = validate(index(policy(Finds((UNKNOWN,)), unknown_outcome=at_most)), request(POD))
    assert outcomes(decision) == [expected]
    assert decision.unknown == 1


def test_an_unknown_result_is_indeterminate_offline() -> None:
    decision = validate(index(policy(Finds((UNKNOWN,)), unknown_outcome=Outcome.DENY)), request(POD), offline=True)
    assert outcomes(decision) == ["indeterminate"]


def test_a_pod_with_wrong_types_is_denied_with_the_field() -> None:
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
def test_a_pod_with_null_instead_of_an_empty_list_is_judged(spec: dict[str, Any]) -> None:
    pod = {"spec": spec}
    assert mutate(index(policy(Tolerates())), request(pod)).patch
    assert [one.reason for one in validate(index(policy(Tolerates())), request(pod)).findings] == ["no toleration"]


def test_a_request_waits_for_pools_only_if_a_matching_policy_needs_them() -> None:
    both = index(
        policy(Finds()),
        policy(JudgesPools(), name="p", rules=(POOLS,), fresh_pools=True),
    )
    requests = (request(POD), request({}, group="example.com", resource="pools"), request({}, resource="secrets"))
    pod, pools, secret = (both.route(Phase.VALIDATE, review) for review in requests)
    assert pod is not None
    assert pools is not None
    assert (pod.fresh_pools, pools.fresh_pools) == (False, True)
    assert secret is None


def test_a_decision_has_no_steps_without_a_trace() -> None:
    deployment = request(DEPLOYMENT, resource="deployments", group="apps")
    lenient = index(policy(Finds(), template_outcome=Outcome.WARN))
    traced = validate(lenient, deployment, trace=True)
    silent = validate(lenient, deployment)

    assert [finding.lowered for finding in traced.findings] == ["warn, not deny: the finding is about a pod template"]
    assert [finding.lowered for finding in silent.findings] == [""]
    assert silent.steps == ()
    assert silent.audit == traced.audit

"""What the engine does with bare violations and edits: each step of it, alone, with the smallest rules that show it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import jsonpatch
import pytest
from msgspec.structs import replace

from webhook.base.globs import Globs
from webhook.capacity.view import ClusterView, Needs
from webhook.engine.engine import decide, needs
from webhook.engine.index import Index, Policy
from webhook.kube.pod import OwnerReference, Toleration
from webhook.kube.templates import TemplatePath, Workload
from webhook.model.decision import Decision, Finding, Outcome, Violation
from webhook.model.review import Request, decode_review
from webhook.policy.common import ExemptSpec, MatchSpec, PolicySpec
from webhook.policy.match import PODS_CREATE, Exemption, Matcher, ResourceRule
from webhook.rules.context import Context, Phase
from webhook.rules.protocol import PolicyKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.kube.edit import PodEditor
    from webhook.rules.subject import Subject

NOW = datetime(2026, 11, 21, tzinfo=UTC)
WRONG = Violation(id="unwanted", reason="it is wrong", field="spec.x", fix="make it right")
REPLICASET_CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
POOLS = ResourceRule(api_groups=("example.com",), resources=("pools", "pools/scale"), operations=("*",))


@dataclass(frozen=True)
class Says:
    """A rule that says what it is told to say."""

    violations: tuple[Violation, ...] = (WRONG,)

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        subject.trace.say("it looked at %s in %s", subject.operation, context.phase)
        return self.violations


@dataclass(frozen=True)
class Tolerates:
    """A rule that adds one toleration, and says so when it is missing."""

    def mutate(self, subject: Subject, editor: PodEditor, context: Context) -> None:
        del context
        if not subject.pod.spec.tolerations:
            editor.add_toleration(Toleration(key="spot", operator="Exists"))

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        del context
        if not subject.pod.spec.tolerations:
            yield Violation(id="unwanted", reason="no toleration", field="spec.tolerations")


@dataclass(frozen=True)
class JudgesPools:
    """A rule about an object of its own."""

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        del context
        value = subject.object or subject.old_object or {}
        if value.get("spec", {}).get("bad"):
            yield WRONG


def policy(rule: Any, name: str = "policy", **changes: Any) -> Policy:
    defaults: dict[str, Any] = {
        "enforcement": Outcome.DENY,
        "rules": (PODS_CREATE,),
        "exclude": (),
        "matcher": Matcher(MatchSpec()),
        "exemptions": (),
        "break_glass": Globs(()),
        "controller_denies": False,
        "mutator": rule if hasattr(rule, "mutate") else None,
        "validator": rule if hasattr(rule, "validate") else None,
        "needs": Needs(),
    }
    of = {each: changes.pop(each) for each in changes.keys() - set(Policy.__struct_fields__)}
    kind = PolicyKind(**{"name": "Test", "spec": PolicySpec, "compile": None, "rules": None, **of})
    return Policy(name=name, kind=kind, **{**defaults, **changes})


DEPLOYMENTS = Workload(
    "apps",
    "Deployment",
    "deployments",
    (TemplatePath("spec.template"),),
    OwnerReference(kind="ReplicaSet", apiVersion="apps/v1"),
)
RAY = Workload(
    "ray.io",
    "RayCluster",
    "rayclusters",
    (TemplatePath("spec.head.template"), TemplatePath("spec.workers[*].template")),
)


def index(*policies: Policy) -> Index:
    return Index(policies, [DEPLOYMENTS, RAY], {}, "spotgate-system")


def request(
    obj: Any = None, *, resource: str = "pods", group: str = "", operation: str = "CREATE", **changes: Any
) -> Request:
    resource, _, subresource = resource.partition("/")
    body = {
        "uid": "u",
        "operation": operation,
        "kind": {"group": group, "version": "v1", "kind": "X"},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "subResource": subresource,
        "namespace": "team-a",
        "userInfo": {"username": "jane", "groups": ["devs"]},
        "object": obj,
        **changes,
    }
    return decode_review(
        json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body}).encode()
    )


def validate(index: Index, request: Request, **changes: Any) -> Decision:
    return decide(request, index, replace(Context(phase=Phase.VALIDATE, now=NOW), **changes))


def mutate(index: Index, request: Request, **changes: Any) -> Decision:
    return decide(request, index, replace(Context(phase=Phase.MUTATE, now=NOW), **changes))


EVERYTHING = ResourceRule(api_groups=("",), resources=("*/*",), operations=("*",))
POD = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}]}}
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a"}]}}
DEPLOYMENT: dict[str, Any] = {"metadata": {"name": "web"}, "spec": {"replicas": 1, "template": TEMPLATE}}


def outcomes(decision: Decision) -> list[str]:
    return [str(finding.outcome) for finding in decision.findings]


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


def test_a_subresource_is_matched_only_where_a_rule_names_it() -> None:
    pools = index(policy(JudgesPools(), rules=(POOLS,)))
    bad = {"spec": {"bad": True}}
    assert outcomes(validate(pools, request(bad, group="example.com", resource="pools/scale", operation="UPDATE"))) == [
        "deny"
    ]
    assert (
        outcomes(validate(pools, request(bad, group="example.com", resource="pools/status", operation="UPDATE"))) == []
    )


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


def test_a_workload_is_judged_by_the_pods_it_will_make_after_mutation() -> None:
    decision = validate(index(policy(Tolerates())), request(DEPLOYMENT, group="apps", resource="deployments"))
    assert not decision.findings


def test_a_finding_on_a_template_is_a_warning_at_the_path_of_the_workload() -> None:
    decision = validate(index(policy(Says())), request(DEPLOYMENT, group="apps", resource="deployments"))
    assert [(str(each.outcome), each.field) for each in decision.findings] == [("warn", "spec.template.spec.x")]


TO_WRITE = replace(WRONG, yaml={"spec": {"x": 1}})


def test_what_is_to_be_written_in_an_object_is_shown_below_the_fix() -> None:
    (finding,) = validate(index(policy(Says((TO_WRITE,)))), request(POD)).findings
    assert finding.fix == "make it right:\nspec: {x: 1}"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.template", {"template": TEMPLATE}, "make it right:\nspec:\n  template:\n    spec: {x: 1}"),
        (
            "spec.roles.*",
            {"roles": {"Head": TEMPLATE}},
            "make it right:\nspec:\n  roles:\n    Head:\n      spec: {x: 1}",
        ),
        ("spec.workers[*]", {"workers": [TEMPLATE]}, "make it right (at spec.workers[0]):\nspec: {x: 1}"),
        ("spec.roles.*", {"roles": {"a b": TEMPLATE}}, 'make it right (at spec.roles["a b"]):\nspec: {x: 1}'),
        ("spec.roles.*", {"roles": {"on": TEMPLATE}}, "make it right (at spec.roles.on):\nspec: {x: 1}"),
    ],
)
def test_what_is_to_be_written_in_a_template_is_shown_as_it_is_in_the_workload(
    path: str, value: dict[str, Any], expected: str
) -> None:
    kind = Workload("example.com", "Work", "works", (TemplatePath(path),))
    says = Index((policy(Says((TO_WRITE,))),), [kind], {}, "spotgate-system")
    (finding,) = validate(says, request({"spec": value}, group="example.com", resource="works")).findings
    assert finding.fix == expected


def test_a_kind_may_deny_on_templates_too() -> None:
    strict = index(policy(Says(), template_outcome=Outcome.DENY))
    assert outcomes(validate(strict, request(DEPLOYMENT, group="apps", resource="deployments"))) == ["deny"]


def test_templates_are_patched_only_where_it_is_asked_for() -> None:
    both = index(policy(Tolerates()))
    workload = request(DEPLOYMENT, group="apps", resource="deployments")
    assert not mutate(both, workload).patch
    (operation,) = mutate(both, workload, patch_templates=True).patch
    assert operation.path == "/spec/template/spec/tolerations"


def test_an_update_that_leaves_a_template_as_it_is_says_nothing_of_it() -> None:
    says = index(policy(Says()))
    scaled = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": 5}}
    unchanged = request(scaled, group="apps", resource="deployments", operation="UPDATE", oldObject=DEPLOYMENT)
    assert not validate(says, unchanged).findings
    relabelled = {**DEPLOYMENT, "spec": {"template": {**TEMPLATE, "metadata": {}}}}
    changed = request(relabelled, group="apps", resource="deployments", operation="UPDATE", oldObject=DEPLOYMENT)
    assert outcomes(validate(says, changed)) == ["warn"]


def test_templates_in_a_reordered_list_are_told_by_their_names() -> None:
    def cluster(*names: str) -> dict[str, Any]:
        workers = [{"groupName": name, "template": {"metadata": {"labels": {"n": name}}, "spec": {}}} for name in names]
        return {"spec": {"head": {"template": TEMPLATE}, "workers": workers}}

    update = request(
        cluster("b"), group="ray.io", resource="rayclusters", operation="UPDATE", oldObject=cluster("a", "b")
    )
    assert not validate(index(policy(Says())), update).findings
    create = request(cluster("a", "b"), group="ray.io", resource="rayclusters")
    fields = [finding.field for finding in validate(index(policy(Says())), create).findings]
    assert fields == ["spec.head.template.spec.x", "spec.workers[0].template.spec.x", "spec.workers[1].template.spec.x"]


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


BROKEN = {**POD, "metadata": {"annotations": {"spotgate.dev/break-glass": "outage 42"}}}


def test_break_glass_turns_a_denial_into_a_warning_for_named_groups_and_is_audited() -> None:
    guarded = index(policy(Says(), break_glass=Globs(("sre",))))
    decision = validate(guarded, request(BROKEN, userInfo={"username": "jane", "groups": ["sre"]}))
    assert outcomes(decision) == ["warn"]
    assert decision.audit["break-glass"] == "jane: outage 42"


def test_break_glass_on_delete_is_read_from_the_old_object() -> None:
    guarded = index(policy(JudgesPools(), rules=(POOLS,), break_glass=Globs(("devs",))))
    old = {"metadata": BROKEN["metadata"], "spec": {"bad": True}}
    decision = validate(
        guarded, request(None, group="example.com", resource="pools", operation="DELETE", oldObject=old)
    )
    assert outcomes(decision) == ["warn"]


def exempt(**parts: Any) -> Exemption:
    return Exemption(ExemptSpec.model_validate({"reason": "agreed", **parts}), "exempt[0]", "policy.yaml:9")


@pytest.mark.parametrize(
    ("parts", "let_through"),
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
def test_the_parts_of_an_exemption_and_until_its_last_day(parts: dict[str, Any], *, let_through: bool) -> None:
    exempting = index(policy(Says(), exemptions=(exempt(**parts),)))
    decision = validate(exempting, request(POD, name="web"))
    assert (not decision.findings) is let_through


def test_an_unknown_user_has_no_exemption() -> None:
    exempting = index(policy(Says(), exemptions=(exempt(users=["*"], groups=["*"]),)))
    assert outcomes(validate(exempting, request(POD, userInfo={}))) == ["deny"]


@pytest.mark.parametrize(
    ("user", "let_through"),
    [
        ("system:serviceaccount:ci:deployer", True),
        ("system:serviceaccount:ci:web", False),
        ("system:serviceaccount:evil:x:deployer", False),  # a certificate may have any name
        ("system:serviceaccount:deployer", False),
        ("ci:deployer", False),
    ],
)
def test_a_service_account_is_exempt_by_namespace_and_name(user: str, *, let_through: bool) -> None:
    exempting = index(policy(Says(), exemptions=(exempt(serviceAccounts=["*:deploy*"]),)))
    assert (not validate(exempting, request(POD, userInfo={"username": user})).findings) is let_through


@pytest.mark.parametrize(
    ("resource", "operation", "let_through"),
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
def test_labels_exempt_nobody_where_they_come_with_the_request_and_not_with_the_object(
    resource: str, operation: str, *, let_through: bool
) -> None:
    for selector in (
        {"matchLabels": {"app": "web"}},
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
    ):
        exempting = index(policy(Says(), rules=(EVERYTHING,), exemptions=(exempt(objectSelector=selector),)))
        sent = {"metadata": {"labels": {"app": "web"}}}
        asked = request(sent, resource=resource, operation=operation)
        assert (not validate(exempting, asked).findings) is let_through


def test_an_exemption_by_namespace_holds_for_a_namespace_that_the_api_server_names() -> None:
    namespaces = ResourceRule(api_groups=("",), resources=("namespaces",), operations=("*",))
    exempting = index(policy(Says(), rules=(namespaces,), exemptions=(exempt(namespaces=["team-*"]),)))
    for name, let_through in (("team-x7k2p", True), ("prod-x7k2p", False), ("", False)):
        asked = request({"metadata": {}}, resource="namespaces", namespace="", name=name)
        assert (not validate(exempting, asked).findings) is let_through


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


def test_a_template_that_cannot_be_read_is_said_and_not_passed_over() -> None:
    bad = {"spec": {"template": {"spec": {"tolerations": 5}}}}
    workload = request(bad, group="apps", resource="deployments")
    decision = validate(index(policy(Tolerates())), workload)
    assert [(str(each.outcome), each.field) for each in decision.findings] == [
        ("warn", "spec.template.spec.tolerations")
    ]
    assert decision.unknown == 1
    assert validate(index(policy(Tolerates())), workload, offline=True).malformed


def match(**parts: Any) -> Matcher:
    return Matcher(MatchSpec.model_validate(parts))


VIEW = ClusterView(namespaces={"team-a": {"tier": "batch"}})


@pytest.mark.parametrize(
    ("parts", "looks"),
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
def test_the_parts_of_match_restrict(parts: dict[str, Any], *, looks: bool) -> None:
    decision = validate(index(policy(Says(), matcher=match(**parts))), request(POD), view=VIEW)
    assert bool(decision.findings) is looks


def test_an_unknown_namespace_has_only_its_name() -> None:
    by_name = match(namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "team-a"}})
    assert validate(index(policy(Says(), matcher=by_name)), request(POD)).findings


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE", "CONNECT"])
def test_a_namespace_is_selected_by_its_own_labels_where_the_request_has_them(operation: str) -> None:
    by_label = policy(Says(), rules=(EVERYTHING,), matcher=match(namespaceSelector={"matchLabels": {"tier": "batch"}}))
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
def test_what_only_unknown_labels_of_a_namespace_could_select_is_not_decided(
    parts: dict[str, Any], view: ClusterView, expected: list[str]
) -> None:
    decision = validate(index(policy(Says(), matcher=match(**parts))), request(POD), view=view, offline=True)
    assert outcomes(decision) == expected
    assert decision.unknown == expected.count("indeterminate")


def test_the_finding_that_is_not_decided_says_what_is_missing_and_what_it_would_be() -> None:
    matcher = match(namespaceSelector=BATCH)
    judging = index(policy(Says(), matcher=matcher))
    (finding,) = validate(judging, request(POD), offline=True).findings
    assert finding == Finding(
        policy="policy",
        id="object/namespace-unknown",
        outcome=Outcome.INDETERMINATE,
        reason="match.namespaceSelector asks for labels of namespace team-a, which are not known",
        detail="If it selects the namespace, this is `deny`: it is wrong.",
        field="spec.x",
        fix="give the manifest of Namespace team-a, among the files or with --state",
    )
    assert not validate(index(policy(Says(()), matcher=matcher)), request(POD), offline=True).findings
    assert not validate(judging, request(POD)).findings  # a server takes it for a namespace without labels


def test_a_namespace_says_itself_which_labels_it_has() -> None:
    rules = (ResourceRule(api_groups=("",), resources=("namespaces",), operations=("*",)),)
    judging = index(policy(Says(), rules=rules, matcher=match(namespaceSelector=BATCH)))
    for labels, expected in (({"tier": "batch"}, ["deny"]), ({}, [])):
        asked = request({"metadata": {"name": "team-a", "labels": labels}}, resource="namespaces", name="team-a")
        assert outcomes(validate(judging, asked, offline=True)) == expected


def test_nothing_is_injected_where_only_unknown_labels_could_select_the_namespace() -> None:
    judging = index(policy(Tolerates(), matcher=match(namespaceSelector=BATCH)))
    assert not mutate(judging, request(POD), offline=True).patch
    assert mutate(judging, request(POD), offline=True, view=VIEW).patch
    (finding,) = validate(judging, request(POD), offline=True).findings
    assert finding.outcome is Outcome.INDETERMINATE
    assert finding.detail == "Nothing was injected. As it is: no toleration."


def test_needs_are_those_of_the_policies_that_match() -> None:
    both = index(
        policy(Says(), needs=Needs(namespaces=True)),
        policy(JudgesPools(), name="p", rules=(POOLS,), needs=Needs(pools=True, fresh=True)),
    )
    assert needs(both.route(Phase.VALIDATE, request(POD))) == Needs(namespaces=True)
    assert needs(both.route(Phase.VALIDATE, request({}, group="example.com", resource="pools"))).fresh
    assert needs(both.route(Phase.VALIDATE, request({}, resource="secrets"))) == Needs()


def test_the_trace_says_who_looked_and_why_not() -> None:
    skipped = policy(Says(), name="skipped", matcher=match(namespaces={"exclude": ["team-a"]}))
    decision = validate(index(policy(Says(), name="looked"), skipped), request(POD), trace=True)
    assert decision.steps == (
        ("looked", "", "it looked at CREATE in validate"),
        ("skipped", "", "match.namespaces.exclude names namespace team-a"),
    )


def test_the_trace_says_which_pod_template_it_is_about_and_which_is_not_judged_again() -> None:
    ray = {"spec": {"head": {"template": TEMPLATE}, "workers": [{"name": "a", "template": TEMPLATE}]}}
    other = {**TEMPLATE, "spec": {"containers": [{"name": "b"}]}}
    changed = {"spec": {**ray["spec"], "workers": [{"name": "a", "template": other}]}}
    update = request(changed, oldObject=ray, operation="UPDATE", resource="rayclusters", group="ray.io")

    decision = validate(index(policy(Says())), update, trace=True)
    assert decision.steps == (
        ("", "spec.head.template", "the request leaves it as it is: it is not judged again"),
        ("policy", "spec.workers[0].template", "it looked at CREATE in validate"),
    )


def test_without_a_trace_a_decision_keeps_no_word_of_it() -> None:
    deployment = request(DEPLOYMENT, resource="deployments", group="apps")
    traced = validate(index(policy(Says())), deployment, trace=True)
    silent = validate(index(policy(Says())), deployment)

    assert [finding.lowered for finding in traced.findings] == ["warn, not deny: it is about a pod template"]
    assert [finding.lowered for finding in silent.findings] == [""]
    assert silent.steps == ()
    assert silent.audit == traced.audit


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
def test_policies_that_do_not_look_are_left_out_by_a_part_of_match(
    asked: dict[str, str], expected: dict[str, str]
) -> None:
    updates = replace(PODS_CREATE, operations=("UPDATE",))
    deployments = ResourceRule(api_groups=("apps",), resources=("deployments",), operations=("*",))
    policies = index(
        policy(Says(), name="pods"),
        policy(JudgesPools(), name="pools", rules=(POOLS,)),
        policy(Says(), name="updates", rules=(updates,)),
        policy(Says(), name="excluded", exclude=(deployments,)),
    )
    left_out = {each.name: why for each, why in policies.left_out(request(POD, **asked))}

    assert expected.items() <= left_out.items()

"""``match`` has the semantics and validation of a ValidatingAdmissionPolicy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.engine.rules import DEPLOYMENT, POD, Finds, index, mutate, policy, request, validate
from tests.specs import spec_of
from webhook.engine.bundle import load_bundle
from webhook.model.review import GroupVersionResource
from webhook.policy.common import MatchSpec
from webhook.policy.errors import PolicyErrors
from webhook.policy.match import PODS_CREATE, Matcher, ResourceRule, resource_matches

if TYPE_CHECKING:
    from pathlib import Path

    from webhook.model.decision import Decision


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("pods", "pods"),
        ("*", "pods deployments"),
        ("pods/*", "pods pods/exec pods/status"),
        ("*/scale", "deployments/scale"),
        ("deployments/scale", "deployments/scale"),
        ("*/*", "pods pods/exec pods/status deployments deployments/scale"),
        ("pod", ""),
    ],
)
def test_resources_match_as_in_the_api_server(pattern: str, matched: str) -> None:
    served = "pods pods/exec pods/status deployments deployments/scale"
    assert [path for path in served.split() if resource_matches(pattern, path)] == matched.split()


@pytest.mark.parametrize("pattern", ["pods/*", "*/*", "*/ephemeralcontainers", "pods/ephemeralcontainers"])
def test_a_policy_matches_the_subresources_that_it_names(pattern: str) -> None:
    rule = ResourceRule(api_groups=("",), resources=(pattern,), operations=("UPDATE",))
    review = request(POD, resource="pods/ephemeralcontainers", operation="UPDATE", oldObject=POD)
    assert validate(index(policy(Finds(), rules=(rule,))), review).findings


def rule(**changes: Any) -> ResourceRule:
    return ResourceRule(
        **{"api_groups": ("",), "resources": ("pods", "nodes", "namespaces"), "operations": ("*",), **changes}
    )


def skipped(decision: Decision) -> str:
    """Return why the policy skips the request; empty if it doesn't."""
    return "" if decision.findings else decision.steps[-1][2].text


@pytest.mark.parametrize(
    ("changes", "asked", "why"),
    [
        ({"resource_names": ("web",)}, {"name": "web"}, ""),
        ({"resource_names": ("web",)}, {"name": "api"}, "match.resourceRules[0].resourceNames does not name api"),
        ({"resource_names": ("web",)}, {}, "match.resourceRules[0].resourceNames does not name an object without a name yet"),
        ({"api_versions": ("v1", "v2")}, {}, ""),
        ({"api_versions": ("v2",)}, {}, "match.resourceRules[0].apiVersions does not name v1"),
        ({"scope": "Namespaced"}, {}, ""),
        ({"scope": "Cluster"}, {}, "match.resourceRules[0].scope is Cluster, and it is in a namespace"),
        ({"scope": "Cluster"}, {"resource": "nodes", "namespace": ""}, ""),
        ({"scope": "Namespaced"}, {"resource": "nodes", "namespace": ""}, "match.resourceRules[0].scope is Namespaced, and it is cluster-scoped"),
        ({"scope": "Cluster"}, {"resource": "namespaces", "namespace": "team-a", "name": "team-a"}, ""),
        ({"scope": "Namespaced"}, {"resource": "namespaces", "namespace": "team-a", "name": "team-a"}, "match.resourceRules[0].scope is Namespaced, and it is cluster-scoped"),
    ],
)  # fmt: skip
def test_names_versions_and_scope_restrict_a_rule(changes: dict[str, Any], asked: dict[str, Any], why: str) -> None:
    assert skipped(validate(index(policy(Finds(), rules=(rule(**changes),))), request(POD, **asked), trace=True)) == why


@pytest.mark.parametrize(
    ("changes", "excluded"),
    [
        ({}, True),
        ({"resource_names": ("web",)}, True),
        ({"resource_names": ("api",)}, False),
        ({"api_versions": ("v2",)}, False),
        ({"scope": "Cluster"}, False),
        ({"operations": ("DELETE",)}, False),
    ],
)
def test_an_exclusion_needs_all_of_its_fields(changes: dict[str, Any], *, excluded: bool) -> None:
    judging = index(policy(Finds(), rules=(rule(),), exclude=(rule(**changes),)))
    assert bool(validate(judging, request(POD, name="web")).findings) is not excluded


def test_one_matching_rule_is_enough() -> None:
    both = (rule(resource_names=("api",)), rule(scope="Namespaced"))
    assert validate(index(policy(Finds(), rules=both)), request(POD, name="web")).findings


@pytest.mark.parametrize(
    ("changes", "judged"),
    [
        ({}, True),
        ({"api_versions": ("v1",)}, True),
        ({"scope": "Namespaced"}, True),
        ({"scope": "Cluster"}, False),
        ({"resource_names": ("web",)}, False),
        ({"api_versions": ("v2",)}, False),
    ],
)
def test_a_pod_template_is_matched_as_its_future_nameless_pod(changes: dict[str, Any], *, judged: bool) -> None:
    judging = index(policy(Finds(), rules=(rule(**{"resources": ("pods",), "operations": ("CREATE",), **changes}),)))
    assert bool(validate(judging, request(DEPLOYMENT, group="apps", resource="deployments")).findings) is judged


def test_excluding_pods_excludes_their_templates() -> None:
    exclude = rule(resources=("pods",), scope="Namespaced")
    judging = index(policy(Finds(), rules=(PODS_CREATE,), exclude=(exclude,)))
    assert not validate(judging, request(DEPLOYMENT, group="apps", resource="deployments")).findings


@pytest.mark.parametrize(("name", "judged"), [("web", False), ("api", True)])
def test_excluding_a_workload_by_name_excludes_its_templates(name: str, *, judged: bool) -> None:
    exclude = ResourceRule(api_groups=("apps",), resources=("deployments",), operations=("*",), resource_names=("web",))
    judging = index(policy(Finds(), rules=(PODS_CREATE,), exclude=(exclude,)))
    asked = request(DEPLOYMENT, group="apps", resource="deployments", name=name)
    assert bool(validate(judging, asked).findings) is judged
    assert not mutate(judging, asked).findings


@pytest.mark.parametrize(
    ("parts", "name", "judged"),
    [
        ({"namespaceSelector": {"matchLabels": {"tier": "batch"}}}, "team-x7k2p", True),
        ({"namespaceSelector": {"matchLabels": {"tier": "web"}}}, "team-x7k2p", False),
        ({"namespaceSelector": {"matchLabels": {"tier": "web"}}}, "", False),
        ({"namespaces": {"include": ["team-*"]}}, "team-x7k2p", True),
        ({"namespaces": {"include": ["prod-*"]}}, "team-x7k2p", False),
        ({"namespaces": {"exclude": ["team-*"]}}, "team-x7k2p", False),
        ({"namespaces": {"include": ["team-*"]}}, "", False),
        ({"namespaces": {"exclude": ["team-*"]}}, "", True),
    ],
)
def test_namespace_fields_apply_to_a_namespace_with_a_generated_name(
    parts: dict[str, Any], name: str, *, judged: bool
) -> None:
    """Kubernetes 1.36 sends it with its new name, and without a namespace."""
    matcher = Matcher(spec_of(MatchSpec, parts))
    judging = index(policy(Finds(), rules=(rule(),), matcher=matcher))
    value = {"metadata": {"generateName": "team-", "labels": {"tier": "batch"}}}
    asked = request(value, resource="namespaces", namespace="", name=name)
    for offline in (False, True):
        assert bool(validate(judging, asked, offline=offline).findings) is judged
    assert validate(judging, request(value, resource="nodes", namespace="", name=name)).findings


def test_creating_a_system_namespace_is_not_judged() -> None:
    judging = index(policy(Finds(), rules=(rule(),)))
    asked = {"resource": "namespaces", "namespace": ""}
    assert not validate(judging, request(POD, name="kube-system", **asked)).findings
    assert validate(judging, request(POD, name="team-a", **asked)).findings


NO_TEAM = {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}


@pytest.mark.parametrize(
    ("selector", "resource", "operation", "judged"),
    [
        (NO_TEAM, "pods", "CREATE", True),
        (NO_TEAM, "pods/eviction", "CREATE", True),
        (NO_TEAM, "pods/exec", "CONNECT", False),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, "pods/proxy", "CONNECT", False),
        ({}, "pods/exec", "CONNECT", True),
    ],
)
def test_an_object_selector_never_matches_the_options_of_a_CONNECT(
    selector: dict[str, Any], resource: str, operation: str, *, judged: bool
) -> None:
    matcher = Matcher(spec_of(MatchSpec, {"objectSelector": selector}))
    judging = index(policy(Finds(), rules=(rule(resources=("*/*",)),), matcher=matcher))
    assert (
        bool(validate(judging, request({"command": ["sh"]}, resource=resource, operation=operation)).findings) is judged
    )


HPAS = {"api_groups": ("autoscaling", "example.com"), "resources": ("horizontalpodautoscalers",)}


@pytest.mark.parametrize(
    ("group", "version", "changes", "excluded"),
    [
        ("autoscaling", "v2", {"api_versions": ("v1",)}, True),
        ("autoscaling", "v1", {"api_versions": ("v1",)}, True),
        ("autoscaling", "v2", {"api_versions": ("v2beta2",)}, False),  # no longer served
        ("autoscaling", "v2", {"api_versions": ("v1",), "resource_names": ("other",)}, False),
        ("example.com", "v2", {"api_versions": ("v1",)}, True),
    ],
)
def test_excluding_a_version_excludes_the_resource_in_other_versions(
    group: str, version: str, changes: dict[str, Any], *, excluded: bool
) -> None:
    judging = index(policy(Finds(), rules=(rule(**HPAS),), exclude=(rule(**HPAS, **changes),)))
    named = {"group": group, "version": version, "resource": HPAS["resources"][0]}
    asked = request({"metadata": {"name": "web"}}, group=group, name="web")
    asked.resource = GroupVersionResource(**named)
    assert bool(validate(judging, asked).findings) is not excluded
    assert bool(validate(judging, asked, offline=True).findings) is not excluded


HEAD = "apiVersion: spotgate.dev/v1\nkind: ReservedLabels\nmetadata: {name: labels}\nspec:\n  domains: [example.com]\n"


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        ({"resourceRules": [{"apiGroups": ["apps/v1"]}]}, "resourceRules[0].apiGroups[0]",
            "expected '' for the core group, '*', or a name such as apps; got 'apps/v1'"),
        ({"resourceRules": [{"apiGroups": ["", "*"]}]}, "resourceRules[0].apiGroups", "'*' means all; remove the other items"),
        ({"resourceRules": [{"apiVersions": ["apps/v1"]}]}, "resourceRules[0].apiVersions[0]",
            "expected a version without its group, such as v1, or '*'; got 'apps/v1'"),
        ({"resourceRules": [{"resources": ["Pod"]}]}, "resourceRules[0].resources[0]",
            "expected a lowercase plural, such as pods or deployments/scale, or '*' for either part; got 'Pod'"),
        ({"resourceRules": [{"operations": ["UPDATE", "*"]}]}, "resourceRules[0].operations", "'*' means all; remove the other items"),
        ({"resourceRules": [{"operations": ["PATCH"]}]}, "resourceRules[0].operations[0]", "'PATCH' is not one of CREATE, UPDATE, DELETE, CONNECT or *"),
        ({"resourceRules": [{"scope": "cluster"}]}, "resourceRules[0].scope", "'cluster' is not one of *, Cluster or Namespaced, did you mean `Cluster`?"),
        ({"excludeResourceRules": [{"resourceName": ["web"]}]}, "excludeResourceRules[0].resourceName", "unknown field `resourceName`, did you mean `resourceNames`?"),
        ({"objectSelector": {"matchLabels": {"team a": "x"}}}, "objectSelector.matchLabels", "expected the key of a label; got 'team a'"),
    ],
)  # fmt: skip
def test_a_match_that_could_never_apply_is_rejected_at_its_field(
    tmp_path: Path, spec: dict[str, Any], field: str, text: str
) -> None:
    sound = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
    for name in ("resourceRules", "excludeResourceRules"):
        if name in spec:
            spec = {name: [{**sound, **spec[name][0]}]}
    (tmp_path / "policy.yaml").write_text(f"{HEAD}  match: {json.dumps(spec)}\n")
    with pytest.raises(PolicyErrors) as caught:
        load_bundle([tmp_path])
    (problem,) = caught.value.problems
    assert (problem.line, problem.field.split('["')[0]) == (6, f"spec.match.{field}")
    assert problem.text.startswith(text)

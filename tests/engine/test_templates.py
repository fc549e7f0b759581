"""What the engine does with Pod templates of workloads."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.engine.rules import (
    DEPLOYMENT,
    POD,
    TEMPLATE,
    WRONG,
    Says,
    Tolerates,
    index,
    mutate,
    outcomes,
    policy,
    request,
    validate,
)
from webhook.engine.index import Index
from webhook.kube.templates import TemplatePath, Workload
from webhook.model.decision import Outcome


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


def test_a_template_that_cannot_be_read_is_said_and_not_passed_over() -> None:
    bad = {"spec": {"template": {"spec": {"tolerations": 5}}}}
    workload = request(bad, group="apps", resource="deployments")
    decision = validate(index(policy(Tolerates())), workload)
    assert [(str(each.outcome), each.field) for each in decision.findings] == [
        ("warn", "spec.template.spec.tolerations")
    ]
    assert decision.unknown == 1
    assert validate(index(policy(Tolerates())), workload, offline=True).malformed


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

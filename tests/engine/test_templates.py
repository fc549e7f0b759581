"""The engine's handling of Pod templates in workloads."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.engine.rules import (
    DEPLOYMENT,
    POD,
    TEMPLATE,
    WRONG,
    Finds,
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


def test_a_workload_is_judged_by_its_pods_after_mutation() -> None:
    decision = validate(index(policy(Tolerates())), request(DEPLOYMENT, group="apps", resource="deployments"))
    assert not decision.findings


def test_a_finding_in_a_template_has_the_workloads_path() -> None:
    decision = validate(index(policy(Finds())), request(DEPLOYMENT, group="apps", resource="deployments"))
    assert [(str(finding.outcome), finding.field) for finding in decision.findings] == [
        ("deny", "spec.template.spec.x")
    ]


TO_WRITE = replace(WRONG, yaml={"spec": {"x": 1}})


def test_a_fix_for_an_object_shows_the_yaml() -> None:
    (finding,) = validate(index(policy(Finds((TO_WRITE,)))), request(POD)).findings
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
def test_a_fix_for_a_template_shows_the_yaml_of_the_workload(path: str, value: dict[str, Any], expected: str) -> None:
    kind = Workload("example.com", "Work", "works", (TemplatePath(path),))
    reporting = Index((policy(Finds((TO_WRITE,))),), [kind], {}, "spotgate-system")
    (finding,) = validate(reporting, request({"spec": value}, group="example.com", resource="works")).findings
    assert finding.fix == expected


def test_a_kind_can_only_warn_about_templates() -> None:
    lenient = index(policy(Finds(), template_outcome=Outcome.WARN))
    assert outcomes(validate(lenient, request(DEPLOYMENT, group="apps", resource="deployments"))) == ["warn"]


def test_templates_are_patched_only_on_request() -> None:
    both = index(policy(Tolerates()))
    workload = request(DEPLOYMENT, group="apps", resource="deployments")
    assert not mutate(both, workload).patch
    (operation,) = mutate(both, workload, patch_templates=True).patch
    assert operation.path == "/spec/template/spec/tolerations"


def test_an_update_that_does_not_change_a_template_has_no_findings() -> None:
    reporting = index(policy(Finds()))
    scaled = {**DEPLOYMENT, "spec": {**DEPLOYMENT["spec"], "replicas": 5}}
    unchanged = request(scaled, group="apps", resource="deployments", operation="UPDATE", oldObject=DEPLOYMENT)
    assert not validate(reporting, unchanged).findings
    relabelled = {**DEPLOYMENT, "spec": {"template": {**TEMPLATE, "metadata": {}}}}
    changed = request(relabelled, group="apps", resource="deployments", operation="UPDATE", oldObject=DEPLOYMENT)
    assert outcomes(validate(reporting, changed)) == ["deny"]


def test_templates_in_a_list_are_identified_by_name() -> None:
    def cluster(*names: str) -> dict[str, Any]:
        workers = [{"groupName": name, "template": {"metadata": {"labels": {"n": name}}, "spec": {}}} for name in names]
        return {"spec": {"head": {"template": TEMPLATE}, "workers": workers}}

    update = request(
        cluster("b"), group="ray.io", resource="rayclusters", operation="UPDATE", oldObject=cluster("a", "b")
    )
    assert not validate(index(policy(Finds())), update).findings
    create = request(cluster("a", "b"), group="ray.io", resource="rayclusters")
    fields = [finding.field for finding in validate(index(policy(Finds())), create).findings]
    assert fields == ["spec.head.template.spec.x", "spec.workers[0].template.spec.x", "spec.workers[1].template.spec.x"]


def test_an_unreadable_template_is_a_warning() -> None:
    bad = {"spec": {"template": {"spec": {"tolerations": 5}}}}
    workload = request(bad, group="apps", resource="deployments")
    decision = validate(index(policy(Tolerates())), workload)
    assert [(str(finding.outcome), finding.field) for finding in decision.findings] == [
        ("warn", "spec.template.spec.tolerations")
    ]
    assert decision.unknown == 1
    assert validate(index(policy(Tolerates())), workload, offline=True).malformed


def test_the_trace_names_the_template_and_the_unchanged_templates() -> None:
    ray = {"spec": {"head": {"template": TEMPLATE}, "workers": [{"name": "a", "template": TEMPLATE}]}}
    other = {**TEMPLATE, "spec": {"containers": [{"name": "b"}]}}
    changed = {"spec": {**ray["spec"], "workers": [{"name": "a", "template": other}]}}
    update = request(changed, oldObject=ray, operation="UPDATE", resource="rayclusters", group="ray.io")

    decision = validate(index(policy(Finds())), update, trace=True)
    assert tuple((name, where, step.text) for name, where, step in decision.steps) == (
        ("", "spec.head.template", "the request leaves it as it is: it is not evaluated again"),
        ("policy", "spec.workers[0].template", "it looked at CREATE in validate"),
    )

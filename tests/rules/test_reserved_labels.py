"""ReservedLabels, compiled from the shipped documents: which labels it rejects, where, and what it advises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.objects import BUNDLE
from tests.rules.conftest import FakeSubject, request_for
from webhook.base.bounds import OverBoundError
from webhook.kube.pod import ObjectMeta, Pod
from webhook.kube.templates import TEMPLATES_AT_MOST
from webhook.model.decision import Outcome, Trace, Violation
from webhook.model.review import GroupVersionKind, GroupVersionResource
from webhook.policy.terms import BREAK_GLASS, Enforcement
from webhook.rules.context import Context, Phase, utc_now
from webhook.rules.protocol import Facts
from webhook.rules.reserved_labels.own import own_keys_of_namespace
from webhook.rules.reserved_labels.rule import KIND, ReservedLabels
from webhook.rules.reserved_labels.spec import ReservedLabelsSpec

ROOT = Path(__file__).parents[2]
DOCUMENTS = {
    each["metadata"]["name"]: each
    for file in ("policies/reserved-labels.yaml", "examples/policies/node-labels.yaml")
    for each in yaml.safe_load_all((ROOT / file).read_text())
}
SHIPPED = BUNDLE
FACTS = Facts(SHIPPED.providers, tuple(SHIPPED.index.workloads.values()))
CONTEXT = Context(phase=Phase.VALIDATE, now=utc_now())

NODE_POOLS = GroupVersionResource("compute.coreweave.com", "v1alpha1", "nodepools")
DEPLOYMENTS = GroupVersionResource("apps", "v1", "deployments")
NODES = GroupVersionResource("", "v1", "nodes")

ALLOWED_ON_PODS = (
    "qos.coreweave.cloud/interruptable",
    "qos.coreweave.com/graceful-interruptible",
    "qos.coreweave.cloud/latency",
    "metadata.coreweave.cloud/job",
    "sandbox.coreweave.com/sandbox-organization-id",
)


def spec_of(name: str) -> ReservedLabelsSpec:
    return ReservedLabelsSpec.model_validate(DOCUMENTS[name]["spec"])


def compiled(name: str = "reserved-labels") -> ReservedLabels:
    rule = KIND.compile(spec_of(name), FACTS)
    assert isinstance(rule, ReservedLabels)
    return rule


RULE = compiled()


def judge(subject: FakeSubject, rule: ReservedLabels = RULE) -> list[Violation]:
    return list(rule.validate(subject, CONTEXT))


def labelled(labels: dict[str, str] | None) -> Pod:
    return Pod(metadata=ObjectMeta(name="web", labels=labels))


def of_pod(*keys: str, old: dict[str, str] | None = None, **changes: Any) -> FakeSubject:
    """Return a Pod with these labels, all "true"; ``old`` are those of the Pod before an UPDATE."""
    operation = "CREATE" if old is None else "UPDATE"
    old_pod = None if old is None else labelled(old)
    subject = FakeSubject(
        labelled(dict.fromkeys(keys, "true")), request_for(operation=operation), operation, old_pod=old_pod
    )
    return subject.but(**changes)


def of_object(
    resource: GroupVersionResource, value: dict[str, Any] | None, old: dict[str, Any] | None = None
) -> FakeSubject:
    """Any other object."""
    operation = "CREATE" if old is None else "UPDATE" if value is not None else "DELETE"
    request = request_for(operation=operation, resource=resource)
    return FakeSubject(Pod(), request, operation, object=value, old_object=old)


def with_labels(**fields: Any) -> dict[str, Any]:
    """Return a node pool with ``metadata.labels`` and ``spec.nodeLabels``."""
    return {"metadata": {"labels": fields.get("labels")}, "spec": {"nodeLabels": fields.get("node_labels")}}


@pytest.mark.parametrize(
    ("key", "reserved"),
    [
        ("foo.coreweave.cloud/bar", True),
        ("foo.coreweave.com/bar", True),
        ("a.b.coreweave.com/bar", True),
        ("coreweave.com/bar", True),
        ("coreweave.cloud/", True),
        ("node.coreweave.cloud/reserved", True),
        ("sunk.coreweave.com/anything", True),
        ("notcoreweave.com/bar", False),
        ("coreweave.com.example.org/bar", False),
        ("coreweave.comm/bar", False),
        ("coreweave/bar", False),
        ("example.com/foo.coreweave.com", False),
        ("foo.coreweave.com", False),
        ("coreweave.com", False),
        ("app", False),
        ("gpu.nvidia.com/class", False),
        ("spotgate.dev/capacity", False),
    ],
)
def test_a_domain_is_matched_on_a_label_boundary_of_the_prefix(key: str, *, reserved: bool) -> None:
    assert bool(judge(of_pod("app.kubernetes.io/name", key))) is reserved


def test_the_finding_names_the_key_the_field_and_the_way_out() -> None:
    assert [(each.id, each.field, each.outcome) for each in judge(of_pod("foo.coreweave.cloud/bar"))] == [
        ("reserved", 'metadata.labels["foo.coreweave.cloud/bar"]', Outcome.DENY)
    ]


@pytest.mark.parametrize("key", ALLOWED_ON_PODS)
def test_what_coreweave_reads_on_pods_is_allowed_there_and_on_workloads_but_not_on_node_pools(key: str) -> None:
    assert not judge(of_pod(key))
    assert not judge(of_object(DEPLOYMENTS, {"metadata": {"labels": {key: "true"}}}))
    assert judge(of_object(NODE_POOLS, with_labels(node_labels={key: "true"})))
    assert judge(of_object(NODE_POOLS, with_labels(labels={key: "true"})))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("qos.coreweave.cloud/interruptible", "qos.coreweave.cloud/interruptable"),
        ("qos.coreweave.com/interruptible", "qos.coreweave.cloud/interruptable"),
        ("qos.coreweave.com/interruptable", "qos.coreweave.cloud/interruptable"),
        ("qos.coreweave.com/graceful-interruptable", "qos.coreweave.com/graceful-interruptible"),
        ("qos.coreweave.cloud/graceful-interruptible", "qos.coreweave.com/graceful-interruptible"),
        ("qos.coreweave.cloud/graceful-interruptable", "qos.coreweave.com/graceful-interruptible"),
        ("qos.coreweave.cloud/interuptable", "qos.coreweave.cloud/interruptable"),
        ("coreweave.com/graceful-interuptible", "qos.coreweave.com/graceful-interruptible"),
        ("sandbox.coreweave.cloud/sandbox-organisation-id", "sandbox.coreweave.com/sandbox-organization-id"),
    ],
)
def test_a_misspelling_is_answered_with_the_key_that_was_meant(key: str, meant: str) -> None:
    (violation,) = judge(of_pod(key))
    assert violation.fix.startswith(f"did you mean {meant}? Otherwise remove it, or use a domain of your own")


@pytest.mark.parametrize("key", ["foo.coreweave.cloud/bar", "qos.coreweave.cloud/foo", "node.coreweave.cloud/state"])
def test_a_key_that_resembles_none_gets_no_hint(key: str) -> None:
    (violation,) = judge(of_pod(key))
    assert "did you mean" not in violation.fix


def test_a_hint_is_not_given_where_the_right_key_is_not_allowed_either() -> None:
    (violation,) = judge(of_object(NODE_POOLS, with_labels(node_labels={"qos.coreweave.cloud/interruptible": "true"})))
    assert violation.fix == "remove it, or use a domain of your own, e.g. example.com/interruptible"


def test_a_hint_is_not_given_where_other_keys_are_allowed_but_not_the_right_one() -> None:
    allow = [
        {"resources": ["pods"], "labels": ["a.coreweave.com/right"]},
        {"resources": ["nodepools"], "labels": ["a.coreweave.com/other"]},
    ]
    hints = {"a.coreweave.com/wrong": "a.coreweave.com/right"}
    spec = ReservedLabelsSpec.model_validate({"domains": ["coreweave.com"], "allow": allow, "hints": hints})
    rule = KIND.compile(spec, FACTS)
    value = {"metadata": {"labels": {"a.coreweave.com/wrong": "x"}}}
    assert isinstance(rule, ReservedLabels)
    (on_node_pool,) = judge(of_object(NODE_POOLS, value), rule)
    (on_pod,) = judge(of_pod("a.coreweave.com/wrong"), rule)
    assert on_pod.fix.startswith("did you mean a.coreweave.com/right?")
    assert on_node_pool.fix == "remove it, or use a domain of your own, e.g. example.com/wrong"


def test_each_offending_key_has_a_finding_and_they_come_in_the_order_of_the_keys() -> None:
    keys = ("z.coreweave.com/a", "b.coreweave.com/a", "a.coreweave.cloud/a")
    found = [each.field for each in judge(of_pod(*keys))]
    assert found == [f'metadata.labels["{key}"]' for key in sorted(keys)]
    assert [each.field for each in judge(of_pod(*reversed(keys)))] == found


def test_a_node_pool_is_judged_by_its_own_labels_and_by_those_it_gives_its_nodes() -> None:
    value = with_labels(
        labels={"c.coreweave.com/x": "1", "app": "x"},
        node_labels={"b.coreweave.com/x": "1", "c.coreweave.com/x": "1", "example.com/x": "1"},
    )
    assert [each.field for each in judge(of_object(NODE_POOLS, value))] == [
        'spec.nodeLabels["b.coreweave.com/x"]',
        'metadata.labels["c.coreweave.com/x"]',
        'spec.nodeLabels["c.coreweave.com/x"]',
    ]


def test_a_node_label_whose_value_is_no_string_is_judged_all_the_same() -> None:
    assert judge(of_object(NODE_POOLS, with_labels(node_labels={"b.coreweave.com/x": None})))


@pytest.mark.parametrize(
    ("old", "found"),
    [
        ({}, 1),
        ({"foo.coreweave.com/bar": "other"}, 1),
        ({"foo.coreweave.com/bar": "true"}, 0),
        ({"foo.coreweave.com/bar": "true", "foo.coreweave.com/gone": "true"}, 0),
    ],
)
def test_an_update_answers_only_for_what_it_adds_or_changes(old: dict[str, str], found: int) -> None:
    key = "foo.coreweave.com/bar"
    new = {key: "true"}
    assert len(judge(of_pod(key, old=old))) == found
    assert len(judge(of_object(DEPLOYMENTS, {"metadata": {"labels": new}}, {"metadata": {"labels": old}}))) == found
    assert len(judge(of_object(NODE_POOLS, with_labels(node_labels=new), with_labels(node_labels=old)))) == found


def test_a_label_moved_from_one_place_to_another_was_not_there_before() -> None:
    labels = {"foo.coreweave.com/bar": "true"}
    subject = of_object(NODE_POOLS, with_labels(node_labels=labels), with_labels(labels=labels))
    assert [each.field for each in judge(subject)] == ['spec.nodeLabels["foo.coreweave.com/bar"]']


def test_removing_reserved_labels_and_deleting_what_has_them_is_always_allowed() -> None:
    old = {"foo.coreweave.com/bar": "true"}
    assert not judge(of_pod("app", old=old))
    assert not judge(of_object(NODE_POOLS, with_labels(), with_labels(node_labels=old)))
    assert not judge(of_object(NODE_POOLS, None, with_labels(node_labels=old)))
    assert not judge(of_pod("foo.coreweave.com/bar", operation="DELETE"))


def test_an_object_that_is_being_deleted_is_judged_like_any_other() -> None:
    value = with_labels(node_labels={"foo.coreweave.com/bar": "true"})
    value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert judge(of_object(NODE_POOLS, value, with_labels()))


def test_a_pod_template_counts_as_a_pod_whatever_it_is_part_of() -> None:
    request = request_for(resource=DEPLOYMENTS)
    template = of_pod("qos.coreweave.cloud/interruptable", "foo.coreweave.com/bar", request=request, template=True)
    assert [each.field for each in judge(template)] == ['metadata.labels["foo.coreweave.com/bar"]']
    assert KIND.template_outcome is Outcome.DENY


def test_a_pod_template_answers_only_for_what_an_update_adds_to_it() -> None:
    request = request_for(resource=DEPLOYMENTS, operation="UPDATE")
    old = labelled({"foo.coreweave.com/bar": "true"})
    template = of_pod("foo.coreweave.com/bar", "new.coreweave.com/bar", request=request, template=True, old_pod=old)
    assert [each.field for each in judge(template)] == ['metadata.labels["new.coreweave.com/bar"]']


def test_a_resource_that_is_called_pods_in_another_group_is_read_as_an_object() -> None:
    pod_metrics = GroupVersionResource("metrics.k8s.io", "v1beta1", "pods")
    assert judge(of_object(pod_metrics, {"metadata": {"labels": {"foo.coreweave.com/bar": "x"}}}))


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"metadata": None},
        {"metadata": []},
        {"metadata": {"labels": []}},
        {"spec": "x"},
        {"spec": {"nodeLabels": "x"}},
    ],
)
def test_an_object_without_labels_or_with_none_that_can_be_read_is_passed(value: dict[str, Any]) -> None:
    assert not judge(of_object(NODE_POOLS, value))


def test_the_trace_says_why_a_reserved_label_is_passed() -> None:
    trace = Trace()
    old = {"foo.coreweave.com/bar": "true"}
    judge(of_pod("foo.coreweave.com/bar", "qos.coreweave.cloud/interruptable", old=old, trace=trace))
    assert [text for _, _, text in trace.steps] == [
        "label foo.coreweave.com/bar is reserved, and was there before",
        "label qos.coreweave.cloud/interruptable is reserved, and allowed on pods",
        "the request adds no reserved label",
    ]


def test_node_labels_are_only_audited_and_never_those_of_kubelets_and_system_controllers() -> None:
    spec = spec_of("reserved-node-labels")
    assert spec.enforcement is Enforcement.AUDIT
    exempt = [(entry.groups, entry.users, entry.service_accounts) for entry in spec.exempt]
    assert (("system:nodes",), (), ()) in exempt
    assert ((), (), ("kube-system:*", "cw-*:*")) in exempt
    node = of_object(NODES, {"metadata": {"labels": {"node.coreweave.cloud/state": "production"}}})
    assert [each.field for each in judge(node, compiled("reserved-node-labels"))] == [
        'metadata.labels["node.coreweave.cloud/state"]'
    ]


def test_by_default_it_matches_pods_every_kind_of_workload_and_of_node_pool() -> None:
    (workloads,) = yaml.safe_load_all((ROOT / "policies" / "workloads.yaml").read_text())
    kinds = {(item["group"], item["resource"]) for item in workloads["spec"]["workloads"]}
    rules = KIND.rules(FACTS)
    matched = {(group, resource) for rule in rules for group in rule.api_groups for resource in rule.resources}
    pools = {(reader.group, reader.resource) for each in FACTS.providers.values() for reader in each.readers}
    assert matched == kinds | pools | {("", "pods"), ("", "pods/status"), ("", "pods/binding"), ("", "bindings")}
    assert ("compute.coreweave.com", "nodepools") in matched
    of = {path: rule.operations for rule in rules for path in rule.resources}
    assert (of.pop("pods/status"), of.pop("pods/binding"), of.pop("bindings")) == (
        ("UPDATE",),
        ("CREATE",),
        ("CREATE",),
    )
    assert set(of.values()) == {("CREATE", "UPDATE")}


# Labels that end up on Pods or Jobs from other places than pod templates.

RESERVED = "foo.coreweave.com/bar"


def of_workload(
    group: str, resource: str, value: dict[str, Any], old: dict[str, Any] | None = None, *, kind: str = ""
) -> FakeSubject:
    """Return a request for a workload."""
    subject = of_object(GroupVersionResource(group, "v1", resource), value, old)
    named = msgspec.structs.replace(subject.request, kind=GroupVersionKind(group, "v1", kind))
    return subject.but(request=named)


def at(path: str, labels: object) -> dict[str, Any]:
    """Return an object with labels at a path; ``groups[]`` is a list of two, of which the second has them."""
    value: Any = labels
    for part in reversed(path.split(".")):
        name = part.removesuffix("[]")
        value = {name: [{"name": "first"}, {"name": "second", **value}] if part.endswith("[]") else value}
    return dict(value)


CARRIED = [
    ("batch", "cronjobs", "spec.jobTemplate.metadata.labels"),
    ("jobset.x-k8s.io", "jobsets", "spec.replicatedJobs[].template.metadata.labels"),
    ("ray.io", "rayclusters", "spec.headGroupSpec.labels"),
    ("ray.io", "rayclusters", "spec.workerGroupSpecs[].labels"),
    ("ray.io", "rayjobs", "spec.rayClusterSpec.workerGroupSpecs[].labels"),
    ("ray.io", "rayservices", "spec.rayClusterConfig.headGroupSpec.labels"),
    ("argoproj.io", "rollouts", "spec.strategy.canary.canaryMetadata.labels"),
    ("argoproj.io", "rollouts", "spec.strategy.blueGreen.previewMetadata.labels"),
]


@pytest.mark.parametrize(("group", "resource", "path"), CARRIED)
def test_labels_that_a_workload_gives_to_pods_or_jobs_elsewhere_are_judged(
    group: str, resource: str, path: str
) -> None:
    value = at(path, {RESERVED: "x", "qos.coreweave.cloud/interruptable": "true", "app": "x"})
    (violation,) = judge(of_workload(group, resource, value))
    assert violation.field == f'{path.replace("[]", "[1]")}["{RESERVED}"]'
    assert violation.outcome is Outcome.DENY
    assert not judge(of_workload(group, resource, value, value))
    assert judge(of_workload(group, resource, value, at(path, {RESERVED: "other"})))
    assert not judge(of_workload(group, resource, at(path, {}), value))
    assert not judge(of_workload(group, resource, at(path, ["x"])))


def test_labels_carried_to_jobs_may_be_what_is_allowed_on_jobs() -> None:
    allow = [{"resources": ["jobs"], "labels": ["foo.coreweave.com/*"]}]
    rule = KIND.compile(ReservedLabelsSpec.model_validate({"domains": ["coreweave.com"], "allow": allow}), FACTS)
    assert isinstance(rule, ReservedLabels)
    labels = {RESERVED: "x"}
    assert not judge(of_workload("batch", "cronjobs", at("spec.jobTemplate.metadata.labels", labels)), rule)
    assert judge(of_workload("ray.io", "rayclusters", at("spec.headGroupSpec.labels", labels)), rule)


def test_more_places_than_anybody_writes_are_refused_not_passed_over() -> None:
    jobs = [{"template": {"metadata": {"labels": {"app": "x"}}}}] * (TEMPLATES_AT_MOST + 1)
    with pytest.raises(OverBoundError, match=f"more than the {TEMPLATES_AT_MOST} maps of labels"):
        judge(of_workload("jobset.x-k8s.io", "jobsets", {"spec": {"replicatedJobs": jobs}}))


# Templates that can't be read as Pods are not shown to rules.


@pytest.mark.parametrize("labels", [{RESERVED: "x"}, {RESERVED: 5}, {RESERVED: None}])
@pytest.mark.parametrize(
    "broken", [{"spec": {"containers": "x"}}, {"spec": 5}, {"metadata": {"annotations": 5}}, {"metadata": {"name": 5}}]
)
def test_labels_of_a_pod_template_that_can_not_be_read_are_judged_all_the_same(
    labels: dict[str, Any], broken: dict[str, Any]
) -> None:
    template = {**broken, "metadata": {**broken.get("metadata", {}), "labels": labels}}
    value = {"spec": {"workerGroupSpecs": [{"groupName": "a", "template": template}]}}
    (violation,) = judge(of_workload("ray.io", "rayclusters", value))
    assert violation.field == f'spec.workerGroupSpecs[0].template.metadata.labels["{RESERVED}"]'
    assert violation.outcome is Outcome.DENY
    assert not judge(of_workload("ray.io", "rayclusters", value, value))


def test_labels_of_a_pod_template_that_can_be_read_are_left_to_the_template() -> None:
    value = {"spec": {"template": {"metadata": {"labels": {RESERVED: "x"}}, "spec": {"containers": []}}}}
    assert not judge(of_workload("apps", "deployments", value))


# Keys of spotgate's own that have no effect where they are.

CAPACITY = "spotgate.dev/capacity"


def of_own(*, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **how: Any) -> Any:
    return FakeSubject(Pod(metadata=ObjectMeta(labels=labels, annotations=annotations)), **how)


@pytest.mark.parametrize("path", [(), ("spec", "workers", 0, "template")])
@pytest.mark.parametrize(
    ("metadata", "reason", "fix"),
    [
        ({"labels": {"spotgate.dev/capcity": "spot"}}, "label spotgate.dev/capcity has no effect, did you mean `spotgate.dev/capacity`?", "mend its name, or remove it"),
        ({"annotations": {"spotgate.dev/nodepool": "x"}}, "annotation spotgate.dev/nodepool has no effect, did you mean `spotgate.dev/node-pool`?", "mend its name, or remove it"),
        ({"labels": {"spotgate.dev/": "x"}}, "label spotgate.dev/ has no effect, did you mean `spotgate.dev/keep`?", "mend its name, or remove it"),
        ({"annotations": {CAPACITY: "spot"}}, "annotation spotgate.dev/capacity has no effect: it must be a label", "move it to `metadata.labels`"),
        ({"labels": {"spotgate.dev/keep": "tolerations"}}, "label spotgate.dev/keep has no effect: it must be an annotation", "move it to `metadata.annotations`"),
    ],
)  # fmt: skip
def test_an_own_key_that_has_no_effect_on_a_pod_is_said(
    metadata: dict[str, Any], reason: str, fix: str, path: tuple[str | int, ...]
) -> None:
    ((member, values),) = metadata.items()
    (violation,) = judge(of_own(**metadata, template=bool(path), path=path))
    assert (violation.reason, violation.outcome) == (reason, Outcome.WARN)
    assert violation.fix == (fix.replace("`metadata", "`spec.workers[0].template.metadata") if path else fix)
    assert violation.field == f'metadata.{member}["{next(iter(values))}"]'
    old = Pod(metadata=ObjectMeta(**metadata))
    assert not judge(of_own(**metadata, old_pod=old, operation="UPDATE"))


def test_own_keys_that_have_an_effect_are_not_mentioned() -> None:
    labels = {CAPACITY: "spot", "spotgate.dev/workload-class": "batch"}
    annotations = {"spotgate.dev/node-pool": "x", "spotgate.dev/keep": "tolerations"}
    assert not judge(of_own(labels=labels, annotations=annotations))
    assert not judge(of_own(labels=labels, annotations=annotations, template=True))
    assert not judge(of_own(annotations={BREAK_GLASS: "why"}))
    assert not judge(of_workload("apps", "deployments", {"metadata": {"annotations": {BREAK_GLASS: "why"}}}))
    assert not judge(of_object(NODE_POOLS, {"metadata": {"annotations": {BREAK_GLASS: "why"}}}))


def test_break_glass_has_no_effect_in_a_pod_template() -> None:
    (violation,) = judge(of_own(annotations={BREAK_GLASS: "why"}, template=True))
    assert violation.reason == (
        "annotation spotgate.dev/break-glass has no effect on a pod template, only on the object that is applied"
    )
    assert violation.fix == "move it to `metadata.annotations` of the object that is applied"


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_asking_for_spot_on_the_deployment_instead_of_its_pods_is_said_with_the_right_place(operation: str) -> None:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}}
    value = {"metadata": {"labels": {CAPACITY: "spot", "app": "x"}}, "spec": {"template": template}}
    old = {**value, "metadata": {"labels": {"app": "x"}}} if operation == "UPDATE" else None
    assert [
        (each.id, each.field, each.outcome)
        for each in judge(of_workload("apps", "deployments", value, old, kind="Deployment"))
    ] == [("misplaced-spotgate-key", 'metadata.labels["spotgate.dev/capacity"]', Outcome.WARN)]
    assert not judge(of_workload("apps", "deployments", value, value, kind="Deployment"))
    template["metadata"] = {"labels": {CAPACITY: "on-demand"}}
    assert not judge(of_workload("apps", "deployments", value, old, kind="Deployment"))


@pytest.mark.parametrize(
    ("group", "resource", "kind", "path", "name", "fix"),
    [
        ("batch", "cronjobs", "CronJob", "metadata.labels", "the CronJob itself", "`spec.jobTemplate.spec.template.metadata.labels`"),
        ("batch", "cronjobs", "CronJob", "spec.jobTemplate.metadata.labels", "its jobs", "`spec.jobTemplate.spec.template.metadata.labels`"),
        ("ray.io", "rayclusters", "RayCluster", "metadata.labels", "the RayCluster itself", "`spec.headGroupSpec.template.metadata.labels` and `spec.workerGroupSpecs[*].template.metadata.labels`"),
    ],
)  # fmt: skip
def test_it_is_said_of_every_object_around_the_pods(
    group: str, resource: str, kind: str, path: str, name: str, fix: str
) -> None:
    (violation,) = judge(of_workload(group, resource, at(path, {CAPACITY: "spot"}), kind=kind))
    assert violation.reason == f"label spotgate.dev/capacity has no effect on {name}, only on its Pods"
    assert violation.field == f'{path}["spotgate.dev/capacity"]'
    assert violation.fix == f"move it to {fix}"


def test_labels_that_ray_puts_on_its_pods_have_their_effect_and_are_checked_like_those_of_pods() -> None:
    labels = {CAPACITY: "spot", "spotgate.dev/keeep": "x"}
    value = {"metadata": {"labels": {CAPACITY: "spot"}}, **at("spec.headGroupSpec.labels", labels)}
    (violation,) = judge(of_workload("ray.io", "rayclusters", value, kind="RayCluster"))
    assert violation.field == 'spec.headGroupSpec.labels["spotgate.dev/keeep"]'


def test_an_annotation_among_the_labels_that_ray_puts_on_its_pods_belongs_in_their_templates() -> None:
    value = at("spec.headGroupSpec.labels", {"spotgate.dev/keep": "tolerations"})
    (violation,) = judge(of_workload("ray.io", "rayclusters", value, kind="RayCluster"))
    assert violation.reason == "label spotgate.dev/keep has no effect: it must be an annotation"
    assert violation.fix == (
        "move it to `spec.headGroupSpec.template.metadata.annotations` "
        "and `spec.workerGroupSpecs[*].template.metadata.annotations`"
    )


def test_a_node_pool_can_not_ask_for_spot_and_its_misspelt_break_glass_is_said() -> None:
    metadata = {"labels": {CAPACITY: "spot"}, "annotations": {"spotgate.dev/breakglass": "why"}}
    pool = of_object(NODE_POOLS, {"metadata": metadata})
    asks, breaks = judge(
        pool.but(request=msgspec.structs.replace(pool.request, kind=GroupVersionKind("", "v1", "NodePool")))
    )
    assert asks.reason == "label spotgate.dev/capacity has no effect on the NodePool itself, only on Pods"
    assert asks.fix == "remove it"
    assert breaks.reason == (
        "annotation spotgate.dev/breakglass has no effect, did you mean `spotgate.dev/break-glass`?"
    )


def test_own_keys_on_other_objects_are_none_of_its_business() -> None:
    node = of_object(NODES, {"metadata": {"labels": {"spotgate.dev/anything": "x"}}})
    assert not judge(node, compiled("reserved-node-labels"))


def test_globs_allow_a_family_of_labels_and_are_no_hints() -> None:
    allow = [{"resources": ["pods"], "labels": ["team.coreweave.com/*"]}]
    spec = ReservedLabelsSpec.model_validate({"domains": ["coreweave.com"], "allow": allow})
    rule = KIND.compile(spec, FACTS)
    assert isinstance(rule, ReservedLabels)
    (violation,) = judge(of_pod("team.coreweave.com/cost", "other.coreweave.com/cost", "x.coreweave.cloud/y"), rule)
    assert violation.field == 'metadata.labels["other.coreweave.com/cost"]'
    assert "did you mean" not in violation.fix


@pytest.mark.parametrize("domain", ["*.coreweave.com", "coreweave", "CoreWeave.com", "coreweave.com ", ""])
def test_a_domain_is_written_alone_and_in_lower_case(domain: str) -> None:
    with pytest.raises(ValueError, match="expected a domain alone in lower case"):
        ReservedLabelsSpec.model_validate({"domains": [domain]})


prefixes = st.sampled_from(
    ("", "app/", "coreweave.com/", "x.coreweave.com/", "notcoreweave.com/", "y.coreweave.cloud/")
)
label_maps = st.dictionaries(
    st.builds(str.__add__, prefixes, st.text("abc.", min_size=1, max_size=3)), st.sampled_from(("1", "2")), max_size=6
)


@given(label_maps, label_maps)
def test_the_findings_are_the_changed_keys_in_reserved_domains(new: dict[str, str], old: dict[str, str]) -> None:
    reserved = [key for key in new if "coreweave" in key and "notcoreweave" not in key]
    expected = sorted(key for key in reserved if old.get(key) != new[key])
    subject = of_object(DEPLOYMENTS, {"metadata": {"labels": new}}, {"metadata": {"labels": old}})
    assert [each.field for each in judge(subject)] == [f'metadata.labels["{key}"]' for key in expected]


@given(label_maps)
def test_an_update_that_changes_nothing_is_passed(labels: dict[str, str]) -> None:
    value = with_labels(labels=labels, node_labels=labels)
    assert not judge(of_object(NODE_POOLS, value, value))


def test_a_misspelt_capacity_label_on_a_namespace_is_found_once() -> None:
    labels = {"spotgate.dev/capacty": "spot", "spotgate.dev/capacity": "spot", "team": "a"}
    namespace = {"metadata": {"labels": labels}}
    (found,) = own_keys_of_namespace(namespace, {})
    assert (found.id, found.field) == ("unknown-spotgate-key", 'metadata.labels["spotgate.dev/capacty"]')
    assert "did you mean `spotgate.dev/capacity`?" in found.reason
    assert list(own_keys_of_namespace(namespace, namespace)) == []

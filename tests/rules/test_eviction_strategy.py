"""EvictionStrategy: CoreWeave's labels for eviction do what their author thinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.conftest import owned_by
from tests.rules.judged import blocks_of, in_template, judged, loaded, pod, template, warned, workload, yaml_of
from tests.strategies import pods
from webhook.base.bounds import LABELS
from webhook.model.decision import Finding, Outcome
from webhook.policy.errors import PolicyErrors

if TYPE_CHECKING:
    from collections.abc import Iterable

JSON = dict[str, Any]

KIND = "EvictionStrategy"
INTERRUPTIBLE = {"qos.coreweave.cloud/interruptable": "true"}
GRACEFUL = {"qos.coreweave.com/graceful-interruptible": "true"}
EVICT = {"key": "node.coreweave.cloud/evict", "operator": "Equal", "value": "true", "effect": "NoExecute"}
RESERVED = {"key": "node.coreweave.cloud/reserved", "operator": "Exists"}
GPU = {"key": "is_gpu", "operator": "Exists"}
ALL_OF_SUNK = [
    {"key": "sunk.coreweave.com/lock", "operator": "Equal", "value": "true"},
    {"key": "is_cpu_compute", "operator": "Exists"},
    GPU,
    RESERVED,
]
LABELLED = {"metadata": {"labels": GRACEFUL}}


def said(value: JSON, **how: Any) -> list[Finding]:
    return judged(value, KIND, **how)


def one(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    assert finding.outcome is Outcome.WARN
    assert len(finding.reason) <= 120
    assert yaml_of(finding)
    return finding


def labelled(labels: JSON, **spec: Any) -> JSON:
    return pod(metadata={"labels": labels}, **spec)


# Nothing to say


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("a Pod that is never evicted", pod()),
        ("a stateless Pod that may be deleted at once", labelled(INTERRUPTIBLE)),
        ("a Pod that gets its grace period", labelled(GRACEFUL, terminationGracePeriodSeconds=600)),
        ("a replicated database that shuts down", workload("StatefulSet", of=template(metadata={"labels": GRACEFUL}))),
        ("a toleration of the eviction taint where no label is passed over", pod(tolerations=[EVICT, RESERVED])),
        ("a toleration of another value of the eviction taint", labelled(GRACEFUL, tolerations=[{**EVICT, "value": "no"}])),
        ("a toleration of another effect", labelled(GRACEFUL, tolerations=[{**RESERVED, "effect": "NoSchedule"}])),
        ("a team's own label", labelled({"example.com/interruptible": "true", "interruptible": "true"})),
        ("a grace period that a drain has time for", labelled(INTERRUPTIBLE, terminationGracePeriodSeconds=180)),
        ("labels on workload and Pods", workload(of=template(metadata={"labels": INTERRUPTIBLE}), metadata={"labels": INTERRUPTIBLE})),
        ("a DaemonSet elsewhere", workload("DaemonSet", of=template())),
        ("a DaemonSet on SUNK nodes", workload("DaemonSet", of=template(tolerations=ALL_OF_SUNK))),
        ("a DaemonSet that tolerates everything", workload("DaemonSet", of=template(tolerations=[{"operator": "Exists"}]))),
        ("a Pod of a SUNK DaemonSet", pod(metadata={"ownerReferences": owned_by("DaemonSet", "apps/v1")}, tolerations=ALL_OF_SUNK[:1])),
    ],
)  # fmt: skip
def test_nothing_is_said_of(what: str, value: JSON) -> None:
    assert said(value) == [], what


# Labels


def test_both_labels_contradict_each_other() -> None:
    finding = one(said(labelled(INTERRUPTIBLE | GRACEFUL)))
    assert finding.id == "eviction-strategy/contradiction"
    assert finding.field == 'metadata.labels["qos.coreweave.cloud/interruptable"]'
    assert yaml_of(finding) == LABELLED


@pytest.mark.parametrize("value", ["True", "yes", "1", ""])
def test_a_value_that_is_not_documented_may_have_no_effect(value: str) -> None:
    finding = one(said(labelled({"qos.coreweave.cloud/interruptable": value})))
    assert finding.reason == (f'qos.coreweave.cloud/interruptable says "{value}", not "true": it may have no effect')


def test_a_label_written_as_an_annotation_has_no_effect() -> None:
    finding = one(said(pod(metadata={"annotations": GRACEFUL})))
    assert finding.field == 'metadata.annotations["qos.coreweave.com/graceful-interruptible"]'
    assert yaml_of(finding) == LABELLED


def test_a_label_on_the_workload_alone_has_no_effect() -> None:
    finding = one(said(workload(of=template(), metadata={"labels": INTERRUPTIBLE})))
    assert finding.field == "spec.template.metadata.labels"
    assert finding.reason.startswith("qos.coreweave.cloud/interruptable is on the Deployment and not on its Pods")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("qos.coreweave.cloud/interruptible", INTERRUPTIBLE),
        ("qos.coreweave.com/interruptable", INTERRUPTIBLE),
        ("qos.coreweave.com/graceful-interruptable", GRACEFUL),
        ("qos.coreweave.cloud/graceful-interruptible", GRACEFUL),
        ("coreweave.io/interruptable", INTERRUPTIBLE),
        ("interruptable", INTERRUPTIBLE),
        ("graceful-interruptible", GRACEFUL),
    ],
)
def test_a_misspelt_label_has_no_effect(key: str, meant: JSON) -> None:
    finding = one(said(labelled({key: "true"})))
    assert finding.reason == f"label {key} has no effect: the Pod is never evicted, and holds up its node"
    assert finding.field == f'metadata.labels["{key}"]'
    assert yaml_of(finding) == {"metadata": {"labels": meant}}


def test_what_reserved_labels_refuses_is_not_said_again() -> None:
    left = {"leftToReservedLabels": ["coreweave.cloud", "coreweave.com"]}
    assert said(labelled({"qos.coreweave.cloud/interruptible": "true"}), **left) == []
    one(said(labelled({"qos.coreweave.io/interruptible": "true"}), **left))


def test_countless_labels_do_not_take_long() -> None:
    labels = {f"coreweave.example/rupture-of-number-{number}": "" for number in range(LABELS.at_most - 1)}
    assert said(labelled(labels)) == []


# Graceful eviction that is passed over


@pytest.mark.parametrize(
    ("toleration", "taint"),
    [
        (EVICT, "node.coreweave.cloud/evict"),
        ({"key": "node.coreweave.cloud/evict", "operator": "Exists"}, "node.coreweave.cloud/evict"),
        (RESERVED, "node.coreweave.cloud/reserved"),
        ({**RESERVED, "operator": "Equal", "value": "acme"}, "node.coreweave.cloud/reserved"),
        ({**RESERVED, "effect": "NoExecute", "tolerationSeconds": 60}, "node.coreweave.cloud/reserved"),
    ],
)
def test_a_toleration_of_an_eviction_taint_passes_over_graceful_eviction(toleration: JSON, taint: str) -> None:
    finding = one(said(labelled(GRACEFUL, tolerations=[GPU, toleration])))
    assert finding.reason == f"it tolerates {taint}: the Pod may be evicted without its grace period"
    assert finding.field == "spec.tolerations[1]"
    assert yaml_of(finding) == {"spec": {"tolerations": [GPU]}}


@pytest.mark.parametrize("effect", [{}, {"effect": "NoExecute"}])
def test_so_does_tolerating_everything(effect: JSON) -> None:
    finding = one(said(labelled(GRACEFUL, tolerations=[{"operator": "Exists", **effect}])))
    assert finding.reason == (
        "tolerating everything includes node.coreweave.cloud/evict: the Pod may be evicted without its grace period"
    )


def test_the_only_toleration_is_removed() -> None:
    finding = one(said(labelled(GRACEFUL, tolerations=[EVICT])))
    assert yaml_of(finding) == {"spec": {"tolerations": []}}


# Interruptible


@pytest.mark.parametrize(
    ("value", "why", "to_write"),
    [
        (workload("StatefulSet", of=template(metadata={"labels": INTERRUPTIBLE})), "the Pods of a StatefulSet hold state", in_template(LABELLED)),
        (labelled(INTERRUPTIBLE) | {"metadata": {"name": "x", "labels": INTERRUPTIBLE, "ownerReferences": owned_by("PyTorchJob", "kubeflow.org/v1")}}, "the Pods of a PyTorchJob work in step", LABELLED),
        (labelled(INTERRUPTIBLE) | {"metadata": {"name": "x", "labels": INTERRUPTIBLE, "ownerReferences": owned_by("StatefulSet", "apps/v1")}}, "the Pods of a StatefulSet hold state", LABELLED),
        (workload("Job", "batch/v1", of=template(metadata={"labels": INTERRUPTIBLE}), completionMode="Indexed", parallelism=4), "the Pods of an indexed Job work in step", in_template(LABELLED)),
        (workload("Job", "batch.volcano.sh/v1alpha1", of={}, tasks=[{"template": template(metadata={"labels": INTERRUPTIBLE})}]), "the Pods of a Job work in step", LABELLED),
    ],
)  # fmt: skip
def test_stateful_and_distributed_work_is_not_interruptible(value: JSON, why: str, to_write: JSON) -> None:
    finding = one(said(value))
    assert finding.reason == f"{why}, and interruptible Pods are deleted without their grace period"
    assert yaml_of(finding) == to_write


@pytest.mark.parametrize(("replicas", "read_only", "lost"), [(1, False, True), (1, True, False), (3, False, False)])
def test_a_single_instance_that_writes_to_a_claim_is_stateful(replicas: int, *, read_only: bool, lost: bool) -> None:
    database = template(
        metadata={"labels": INTERRUPTIBLE},
        volumes=[{"name": "store", "persistentVolumeClaim": {"claimName": "store", "readOnly": read_only}}],
        containers=[{"name": "db", "volumeMounts": [{"name": "store", "mountPath": "/store"}]}],
    )
    findings = said(workload(of=database, replicas=replicas))
    assert [finding.reason.partition(",")[0] for finding in findings] == (
        ["its only replica writes to the claim `store`"] if lost else []
    )


def test_independent_jobs_are_interruptible() -> None:
    job = template(metadata={"labels": INTERRUPTIBLE})
    assert said(workload("Job", "batch/v1", of=job, completionMode="Indexed", parallelism=1)) == []
    assert said(workload("Job", "batch/v1", of=job, parallelism=8)) == []


def test_a_grace_period_that_interruptible_pods_do_not_get() -> None:
    finding = one(said(labelled(INTERRUPTIBLE, terminationGracePeriodSeconds=181)))
    assert finding.id == "eviction-strategy/grace-period"
    assert finding.field == "spec.terminationGracePeriodSeconds"
    assert yaml_of(finding) == LABELLED


# DaemonSets on SUNK nodes


@pytest.mark.parametrize(
    "names_sunk",
    [
        {"tolerations": ALL_OF_SUNK[:1]},
        {"nodeSelector": {"sunk.coreweave.com/cluster": "slurm"}},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "sunk.coreweave.com/node", "operator": "Exists"}]}]}}}},
    ],
)  # fmt: skip
def test_a_daemon_set_on_sunk_nodes_needs_their_tolerations(names_sunk: JSON) -> None:
    finding = one(said(workload("DaemonSet", of=template(**names_sunk))))
    there = names_sunk.get("tolerations", [])
    assert finding.field == "spec.template.spec.tolerations"
    missing = yaml_of(finding)["spec"]["template"]["spec"]["tolerations"]
    assert said(workload("DaemonSet", of=template(**{**names_sunk, "tolerations": [*there, *missing]}))) == []


def test_every_daemon_set_runs_on_sunk_nodes_where_the_policy_says_so() -> None:
    one(said(workload("DaemonSet", of=template(tolerations=[GPU])), sunkNodes="all"))


def test_a_daemon_set_is_not_told_to_tolerate_what_undoes_its_label() -> None:
    graceful = template(metadata={"labels": GRACEFUL}, tolerations=ALL_OF_SUNK[:3])
    assert said(workload("DaemonSet", of=graceful)) == []


# What a policy can set


def test_a_team_turns_findings_to_denials() -> None:
    both = labelled(INTERRUPTIBLE | GRACEFUL)
    on_workload = workload(of=template(metadata={"labels": INTERRUPTIBLE | GRACEFUL}))
    for value in (both, on_workload):
        assert [each.outcome for each in said(value, enforcement="deny")] == [Outcome.DENY]
        assert [each.outcome for each in said(value, enforcement="deny", findings={"contradiction": "warn"})] == [
            Outcome.WARN
        ]
        assert said(value, enforcement="deny", findings={"contradiction": "off"}) == []


def test_another_platforms_labels_can_be_named() -> None:
    own = {"interruptible": {"key": "acme.example/preempt", "value": "yes"}, "bypassingTaints": []}
    assert said(labelled({"acme.example/preempt": "yes"}, terminationGracePeriodSeconds=900), **own)
    assert said(labelled(INTERRUPTIBLE, terminationGracePeriodSeconds=900), **own) == []


# UPDATE


def test_an_update_is_judged_where_it_changes_something_about_eviction() -> None:
    both = labelled(INTERRUPTIBLE | GRACEFUL)
    assert said(both, old=labelled(GRACEFUL))
    assert said(both, old=both) == []
    assert said(pod(metadata={"labels": {"app": "web", **INTERRUPTIBLE, **GRACEFUL}}), old=both) == []
    assert said(labelled(GRACEFUL, tolerations=[EVICT]), old=labelled(GRACEFUL))
    assert said(pod(metadata={"annotations": GRACEFUL}), old=pod(metadata={"annotations": {"a": "b"}}))
    assert said(pod(metadata={"annotations": GRACEFUL | {"a": "b"}}), old=pod(metadata={"annotations": GRACEFUL})) == []


@pytest.mark.parametrize(("kind", "api_version"), [("ReplicationController", "v1"), ("ReplicaSet", "apps/v1")])
def test_kinds_are_named_with_their_group_and_those_of_the_core_group_without(kind: str, api_version: str) -> None:
    owned = {"name": "x", "labels": INTERRUPTIBLE, "ownerReferences": owned_by(kind, api_version)}
    named = kind if api_version == "v1" else f"{kind}.apps"
    assert said(pod(metadata=owned), stateful=[named])
    assert said(pod(metadata=owned), stateful=[f"{kind}.example.com"]) == []


# Its page


def test_the_page_says_what_the_webhook_says() -> None:
    (policy,) = blocks_of("eviction-strategy.md", "yaml")
    (message,) = blocks_of("eviction-strategy.md")
    assert loaded(policy) == 1
    value = workload(of=template(metadata={"labels": GRACEFUL}, tolerations=[GPU, RESERVED]))
    assert warned(said(value)) == message


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("{sunkNodes: some}", "sunkNodes"),
        ("{drainTimeoutSeconds: 3m}", "drainTimeoutSeconds"),
        ("{findings: {contradictions: warn}}", "did you mean `contradiction`?"),
        ("{findings: {contradiction: audit}}", "contradiction"),
        ("{interruptible: {key: a}}", "interruptible.value"),
        (
            "{graceful: {key: qos.coreweave.cloud/interruptable, value: graceful}}",
            "qos.coreweave.cloud/interruptable is the key of `interruptible` too",
        ),
        ("{distributed: [jobsets.jobset.x-k8s.io]}", "would match nothing; write Kind.group, as Deployment.apps"),
    ],
)
def test_a_spec_that_means_nothing_is_refused(spec: str, problem: str) -> None:
    with pytest.raises(PolicyErrors) as refused:
        loaded(f"apiVersion: spotgate.dev/v1\nkind: EvictionStrategy\nmetadata: {{name: p}}\nspec: {spec}\n")
    assert problem in str(refused.value)


# Whatever the Pod


@given(
    pods(
        labels={
            key: st.sampled_from(("true", "false", "")) for key in (*INTERRUPTIBLE, *GRACEFUL, "interruptable", "app")
        },
        annotations={key: st.just("true") for key in GRACEFUL},
    )
)
def test_every_finding_names_its_place_and_ends_in_yaml(value: JSON) -> None:
    for finding in said(value):
        assert finding.field
        assert yaml_of(finding)


@given(pods(labels={"app": st.just("web")}, annotations={}))
def test_a_pod_without_such_labels_is_left_alone(value: JSON) -> None:
    assert said(value) == []

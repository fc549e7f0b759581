"""No request takes seconds of a worker's time, and none is admitted because it is large or broken (I6, I7)."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import BUNDLE
from webhook.base import bounds
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.engine.engine import VIOLATIONS_AT_MOST, decide
from webhook.kube.templates import TEMPLATES_AT_MOST
from webhook.model.decision import ENGINE, NOTHING, Outcome
from webhook.model.review import BRACKETS_AT_MOST, COMMAS_AT_MOST, BadReviewError, Request, decode_review
from webhook.rules.context import Context, Phase, utc_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.engine.index import Index
    from webhook.model.decision import Decision, Finding

INDEX = BUNDLE.index
RESERVED = "qos.coreweave.cloud/interruptible"


def judged(
    obj: bytes,
    resource: str = "pods",
    group: str = "",
    phase: Phase = Phase.VALIDATE,
    index: Index = INDEX,
    **changes: Any,
) -> Decision:
    request = {
        "uid": "u",
        "operation": "CREATE",
        "kind": {"group": group, "version": "v1", "kind": "X"},
        "resource": {"group": group, "version": "v1", "resource": resource},
        "namespace": "team-a",
        "userInfo": {"username": "jane"},
        "object": "OBJECT",
        **changes,
    }
    envelope = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body = json.dumps(envelope).encode().replace(b'"OBJECT"', obj)
    return decide(decode_review(body), index, Context(phase=phase, now=utc_now()))


def pod_bytes(**parts: Any) -> bytes:
    return json.dumps({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "a"}]}, **parts}).encode()


def over_bound(decision: Decision) -> Finding:
    """Return the engine's own finding."""
    findings = [finding for finding in decision.findings if finding.policy == ENGINE]
    assert len(findings) == 1
    assert not decision.patch
    return findings[0]


def requirement(*values: str) -> dict[str, Any]:
    return {"key": "team", "operator": "In", "values": list(values)}


def required(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def preferred(count: int) -> dict[str, Any]:
    term = {"weight": 1, "preference": {"matchExpressions": []}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term] * count}}


def keys(count: int) -> dict[str, str]:
    return {f"key-{number}": "" for number in range(count)}


MANY: list[tuple[bounds.Bound, Callable[[int], dict[str, Any]]]] = [
    (bounds.LABELS, lambda count: {"metadata": {"labels": keys(count)}}),
    (bounds.ANNOTATIONS, lambda count: {"metadata": {"annotations": keys(count)}}),
    (bounds.SELECTOR_KEYS, lambda count: {"spec": {"nodeSelector": keys(count)}}),
    (bounds.REQUIREMENTS, lambda count: {"spec": {"affinity": required([requirement("a")] * (count - 1))}}),
    (bounds.REQUIREMENTS, lambda count: {"spec": {"affinity": required(*[[]] * count)}}),
    (bounds.REQUIREMENTS, lambda count: {"spec": {"affinity": preferred(count)}}),
    (bounds.VALUES, lambda count: {"spec": {"affinity": required([requirement(*map(str, range(count)))])}}),
    (bounds.TOLERATIONS, lambda count: {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}] * count}}),
    (bounds.CONTAINERS, lambda count: {"spec": {"containers": [{"name": "a"}] * count}}),
    (bounds.CONTAINERS, lambda count: {"spec": {"initContainers": [{"name": "a"}] * count}}),
    (bounds.CONTAINERS, lambda count: {"spec": {"ephemeralContainers": [{"name": "a"}] * count}}),
    (bounds.RESOURCES, lambda count: {"spec": {"containers": [{"resources": {"limits": keys(count)}}]}}),
    (bounds.VOLUMES, lambda count: {"spec": {"volumes": [{"name": "a"}] * count}}),
]


@pytest.mark.parametrize(("bound", "parts"), MANY)
def test_I6_a_pod_over_a_bound_is_denied_with_the_bound(
    bound: bounds.Bound, parts: Callable[[int], dict[str, Any]]
) -> None:
    finding = over_bound(judged(json.dumps(parts(bound.at_most + 1)).encode()))
    assert finding.outcome is Outcome.DENY
    assert finding.field == bound.field
    assert f"has {bound.at_most + 1:,} {bound.noun}, more than the maximum of {bound.at_most:,}" in finding.reason
    assert finding.fix


@pytest.mark.parametrize(("bound", "parts"), MANY)
def test_I6_a_pod_at_a_bound_is_judged(bound: bounds.Bound, parts: Callable[[int], dict[str, Any]]) -> None:
    decision = judged(json.dumps(parts(bound.at_most)).encode())
    assert not [finding for finding in decision.findings if finding.policy == ENGINE]


@pytest.mark.parametrize(("bound", "parts"), MANY)
def test_I6_a_pod_over_a_bound_is_not_mutated(bound: bounds.Bound, parts: Callable[[int], dict[str, Any]]) -> None:
    value = parts(bound.at_most + 1)
    value["metadata"] = {"annotations": {}, "labels": {}, **value.get("metadata", {})}
    value["metadata"]["labels"]["spotgate.dev/capacity"] = "spot"
    assert judged(json.dumps(value).encode(), phase=Phase.MUTATE) == NOTHING


def test_I6_pod_templates_share_the_bounds_of_a_pod() -> None:
    half = {"spec": {"nodeSelector": keys(bounds.SELECTOR_KEYS.at_most // 2 + 1)}}
    groups = [{"groupName": str(number), "template": half} for number in range(2)]
    decision = judged(json.dumps({"spec": {"workerGroupSpecs": groups}}).encode(), "rayclusters", "ray.io")
    assert over_bound(decision).field == "spec.workerGroupSpecs[1].template.spec.nodeSelector"


def test_I6_an_object_with_too_many_templates_is_denied() -> None:
    groups = [{"groupName": str(number), "template": {"spec": {}}} for number in range(TEMPLATES_AT_MOST + 1)]
    decision = judged(json.dumps({"spec": {"workerGroupSpecs": groups}}).encode(), "rayclusters", "ray.io")
    assert f"more than {TEMPLATES_AT_MOST} pod templates" in over_bound(decision).reason


@pytest.mark.parametrize(
    ("resource", "group"), [("pods", ""), ("deployments", "apps"), ("nodepools", "compute.coreweave.com")]
)
def test_I6_an_object_that_would_exhaust_memory_is_never_decoded(resource: str, group: str) -> None:
    value = pod_bytes(metadata={"labels": {RESERVED: "x"}}, unread=[{}] * 1_000_000)
    decision = judged(value, resource, group)
    assert "MiB of memory, more than" in over_bound(decision).reason
    assert [finding.field for finding in decision.findings if RESERVED in finding.reason] == [
        f'metadata.labels["{RESERVED}"]'
    ]


@pytest.mark.parametrize("spec", [{"nodeSelector": 5, "x": [{}] * 500_000}, [{}] * 500_000, 5])
def test_I7_a_large_unreadable_pod_is_denied(spec: object) -> None:
    assert judged(pod_bytes(spec=spec, x=[{}] * 100_000)).denied


def test_I6_a_reserved_label_is_denied_even_if_another_field_is_over_its_bound() -> None:
    decision = judged(pod_bytes(metadata={"labels": {RESERVED: "x"}}, spec={"nodeSelector": keys(115_000)}))
    assert decision.findings[0].outcome is Outcome.DENY
    assert RESERVED in decision.findings[0].reason
    assert over_bound(decision).outcome is Outcome.DENY


def test_I6_a_reserved_template_label_is_denied_even_if_another_field_is_over_its_bound() -> None:
    template = {"metadata": {"labels": {RESERVED: "x"}}, "spec": {"nodeSelector": keys(50_000)}}
    decision = judged(json.dumps({"spec": {"template": template}}).encode(), "deployments", "apps")
    assert f'spec.template.metadata.labels["{RESERVED}"]' in [finding.field for finding in decision.findings]
    assert over_bound(decision).outcome is Outcome.DENY


def test_I6_a_reserved_node_label_is_denied_in_a_pool_with_too_many_labels() -> None:
    labels = {**keys(5_000), "node.coreweave.cloud/type": "x"}
    decision = judged(json.dumps({"spec": {"nodeLabels": labels}}).encode(), "nodepools", "compute.coreweave.com")
    assert decision.denied
    assert any("node.coreweave.cloud/type" in finding.reason for finding in decision.findings)


def test_I6_a_built_in_controllers_pod_over_a_bound_gets_a_warning() -> None:
    user = {"username": "system:serviceaccount:kube-system:replicaset-controller"}
    decision = judged(pod_bytes(spec={"nodeSelector": keys(5_000)}), userInfo=user)
    assert over_bound(decision).outcome is Outcome.WARN


def test_I6_only_the_metadata_of_an_object_over_its_bound_may_change() -> None:
    large = {"metadata": {"name": "x"}, "spec": {"nodeSelector": keys(5_000)}}
    before = {**large, "metadata": {"name": "x", "finalizers": ["a/b"]}}
    decision = judged(json.dumps(large).encode(), operation="UPDATE", oldObject=before)
    assert over_bound(decision).outcome is Outcome.WARN
    small = {"metadata": {"name": "x"}, "spec": {}}
    assert judged(json.dumps(large).encode(), operation="UPDATE", oldObject=small).denied


def test_I6_adding_a_template_label_to_an_object_over_its_bound_is_denied() -> None:
    template = {"metadata": {"labels": {}}, "spec": {"containers": [{}] * 60_000}}
    before = {"metadata": {"name": "x"}, "spec": {"template": template}}
    after = json.dumps(before).replace('"labels": {}', f'"labels": {{"{RESERVED}": "x"}}', 1).encode()
    assert judged(after, "deployments", "apps", operation="UPDATE", oldObject=before).denied


def test_I6_the_number_of_findings_is_limited() -> None:
    labels = {f"qos.coreweave.cloud/interruptabl{number}": "y" for number in range(bounds.LABELS.at_most)}
    decision = judged(pod_bytes(metadata={"name": "x", "labels": labels}))
    assert decision.denied
    assert len(decision.findings) == VIOLATIONS_AT_MOST


@pytest.mark.parametrize(
    "labels", [{"qos.coreweave.cloud/" + "i" * 1_000_000: "x"}, {"spotgate.dev/" + "k" * 100_000: ""}]
)
def test_I6_a_finding_truncates_long_text(labels: dict[str, str]) -> None:
    for finding in judged(pod_bytes(metadata={"labels": labels})).findings:
        for text in (finding.reason, finding.field, finding.detail, finding.fix):
            assert len(text) <= bounds.TEXT_AT_MOST + len("...")


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize(("resource", "group"), [("pods", ""), ("nodepools", "compute.coreweave.com")])
def test_I7_invalid_utf8_in_an_object_is_denied_with_a_reason(phase: Phase, resource: str, group: str) -> None:
    broken = pod_bytes().replace(b'"a"', b'"a\xff"')
    decision = judged(broken, resource, group, phase)
    if phase is Phase.MUTATE and resource == "nodepools":
        assert not decision.findings
    else:
        assert decision.malformed
        assert "not valid UTF-8" in decision.findings[0].reason


@pytest.mark.parametrize(
    ("resource", "group", "spec", "field"),
    [
        (
            "azureasomanagedmachinepools",
            "infrastructure.cluster.x-k8s.io",
            {"resources": [{"kind": "A"}] * 1_000},
            "spec.resources",
        ),
        ("nodepools", "karpenter.sh", {"disruption": {"budgets": [{"nodes": "1"}] * 1_000}}, "spec.disruption.budgets"),
    ],
)
def test_I6_a_pool_with_more_items_than_a_check_reads_is_denied(
    resource: str, group: str, spec: dict[str, Any], field: str
) -> None:
    value = {"metadata": {"name": "x"}, "spec": spec}
    finding = over_bound(judged(json.dumps(value).encode(), resource, group))
    assert (finding.outcome, finding.field) == (Outcome.DENY, field)
    assert f"{field} has too many items" in finding.reason
    before = {**value, "metadata": {"name": "x", "finalizers": ["a/b"]}}
    assert not judged(json.dumps(value).encode(), resource, group, operation="UPDATE", oldObject=before).denied


@pytest.mark.parametrize("digits", [10, 25_000])
@pytest.mark.parametrize("schedule", ["0 9 * * *", "@every 1s"])
def test_I7_a_budget_with_too_many_digits_is_denied_with_its_field(digits: int, schedule: str) -> None:
    budgets = [{"nodes": "0", "schedule": schedule, "duration": "9" * digits + "h"}]
    value = {"metadata": {"name": "x"}, "spec": {"disruption": {"budgets": budgets}}}
    decision = judged(json.dumps(value).encode(), "nodepools", "karpenter.sh")
    assert "spec.disruption.budgets[0].duration" in [finding.field for finding in decision.findings]
    assert decision.denied


def test_I6_a_review_with_too_many_lists_is_rejected_before_decoding() -> None:
    lists = b"[" + b"[]," * (BRACKETS_AT_MOST + 1) + b"0]"
    with pytest.raises(BadReviewError, match="lists and maps"):
        judged(b'{"metadata":{},"x":' + lists + b"}")
    items = b"[" + b"1," * (COMMAS_AT_MOST + 1) + b"1]"
    with pytest.raises(BadReviewError, match="items"):
        judged(b'{"metadata":{},"x":' + items + b"}")


def test_I6_objects_that_a_teams_expressions_read_have_a_smaller_bound(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("""apiVersion: spotgate.dev/v1
kind: Validation
metadata: {name: named}
spec:
  match: {resourceRules: [{apiGroups: [""], resources: [pods], operations: [CREATE]}]}
  validations: [{expression: "has(object.spec)", message: no spec}]
""")
    variables = [{"name": f"VARIABLE_{number}", "value": "x"} for number in range(25_000)]
    value = pod_bytes(spec={"containers": [{"name": "main", "image": "x", "env": variables}]})
    assert not judged(value).findings
    finding = over_bound(judged(value, index=load_bundle([SHIPPED, policy]).index))
    assert finding.outcome is Outcome.DENY
    assert "more than the maximum of 4" in finding.reason


REVIEWS = sorted((Path(__file__).parents[1] / "golden/reviews").glob("*.json"))


def test_I2_a_decision_leaves_no_reference_cycle_with_its_request() -> None:
    assert REVIEWS
    bodies = [file.read_bytes() for file in REVIEWS]
    gc.collect()
    others = [existing for existing in gc.get_objects() if type(existing) is Request]  # of other modules
    gc.disable()
    try:
        for body in bodies:
            for phase in Phase:
                decide(decode_review(body), INDEX, Context(phase=phase, now=utc_now()))
        judged(pod_bytes(metadata={"labels": {RESERVED: "x"}}, spec={"nodeSelector": keys(115_000)}))
        left = [leaked for leaked in gc.get_objects() if type(leaked) is Request]
        assert [leaked for leaked in left if not any(leaked is other for other in others)] == []
    finally:
        gc.enable()

"""SpotSuitability: what does not belong on spot, or is not ready for a reclaim, is said once, where its author is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.objects import KARPENTER, view_of
from tests.rules.conftest import owned_by, subject_of
from tests.rules.judged import (
    NAMESPACE,
    SPOT,
    blocks_of,
    judged,
    loaded,
    template,
    warned,
    with_budgets,
    workload,
    yaml_of,
)
from tests.strategies import pods
from webhook.rules.context import Context, Phase, utc_now
from webhook.rules.protocol import Facts
from webhook.rules.spot_suitability.jobs import job_violations
from webhook.rules.spot_suitability.rule import KIND as POLICY_KIND
from webhook.rules.spot_suitability.rule import SpotSuitability

if TYPE_CHECKING:
    from webhook.capacity.view import ClusterView
    from webhook.model.decision import Finding

JSON = dict[str, Any]

KIND = "SpotSuitability"
PROBE = {"httpGet": {"path": "/ready", "port": 8080}}
READY: JSON = {"name": "app", "image": "app:1", "ports": [{"containerPort": 8080}], "readinessProbe": PROBE}
COVERED = with_budgets({"selector": {"matchLabels": {"app": "web"}}, "minAvailable": "50%"})
UNCOVERED = with_budgets()


def said(value: JSON, view: ClusterView = COVERED, **how: Any) -> list[Finding]:
    return judged(value, KIND, view=view, **how)


def spot(*, labels: JSON | None = None, annotations: JSON | None = None, **spec: Any) -> JSON:
    """Return a template that is fit for spot."""
    metadata = {"labels": {"app": "web", **SPOT, **(labels or {})}, "annotations": annotations or {}}
    return template(metadata=metadata, **{"containers": [READY], **spec})


def service(replicas: int = 6, kind: str = "Deployment", **spec: Any) -> JSON:
    return workload(kind, of=spot(**spec), replicas=replicas)


# Node Termination Handler


def test_node_termination_handler_beside_karpenter() -> None:
    handler = template(containers=[{"name": "h", "image": "public.ecr.aws/aws-ec2/aws-node-termination-handler:v1.25"}])
    rule = POLICY_KIND.compile(POLICY_KIND.spec(), Facts({"karpenter": KARPENTER}))
    assert isinstance(rule, SpotSuitability)
    subject = subject_of({"metadata": {}, **handler}, template=True)
    subject.request.object = msgspec.Raw(b"{}")
    for shown, found in (("karpenter", 1), ("eks", 0)):
        context = Context(phase=Phase.VALIDATE, now=utc_now(), view=view_of(shown=(shown,)))
        violations = list(rule.validate(subject, context))
        assert len(violations) == found
    assert said(workload("DaemonSet", of=handler)) == []


# What a policy can set


def test_other_policies_are_not_asked_of_a_template_that_stays() -> None:
    bad = {"qos.coreweave.cloud/interruptible": "true"}
    assert (
        judged(service(2, labels=bad), "ReservedLabels", old=service(3, labels=bad), domains=["coreweave.cloud"]) == []
    )


# Its page


def test_the_page_says_what_the_webhook_says() -> None:
    (policy,) = blocks_of("spot-suitability.md", "yaml")
    (message,) = blocks_of("spot-suitability.md")
    assert loaded(policy) == 1
    blocking = with_budgets({"selector": {}, "maxUnavailable": 0})
    assert blocking.budgets is not None
    (budget,) = blocking.budgets[NAMESPACE]
    view = msgspec.structs.replace(blocking, budgets={NAMESPACE: (msgspec.structs.replace(budget, name="ledger"),)})
    assert warned(said(service(3), view)) == message


@pytest.mark.parametrize("off", ["off", '"off"'])
def test_off_is_a_word_though_yaml_takes_it_for_false(off: str) -> None:
    policy = "apiVersion: spotgate.dev/v1\nkind: SpotSuitability\nmetadata: {name: p}\nspec: "
    assert loaded(f"{policy}{{enforcement: {off}}}") == 0
    assert loaded(f"{policy}{{findings: {{driver: {off}}}}}") == 1


# Whatever the Pod

NOISE = {"karpenter.sh/do-not-disrupt": st.just("true")}


@given(pods(labels={"spotgate.dev/capacity": st.sampled_from(("on-demand", "Spot", ""))}, annotations=NOISE))
def test_nothing_is_said_of_a_pod_that_does_not_target_spot(value: JSON) -> None:
    assert said(value) == []


@given(pods(labels={"spotgate.dev/capacity": st.just("spot")}, annotations=NOISE), st.integers(0, 4))
def test_every_finding_names_its_place_and_ends_in_yaml(value: JSON, replicas: int) -> None:
    of = {"metadata": value["metadata"], "spec": value["spec"]}
    for thing in (value, workload(of=of, replicas=replicas)):
        for finding in said(thing, UNCOVERED):
            assert finding.field
            assert yaml_of(finding)


IGNORING: Final = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
FAILING: Final = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]}


@pytest.mark.parametrize(
    ("around", "restart", "grace", "expected"),
    [
        ({}, "Never", 30, ["job-failure-policy"]),
        ({}, "OnFailure", 30, []),
        ({"backoffLimit": 0}, "Never", 30, ["job-fails"]),
        ({"backoffLimit": 0}, "OnFailure", 30, ["job-fails"]),
        ({"backoffLimit": 0, "podFailurePolicy": FAILING}, "Never", 30, ["job-fails"]),
        ({"backoffLimit": 0, "podFailurePolicy": IGNORING}, "Never", 30, []),
        ({"podFailurePolicy": IGNORING, "podReplacementPolicy": "Failed"}, "Never", 200, []),
        ({"podReplacementPolicy": "Failed"}, "OnFailure", 61, ["late-replacement"]),
        ({"podReplacementPolicy": "Failed"}, "OnFailure", 60, []),
        ({"podFailurePolicy": {"rules": [7, {"action": "Ignore", "onPodConditions": [7]}]}}, "Never", 30, []),
    ],
)
def test_what_a_reclaim_does_to_a_job_is_read_around_its_template(
    around: dict[str, Any], restart: str, grace: int, expected: list[str]
) -> None:
    spec = {"restartPolicy": restart, "terminationGracePeriodSeconds": grace, "containers": [{"name": "main"}]}
    pod = {"metadata": {"ownerReferences": owned_by("Job", "batch/v1")}, "spec": spec}
    subject = subject_of(pod, template=True, path=("spec", "template"), object={"spec": {**around, "template": pod}})
    assert [violation.id for violation in job_violations(subject)] == expected

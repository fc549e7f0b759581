"""No request buys seconds of a worker, and none is let through for being large or broken (I6, I7)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from webhook.bundle import load_bundle
from webhook.context import Context, Phase, utc_now
from webhook.engine import VIOLATIONS_AT_MOST, decide
from webhook.kube.pod import CONTAINERS_AT_MOST
from webhook.kube.templates import TEMPLATES_AT_MOST
from webhook.review import decode_review

if TYPE_CHECKING:
    from webhook.decision import Decision

INDEX = load_bundle().index


def judged(
    obj: bytes, resource: str = "pods", group: str = "", phase: Phase = Phase.VALIDATE, **changes: Any
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
    return decide(decode_review(body), INDEX, Context(phase=phase, now=utc_now()))


def pod(**parts: Any) -> bytes:
    return json.dumps({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "a"}]}, **parts}).encode()


def test_I6_of_countless_wrong_labels_only_so_many_are_judged_one_by_one() -> None:
    labels = {f"qos.coreweave.cloud/interruptabl{number}": "y" for number in range(60_000)}
    decision = judged(pod(metadata={"name": "x", "labels": labels}))
    assert decision.denied
    assert len(decision.findings) == VIOLATIONS_AT_MOST


def test_I6_an_object_of_countless_templates_is_refused() -> None:
    groups = [{"groupName": str(number), "template": {"spec": {}}} for number in range(TEMPLATES_AT_MOST + 1)]
    decision = judged(json.dumps({"spec": {"workerGroupSpecs": groups}}).encode(), "rayclusters", "ray.io")
    assert decision.malformed
    assert f"more than {TEMPLATES_AT_MOST} pod templates" in decision.findings[0].reason


@pytest.mark.parametrize("phase", Phase)
def test_I6_a_pod_of_countless_containers_is_refused(phase: Phase) -> None:
    containers = [{"name": str(number)} for number in range(CONTAINERS_AT_MOST + 1)]
    decision = judged(pod(spec={"containers": containers}), phase=phase)
    assert decision.malformed
    assert decision.findings[0].field == "spec.containers"


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize(("resource", "group"), [("pods", ""), ("nodepools", "compute.coreweave.com")])
def test_I7_invalid_utf8_inside_an_object_is_refused_in_words(phase: Phase, resource: str, group: str) -> None:
    broken = pod().replace(b'"a"', b'"a\xff"')
    decision = judged(broken, resource, group, phase)
    if phase is Phase.MUTATE and resource == "nodepools":
        assert not decision.findings
    else:
        assert decision.malformed
        assert "not valid UTF-8" in decision.findings[0].reason

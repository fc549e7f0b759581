"""``spec.nodeName`` passes the scheduler by, and with it constraints, taints and whatever would be injected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.objects import cks_pool, view_of
from tests.rules.judged import JSON, judged, pod, template, workload
from webhook.capacity.view import ClusterView

if TYPE_CHECKING:
    from webhook.model.decision import Finding

DAEMON_SET = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}]
NO_SPOT = view_of(cks_pool("cpu", spot=False, gpu=False))
BY_HAND = "spec.nodeName binds the Pod to a node by hand"


def said(value: JSON, **changes: Any) -> list[tuple[str, str, str]]:
    found: list[Finding] = judged(value, "SpotPlacement", enforcement="deny", **changes)
    return [(str(each.outcome), each.reason, each.field) for each in found]


def test_a_pod_that_names_its_node_is_a_warning_whatever_it_asks_for() -> None:
    expected = [("warn", BY_HAND, "spec.nodeName")]
    assert said(pod(nodeName="node-1")) == expected
    assert said(pod(metadata={"labels": {"spotgate.dev/capacity": "spot"}}, nodeName="node-1")) == expected
    assert said(pod(nodeName="node-1"), view=ClusterView()) == expected


def test_so_is_a_template_that_does() -> None:
    value = workload(of=template(nodeName="node-1"))
    assert said(value) == [("warn", BY_HAND, "spec.template.spec.nodeName")]


@pytest.mark.parametrize(
    ("value", "changes"),
    [
        (pod(), {}),
        (pod(nodeName="node-1"), {"view": NO_SPOT}),
        (pod(nodeName="node-1"), {"user": "system:kube-scheduler"}),
        (pod(nodeName="node-1"), {"user": "system:serviceaccount:kube-system:daemon-set-controller"}),
        (pod(nodeName="node-1", metadata={"ownerReferences": DAEMON_SET}), {}),
        (workload("DaemonSet", of=template()), {}),
    ],
)
def test_those_who_place_pods_and_clusters_without_spot_hear_nothing(value: JSON, changes: dict[str, Any]) -> None:
    assert said(value, **changes) == []


def test_an_update_of_a_bound_pod_says_nothing() -> None:
    assert said(pod(nodeName="node-1"), old=pod(nodeName="node-1")) == []

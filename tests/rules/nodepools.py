"""Requests for node pools, evaluated by the shipped NodePoolRules policies."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tests.builders import BUNDLE
from tests.rules.conftest import change_of
from webhook.rules.context import Context, Phase, utc_now
from webhook.rules.node_pool_rules.rule import NodePoolRules

if TYPE_CHECKING:
    from webhook.model.decision import Outcome, Violation

JSON = dict[str, Any]

CONTEXT = Context(phase=Phase.VALIDATE, now=utc_now())
CKS = ("compute.coreweave.com", "nodepools")
KARPENTER = ("karpenter.sh", "nodepools")

HEALTHY: JSON = {
    "apiVersion": "compute.coreweave.com/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "example-nodepool"},
    "spec": {
        "autoscaling": False,
        "instanceType": "gd-8xa100-i128",
        "lifecycle": {"disableUnhealthyNodeEviction": True, "scaleDownStrategy": "IdleOnly"},
        "maxNodes": 0,
        "minNodes": 0,
        "targetNodes": 1,
    },
    "status": {"conditions": [{"type": "Validated", "reason": "Valid", "status": "True"}], "currentNodes": 1},
}
"""CoreWeave's example of a healthy pool."""


@cache
def shipped(name: str = "node-pool-rules") -> NodePoolRules:
    """Return the rule of a shipped policy."""
    (rule,) = (policy.validator for policy in BUNDLE.policies if policy.name == name)
    assert isinstance(rule, NodePoolRules)
    return rule


def judge(
    resource: tuple[str, str], new: JSON | None, old: JSON | None = None, rule: NodePoolRules | None = None
) -> list[Violation]:
    """Return the violations of the request."""
    return list((rule or shipped()).validate(change_of(resource, new, old), CONTEXT))


def summaries(violations: list[Violation]) -> list[tuple[Outcome, str, str]]:
    """Return the outcome, field, and reason of each violation."""
    return [(violation.outcome, violation.field, violation.reason) for violation in violations]


def healthy_pool(**spec: Any) -> JSON:
    """Return the healthy pool with changed fields; None removes a field."""
    fields = {**HEALTHY["spec"], **spec}
    return {**HEALTHY, "spec": {key: value for key, value in fields.items() if value is not None}}

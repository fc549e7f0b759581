"""Rewrite budgets that cover Pods of custom resources, such as CloneSets, to absolute numbers.

The disruption controller reads the scale of the owners. A rehearsal has neither these owners nor their CRDs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.kube.disruption import budget_from
from webhook.model.patch import merge_patch
from webhook.rehearse.inputs.resources import BUDGET, BY_NAME, JSON, POD, controller_of, group_kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable


def keep_counts(objects: Iterable[JSON]) -> None:
    """Set minAvailable of budgets that cover Pods of custom resources to the desiredHealthy of their status."""
    pods = [value for value in objects if value["kind"] == POD.kind]
    custom = [pod["metadata"] for pod in pods if (owner := controller_of(pod)) and group_kind_of(owner) not in BY_NAME]
    for value in objects if custom else ():
        status, namespace = value.get("status") or {}, value["metadata"].get("namespace")
        least = status.get("desiredHealthy")
        if value["kind"] == BUDGET.kind and status.get("expectedPods") and isinstance(least, int):
            budget = budget_from(value)
            if any(pod["namespace"] == namespace and budget.covers(pod.get("labels") or {}) for pod in custom):
                value["spec"] = merge_patch(value["spec"], {"maxUnavailable": None, "minAvailable": least})

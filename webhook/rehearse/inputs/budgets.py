"""Turn budgets over Pods of custom resources, such as CloneSets, into numbers of Pods.

A real disruption controller asks the owners for their scale; neither they nor their definitions are in a rehearsal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.kube.disruption import KIND as BUDGET
from webhook.kube.disruption import budget_from
from webhook.rehearse.inputs.resources import BY_NAME, POD, controller_of, group_kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.rehearse.inputs.resources import JSON


def keep_counts(objects: Iterable[JSON]) -> None:
    """Have budgets over Pods of custom resources demand as many Pods as their cluster has counted last."""
    pods = [value for value in objects if value["kind"] == POD.kind]
    custom = [pod["metadata"] for pod in pods if (owner := controller_of(pod)) and group_kind_of(owner) not in BY_NAME]
    for value in objects if custom else ():
        status = value.get("status") or {}
        least = status.get("desiredHealthy")
        if value["kind"] != BUDGET or not status.get("expectedPods") or not isinstance(least, int):
            continue
        budget, namespace = budget_from(value), value["metadata"]["namespace"]
        if any(pod["namespace"] == namespace and budget.covers(pod.get("labels") or {}) for pod in custom):
            rest = {key: field for key, field in value["spec"].items() if key != "maxUnavailable"}
            value["spec"] = {**rest, "minAvailable": least}

"""Turn budgets over Pods of custom resources, such as CloneSets, into numbers of Pods.

A real disruption controller asks the owners for their scale; neither they nor their definitions are in a rehearsal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.kube.disruption import KIND as BUDGET
from webhook.kube.disruption import budget_from
from webhook.rehearse.inputs.resources import BY_NAME, POD, controller_of, group_kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from webhook.kube.disruption import DisruptionBudget
    from webhook.offline.manifests.objects import Manifest
    from webhook.rehearse.inputs.resources import JSON


def count_budgets(objects: Sequence[JSON], others: Iterable[Manifest]) -> Iterator[str]:
    """Have budgets over Pods of custom resources demand a number of Pods, and yield a sentence for each that can't.

    The budgets among the objects are changed; the scale of a custom resource is its ``spec.replicas``.
    """
    pods = ((each["metadata"], controller_of(each)) for each in objects if each["kind"] == POD.kind)
    owned = [(pod, owner) for pod, owner in pods if owner is not None]
    if all(group_kind_of(owner) in BY_NAME for _, owner in owned):
        return
    by_name = {(each.group, each.kind, each.namespace or "default", each.name): each.value for each in others}
    for value in objects:
        if value["kind"] != BUDGET:
            continue
        budget, namespace = budget_from(value), value["metadata"]["namespace"]
        owners = {
            (*group_kind_of(owner), namespace, owner["name"])
            for pod, owner in owned
            if pod["namespace"] == namespace and budget.covers(pod.get("labels") or {})
        }
        custom = sorted({kind for group, kind, *_ in owners if (group, kind) not in BY_NAME})
        if not custom or isinstance(budget.min_available, int):
            continue
        scales = [(by_name.get(each, {}).get("spec") or {}).get("replicas") for each in owners]
        least = _least(value, budget, scales)
        if least is not None:
            rest = {key: each for key, each in value["spec"].items() if key != "maxUnavailable"}
            value["spec"] = {**rest, "minAvailable": least}
        else:
            yield (
                f"PodDisruptionBudget {budget.name}: it needs the scale of each {', '.join(custom)} that it covers, "
                "whose spec.replicas is not here: it allows no eviction"
            )


def _least(value: JSON, budget: DisruptionBudget, scales: Sequence[object]) -> int | None:
    """Return how many Pods a budget demands, as its cluster has counted or by these scales. Return None if unknown."""
    status = value.get("status") or {}
    if status.get("expectedPods"):
        return int(status["desiredHealthy"])
    numbers = [each for each in scales if isinstance(each, int)]
    return budget.least(sum(numbers)) if len(numbers) == len(scales) else None

"""Check whether a Pod needs more time to save its work than the drain leaves, and could begin at the notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.capacity.placement.target import KEEP_RECLAIM_NOTICE, Target, kept_fields
from webhook.capacity.placement.workload_class import CHECKPOINTING, CLASS_LABEL, TRAINING_OPERATORS, derive_class
from webhook.kube.notice import DIRECTORY, FILE, INFORM, ON_RECLAIM
from webhook.model.decision import Violation, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.capacity.placement.budget import GraceBudgets
    from webhook.kube.pod import Pod


def judge_notice(pod: Pod, target: Target, budgets: GraceBudgets) -> Iterator[Violation]:
    """Yield a violation for a checkpointing Pod without an action whose grace period is longer than the budget.

    Its node must show the notice before the drain.
    """
    if ON_RECLAIM in pod.labels or KEEP_RECLAIM_NOTICE in kept_fields(pod):
        return
    named = pod.labels.get(CLASS_LABEL) or derive_class(pod, TRAINING_OPERATORS, gpu=target.gpu is True)[0]
    strictest = budgets.strictest(target) if named == CHECKPOINTING else None
    if strictest is None:
        return
    budget, provider, _ = strictest
    early = provider.interruption.drain_seconds - provider.interruption.cordon_seconds
    if early > 0 and pod.grace_seconds > budget.seconds:
        yield warning(
            id="notice-unused",
            reason=f"the Pod needs more than the {budget.seconds} s of a drain, and could begin {early} s earlier",
            field="spec.terminationGracePeriodSeconds",
            detail=f"{provider.title} announces a reclaim {early} s before the drain. With the label, the Pod finds "
            f"its deadline in {DIRECTORY}/{FILE}.",
            fix="label it, and let the program save its work when the file has a time",
            yaml={"metadata": {"labels": {ON_RECLAIM: INFORM}}},
        )

"""Check whether a Pod that uses the whole grace period could save its work earlier: from the notice of the reclaim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.base.globs import Globs
from webhook.capacity.placement.target import kept_fields
from webhook.capacity.placement.workload_class import CHECKPOINTING, CLASS_LABEL, TRAINING_OPERATORS, derive_class
from webhook.kube.notice import DIRECTORY, FILE, INFORM, ON_RECLAIM
from webhook.model.decision import Outcome, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.capacity.placement.budget import GraceBudgets
    from webhook.capacity.placement.target import Target
    from webhook.kube.pod import Pod

_OPERATORS: Final = Globs(TRAINING_OPERATORS)


def judge_notice(pod: Pod, target: Target, budgets: GraceBudgets) -> Iterator[Violation]:
    """Yield a violation for a checkpointing Pod without an action that has at least the grace period of the budget.

    Its node must show the notice before the drain.
    """
    if ON_RECLAIM in pod.labels or "reclaim-notice" in kept_fields(pod):
        return
    named = pod.labels.get(CLASS_LABEL) or derive_class(pod, _OPERATORS, gpu=target.gpu is True)[0]
    strictest = budgets.strictest(target) if named == CHECKPOINTING else None
    if strictest is None:
        return
    budget, provider, _ = strictest
    early = provider.interruption.drain_seconds - provider.interruption.cordon_seconds
    if early > 0 and pod.grace_seconds >= budget.seconds:
        yield Violation(
            id="notice-unused",
            reason=f"the Pod uses the whole budget of {budget.seconds} s, and could begin to save {early} s earlier",
            field="spec.terminationGracePeriodSeconds",
            detail=f"{provider.title} announces a reclaim {early} s before the drain. With the label, the file "
            f"{DIRECTORY}/{FILE} tells the Pod.",
            fix="label it, and let the program read the file",
            yaml={"metadata": {"labels": {ON_RECLAIM: INFORM}}},
            outcome=Outcome.AUDIT,
        )

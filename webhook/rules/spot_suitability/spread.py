"""Find topology spread constraints without effect on spot, or that lose their effect during a rollout.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/ (only nodes that the Pod's
selector admits count; ``matchLabelKeys``); https://github.com/kubernetes/kubernetes/issues/98215 (the old ReplicaSet's
Pods count).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.capacity.placement.target import CAPACITY_LABEL, SPOT_PREFERRED
from webhook.kube.layouts import member
from webhook.model.decision import Outcome, Violation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.rules.subject import Subject

KARPENTERS_SPREAD: Final = "capacity-spread"
"""The label in https://karpenter.sh/docs/concepts/scheduling/#on-demandspot-ratio-split."""

_ROLLING: Final = "Deployment.apps"


def judge_spread(
    subject: Subject, capacity_keys: Collection[str], replicas: int | None, *, preferred: bool
) -> Iterator[Violation]:
    """Yield at most one violation of each kind. ``capacity_keys`` are the labels that mark spot or on-demand nodes."""
    listed = subject.pod.spec.topologySpreadConstraints
    spreads = enumerate(listed if isinstance(listed, list) else ())
    keyed = [(index, spread, str(spread.get("topologyKey"))) for index, spread in spreads if isinstance(spread, dict)]
    index, key = next(((index, key) for index, _, key in keyed if key in capacity_keys), (None, ""))
    if index is not None and not preferred:
        yield Violation(
            id="topology-spread-capacity",
            reason=f"the constraint spreads Pods over {key}, but all of them must run on spot",
            field=f"spec.topologySpreadConstraints[{index}].topologyKey",
            detail="A spread constraint counts only nodes on which the Pod can run, so it keeps no Pod on demand.",
            fix=f"remove the constraint; or, to keep some Pods on demand, label the Pods with "
            f"`{CAPACITY_LABEL}: {SPOT_PREFERRED}`",
        )
    rolls = subject.template and subject.request.kind.group_kind == _ROLLING and (replicas or 0) > 1
    if not rolls or member(subject.object, ("spec", "strategy", "type")) == "Recreate":
        return
    others = ((index, spread) for index, spread, key in keyed if key not in capacity_keys)
    index = next((i for i, other in others if other.get("labelSelector") and not other.get("matchLabelKeys")), None)
    if index is not None:
        yield Violation(
            id="topology-spread-rollout",
            reason="a rollout can leave its Pods unevenly spread, because the scheduler also counts the old Pods",
            field=f"spec.topologySpreadConstraints[{index}]",
            detail="The Pods of the old ReplicaSet are gone after the rollout.",
            fix="add `matchLabelKeys: [pod-template-hash]` to the constraint",
            outcome=Outcome.AUDIT,
        )

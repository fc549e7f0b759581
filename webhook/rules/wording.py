"""Render the phrases that findings of several kinds share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.capacity.placement.target import CAPACITY_LABEL, ON_DEMAND, NotTargeting, Target

if TYPE_CHECKING:
    from webhook.rules.subject import Subject

NOT_MUTATED: Final = "Either the mutating webhook was skipped, something undid its change, or the policy only audits."
"""The possible reasons why a planned change of a Pod is missing."""


def pod_noun(subject: Subject) -> str:
    """Return the name of the object with the Pod's labels and annotations in the manifest."""
    return "the pod template" if subject.template else "the Pod"


def run_on_demand(subject: Subject, target: Target | NotTargeting) -> str:
    """Return how to run the Pod on demand, as an instruction. A label doesn't override the Pod's other choices of spot.

    spotgate may have injected a selector because of the label. If the user wrote the selector, changing the label leads
    to the finding `on-demand-and-spot`.
    """
    if isinstance(target, NotTargeting):
        return f"select a {target.chosen[0].kind} without spot nodes"
    if target.own and target.own == target.field:
        return f"remove `{target.own}`, which selects spot"
    return f"label {pod_noun(subject)} with `{CAPACITY_LABEL}: {ON_DEMAND}`"

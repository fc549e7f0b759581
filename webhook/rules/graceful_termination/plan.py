"""Build the plan of GracefulTermination for one Pod, and its violations.

Mutation and validation share it, so they can't disagree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.target import CAPACITY_LABEL, KEEP_ANNOTATION, KEEP_WORDS
from webhook.capacity.placement.workload_class import CLASS_LABEL
from webhook.decision import Outcome, Violation
from webhook.kube.containers import hook_sleeps, longest_sleep
from webhook.kube.pod import DEFAULT_GRACE_SECONDS
from webhook.policy.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.capacity.placement.budget import GraceBudget
    from webhook.kube.containers import HookSleep
    from webhook.kube.pod import Handler, Pod

_GRACE: Final = "spec.terminationGracePeriodSeconds"
_NOT_THERE: Final = "The mutating webhook was skipped, or something undid its change, or the policy only audits."
_LONGEST_WORD: Final = 40
"""Characters of an unknown word that a finding repeats: an annotation may have 256 KiB."""


class TerminationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the changes to make to one Pod, and what they are based on.

    Attributes:
        budget: the seconds between reclaim and removal.
        unknown_class: the value of its label, if the policy has no such class.
        grace: the grace period to set, in seconds.
        sleep: the preStop sleep of the class, in seconds.
        sleepless: indexes in ``spec.containers`` of the containers that get the sleep.
        handler: the sleep as a hook, or None if the Pod can't sleep.
        no_handler: why it can't.
        keeps: what the Pod's annotation asks to keep.
        pod_noun: the object that carries its labels and annotations, for messages.
    """

    budget: GraceBudget
    workload_class: str
    unknown_class: str
    grace: int
    sleep: int
    sleepless: tuple[int, ...]
    handler: Handler | None
    no_handler: str
    keeps: frozenset[str]
    pod_noun: str

    def violations(self, pod: Pod, classes: Collection[str], *, deny: bool) -> Iterator[Violation]:
        """Yield the violations that the plan does not fix, and the planned changes that are missing."""
        if self.unknown_class:
            yield _unknown_class(self, classes)
        if unknown := self.keeps.difference(KEEP_WORDS):
            yield _unknown_word(min(unknown)[:_LONGEST_WORD])
        tuned = pod.grace_seconds != DEFAULT_GRACE_SECONDS
        if self.grace != pod.grace_seconds:
            yield _other_grace(self, pod.grace_seconds)
        elif self.grace > self.budget.seconds:
            yield _over_budget(self, pod, Outcome.DENY if deny and tuned else Outcome.WARN)
        for sleep in hook_sleeps(pod):
            if (sleep.hook == "preStop" and sleep.seconds >= self.grace) or (
                sleep.native and sleep.seconds > self.grace
            ):
                yield _no_time_left(sleep, self)
        if self.sleepless:
            yield _no_sleep(self, pod)


def _unknown_class(plan: TerminationPlan, classes: Collection[str]) -> Violation:
    known = ", ".join(f"`{name}`" for name in sorted(classes))
    return Violation(
        id="unknown-class",
        reason=f"unknown workload class `{plan.unknown_class}`{did_you_mean(plan.unknown_class, classes)}",
        field=f'metadata.labels["{CLASS_LABEL}"]',
        detail=f"The Pod is treated as `{plan.workload_class}`. The policy has: {known}.",
        fix="name one of these, or add the class to the policy's `classes`",
        outcome=Outcome.WARN,
    )


def _unknown_word(word: str) -> Violation:
    known = ", ".join(f"`{each}`" for each in KEEP_WORDS)
    return Violation(
        id="unknown-keep-word",
        reason=f"unknown word `{word}`{did_you_mean(word, KEEP_WORDS)}",
        field=f'metadata.annotations["{KEEP_ANNOTATION}"]',
        detail=f"The word has no effect. There are: {known}.",
        fix=f"write `{KEEP_ANNOTATION}` as a list of these words, with commas between them",
        outcome=Outcome.WARN,
    )


def _other_grace(plan: TerminationPlan, current: int) -> Violation:
    return Violation(
        id="grace-not-set",
        reason=f"a grace period of {current} s should be {plan.grace} s on this capacity",
        field=_GRACE,
        detail=f"{plan.budget}. The Pod's class is `{plan.workload_class}`. {_NOT_THERE}",
        fix=f"set `terminationGracePeriodSeconds: {plan.grace}`, "
        f"or annotate {plan.pod_noun} `{KEEP_ANNOTATION}: grace-period`",
        outcome=Outcome.WARN,
    )


def _over_budget(plan: TerminationPlan, pod: Pod, outcome: Outcome) -> Violation:
    budget = plan.budget
    early = plan.grace - budget.limit
    lost = (
        f"SIGKILL comes {early} s before your grace period ends: what is not saved by then is lost."
        if early > 0
        else f"Only {-early} s of the safety margin are left for a drain that begins late."
    )
    fix = f"set `terminationGracePeriodSeconds: {budget.seconds}` and save within that"
    longest = longest_sleep(pod)
    if longest >= budget.seconds:
        lost += f" A lifecycle hook alone sleeps {longest} s."
        fix = f"sleep less, {fix}"
    return Violation(
        id="over-budget",
        reason=f"a grace period of {plan.grace} s is {plan.grace - budget.seconds} s over what a reclaim leaves",
        field=_GRACE,
        detail=f"{budget}. {lost}",
        fix=f"{fix}, or run it on-demand: label {plan.pod_noun} `{CAPACITY_LABEL}: on-demand`",
        outcome=outcome,
    )


def _no_time_left(sleep: HookSleep, plan: TerminationPlan) -> Violation:
    detail = (
        "preStop runs inside the grace period: SIGTERM comes when the sleep is over, and SIGKILL right after it."
        if sleep.hook == "preStop"
        else "A Pod that is stopped while it starts is killed before the hook has ended."
    )
    if sleep.native and sleep.seconds > plan.grace:
        detail += " The API server refuses a `sleep` that is longer than the grace period."
    more = (
        f", or set `terminationGracePeriodSeconds` to more than {sleep.seconds} (at most {plan.budget.seconds})"
        if sleep.seconds < plan.budget.seconds
        else ""
    )
    container = sleep.placed.container.name
    return Violation(
        id="sleep-too-long",
        reason=f"the {sleep.hook} sleep of `{container}` takes {sleep.seconds} s of a grace period of {plan.grace} s",
        field=sleep.field,
        detail=detail,
        fix=f"sleep less than {min(sleep.seconds, plan.grace, plan.budget.seconds)} s{more}",
        outcome=Outcome.WARN,
    )


def _no_sleep(plan: TerminationPlan, pod: Pod) -> Violation:
    seconds, handler = plan.sleep, plan.handler
    names = ", ".join(f"`{pod.spec.containers[index].name}`" for index in plan.sleepless)
    one = len(plan.sleepless) == 1
    give = f"give {'it' if one else 'them'}"
    if handler is None:
        reason = f"no preStop sleep of {seconds} s can be injected: {plan.no_handler}"
        why = ""
        fix = f"{give} a preStop hook of {'its' if one else 'their'} own that waits {seconds} s"
    else:
        command = ", ".join(handler.exec.command or ()) if handler.exec else ""
        hook = f"exec: {{command: [{command}]}}" if command else f"sleep: {{seconds: {seconds}}}"
        reason = f"the preStop sleep of {seconds} s is missing"
        why = f" {_NOT_THERE}"
        fix = f"{give} `lifecycle: {{preStop: {{{hook}}}}}`"
    return Violation(
        id="pre-stop-impossible" if handler is None else "pre-stop-missing",
        reason=reason,
        field=f"spec.containers[{plan.sleepless[0]}].lifecycle.preStop",
        detail=f"Requests still arrive while a Pod begins to stop; SIGTERM comes at once to {names}.{why}",
        fix=f"{fix}, or annotate {plan.pod_noun} `{KEEP_ANNOTATION}: pre-stop`",
        outcome=Outcome.WARN,
    )

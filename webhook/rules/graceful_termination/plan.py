"""Define the plan of GracefulTermination for one Pod, and build its violations.

Mutation and validation share the plan, so they can't disagree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.target import KEEP_ANNOTATION, KEEP_WORDS, NotTargeting, Target
from webhook.capacity.placement.workload_class import CLASS_LABEL
from webhook.documents.yaml_writer import dump_on_one_line
from webhook.kube.edit import as_json
from webhook.kube.hooks import HookSleep, hook_sleeps, longest_sleep, spelled, unknown_hook
from webhook.kube.pod import DEFAULT_GRACE_SECONDS, Handler, Pod
from webhook.model.decision import Outcome, Violation, warning
from webhook.policy.errors import did_you_mean
from webhook.rules.targeting import NOT_MUTATED, pod_noun, run_on_demand

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.capacity.placement.budget import GraceBudget
    from webhook.rules.subject import Subject

_GRACE: Final = "spec.terminationGracePeriodSeconds"
_GRACE_FIELDS: Final = {"serving.knative.dev/service": "timeoutSeconds"}  # by label; see policies/workloads.yaml
_LONGEST_WORD: Final = 40
"""Characters of an unknown word that a finding repeats: an annotation can have 256 KiB."""


class TerminationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to one Pod, and the facts that they are based on.

    Attributes:
        budget: the seconds from the reclaim to the removal of the node.
        grace: the grace period to set, in seconds.
        sleep: the preStop sleep of the class, in seconds.
        sleepless: the indexes in ``spec.containers`` of the containers that get the sleep.
        handler: the sleep as a hook, or None if the Pod can't sleep.
        no_handler: why there is no handler.
        keeps: the fields that the Pod's annotation keeps.
        subject: the Pod or pod template.
        target: how the Pod targets spot.
    """

    budget: GraceBudget
    workload_class: str
    grace: int
    sleep: int
    sleepless: tuple[int, ...]
    handler: Handler | None
    no_handler: str
    keeps: frozenset[str]
    subject: Subject
    target: Target | NotTargeting

    @property
    def _setting(self) -> str:
        """Return the name of the field that sets the grace period."""
        names = (name for label, name in _GRACE_FIELDS.items() if label in self.subject.pod.labels)
        own = self.subject.field(_GRACE).rpartition(".")[2]
        usual = _GRACE.rpartition(".")[2]
        return next(names, own if own.endswith("Seconds") else usual)  # a patch as text contains the usual field

    def _or_keep(self, word: str) -> str:
        """Return how to keep the Pod's value, for the end of a fix."""
        return f"or annotate {pod_noun(self.subject)} with `{KEEP_ANNOTATION}: {word}`"

    def violations(self, classes: Collection[str], *, deny: bool) -> Iterator[Violation]:
        """Yield the violations that the plan doesn't fix, and those for missing changes of the plan."""
        pod = self.subject.pod
        named = pod.labels.get(CLASS_LABEL)
        if named and named != self.workload_class:
            known = ", ".join(f"`{name}`" for name in sorted(classes))
            yield warning(
                id="unknown-class",
                reason=f"unknown workload class `{named}`{did_you_mean(named, classes)}",
                field=f'metadata.labels["{CLASS_LABEL}"]',
                detail=f"The Pod gets the settings of class `{self.workload_class}`. Known classes: {known}.",
                fix="use a known class, or add this one to `classes` of the policy",
            )
        if unknown := self.keeps.difference(KEEP_WORDS):
            word = min(unknown)[:_LONGEST_WORD]
            known = ", ".join(f"`{known_word}`" for known_word in KEEP_WORDS)
            yield warning(
                id="unknown-keep-word",
                reason=f"unknown word `{word}`{did_you_mean(word, KEEP_WORDS)}",
                field=f'metadata.annotations["{KEEP_ANNOTATION}"]',
                detail=f"The word has no effect. Known words: {known}.",
                fix=f"write only known words in `{KEEP_ANNOTATION}`, separated by commas",
            )
        current = pod.grace_seconds
        if self.grace != current:
            yield warning(
                id="grace-not-set",
                reason=f"the grace period is {current} s, and should be {self.grace} s on spot",
                field=_GRACE,
                detail=f"{self.budget}. The Pod's class is `{self.workload_class}`. {NOT_MUTATED}",
                fix=f"set `{self._setting}: {self.grace}`, {self._or_keep('grace-period')}",
            )
        elif self.grace > self.budget.seconds:
            tuned = current != DEFAULT_GRACE_SECONDS
            if tuned or not self.target.by_preference:
                yield self._over_budget(pod, Outcome.DENY if deny and tuned else Outcome.WARN)
        if self.grace == 0 and "grace-period" not in self.keeps:
            yield warning(
                id="no-grace-period",
                reason="a grace period of 0 s kills the Pod 2 s after SIGTERM",
                field=_GRACE,
                detail="A preStop hook gets only 1 s, so every deletion kills the Pod within 3 s.",
                fix=f"remove `{self._setting}: 0`, {self._or_keep('grace-period')}",
            )
        for sleep in hook_sleeps(pod):
            if (sleep.hook == "preStop" and sleep.seconds >= self.grace) or (
                sleep.native and sleep.seconds > self.grace
            ):
                yield self._no_time_left(sleep)
        if self.sleepless:
            yield self._no_sleep(pod)

    def _over_budget(self, pod: Pod, outcome: Outcome) -> Violation:
        budget = self.budget
        early = self.grace - budget.limit
        lost = (
            f"SIGKILL comes {early} s before your grace period ends, and unsaved work is lost."
            if early > 0
            else f"Only {-early} s of the safety margin are left for a drain that begins late."
        )
        fix = f"set `{self._setting}: {budget.seconds}` and save the work within this time"
        longest = longest_sleep(pod)
        if longest >= budget.seconds:
            lost += f" A lifecycle hook alone sleeps {spelled(longest)}."
            fix = f"sleep less, {fix}"
        elif name := unknown_hook(pod):
            lost += f" The preStop hook of `{name}` may need the whole grace period, so spotgate keeps it."
            fix = f"let the hook end in time, {fix}"
        return warning(
            id="over-budget",
            reason=f"a grace period of {self.grace} s is {self.grace - budget.seconds} s longer than a reclaim allows",
            field=_GRACE,
            detail=f"{budget}. {lost}",
            fix=f"{fix}, or run the Pod on demand: {run_on_demand(self.subject, self.target)}",
            outcome=outcome,
        )

    def _no_time_left(self, sleep: HookSleep) -> Violation:
        detail = (
            "preStop is part of the grace period: SIGTERM comes when the grace period ends, and SIGKILL 2 s later."
            if sleep.hook == "preStop"
            else "If the Pod stops while it starts, SIGKILL comes before the hook ends."
        )
        if sleep.native and sleep.seconds > self.grace:
            detail += " The API server refuses a `sleep` that is longer than the grace period."
        seconds, most = sleep.seconds, self.budget.seconds
        more = f", or set `{self._setting}` to more than {seconds} (at most {most})"
        return warning(
            id="sleep-too-long",
            reason=f"the {sleep.hook} hook of `{sleep.placed.container.name}` sleeps {spelled(seconds)} in a grace "
            f"period of {self.grace} s",
            field=sleep.field,
            detail=detail,
            fix=f"sleep less than {min(seconds, self.grace, most)} s{more if seconds < most else ''}",
        )

    def _no_sleep(self, pod: Pod) -> Violation:
        seconds, handler = self.sleep, self.handler
        names = ", ".join(f"`{pod.spec.containers[index].name}`" for index in self.sleepless)
        if handler is None:
            reason, why = f"spotgate can't inject a preStop sleep of {seconds} s: {self.no_handler}", ""
            fix = f"add a preStop hook that waits {seconds} s to {names}"
        else:
            reason, why = f"the preStop sleep of {seconds} s is missing", f" {NOT_MUTATED}"
            fix = f"add `lifecycle: {dump_on_one_line({'preStop': as_json(handler)})}` to {names}"
        return warning(
            id="pre-stop-impossible" if handler is None else "pre-stop-missing",
            reason=reason,
            field=f"spec.containers[{self.sleepless[0]}].lifecycle",
            detail=f"Requests still arrive while a Pod stops, but SIGTERM reaches {names} at once.{why}",
            fix=f"{fix}, {self._or_keep('pre-stop')}",
        )

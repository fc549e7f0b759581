"""GracefulTermination: a Pod on spot capacity shuts down within the time that a reclaim allows.

Intent
    ``preStop + shutdown <= grace period <= budget``. A reclaimed node doesn't wait: it cuts off a grace period that
    exceeds the budget. The Kubernetes default of 30 s wastes most of the time that CKS gives.
Reads
    Pods that target spot (`capacity.placement.target`), on CREATE: ``spec.terminationGracePeriodSeconds``, lifecycle
    hooks of all containers, the controlling owner, declared ports, GPU requests, ``spec.os``, label
    ``spotgate.dev/workload-class``, annotation ``spotgate.dev/keep``; the pools that admit the Pod; the versions of the
    API server and the oldest kubelet. The rule doesn't change a Pod that no spot pool admits: SpotPlacement reports it.
    Unknown pools may admit the Pod. A Pod that names a pool with separate placement rules (GKE's ComputeClass) gets the
    budget of that pool, if the pool may be spot.
Writes
    ``spec.terminationGracePeriodSeconds``: the grace period of the class, at most the budget, if the Pod has 30 (the
    API server's default, set before any webhook runs). The user set any other value; ``overBudget: clamp`` only lowers
    it, and never to less than an existing sleep needs.
    ``spec.containers[*].lifecycle.preStop``: the sleep of the class, if there is no preStop and the sleep is shorter
    than the grace period. Init containers, sidecars, and ephemeral containers get none.
Finds
    no-grace-period, over-budget, sleep-too-long, unknown-class, unknown-keep-word, grace-not-set, pre-stop-missing,
    pre-stop-impossible
Source
    https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination (preStop runs inside the grace
    period); https://docs.coreweave.com/products/cks/nodes/spot-node-pools (the window);
    https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/ (native sleep).
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.budget import GraceBudgets
from webhook.capacity.placement.target import KEEP_ANNOTATION, KEEP_WORDS, NotTargeting, Target, kept_fields
from webhook.capacity.placement.workload_class import CLASS_LABEL, class_of
from webhook.documents.yaml_writer import dump_on_one_line
from webhook.kube.affinity import contradiction
from webhook.kube.containers import is_windows, without_pre_stop
from webhook.kube.edit import PodEditor, as_json, exec_sleep, native_sleep
from webhook.kube.hooks import HookSleep, hook_sleeps, longest_sleep, spelled, unknown_hook
from webhook.kube.pod import DEFAULT_GRACE_SECONDS, Handler, Pod
from webhook.model.decision import Outcome, Violation, warning
from webhook.policy.errors import SpecError, did_you_mean
from webhook.policy.match import PODS_CREATE
from webhook.rules.graceful_termination.spec import DEFAULT_CLASSES, ClassSpec, GracefulTerminationSpec
from webhook.rules.protocol import Facts, PolicyKind, SpecWarning, hint_for
from webhook.rules.targeting import NOT_MUTATED, Targeting, pod_noun, run_on_demand

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.capacity.placement.budget import GraceBudget
    from webhook.kube.templates import Workload
    from webhook.rules.context import Context
    from webhook.rules.protocol import Concern
    from webhook.rules.subject import Subject

NATIVE_SLEEP: Final = (1, 30)
"""The first version with ``lifecycle.preStop.sleep`` enabled by default, in the API server and the kubelet."""

_GRACE: Final = "spec.terminationGracePeriodSeconds"
_GRACE_FIELDS: Final = {"serving.knative.dev/service": "timeoutSeconds"}  # by label; see policies/workloads.yaml
_LONGEST_WORD: Final = 40
"""Characters of an unknown word that a finding repeats: an annotation can have 256 KiB."""


class GracefulTermination(msgspec.Struct, frozen=True, kw_only=True):
    """The compiled rule."""

    spec: GracefulTerminationSpec
    targeting: Targeting
    budgets: GraceBudgets

    def concern(self, _group: str, _resource: str) -> Concern:
        """Return the fields that make a Pod target spot."""
        return self.targeting.concern()

    def mutate(self, subject: Subject, editor: PodEditor, context: Context) -> None:
        """Set the planned grace period and preStop sleeps."""
        plan = self.plan(subject, context)
        if plan is None:
            return
        if plan.grace != subject.pod.grace_seconds:
            editor.set_grace(plan.grace)
        if plan.handler is not None:
            for index in plan.sleepless:
                editor.set_pre_stop(index, plan.handler)

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:
        """Yield the violations that the plan doesn't fix, and those for missing changes of the plan."""
        plan = self.plan(subject, context)
        if plan is None:
            return iter(())
        return plan.violations(self.spec.classes, deny=self.spec.over_budget == "deny")

    def plan(self, subject: Subject, context: Context) -> TerminationPlan | None:
        """Return the plan for a Pod, or None if the Pod stays unchanged. The trace records why."""
        pod, say = subject.pod, subject.trace.say
        target = self.targeting.target(subject, context.view)
        if isinstance(target, Target) and not target.nodes and (target.pools is not None or contradiction(pod.spec)):
            subject.trace.skip("unchanged: it targets spot (%s), and no spot pool can run it", target.because)
            return None
        budget = self.budgets.of(target)
        if budget is None:
            subject.trace.skip("unchanged, because no known reclaim time applies: %s", target.because)
            return None
        say("may run on spot: %s", target.because)
        say("the budget is %d s: %s", budget.seconds, budget)

        operators = self.spec.training_operators
        name, because = class_of(pod, gpu=target.gpu is True, known=self.spec.classes, training_operators=operators)
        workload_class = self.spec.classes[name]
        say("class %s: %s", name, because)

        keeps = kept_fields(pod)
        current = pod.grace_seconds
        grace = self._grace(pod, workload_class, budget.seconds, keeps)
        if grace < current and (target.by_preference or unknown_hook(pod)):
            grace = current
        say("grace period: %d s, %s", current, "unchanged" if grace == current else f"should be {grace} s")

        sleep = workload_class.pre_stop_seconds
        sleepless = without_pre_stop(pod) if 0 < sleep < grace and "pre-stop" not in keeps else ()
        handler, no_handler = self._handler(pod, sleep, context) if sleepless else (None, "no container needs it")
        say("preStop sleep of %d s: %s", sleep, no_handler or "injected")
        return TerminationPlan(
            budget=budget,
            workload_class=name,
            grace=grace,
            sleep=sleep,
            sleepless=sleepless,
            handler=handler,
            no_handler=no_handler,
            keeps=keeps,
            subject=subject,
            target=target,
        )

    def _grace(self, pod: Pod, workload_class: ClassSpec, budget: int, keeps: frozenset[str]) -> int:
        """Return the grace period that the Pod should have."""
        current = pod.grace_seconds
        if "grace-period" in keeps:
            return current
        if current == DEFAULT_GRACE_SECONDS:
            wanted = workload_class.grace_seconds
            grace = budget if wanted == "budget" else min(wanted, budget)
            if self.spec.untuned == "raise-only":
                grace = max(grace, DEFAULT_GRACE_SECONDS)
        elif current > budget and self.spec.over_budget == "clamp":
            grace = budget
        else:
            return current
        if grace < current and grace <= (longest := longest_sleep(pod)):
            most = min(current, budget)
            return most if longest < most else current
        return grace

    def _handler(self, pod: Pod, seconds: int, context: Context) -> tuple[Handler | None, str]:
        """Return a hook that sleeps, or the reason why the Pod can't have one."""
        oldest = min(context.api_server, context.oldest_kubelet)
        if oldest >= NATIVE_SLEEP and self.spec.method != "exec":
            return native_sleep(seconds), ""
        if self.spec.method == "sleep":
            return None, f"Kubernetes {oldest[0]}.{oldest[1]} has no `sleep` hook, which needs 1.30"
        if is_windows(pod):
            return None, "a Windows Pod has no /bin/sh"
        return exec_sleep(seconds), ""


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


def _compile(spec: GracefulTerminationSpec, facts: Facts) -> GracefulTermination:
    for name, class_spec in spec.classes.items():
        sleep, grace = class_spec.pre_stop_seconds, class_spec.grace_seconds
        if grace != "budget" and 0 < sleep >= grace:
            problem = f"a sleep of {sleep} s leaves no time to shut down in a grace period of {grace} s"
            raise SpecError(("classes", name, "preStopSeconds"), f"{problem}; it must be less than graceSeconds")
    return GracefulTermination(
        spec=spec,
        targeting=Targeting.of_policy(spec, facts),
        budgets=GraceBudgets(facts.providers),
    )


def _lint(spec: GracefulTerminationSpec, _workloads: Collection[Workload]) -> Iterator[SpecWarning]:
    """Yield a warning for each class with a misspelled name."""
    for name in spec.classes:
        if hint := hint_for(name.rstrip(string.digits), DEFAULT_CLASSES):
            yield SpecWarning(("classes", name), f"adds a new class{hint}")


KIND: Final = PolicyKind(
    name="GracefulTermination",
    spec=GracefulTerminationSpec,
    writes=(
        # If preStop is the only member, ignore all of `lifecycle`: Git has no empty `lifecycle`.
        '.spec.containers[] | select((.lifecycle // {} | keys) == ["preStop"]) | .lifecycle',
        ".spec.containers[].lifecycle.preStop",
        ".spec.terminationGracePeriodSeconds",
    ),
    not_exported="it changes Pods",
    compile=_compile,
    lint=_lint,
    rules=lambda _: (PODS_CREATE,),
    template_outcome=Outcome.WARN,
)

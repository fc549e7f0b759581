"""Deciding: pure and synchronous.

Server, command line, policy tests and audit all call `decide`; only what they fetch beforehand differs.

Rules emit bare violations and change Pods through an editor. Everything that turns those into an answer is here, once:
what is never touched, match, exemptions, enforcement, pod templates, controllers' Pods, break-glass, and the unknown.
"""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.context import Phase
from webhook.decision import NOTHING, SILENCE, Decision, Finding, Outcome, Recording, Violation
from webhook.documents import field_path
from webhook.kube.defaults import LABELLED_BY_TEMPLATE
from webhook.kube.edit import PodEditor
from webhook.kube.pod import Pod, pod_from_template
from webhook.kube.templates import pod_of
from webhook.kube.workload import surroundings_of
from webhook.patch import Recorder, pointer
from webhook.review import MalformedObjectError, is_null
from webhook.rules.protocol import NO_NEEDS
from webhook.subject import Judged, decode_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.cluster.protocol import Needs
    from webhook.context import Context
    from webhook.decision import Trace
    from webhook.index import Index, Policy
    from webhook.kube.templates import FoundTemplate, Workload
    from webhook.patch import Operation
    from webhook.review import Request

BREAK_GLASS: Final = "spotgate.dev/break-glass"
ENGINE: Final = "spotgate"
"""The name under which the engine itself speaks, where no policy does."""

VIOLATIONS_AT_MOST: Final = 100
"""Of one policy on one object. Nobody reads more, and a request must not buy seconds of a worker with 60,000 labels."""

TEMPLATES_AT_MOST: Final = 256
"""Pod templates of one object. The largest RayClusters have some ten worker groups."""

_ACCOUNT: Final = "system:serviceaccount:kube-system:"

BUILT_IN_CONTROLLERS: Final = frozenset(
    {"system:kube-controller-manager"}
    | {
        f"{_ACCOUNT}{name}-controller"
        for name in ("replicaset", "replication", "deployment", "statefulset", "daemon-set", "job", "cronjob")
    }
)
"""They replace the Pods of workloads that may be older than a policy; they can't read a denial."""

NEVER_DENIED: Final = frozenset({f"{_ACCOUNT}namespace-controller", f"{_ACCOUNT}generic-garbage-collector"})
"""They clean up; a denial would leave a namespace or an orphan behind for ever."""


def needs(request: Request, index: Index, phase: Phase) -> Needs:
    """What of the cluster must be known to decide this request."""
    route = index.route(phase, request)
    return route.needs if route is not None else NO_NEEDS


def decide(request: Request, index: Index, context: Context) -> Decision:
    """Judge one review: patch operations in the mutate phase, findings in the validate phase.

    Never raises for what is in the request: an object that can't be read is a decision too.
    """
    route = index.route(context.phase, request)
    if route is None:
        return NOTHING
    evaluation = _Evaluation(request, index, context, particular=route.particular)
    if index.system_namespace(request.namespace, context.view):
        evaluation.in_system_namespace(route.direct)
        return evaluation.decision()
    # A trace tells of the policies that are left out, too.
    direct, projected = (route.direct, route.projected) if context.trace else route.within(request.namespace)
    try:
        if evaluation.subject.is_mirror_pod:
            evaluation.trace.say("a mirror Pod is never touched: with it a kubelet only shows what it runs already")
            return evaluation.decision()
        if context.phase is Phase.MUTATE:
            evaluation.mutate(direct)
            if context.patch_templates and route.workload is not None:
                evaluation.mutate_templates(route.workload, projected)
        else:
            evaluation.validate(direct)
            if route.workload is not None:
                evaluation.validate_templates(route.workload, projected)
    except MalformedObjectError as error:
        return _malformed(error)
    return evaluation.decision()


def _malformed(error: MalformedObjectError) -> Decision:
    finding = Finding(
        policy=ENGINE,
        outcome=Outcome.DENY,
        reason=f"the object can't be read: {error.problem}",
        field=error.field,
        fix="give the field the type that its kind has in the Kubernetes API",
    )
    return Decision(findings=(finding,), malformed=True)


def _why_lowered(policy: Policy, violation: Violation, subject: Judged) -> str:
    """Why a finding weighs less than the policy's enforcement would have it, as a phrase; empty: it does not."""
    outcome = min(violation.outcome, policy.enforcement)
    if subject.template and policy.template_outcome < outcome:
        return f"{policy.template_outcome}, not {outcome}: it is about a pod template"
    return ""


def _remedy(policy: Policy, violation: Violation, subject: Judged) -> tuple[Operation, ...]:
    """What mends it, in the object of the request."""
    where = pointer(subject.path)
    return tuple(msgspec.structs.replace(each, path=where + each.path, policy=policy.name) for each in violation.remedy)


def _readable(template: object) -> Pod | None:
    """What a pod template was before; None where it was not there, or could not be read: then all of it is new."""
    if template is None:
        return None
    try:
        return pod_from_template(template, "")
    except MalformedObjectError:
        return None


class _Evaluation:
    """One decision in the making."""

    def __init__(self, request: Request, index: Index, context: Context, *, particular: bool) -> None:
        self.request = request
        self.particular = particular
        self.only_warns = False
        self.index = index
        self.context = context
        self.recording = Recording() if context.trace else None
        self.trace: Trace = self.recording or SILENCE
        self.subject = Judged(request, self.trace)
        self.findings: list[Finding] = []
        self.operations: list[Operation] = []
        self.audit: dict[str, str] = {}
        self.unknown = 0

    def decision(self) -> Decision:
        for finding in self.findings:
            said = f"{finding.outcome}: {finding.reason}"
            self.audit[finding.policy] = "; ".join(filter(None, (self.audit.get(finding.policy), said)))
        steps = tuple(self.recording.steps) if self.recording is not None else ()
        return Decision(
            findings=tuple(self.findings),
            patch=tuple(self.operations),
            audit=self.audit,
            unknown=self.unknown,
            steps=steps,
        )

    def in_system_namespace(self, policies: tuple[Policy, ...]) -> None:
        """Nothing there is ever changed or denied; a policy that names the namespace itself may warn."""
        self.only_warns = True
        named = tuple(policy for policy in policies if policy.matcher.names(self.request.namespace))
        if not named or self.context.phase is Phase.MUTATE:
            self.trace.say("namespace %s is a system namespace: never touched", self.request.namespace)
            return
        try:
            self.validate(named)
        except MalformedObjectError as error:
            self.trace.say("not judged: the object can't be read: %s", error.problem)

    def mutate(self, policies: tuple[Policy, ...]) -> None:
        recorder = Recorder()
        self._mutate(policies, self.subject, recorder)
        self.operations += recorder.operations

    def validate(self, policies: tuple[Policy, ...]) -> None:
        self._validate(policies, self.subject, "")

    def mutate_templates(self, workload: Workload, policies: tuple[Policy, ...]) -> None:
        for found, subject in self._templates(workload, ()):
            recorder = Recorder(pointer(found.path))
            self._mutate(policies, subject, recorder)
            self.operations += recorder.operations

    def validate_templates(self, workload: Workload, policies: tuple[Policy, ...]) -> None:
        counting = tuple(policy for policy in policies if policy.counts_replicas)
        for found, subject in self._templates(workload, counting):
            recorder = Recorder()
            self._mutate(policies, subject, recorder)
            subject.changes = recorder.operations
            self._validate(counting if subject.kept else policies, subject, field_path(found.path))
            if self.request.kind.kind in LABELLED_BY_TEMPLATE:
                self._leave_out_copied(subject.pod.labels, found.path)

    def _leave_out_copied(self, labels: Mapping[str, str], path: tuple[str | int, ...]) -> None:
        """The API server gives a Job without labels those of its template: there, once, it is said what is wrong."""
        if next(self.subject.labels()).items() <= labels.items():
            said = {(each.policy, each.field) for each in self.findings}
            self.findings = [
                each
                for each in self.findings
                if not each.field.startswith("metadata.labels")
                or (each.policy, f"{field_path(path)}.{each.field}") not in said
            ]

    def _templates(self, workload: Workload, counting: tuple[Policy, ...]) -> Iterator[tuple[FoundTemplate, Judged]]:
        """Each pod template as the Pod it will become.

        One that an UPDATE leaves as it is says nothing new, but to policies that count how many Pods are made of it.
        """
        templates = self._found(workload, self.subject.object)
        there = self._found(workload, self.subject.old_object)
        recounted = bool(counting and there) and self._has_fewer_replicas()
        before = {found.identity: found.value for found in there}
        for found in templates:
            # Wherever it was: templates without names are numbered, and removing one moves those behind it.
            kept = any(found.value == each.value for each in there)
            if kept and not recounted:
                self._say_of_template(found, "the request leaves it as it is: it is not judged again")
                continue
            try:
                pod = pod_of(found, workload, namespace=self.request.namespace, name=self.request.name)
            except MalformedObjectError as error:
                if self.context.offline:
                    raise
                # The API server has no types for most custom resources: their own controller refuses the Pods.
                self._unreadable(error)
                continue
            old_pod = _readable(before.get(found.identity))
            subject = Judged.of_template(self.request, self.trace, pod, old_pod, path=found.path)
            subject.kept = kept
            yield found, subject

    def _has_fewer_replicas(self) -> bool:
        """Than before, or the first that there are: with more, what is too few was too few before."""
        specs = (surroundings_of(raw).spec for raw in (self.request.old_object, self.request.object))
        before, after = (1 if spec.replicas is None else spec.replicas for spec in specs)
        return after < before or before == 0 < after

    def _say_of_template(self, found: FoundTemplate, text: str) -> None:
        if self.recording is not None:
            self.recording.policy = ""
            self.recording.where = field_path(found.path)
            self.recording.say(text)

    def _found(self, workload: Workload, value: dict[str, Any] | None) -> list[FoundTemplate]:
        found = list(islice(workload.templates(value or {}), TEMPLATES_AT_MOST + 1))
        if len(found) > TEMPLATES_AT_MOST:
            raise MalformedObjectError(f"more than {TEMPLATES_AT_MOST} pod templates", workload.paths[-1].text)
        return found

    def _unreadable(self, error: MalformedObjectError) -> None:
        self.unknown += 1
        reason = f"the pod template can't be read and was not judged: {error.problem}"
        self.findings.append(Finding(policy=ENGINE, outcome=Outcome.WARN, reason=reason, field=error.field))

    def _mutate(self, policies: tuple[Policy, ...], subject: Judged, recorder: Recorder) -> None:
        editor: PodEditor | None = None
        for policy in policies:
            if policy.mutator is None or not self._looks(policy, subject):
                continue
            if policy.enforcement is Outcome.AUDIT:
                subject.trace.say("enforcement is audit: nothing is changed")
                continue
            if editor is None:
                editor = PodEditor(subject.pod, recorder)
            recorder.policy = policy.name
            policy.mutator.mutate(subject, editor, self.context)

    def _validate(self, policies: tuple[Policy, ...], subject: Judged, where: str) -> None:
        for policy in policies:
            if policy.validator is None or not self._looks(policy, subject):
                continue
            violations = policy.validator.validate(subject, self.context)
            for violation in islice(violations, VIOLATIONS_AT_MOST):
                self.findings.append(self._settle(policy, violation, subject, where))

    def _looks(self, policy: Policy, subject: Judged) -> bool:
        """Does the policy look at this subject, and is the subject not exempt from it?"""
        request = self.request
        if self.recording is not None:
            self.recording.policy = policy.name
            self.recording.where = field_path(subject.path)
        if self.particular and (why_not := policy.why_not_request(request, template=subject.template)):
            self.trace.say("%s", why_not)
            return False
        if not policy.matcher.trivial:
            why_not = policy.matcher.why_not(request.namespace, self._namespace_labels, subject.labels)
            if why_not:
                self.trace.say("%s", why_not)
                return False
        for exemption in policy.exemptions:
            failing = exemption.failing(request, subject.labels, self.context.now.date())
            if not failing:
                said = f"exempt: {exemption}, by {exemption.name} at {exemption.place}"
                self.trace.say("%s", said)
                self._record(policy.name, said)
                return False
            self.trace.say("not exempt, by %s.%s: %s", exemption.name, failing, exemption)
        return True

    def _namespace_labels(self) -> Mapping[str, str]:
        """As in Kubernetes, a Namespace that is made or changed has those that it will have."""
        request = self.request
        if (request.resource.group, request.path) == ("", "namespaces") and not is_null(request.object):
            return next(self.subject.labels())
        return self.index.namespace_labels(request.namespace, self.context.view)

    def _record(self, policy: str, said: str) -> None:
        """Keep for the audit log which exemption let something through; of several pod templates once."""
        known = self.audit.get(policy, "")
        if f"; {said};" not in f"; {known};":
            self.audit[policy] = "; ".join(filter(None, (known, said)))

    def _settle(self, policy: Policy, violation: Violation, subject: Judged, where: str) -> Finding:
        """Turn a bare violation into a finding: only ever downwards, and each step for a reason of its own."""
        outcome = min(violation.outcome, policy.enforcement)
        detail = violation.detail
        if subject.template:
            outcome = min(outcome, policy.template_outcome)
        if violation.unknown:
            self.unknown += 1
            outcome = min(outcome, Outcome.INDETERMINATE if self.context.offline else policy.unknown_outcome)
        if self.only_warns:
            outcome = min(outcome, Outcome.WARN)
        if outcome is Outcome.DENY:
            lowered = self._why_not_denied(policy)
            if lowered:
                outcome = Outcome.WARN
            note = f"Not denied: {lowered}." if lowered else self._why_break_glass_fails(policy)
            detail = " ".join(filter(None, (detail, note)))
        field = ".".join(filter(None, (where, violation.field)))
        return Finding(
            policy=policy.name,
            outcome=outcome,
            reason=violation.reason,
            detail=detail,
            field=field,
            fix=violation.fix,
            lowered="" if self.recording is None else _why_lowered(policy, violation, subject),
            remedy=violation.remedy and _remedy(policy, violation, subject),
        )

    def _why_not_denied(self, policy: Policy) -> str:
        """Why a denial is only a warning for this requester; empty: it stays one. It is always in the audit log."""
        user = self.request.user_info.username
        if user in NEVER_DENIED:
            return f"{user} cleans up"
        if user in BUILT_IN_CONTROLLERS and not policy.controller_denies:
            self.audit["controller-created"] = user
            return f"{user} replaces the Pods of workloads that may be older than the policy"
        if self._emergency and self._emergency.strip() and self._may_break_glass(policy):
            self.audit["break-glass"] = f"{user}: {self._emergency}"
            return f"break-glass by {user or 'an unknown user'}: {self._emergency}"
        return ""

    @cached_property
    def _emergency(self) -> str | None:
        """The reason that the object gives for break-glass; None: it does not ask for it."""
        raw = self.request.old_object if is_null(self.request.object) else self.request.object
        return None if is_null(raw) else (decode_metadata(raw).annotations or {}).get(BREAK_GLASS)

    def _may_break_glass(self, policy: Policy) -> bool:
        return any(policy.break_glass.match(group) for group in self.request.user_info.groups or ())

    def _why_break_glass_fails(self, policy: Policy) -> str:
        """For the one who asked for it in vain, as a sentence; empty: nobody did."""
        if self._emergency is None:
            return ""
        user = self.request.user_info
        self.audit["break-glass-refused"] = f"{user.username}: {self._emergency}"
        if not self._emergency.strip():
            why = "it gives no reason"
        elif not policy.break_glass:
            why = f"policy {policy.name} has no breakGlass"
        elif self.context.offline and not user.groups:
            why = "nothing says who asks: pass --user and --group"
        else:
            why = f"{user.username or 'the user'} is in none of these groups: {', '.join(policy.break_glass.patterns)}"
        return f"{BREAK_GLASS} has no effect: {why}."

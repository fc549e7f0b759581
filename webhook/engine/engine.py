"""Decide requests with a pure, synchronous function.

The server, the command line, policy tests, and the audit all call `decide`. They differ only in the state that they
fetch first.

Rules emit violations and change Pods through an editor. The engine turns the results into a decision. It handles system
namespaces, match, exemptions, enforcement, pod templates, Pods of controllers, break-glass, and unknown state.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from webhook.base.bounds import DECODED_AT_MOST, READ_AT_MOST, OverBoundError
from webhook.base.field_paths import field_path
from webhook.base.text import frames_of
from webhook.engine.enforcement import FindingBuilder
from webhook.engine.matching import Matching
from webhook.kube.affinity import Tristate
from webhook.kube.defaults import LABELLED_BY_TEMPLATE
from webhook.kube.edit import PodEditor
from webhook.model.decision import (
    ENGINE,
    NO_TRACE,
    NOTHING,
    Decision,
    Failure,
    Finding,
    Outcome,
    Trace,
    Violation,
    engine_finding,
)
from webhook.model.review import MalformedObjectError, Request, changes_metadata_only, is_null
from webhook.policy.match import namespace_of
from webhook.rules.context import Context, Phase
from webhook.rules.subject import LabelsSubject, Subject, template_subjects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from webhook.engine.index import Index, Policy, Route
    from webhook.kube.layouts import FoundTemplate
    from webhook.kube.templates import Workload
    from webhook.model.patch import Operation

VIOLATIONS_AT_MOST: Final = 100
"""Violations of one policy on one object. Users can't read more, and 60,000 labels must not take seconds."""

_OF_THE_OBJECT: Final = (MalformedObjectError, OverBoundError)
"""Errors that the object causes, for all policies."""


def decide(request: Request, index: Index, context: Context) -> Decision:
    """Return the decision on a request: patch operations in the mutate phase, findings in the validate phase.

    The content of a request never raises an error: deny an object that can't be parsed.
    """
    return _evaluate(request, index, context)[0]


def decide_both(
    request: Request, index: Index, mutate: Context, validate: Context, apply: Callable[[Decision], None]
) -> tuple[Decision, Decision]:
    """Return the decisions of the mutate phase and of the validate phase on a request.

    ``apply`` patches the request's object in between. If the object stays as it is, it isn't decoded again.
    """
    mutation, evaluation = _evaluate(request, index, mutate)
    if mutation.malformed:
        return mutation, mutation
    before = request.object
    apply(mutation)
    is_same = mutation == NOTHING and request.object is before and not validate.trace
    earlier = evaluation if is_same else None
    return mutation, _evaluate(request, index, validate, earlier)[0]


def _evaluate(
    request: Request, index: Index, context: Context, earlier: _Evaluation | None = None
) -> tuple[Decision, _Evaluation | None]:
    """Return the decision, and the evaluation for the next phase, if its policies can reuse it as ``earlier``."""
    route = index.route(context.phase, request)
    if route is None:
        return NOTHING, None
    evaluation = _Evaluation(request, index, context, route, earlier)
    if evaluation.only_warns:
        evaluation.warn_in_system_namespace(route.direct)
        return evaluation.decision(), None
    try:
        evaluation.judge()
    except MalformedObjectError as error:
        finding = engine_finding(
            id="object/unreadable",
            outcome=Outcome.DENY,
            reason=f"the object can't be read: {error.problem}",
            field=error.field,
            fix=error.fix,
        )
        return Decision(findings=(finding,), malformed=True), None
    return evaluation.decision(), evaluation


def _without_repeats(findings: list[Finding]) -> list[Finding]:
    """Return the findings. If several policies report the same one, keep the one with the strongest outcome."""
    strongest: dict[tuple[str, ...], Finding] = {}
    for finding in findings:
        key = (finding.id, finding.field, finding.reason, finding.detail, finding.fix)
        known = strongest.setdefault(key, finding)
        if (finding.outcome, finding.would_deny) > (known.outcome, known.would_deny):
            strongest[key] = finding
    return list(strongest.values())


class _Evaluation:
    """The state of one decision in progress.

    Attributes:
        only_warns: the object is in a system namespace: nothing is changed or denied.
        templates: the pod templates that the mutate phase looked at, for a validate phase that finds them unchanged.
    """

    def __init__(
        self, request: Request, index: Index, context: Context, route: Route, earlier: _Evaluation | None
    ) -> None:
        self.request = request
        namespace = namespace_of(request)
        self.namespace = namespace or ""
        self.route = route
        self.index = index
        self.context = context
        self.trace = Trace() if context.trace else NO_TRACE
        self.subject: Subject
        self.templates: list[tuple[FoundTemplate, Subject]] = []
        at_most = READ_AT_MOST if route.expressions else DECODED_AT_MOST
        if earlier is not None and earlier.subject.at_most == at_most and not earlier.subject.labels_only:
            self.subject, self.templates = earlier.subject, earlier.templates
        else:
            self.subject = Subject(request, self.trace, at_most)
        self.findings: list[Finding] = []
        self.operations: list[Operation] = []
        self.audit: dict[str, str] = {}
        self.unknown = 0
        self.failures: list[Failure] = []
        in_system = index.system_namespaces.contains(self.namespace, context.view)
        of_provider = in_system is Tristate.YES and index.system_namespaces.may_be_provider_namespace(request)
        self.only_warns = in_system is Tristate.YES and not of_provider
        owner_unknown = in_system is Tristate.UNKNOWN
        self.matching = Matching(
            self.subject, namespace, self.trace, route, index.providers, context, of_provider, owner_unknown, self.audit
        )

    def judge(self) -> None:
        """Apply the direct policies to the object itself, and the projected ones to the Pods of its pod templates."""
        within = self.route.within(self.namespace)
        # A trace explains the policies that don't match the namespace too.
        direct, projected = (self.route.direct, self.route.projected) if self.context.trace else within
        try:
            self._judge(direct, projected)
        except OverBoundError as error:
            self._judge_labels(error, *within)

    def _judge(self, direct: tuple[Policy, ...], projected: tuple[Policy, ...]) -> None:
        workload = self.route.workload
        if self.subject.is_mirror_pod:
            self.trace.say("spotgate skips mirror Pods: the kubelet already runs them")
        elif self.context.phase is Phase.MUTATE:
            self.operations += self._mutate(direct, self.subject)
            if self.context.patch_templates and workload is not None:
                self.templates = list(self._templates(workload, ()))
                for template, subject in self.templates:
                    self.operations += template.operations(self._mutate(projected, subject))
        else:
            self._validate(direct, self.subject)
            self.guard_break_glass(self.route.guards)
            if workload is not None:
                self.validate_templates(workload, projected)

    def _judge_labels(self, error: OverBoundError, direct: tuple[Policy, ...], projected: tuple[Policy, ...]) -> None:
        """Evaluate only the labels of an object that exceeds a bound, and report that in a finding.

        Deny the object if one of the policies that match it denies, unless the request changes only metadata and
        status: a request that removes a finalizer must be admitted.
        """
        self.findings.clear()
        self.operations.clear()
        self.audit.clear()
        self.trace.policy = self.trace.where = ""  # no policy evaluates it
        self.trace.say("not evaluated: %s", error)
        if self.context.phase is Phase.MUTATE:
            return
        subject = self.subject = LabelsSubject(self.subject)
        self.matching = replace(self.matching, whole=subject)
        self._validate(tuple(policy for policy in direct if policy.kind.any_size), subject)
        self.guard_break_glass(self.route.guards)
        over = Violation(
            id="too-large",
            reason=error.reason,
            field=error.field,
            detail="spotgate injected nothing, and evaluated only the labels.",
            fix="remove what the object doesn't need, or split the object",
        )
        most = Outcome.WARN if changes_metadata_only(self.request) else Outcome.DENY
        outcomes = [
            *((policy, most) for policy in direct if not self.matching.why_not(policy, subject)),
            *((policy, min(most, policy.kind.template_outcome)) for policy in projected),
        ]
        findings = [
            self._builder.finding(policy, replace(over, outcome=outcome), subject, unknown_match=None)
            for policy, outcome in outcomes
            if policy.validator is not None
            and not self.matching.is_foreign(policy)
            and not self.matching.decider(policy, subject)
            and not self.matching.exempts(policy, subject)
        ]
        if findings:
            self.findings.append(
                replace(max(findings, key=lambda finding: finding.outcome), policy=ENGINE, id="object/too-large")
            )

    def decision(self) -> Decision:
        if self.findings:
            self.findings = _without_repeats(self.findings)
            texts = ((finding.policy, f"{finding.outcome} {finding.id}: {finding.reason}") for finding in self.findings)
            for (policy, text), count in Counter(texts).items():
                counted = f"{text} ({count} x)" if count > 1 else text
                self.audit[policy] = "; ".join(filter(None, (self.audit.get(policy), counted)))
        return Decision(
            findings=tuple(self.findings),
            patch=tuple(self.operations),
            audit=self.audit,
            unknown=self.unknown,
            steps=tuple(self.trace.steps),
            failures=tuple(self.failures),
        )

    def warn_in_system_namespace(self, policies: tuple[Policy, ...]) -> None:
        """Warn in a system namespace if a policy names the namespace. Never change or deny anything."""
        named = tuple(policy for policy in policies if policy.matcher.names(self.namespace))
        if not named or self.context.phase is Phase.MUTATE:
            self.trace.say("namespace %s is a system namespace, which spotgate skips", self.namespace)
            return
        try:
            self._validate(named, self.subject)
        except _OF_THE_OBJECT as error:
            self.trace.policy = self.trace.where = ""
            self.trace.say("not evaluated: %s", error)

    def guard_break_glass(self, policies: tuple[Policy, ...]) -> None:
        """Report a break-glass annotation that none of the object's policies allows the user to write."""
        if not policies:
            return
        looking = []
        for policy in policies:
            try:
                if self.matching.guards(policy):
                    looking.append(policy)
            except _OF_THE_OBJECT:
                raise
            except Exception as error:  # noqa: BLE001 - any bug
                self._contain(error, policy, self.subject)
        if finding := self._builder.break_glass_written(looking):
            self.findings.append(finding)

    def validate_templates(self, workload: Workload, policies: tuple[Policy, ...]) -> None:
        counting = tuple(policy for policy in policies if policy.kind.counts_replicas)
        # The mutate phase skips the templates that an UPDATE leaves as they are.
        unchanged = self.templates if is_null(self.request.old_object) else []
        for template, subject in unchanged or self._templates(workload, counting):
            steps = len(self.trace.steps)
            subject.changes = [] if unchanged else self._mutate(policies, subject)
            if subject.unchanged:
                del self.trace.steps[steps:]  # the template stays as it is
            self._validate(counting if subject.unchanged else policies, subject)
            if self.request.kind.kind in LABELLED_BY_TEMPLATE:
                self._leave_out_copied(subject.pod.labels, template.path)

    def _leave_out_copied(self, labels: Mapping[str, str], path: tuple[str | int, ...]) -> None:
        """Remove findings on labels that the API server copied from the pod template, which has the same findings.

        The API server copies the template's labels to a Job without labels.
        """
        if next(self.subject.labels()).items() <= labels.items():
            reported = {(finding.policy, finding.field) for finding in self.findings}
            self.findings = [
                finding
                for finding in self.findings
                if not finding.field.startswith("metadata.labels")
                or (finding.policy, f"{field_path(path)}.{finding.field}") not in reported
            ]

    def _templates(self, workload: Workload, counting: tuple[Policy, ...]) -> Iterator[tuple[FoundTemplate, Subject]]:
        """Yield each pod template with its Pod as a subject.

        If an UPDATE doesn't change a template, yield it only for policies that count its Pods.
        """
        named = self.context.view.references
        for template, subject in template_subjects(self.subject, workload, named, recounting=bool(counting)):
            if isinstance(subject, Subject):
                yield template, subject
            elif subject is None:
                if self.trace.kept:
                    self.trace.policy, self.trace.where = "", field_path(template.path)
                    self.trace.say("the request leaves it as it is: it is not evaluated again")
            elif self.context.offline:
                raise subject
            else:
                # Most custom resources have no pod template types in the API server. Their controllers get the error.
                self.unknown += 1
                self.findings.append(
                    engine_finding(
                        id="object/template-unreadable",
                        outcome=Outcome.WARN,
                        reason=f"the pod template can't be read and was not evaluated: {subject.problem}",
                        field=subject.field,
                    )
                )

    def _mutate(self, policies: tuple[Policy, ...], subject: Subject) -> list[Operation]:
        """Apply the mutating policies to the subject's Pod, and return the operations."""
        editor: PodEditor | None = None
        for policy in policies:
            if policy.mutator is None:
                continue
            kept = len(editor.operations) if editor is not None else 0
            try:
                if not self._changes(policy, subject):
                    continue
                if editor is None:
                    editor = PodEditor(subject.pod)
                editor.policy = policy.name
                policy.mutator.mutate(subject, editor, self.context)
            except _OF_THE_OBJECT:
                raise
            except Exception as error:  # noqa: BLE001 - any bug
                self._contain(error, policy, subject)
                if editor is not None:
                    editor.undo(kept)
        return editor.operations if editor is not None else []

    def _changes(self, policy: Policy, subject: Subject) -> bool:
        """Return whether the policy may change the subject's Pod."""
        if not self.matching.applies(policy, subject):
            return False
        if policy.enforcement is Outcome.AUDIT:
            subject.trace.say("enforcement is audit: nothing is changed")
            return False
        return not self.matching.unknown(policy, subject)

    def _validate(self, policies: tuple[Policy, ...], subject: Subject) -> None:
        for policy in policies:
            try:
                if policy.validator is None or not self.matching.applies(policy, subject):
                    continue
                for violation in islice(policy.validator.validate(subject, self.context), VIOLATIONS_AT_MOST):
                    unknown_match = self.matching.unknown(policy, subject)
                    self.unknown += violation.unknown or unknown_match is not None
                    finding = self._builder.finding(policy, violation, subject, unknown_match=unknown_match)
                    # Several templates can inherit the same finding from the object: report it once.
                    if not subject.template or finding not in self.findings:
                        self.findings.append(finding)
            except _OF_THE_OBJECT:
                raise
            except Exception as error:  # noqa: BLE001 - any bug
                self._contain(error, policy, subject)

    def _contain(self, error: Exception, policy: Policy, subject: Subject) -> None:
        """Report a failure of one policy, so that the others still decide."""
        failure = Failure(policy.name, type(error).__name__, frames_of(error))
        self.failures.append(failure)
        self.findings.append(self._builder.internal_error(policy, failure, subject))

    @property
    def _builder(self) -> FindingBuilder:
        return FindingBuilder(self.subject, self.context, self.index, self.audit, self.only_warns)

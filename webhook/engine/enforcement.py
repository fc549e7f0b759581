"""Turn violations into findings. Enforcement, break-glass, and unknown state can only lower an outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from webhook.base.bounds import TEXT_AT_MOST
from webhook.base.field_paths import field_path
from webhook.base.text import LONG_LINE
from webhook.documents.values import resolve
from webhook.documents.yaml_writer import dump
from webhook.engine.break_glass import FIELD, is_copy, may_break, reason_of, why_void
from webhook.kube.layouts import LaidOutPod
from webhook.model.decision import EMPTY, Failure, Finding, Outcome, Violation, engine_finding
from webhook.policy.terms import BREAK_GLASS
from webhook.rules.subject import Subject, bounded_metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.capacity.view import ClusterView
    from webhook.engine.index import Index, Policy
    from webhook.model.review import Request
    from webhook.rules.context import Context


_ACCOUNT: Final = "system:serviceaccount:kube-system:"

BUILT_IN_CONTROLLERS: Final = frozenset(
    {"system:kube-controller-manager"}
    | {
        f"{_ACCOUNT}{name}-controller"
        for name in ("replicaset", "replication", "deployment", "statefulset", "daemon-set", "job", "cronjob")
    }
)
"""Users that recreate the Pods of workloads that may be older than a policy. They can't act on a denial."""


def is_controllers_pod(request: Request) -> bool:
    """Return whether a built-in controller creates a Pod."""
    is_pod = (request.operation, request.resource.group, request.path) == ("CREATE", "", "pods")
    return is_pod and request.user_info.username in BUILT_IN_CONTROLLERS


NEVER_DENIED: Final = frozenset({f"{_ACCOUNT}namespace-controller", f"{_ACCOUNT}generic-garbage-collector"})
"""Users that clean up. A denial would leave a namespace or an orphaned object behind forever."""


class UnknownMatch(NamedTuple):
    """The reason why it is unknown whether a policy matches an object.

    Attributes:
        id: the id of the finding that reports it.
        reason: the unknown fact, as a clause.
        otherwise: the condition under which the policy's findings count, as the beginning of a sentence.
        fix: how to provide the fact.
    """

    id: str
    reason: str
    otherwise: str
    fix: str

    @classmethod
    def of_selector(cls, namespace: str) -> UnknownMatch:
        """Return the reason for a namespace whose labels are unknown."""
        return cls(
            "object/namespace-unknown",
            f"the labels of namespace {namespace} are unknown, so spotgate can't evaluate match.namespaceSelector",
            "If the selector matches the namespace",
            f"pass the manifest of Namespace {namespace}, as a PATH or with --state",
        )

    @classmethod
    def of_override(cls, namespace: str, other: str) -> UnknownMatch:
        """Return the reason for a policy that another one overrides if it selects the namespace's unknown labels."""
        reason = f"the labels of namespace {namespace} are unknown, so policy {other} may decide instead"
        return cls.of_selector(namespace)._replace(reason=reason, otherwise=f"If {other} doesn't match the namespace")

    @classmethod
    def of_owner(cls, namespace: str, view: ClusterView) -> UnknownMatch:
        """Return the reason for a namespace that a provider owns if the cluster runs on that provider."""
        return cls(
            "object/namespace-owner-unknown",
            f"namespace {namespace} may belong to the platform, whose own namespaces spotgate skips",
            f"{view.why_unknown} If the namespace doesn't belong to the platform",
            view.remedy,
        )


class FindingBuilder(msgspec.Struct, frozen=True):
    """The builder of all findings of one request.

    Attributes:
        whole: the object of the request.
        context: the context of the decision.
        audit: the audit annotations of the decision; the builder adds the users who override a denial.
        only_warns: nothing is denied in this namespace.
    """

    whole: Subject
    context: Context
    index: Index
    audit: dict[str, str]
    only_warns: bool

    def finding(
        self, policy: Policy, violation: Violation, subject: Subject, *, unknown_match: UnknownMatch | None
    ) -> Finding:
        """Return the finding for a violation.

        Args:
            policy: the policy of the rule that emitted the violation.
            violation: the violation.
            subject: the subject of the rule.
            unknown_match: why it is unknown whether the policy matches, or None if it is known.
        """
        most = min(violation.outcome, policy.kind.template_outcome) if subject.template else violation.outcome
        outcome = min(most, policy.enforcement)
        if unknown_match:
            violation = _as_conditional(policy, violation, outcome, unknown_match)
        detail, overruled = violation.detail, False
        if violation.unknown:
            most = min(most, Outcome.INDETERMINATE if self.context.offline else policy.kind.unknown_outcome)
            outcome = min(most, outcome)
        denies = min(most, policy.declared) is Outcome.DENY
        never = self._why_never_denied(policy) if denies else ""
        would_deny = outcome < Outcome.DENY and denies and not never
        if outcome is Outcome.DENY:
            if never and self._user in BUILT_IN_CONTROLLERS and not self.only_warns:
                self.audit["controller-created"] = self._user
            if lowered := never or self._broken_glass(policy):
                outcome, overruled = Outcome.WARN, not never
            note = f"Not denied: {lowered}." if lowered else self._why_break_glass_fails(policy)
            detail = " ".join(filter(None, (detail, note)))
        return Finding(
            policy=policy.name,
            id=unknown_match.id if unknown_match else f"{policy.kind.slug}/{violation.id}",
            outcome=outcome,
            reason=_cut(violation.reason),
            detail=_cut(detail),
            field=_cut(violation.field if violation.outside else subject.field(violation.field)),
            fix=_cut(_fix(violation, subject)),
            lowered=_why_lowered(policy, violation, subject) if self.context.trace else "",
            would_deny=would_deny,
            overruled=overruled,
        )

    def internal_error(self, policy: Policy, failure: Failure, subject: Subject) -> Finding:
        """Return the finding for a policy that failed: as for an unknown fact, at most a denial for a node pool."""
        resource = self.whole.request.resource
        is_pool = (resource.group, resource.resource) in self.index.pools
        violation = Violation(
            id="internal-error",
            reason=failure.reason,
            detail="All other policies evaluated it.",
            fix="report the bug; until it is fixed, exempt the object from the policy",
            outcome=Outcome.DENY if is_pool else policy.kind.unknown_outcome,
            unknown=self.context.offline,
        )
        return replace(self.finding(policy, violation, subject, unknown_match=None), id="object/internal-error")

    def _why_never_denied(self, policy: Policy) -> str:
        """Return why the policy can't deny this request, or an empty string if it can."""
        user = self._user
        if self.only_warns:
            return f"{self.whole.request.namespace} is a system namespace"
        if user in NEVER_DENIED:
            return f"{user} cleans up"
        if user in BUILT_IN_CONTROLLERS and not policy.controller_denies:
            return f"{user} replaces the Pods of workloads that may be older than the policy"
        return ""

    def _broken_glass(self, policy: Policy) -> str:
        """Return who overrides a denial, and why, or an empty string. Record the user in the audit annotations."""
        reason = self._emergency
        if reason is None or self._why_void or not may_break(self.whole.request, [policy.break_glass]):
            return ""
        self.audit["break-glass"] = f"{self._user}: {_cut(reason)}"
        return f"break-glass by {self._user or 'an unknown user'}: {_cut(reason)}"

    @property
    def _user(self) -> str:
        return self.whole.request.user_info.username

    @property
    def _emergency(self) -> str | None:
        """Return the reason that the object's break-glass annotation gives, or None if it has none."""
        return reason_of(self.whole.metadata)

    @property
    def _why_void(self) -> str:
        """Return why break-glass is void for every user, or an empty string if it is valid."""
        if is_copy(self.whole.request, self.index.workloads):
            return "a controller created the object, and may have copied the annotation"
        return why_void(self._emergency or "", self.context.now)

    def break_glass_written(self, policies: Sequence[Policy]) -> Finding | None:
        """Return a finding if the user adds or changes the break-glass annotation without permission, else None.

        Otherwise the annotation would take effect in a later request by a member of the groups.

        Args:
            policies: the policies with ``breakGlass`` that evaluate the object.
        """
        request = self.whole.request
        before = reason_of(bounded_metadata(request.old_object))
        if not policies or self._emergency in {None, before}:
            return None
        user = request.user_info
        if user.username in NEVER_DENIED | BUILT_IN_CONTROLLERS or is_copy(request, self.index.workloads):
            return None
        if may_break(request, [policy.break_glass for policy in policies]):
            return None
        outcome = max(policy.enforcement for policy in policies)
        groups = ", ".join(dict.fromkeys(group for policy in policies for group in policy.break_glass.patterns))
        known = user.groups or not self.context.offline
        return engine_finding(
            id="object/break-glass-forbidden",
            outcome=outcome if known else min(outcome, Outcome.INDETERMINATE),
            reason=f"only members of these groups may write the annotation {BREAK_GLASS}: {groups}",
            detail="The user is in none of these groups. The annotation would override a later denial, in a request "
            "of a member."
            if known
            else "The user is unknown.",
            field=FIELD,
            fix="restore the previous value, or ask a member of these groups to make the change"
            if known
            else "pass --user and --group",
        )

    def _why_break_glass_fails(self, policy: Policy) -> str:
        """Return why break-glass does not help this user, as a sentence; empty without break-glass."""
        if self._emergency is None:
            return ""
        user = self.whole.request.user_info
        self.audit["break-glass-refused"] = f"{user.username}: {_cut(self._emergency)}"
        if self._why_void:
            why = self._why_void
        elif not policy.break_glass:
            why = f"policy {policy.name} has no breakGlass"
        elif self.context.offline and not user.groups:
            why = "the user is unknown: pass --user and --group"
        else:
            why = f"{user.username or 'the user'} is in none of these groups: {', '.join(policy.break_glass.patterns)}"
        return f"{BREAK_GLASS} has no effect: {why}."


def _as_conditional(policy: Policy, violation: Violation, outcome: Outcome, unknown_match: UnknownMatch) -> Violation:
    """Return the violation reworded as conditional: it counts only if the policy matches."""
    if policy.mutator is not None:
        condition = "The policy injected nothing. The Pod as written has this finding"
    else:
        certain = Outcome.INDETERMINATE if violation.unknown else outcome
        condition = f"{unknown_match.otherwise}, the outcome is `{certain}`"
    return replace(
        violation,
        reason=unknown_match.reason,
        detail=f"{condition}: {violation.reason.rstrip('.')}. {violation.detail}".rstrip(),
        fix=unknown_match.fix,
        yaml=EMPTY,
        other=EMPTY,
        unknown=True,
    )


def _fix(violation: Violation, subject: Subject) -> str:
    """Return how to fix the violation. Show YAML to write at its place in the object of the request."""
    lead, value, path = violation.fix, violation.yaml, subject.path
    if not value:
        return f"{lead}:\n{_yaml(violation.other)}" if violation.other else lead
    if isinstance(subject.pod_template, LaidOutPod):
        ((root, value),) = value.items()
        path = subject.pod_template.place((root,))
    if not all(map(_is_plain, path)):
        return f"{lead} (at {field_path(path)}):\n{_yaml(value)}"
    for step in reversed(path):
        value = {str(step): value}
    return f"{lead}:\n{_yaml(value)}"


def _yaml(value: object) -> str:
    return dump(value, width=LONG_LINE, short_in_brackets=True)


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_AT_MOST else f"{text[:TEXT_AT_MOST]}..."


def _is_plain(step: str | int) -> bool:
    """Return whether the step is a key, not an index, that YAML writes without quotes."""
    return isinstance(step, str) and step.isidentifier() and resolve(step) == step


def _why_lowered(policy: Policy, violation: Violation, subject: Subject) -> str:
    """Return why the outcome is below the policy's enforcement, as a phrase, or an empty string if it isn't."""
    outcome = min(violation.outcome, policy.enforcement)
    if subject.template and policy.kind.template_outcome < outcome:
        return f"{policy.kind.template_outcome}, not {outcome}: the finding is about a pod template"
    if violation.outcome < policy.enforcement:
        return f"{violation.outcome}, not {policy.enforcement}: that is the strongest outcome of this finding"
    return ""

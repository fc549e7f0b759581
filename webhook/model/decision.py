"""The result of a review: findings, patch operations, audit annotations, and the trace for ``explain``."""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum
from functools import partial
from textwrap import indent
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.model.patch import Operation
    from webhook.model.review import Request


ENGINE: Final = "spotgate"
"""The policy name in findings of the engine itself."""


class Outcome(IntEnum):
    """The effect of a finding on the request, from the weakest to the strongest."""

    AUDIT = 0
    INDETERMINATE = 1
    WARN = 2
    DENY = 3

    def __str__(self) -> str:
        return self.name.lower()


class Verdict(StrEnum):
    """The effect of all findings on the request: ``allowed`` without a finding, then one for each `Outcome`."""

    ALLOWED = "allowed"
    AUDITED = "audited"
    INDETERMINATE = "indeterminate"
    WARNED = "warned"
    DENIED = "denied"


def verdict_of(outcomes: Iterable[Outcome]) -> Verdict:
    """Return the verdict for a request with findings of these outcomes."""
    return tuple(Verdict)[max(outcomes, default=-1) + 1]


EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as a rule emits it, before enforcement, exemptions, and break-glass.

    Attributes:
        id: the second part of the finding's id, in words. Its text is in the kind's ``findings.yaml``.
        reason: one short sentence that is always shown; at most about 100 characters.
        field: the path of the offending field, such as ``metadata.labels["a/b"]``, relative to the rule's subject.
        outside: the field is outside the pod template; its path is relative to the object of the request.
        detail: the explanation; may be empty.
        fix: the instruction that fixes it; may be empty.
        yaml: the fields that the fix adds, relative to the rule's subject; may be empty. The finding shows them as YAML
            below the fix, at their place in the object of the request.
        other: the fields that the fix writes outside the subject, or in another object, shown below the fix.
        outcome: the strongest outcome of the finding; the policy's enforcement can only lower it.
        unknown: the rule needs state that is unknown, so the object may be valid.
        part: the part of the policy's ``spec`` that the object violates, such as ``validations[0]``, for rules with
            several parts.
    """

    id: str
    reason: str
    field: str = ""
    outside: bool = False
    detail: str = ""
    fix: str = ""
    yaml: Mapping[str, Any] = EMPTY
    other: Mapping[str, Any] = EMPTY
    outcome: Outcome = Outcome.DENY
    unknown: bool = False
    part: str = ""


warning: Final = partial(Violation, outcome=Outcome.WARN)
"""Return a violation whose outcome is at most a warning, as for rules that change Pods."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding after enforcement: the problem, its outcome for this request, the field, and the fix.

    Attributes:
        id: the stable id: the policy kind in kebab case and the violation's id, such as ``reserved-labels/reserved``,
            or ``object/...`` for findings without a policy kind.
        lowered: why the outcome is below the policy's enforcement, as a phrase; set only with a trace, and if the
            detail doesn't explain it.
        would_deny: the finding would deny the request without the cluster's mode.
        overruled: break-glass lowered a denial to a warning.
    """

    policy: str
    id: str
    outcome: Outcome
    reason: str
    detail: str = ""
    field: str = ""
    fix: str = ""
    lowered: str = ""
    would_deny: bool = False
    overruled: bool = False

    def message(self) -> str:
        """Return the finding as text: the reason, field, and id on the first line, the detail and the fix below."""
        at = f" (at {self.field})" if self.field else ""
        first = f"[{self.policy}] {self.reason}{at} [{self.id}]"
        lines = [first.replace("\n", " ")]  # it may contain users' text, which must not look like a line of ours
        if self.detail:
            lines.append(indent(self.detail, "  "))
        if self.fix:
            # A fix may contain YAML to copy, so keep its line breaks.
            first, *rest = self.fix.split("\n")
            lines += [f"  Fix: {first}", *(f"    {line}" for line in rest)]
        return "\n".join(lines)


engine_finding: Final = partial(Finding, policy=ENGINE)
"""Return a finding of the engine itself, which no policy causes."""


class StepKind(Enum):
    """The meaning of a trace step for the policy's verdict."""

    REMARK = "a reason for what the policy did"
    SKIPPED = "the policy didn't evaluate the object"
    EXEMPTED = "an exemption applies"
    NOT_EXEMPTED = "an exemption doesn't apply"
    OVERRIDDEN = "another policy decides"


class Step(msgspec.Struct, frozen=True):
    """One step of a trace.

    Attributes:
        cause: the policy's condition or exemption that the step is about, or None.
    """

    text: str
    kind: StepKind = StepKind.REMARK
    cause: object = None


class Trace(msgspec.Struct, kw_only=True):
    """The reasons why rules acted or didn't, as ``(policy, where, step)``. The engine sets policy and where.

    Attributes:
        kept: record the steps; otherwise discard each one before it is formatted.
    """

    kept: bool = True
    steps: list[tuple[str, str, Step]] = []
    policy: str = ""
    where: str = ""

    def say(self, text: str, *args: object, kind: StepKind = StepKind.REMARK, cause: object = None) -> None:
        """Record one step from a %-format and its arguments."""
        if self.kept:
            self.steps.append((self.policy, self.where, Step(text % args if args else text, kind, cause)))

    def skip(self, text: str, *args: object, cause: str | None = None) -> None:
        """Record the reason why the policy doesn't evaluate the object."""
        self.say(text, *args, kind=StepKind.SKIPPED, cause=cause)


NO_TRACE: Final = Trace(kept=False)


class Failure(msgspec.Struct, frozen=True):
    """An unexpected exception of one policy: its type and frames, without its text, which may quote the object."""

    policy: str
    error: str
    where: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Return what the policy didn't do."""
        return f"policy {self.policy} couldn't evaluate the object because of a bug in spotgate"

    def __str__(self) -> str:
        return f"{self.reason}; report it: {self.error} at {self.where[-1]}"


class Decision(msgspec.Struct, frozen=True):
    """The decision on one request.

    Attributes:
        findings: in the order of the policies, then of the rule.
        patch: JSON Patch operations (RFC 6902) for the object of the request, each with the policy that added it.
        audit: audit annotations; the keys have no ``/``, and are the same for the same review.
        malformed: the object could not be parsed, so the request is denied.
        unknown: the number of findings that depend on unknown state.
        steps: the trace; empty unless requested.
        failures: the unexpected exceptions of policies. All other policies have decided.
    """

    findings: tuple[Finding, ...] = ()
    patch: tuple[Operation, ...] = ()
    audit: Mapping[str, str] = msgspec.field(default_factory=dict)
    malformed: bool = False
    unknown: int = 0
    steps: tuple[tuple[str, str, Step], ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def denied(self) -> bool:
        """Return whether at least one finding denies the request."""
        return any(finding.outcome is Outcome.DENY for finding in self.findings)

    def of(self, outcome: Outcome) -> tuple[Finding, ...]:
        """Return the findings with this outcome."""
        return tuple([finding for finding in self.findings if finding.outcome is outcome])


NOTHING: Final = Decision()


class PhaseDecisions(msgspec.Struct, frozen=True, kw_only=True):
    """The requests and decisions of both phases of admission.

    Attributes:
        request: the request that was validated; its object has the changes of the mutating webhook.
        before: the object as the mutating webhook received it.
        mutation: the decision of the mutating webhook.
        validation: the decision of the validating webhook.
    """

    request: Request
    before: msgspec.Raw
    mutation: Decision
    validation: Decision

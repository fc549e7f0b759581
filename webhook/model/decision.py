"""The result of a review: findings, patch operations, audit annotations, and the trace for ``explain``."""

from __future__ import annotations

from enum import IntEnum, StrEnum
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
    """The effect of a finding on the request, from the least to the greatest."""

    AUDIT = 0
    INDETERMINATE = 1
    WARN = 2
    DENY = 3

    def __str__(self) -> str:
        return self.name.lower()


class Verdict(StrEnum):
    """The effect of all findings together on the request: one for no finding, then one for each `Outcome`."""

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
        field: the offending field, as ``metadata.labels["a/b"]``, relative to what the rule was given.
        outside: the field is outside the pod template that the rule was given, relative to the object of the request.
        detail: the explanation; may be empty.
        fix: the instruction that fixes it; may be empty.
        yaml: what the fix adds, relative to what the rule was given; may be empty. It is shown as YAML below the fix,
            at its place in the object of the request.
        other: what the fix writes outside of what the rule was given, or in another object, shown below the fix.
        outcome: the greatest outcome of the finding; the policy's enforcement can only lower it.
        unknown: the rule needs state that is unknown; nothing may be wrong with the object.
        part: the part of the policy's ``spec`` that found it, as ``validations[0]``, for rules that have parts.
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
"""Return a violation of a rule that changes Pods: at most a warning by default."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding after enforcement: the problem, its outcome for this request, the field, and the fix.

    Attributes:
        id: the stable id: the policy kind in kebab case and what was found, as ``reserved-labels/reserved``, or
            ``object/...`` for findings of no policy kind.
        lowered: why the outcome is below the policy's enforcement, as a phrase; only with a trace, and unless the
            detail says it.
        would_deny: only the mode of the cluster keeps it from denying.
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

    def message(self) -> str:
        """Return the finding as text: reason, field and id on the first line, detail and fix below."""
        at = f" (at {self.field})" if self.field else ""
        first = f"[{self.policy}] {self.reason}{at} [{self.id}]"
        lines = [first.replace("\n", " ")]  # users' text may be in it, and must not look like a line of ours
        if self.detail:
            lines.append(indent(self.detail, "  "))
        if self.fix:
            # A fix may be YAML to copy: it keeps its shape.
            first, *rest = self.fix.split("\n")
            lines += [f"  Fix: {first}", *(f"    {line}" for line in rest)]
        return "\n".join(lines)


class Trace(msgspec.Struct, kw_only=True):
    """Reasons why rules did or did not act, as steps of ``(policy, where, text)``. The engine sets policy and where.

    Attributes:
        kept: steps are recorded; else each is discarded before it is formatted.
    """

    kept: bool = True
    steps: list[tuple[str, str, str]] = []
    policy: str = ""
    where: str = ""

    def say(self, text: str, *args: object) -> None:
        """Record one step: a %-format and its arguments."""
        if self.kept:
            self.steps.append((self.policy, self.where, text % args if args else text))


NO_TRACE: Final = Trace(kept=False)


class Decision(msgspec.Struct, frozen=True):
    """The decision on one request.

    Attributes:
        findings: in the order of the policies' names, then of the rule.
        patch: JSONPatch operations (RFC 6902) for the object of the request, each with the policy it came from.
        audit: audit annotations; keys without ``/``, the same for the same review.
        malformed: the object could not be parsed, so the request is denied.
        unknown: the number of findings on unknown state.
        steps: the trace, empty unless asked for.
    """

    findings: tuple[Finding, ...] = ()
    patch: tuple[Operation, ...] = ()
    audit: Mapping[str, str] = msgspec.field(default_factory=dict)
    malformed: bool = False
    unknown: int = 0
    steps: tuple[tuple[str, str, str], ...] = ()

    @property
    def denied(self) -> bool:
        """Return whether at least one finding denies the request."""
        return any(finding.outcome is Outcome.DENY for finding in self.findings)

    def of(self, outcome: Outcome) -> tuple[Finding, ...]:
        """Return the findings with this outcome."""
        return tuple([finding for finding in self.findings if finding.outcome is outcome])


NOTHING: Final = Decision()


class PhaseDecisions(msgspec.Struct, frozen=True, kw_only=True):
    """The requests and decisions behind a judgement.

    Attributes:
        request: the request that was validated, with what the mutating webhook would inject in its object.
        before: the object as it came to the mutating webhook.
        mutation: the decision of the mutating webhook.
        validation: the decision of the validating webhook.
    """

    request: Request
    before: msgspec.Raw
    mutation: Decision
    validation: Decision

"""What came of a review: findings, patch operations, audit annotations, and the trace that ``explain`` prints."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from textwrap import indent
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.patch import Operation


ENGINE: Final = "spotgate"
"""The name under which the engine itself speaks, where no policy does."""


class Outcome(IntEnum):
    """How much a finding weighs, in ascending order of what it does to the request."""

    AUDIT = 0
    INDETERMINATE = 1
    WARN = 2
    DENY = 3

    def __str__(self) -> str:
        return self.name.lower()


class Verdict(StrEnum):
    """What becomes of a request: the weightiest of its findings."""

    ALLOWED = "allowed"
    AUDITED = "audited"
    INDETERMINATE = "indeterminate"
    WARNED = "warned"
    DENIED = "denied"


_VERDICTS: Final = {
    None: Verdict.ALLOWED,
    Outcome.AUDIT: Verdict.AUDITED,
    Outcome.INDETERMINATE: Verdict.INDETERMINATE,
    Outcome.WARN: Verdict.WARNED,
    Outcome.DENY: Verdict.DENIED,
}


def verdict_of(outcomes: Iterable[Outcome]) -> Verdict:
    """What becomes of a request with findings of these outcomes."""
    return _VERDICTS[max(outcomes, default=None)]


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A bare finding, as a rule emits it: before enforcement, exemptions and break-glass.

    Attributes:
        id: what it finds, in words: the second part of the finding's id. Its text is in the kind's findings file.
        reason: one short sentence that is always shown; at most about 100 characters.
        field: the offending field, as ``metadata.labels["a/b"]``, relative to what the rule was given.
        detail: what a person needs to understand it; may be empty.
        fix: what to do about it, as an instruction; may be empty.
        yaml: what the fix has people write, relative to what the rule was given; may be empty. It is shown below the
            fix, as it is written in the object of the request.
        outcome: the most this finding may become; the policy's enforcement can only lower it.
        unknown: the rule could not know what it needs, and does not accuse the object.
        part: of the policy's ``spec`` that found it, as ``validations[0]``, where its rule is divided into parts.
    """

    id: str
    reason: str
    field: str = ""
    detail: str = ""
    fix: str = ""
    yaml: str = ""
    outcome: Outcome = Outcome.DENY
    unknown: bool = False
    part: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A settled finding: what is wrong, how much it weighs here, where, and how to fix it.

    Attributes:
        id: stable, whatever the wording: the policy kind in kebab case and what was found, as
            ``reserved-labels/reserved``; ``object/...`` where the finding is of no policy kind.
        lowered: why it weighs less than the policy's enforcement would have it, as a phrase; only where there is a
            trace, and it is not in the detail.
    """

    policy: str
    id: str
    outcome: Outcome
    reason: str
    detail: str = ""
    field: str = ""
    fix: str = ""
    lowered: str = ""

    def message(self) -> str:
        """The finding for a person: reason, field and id on the first line, detail and fix below."""
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


class Trace(Protocol):
    """Where rules say why they did or did not act.

    ``say`` takes a %-format and its arguments and formats only when somebody listens.
    """

    def say(self, text: str, *args: object) -> None:
        """Note one step."""


class NoTrace:
    """The trace nobody reads."""

    __slots__ = ()

    def say(self, text: str, *args: object) -> None:
        """Drop it."""


NO_TRACE: Final = NoTrace()


class RecordedTrace:
    """A trace that keeps what was said, as ``(policy, where, text)``; the engine sets policy and where."""

    __slots__ = ("policy", "steps", "where")

    def __init__(self) -> None:
        self.steps: list[tuple[str, str, str]] = []
        self.policy = ""
        self.where = ""

    def say(self, text: str, *args: object) -> None:
        """Keep it."""
        self.steps.append((self.policy, self.where, text % args if args else text))


class Decision(msgspec.Struct, frozen=True):
    """The answer to one review.

    Attributes:
        findings: in the order of the policies' names, then of the rule.
        patch: JSONPatch operations (RFC 6902) for the object of the request, each with the policy it came from.
        audit: audit annotations; keys without ``/``, the same for the same review.
        malformed: the object could not be read; the request is refused for that.
        unknown: how many findings stand for something that could not be known.
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
        """True where at least one finding denies."""
        return any(finding.outcome is Outcome.DENY for finding in self.findings)

    def of(self, outcome: Outcome) -> tuple[Finding, ...]:
        """The findings with this outcome."""
        return tuple(finding for finding in self.findings if finding.outcome is outcome)


NOTHING: Final = Decision()

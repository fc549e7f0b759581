"""Tell what of the policies tests cover: which act, which pass an object, and on what."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from webhook.engine.bundle import OWN_NAMESPACE
from webhook.engine.enforcement import BY_BREAK_GLASS, NOT_DENIED
from webhook.engine.index import Index
from webhook.model.review import OPERATIONS
from webhook.policy.match import Exemption  # noqa: TC001 - msgspec reads the annotations
from webhook.policy.terms import Enforcement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.engine.bundle import Bundle
    from webhook.engine.index import Policy
    from webhook.model.decision import PhaseDecisions, Violation
    from webhook.policy.document import PolicyDocument
    from webhook.rules.context import Context
    from webhook.rules.protocol import Validator
    from webhook.rules.subject import Subject


_CONDITION: Final = "matchConditions["
"""How a step of a trace begins that names a false condition."""
_OVERRULED: Final = f"{NOT_DENIED}{BY_BREAK_GLASS}"
"""What the detail of a finding says whose denial ``breakGlass`` lowers to a warning."""


class Reached(msgspec.Struct):
    """Hold the coverage of one policy by one case.

    Attributes:
        operations: the operations on which the policy judged an object.
        acted: whether it found or changed something.
        parts: parts of the policy with findings, and match conditions that were false.
        overruled: whether ``breakGlass`` lowered a denial to a warning.
    """

    operations: set[str] = msgspec.field(default_factory=set)
    acted: bool = False
    exemptions: set[Exemption] = msgspec.field(default_factory=set)
    parts: set[str] = msgspec.field(default_factory=set)
    overruled: bool = False

    @property
    def passed(self) -> bool:
        """Return whether the policy judged an object without acting on it."""
        return bool(self.operations or self.exemptions) and not self.acted


class _WatchedValidator:
    """Record the findings of a validator."""

    def __init__(self, rule: Validator, reached: Reached) -> None:
        self._rule = rule
        self._reached = reached

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:
        self._reached.operations.add(subject.operation)
        for violation in self._rule.validate(subject, context):
            self._reached.acted = True
            self._reached.parts.add(violation.part)
            yield violation


class Watch:
    """Hold policies of a bundle that record their coverage, and their index, for a judge."""

    def __init__(self, bundle: Bundle, names: tuple[str, ...] | None = None) -> None:
        self._policies = [policy for policy in bundle.policies if names is None or policy.name in names]
        self._reached = {policy.name: Reached() for policy in self._policies}
        watched = [
            policy
            if policy.validator is None
            else replace(policy, validator=_WatchedValidator(policy.validator, self._reached[policy.name]))
            for policy in self._policies
        ]
        self.index = Index(watched, bundle.index.workloads.values(), bundle.providers, OWN_NAMESPACE)

    def taken(self, trace: PhaseDecisions | None) -> dict[str, Reached]:
        """Return the coverage of one case, with the trace of its judgement, and begin anew."""
        taken = {policy.name: _completed(policy, self._reached[policy.name], trace) for policy in self._policies}
        for reached in self._reached.values():
            reached.operations, reached.parts, reached.acted = set(), set(), False
        return taken


def _completed(policy: Policy, reached: Reached, trace: PhaseDecisions | None) -> Reached:
    """Return what the validator recorded with what the trace says of the policy."""
    if trace is None:
        return replace(reached)
    steps = {text for name, _, text in trace.validation.steps if name == policy.name}
    conditions = {text.removesuffix(" is false") for text in steps if text.startswith(_CONDITION)}
    findings = [each for each in trace.validation.findings if each.policy == policy.name]
    return replace(
        reached,
        acted=reached.acted or any(each.policy == policy.name for each in trace.mutation.patch),
        parts=reached.parts | conditions,
        exemptions={each for each in policy.exemptions if each.said in steps},
        overruled=any(_OVERRULED in each.detail for each in findings),
    )


class Covered(msgspec.Struct, frozen=True, kw_only=True):
    """Hold in how many cases a policy acted or let an object pass, and in phrases what no case reached of it."""

    policy: str
    kind: str
    file: str
    line: int
    acted: int
    passed: int
    unreached: list[str]


def coverage(bundle: Bundle, cases: list[dict[str, Reached]], tested: tuple[str, ...] | None = None) -> list[Covered]:
    """Return the coverage of each policy under test that is not off. None: of all."""
    policies = {policy.name: policy for policy in bundle.policies}
    exemptions = set().union(*(reached.exemptions for case in cases for reached in case.values()))
    return [
        _covered(each, policies[each.name], [case[each.name] for case in cases if each.name in case], exemptions)
        for each in bundle.documents
        if each.is_policy and each.spec.enforcement is not Enforcement.OFF and (tested is None or each.name in tested)
    ]


def _covered(document: PolicyDocument, policy: Policy, cases: list[Reached], exemptions: set[Exemption]) -> Covered:
    acted = sum(case.acted for case in cases)
    passed = sum(case.passed for case in cases)
    return Covered(
        policy=policy.name,
        kind=policy.kind.name,
        file=document.document.file,
        line=document.document.position(("metadata", "name"))[0],
        acted=acted,
        passed=passed,
        unreached=[
            *(() if acted else ("no case makes it act",)),
            *(() if passed else ("no case has an object that it leaves alone",)),
            *(_parts(document, policy, cases) if acted else ()),
            *_others(policy, set().union(*(case.operations for case in cases)), exemptions),
        ],
    )


def _parts(document: PolicyDocument, policy: Policy, cases: list[Reached]) -> Iterator[str]:
    """Yield the parts that no case reached, of a policy that acts in some case."""
    reached = set().union(*(case.parts for case in cases))
    rule: object = policy.validator
    for part in getattr(rule, "parts", ()):
        if part not in reached:
            yield f"no case has a finding of {part}"
    for number, condition in enumerate(getattr(document.spec, "match_conditions", ())):
        where = f"{_CONDITION}{number}] {condition.name}"
        if where not in reached:
            yield f"no case is left out by {where}"
    if policy.break_glass and not any(case.overruled for case in cases):
        yield "no case overrules it by breakGlass"


def _others(policy: Policy, operations: set[str], told: set[Exemption]) -> Iterator[str]:
    """Yield operations and exemptions that no case reached.

    A shared exemption is reported once, at the first policy that it names. CONNECT is not missed: no manifest of its
    subresources can be written.
    """
    declared = set(chain.from_iterable(rule.operations for rule in policy.rules))
    for operation in OPERATIONS[:3]:
        if operation not in operations and not declared.isdisjoint({operation, "*"}):
            yield f"no case has it look at {operation}"
    for exemption in policy.exemptions:
        if exemption not in told:
            told.add(exemption)
            yield f"no case is exempt by {exemption.name}: {exemption.reason}"

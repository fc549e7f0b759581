"""Report the coverage of policy tests: which policies act, which leave objects alone, and which parts have findings."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from webhook.engine.bundle import OWN_NAMESPACE, Bundle
from webhook.engine.index import Index, Policy
from webhook.model.review import OPERATIONS
from webhook.policy.match import Exemption  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.model.decision import PhaseDecisions, Violation
    from webhook.policy.document import PolicyDocument
    from webhook.rules.context import Context
    from webhook.rules.protocol import Validator
    from webhook.rules.subject import Subject


class Reached(msgspec.Struct):
    """One case's coverage of one policy.

    Attributes:
        operations: the operations on which the policy evaluated an object.
        acted: whether the policy has findings or changes.
        exemptions: the exemptions that applied.
        parts: the policy parts with findings, and the false match conditions.
        overruled: whether ``breakGlass`` lowered a denial to a warning.
    """

    operations: set[str] = msgspec.field(default_factory=set)
    acted: bool = False
    exemptions: set[Exemption] = msgspec.field(default_factory=set)
    parts: set[str] = msgspec.field(default_factory=set)
    overruled: bool = False


class _WatchedValidator(NamedTuple):
    """A validator that records its findings."""

    rule: Validator
    policy: str
    by_policy: dict[str, Reached]

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:
        reached = self.by_policy[self.policy]
        reached.operations.add(subject.operation)
        for violation in self.rule.validate(subject, context):
            reached.acted = True
            reached.parts.add(violation.part)
            yield violation


class Watch:
    """The policies of a bundle, wrapped to record their coverage, and an index of them."""

    def __init__(self, bundle: Bundle, names: Collection[str]) -> None:
        self._policies = [policy for policy in bundle.policies if policy.name in names]
        self._reached = defaultdict[str, Reached](Reached)
        watched = [
            replace(policy, validator=_WatchedValidator(policy.validator, policy.name, self._reached))
            if policy.validator is not None
            else policy
            for policy in self._policies
        ]
        self.index = Index(watched, bundle.index.workloads.values(), bundle.providers, OWN_NAMESPACE)

    def taken(self, trace: PhaseDecisions | None) -> dict[str, Reached]:
        """Return the coverage of one case, completed from its trace, and reset it for the next case."""
        taken = {policy.name: self._reached[policy.name] for policy in self._policies}
        self._reached.clear()
        if trace is not None:
            for policy in self._policies:
                _complete(taken[policy.name], policy, trace)
        return taken


def _complete(reached: Reached, policy: Policy, trace: PhaseDecisions) -> None:
    """Add what the trace shows to the recorded coverage."""
    causes = {step.cause for name, _, step in trace.validation.steps if name == policy.name}
    reached.acted |= any(operation.policy == policy.name for operation in trace.mutation.patch)
    reached.exemptions |= {exemption for exemption in policy.exemptions if exemption in causes}
    reached.parts |= {cause for cause in causes if isinstance(cause, str)}
    reached.overruled = any(
        finding.policy == policy.name and finding.overruled for finding in trace.validation.findings
    )


class Covered(msgspec.Struct, frozen=True):
    """A policy's coverage: the cases in which it acts or leaves an object alone, and phrases for unreached parts."""

    policy: str
    kind: str
    file: str
    line: int
    acted: int
    passed: int
    unreached: list[str]


def coverage(bundle: Bundle, cases: list[dict[str, Reached]], tested: Collection[str]) -> list[Covered]:
    """Return the coverage of each policy under test."""
    policies = {policy.name: policy for policy in bundle.policies if policy.name in tested}
    exempt = set().union(*(reached.exemptions for case in cases for reached in case.values()))
    covered = []
    for document in bundle.documents:
        if not document.is_policy or (policy := policies.get(document.name)) is None:
            continue  # it is disabled or not under test
        reached = [case[policy.name] for case in cases if policy.name in case]
        acted = sum(case.acted for case in reached)
        passed = sum(bool(case.operations or case.exemptions) and not case.acted for case in reached)
        unreached = [] if acted else ["no case makes it act"]
        unreached += [] if passed else ["no case has an object that it leaves alone"]
        unreached += _parts(document, policy, reached) if acted else []
        unreached += _others(policy, set().union(*(case.operations for case in reached)), exempt)
        line, _ = document.document.position(("metadata", "name"))
        file = document.document.file
        covered.append(Covered(policy.name, policy.kind.name, file, line, acted, passed, unreached))
    return covered


def _parts(document: PolicyDocument, policy: Policy, cases: list[Reached]) -> Iterator[str]:
    """Yield the parts that no case reached."""
    reached = set().union(*(case.parts for case in cases))
    missed = (part for part in getattr(policy.validator, "parts", ()) if part not in reached)
    yield from (f"no case has a finding of {part}" for part in missed)
    for number, condition in enumerate(getattr(document.spec, "match_conditions", ())):
        where = f"matchConditions[{number}] {condition.name}"
        if where not in reached:
            yield f"no case fails {where}"
    if policy.break_glass and not any(case.overruled for case in cases):
        yield "no case uses breakGlass"


def _others(policy: Policy, operations: set[str], reported: set[Exemption]) -> Iterator[str]:
    """Yield the operations and exemptions that no case reached.

    A shared exemption is reported once, for the first policy that it names. No case can have CONNECT.
    """
    declared = set(chain.from_iterable(rule.operations for rule in policy.rules))
    for operation in OPERATIONS[:3]:
        if operation not in operations and not declared.isdisjoint({operation, "*"}):
            yield f"no case tests {operation}"
    for exemption in policy.exemptions:
        if exemption not in reported:
            reported.add(exemption)
            yield f"no case is exempt by {exemption.name}: {exemption.reason}"

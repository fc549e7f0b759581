"""Report what of the policies tests cover: which act, which leave an object alone, and which parts find something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from webhook.engine.bundle import OWN_NAMESPACE
from webhook.engine.index import Index
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


class Reached(msgspec.Struct):
    """The coverage of one policy by one case.

    Attributes:
        judged: whether the policy judged an object.
        acted: whether it found or changed something.
        parts: parts of the policy with findings.
    """

    judged: bool = False
    acted: bool = False
    parts: set[str] = msgspec.field(default_factory=set)


class _WatchedValidator:
    """A validator that records its findings."""

    def __init__(self, rule: Validator, reached: Reached) -> None:
        self._rule = rule
        self._reached = reached

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:
        self._reached.judged = True
        for violation in self._rule.validate(subject, context):
            self._reached.acted = True
            self._reached.parts.add(violation.part)
            yield violation


class Watch:
    """Policies of a bundle that record their coverage, and their index, for a judge."""

    def __init__(self, bundle: Bundle, names: tuple[str, ...] | None = None) -> None:
        self._reached: dict[str, Reached] = {}
        policies = [policy for policy in bundle.policies if names is None or policy.name in names]
        watched = [self._watched(policy) for policy in policies]
        self.index = Index(watched, bundle.index.workloads.values(), bundle.providers, OWN_NAMESPACE)

    def _watched(self, policy: Policy) -> Policy:
        reached = self._reached[policy.name] = Reached()
        rule = policy.validator
        return policy if rule is None else replace(policy, validator=_WatchedValidator(rule, reached))

    def taken(self, trace: PhaseDecisions | None) -> dict[str, Reached]:
        """Return the coverage of one case, with the trace of its judgement, and start the next one."""
        changed = {operation.policy for operation in trace.mutation.patch} if trace is not None else set()
        taken = {}
        for name, reached in self._reached.items():
            taken[name] = replace(reached, acted=reached.acted or name in changed)
            reached.judged, reached.acted, reached.parts = False, False, set()
        return taken


class Covered(msgspec.Struct, frozen=True, kw_only=True):
    """The number of cases in which a policy acts or leaves an object alone, and phrases for what no case reaches."""

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
    return [
        _covered(document, policies[document.name], [case[document.name] for case in cases if document.name in case])
        for document in bundle.documents
        if document.is_policy
        and document.spec.enforcement is not Enforcement.OFF
        and (tested is None or document.name in tested)
    ]


def _covered(document: PolicyDocument, policy: Policy, cases: list[Reached]) -> Covered:
    acted = sum(case.acted for case in cases)
    passed = sum(case.judged and not case.acted for case in cases)
    parts = set().union(*(case.parts for case in cases))
    missed = [part for part in getattr(policy.validator, "parts", ()) if part not in parts]
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
            *(f"no case has a finding of {part}" for part in missed if acted),
        ],
    )

"""Export SpotPlacement and GracefulTermination as one MutatingAdmissionPolicy with its binding.

A Pod that it changes is the Pod that the webhook would make of it. A Pod whose outcome it can't tell is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from webhook.base.exits import CannotJudgeError
from webhook.commands.export.admission_policies.matching import ExportedPolicy, Part, as_rule, exported_policies, merged
from webhook.commands.export.mutating_policy.expressions import MUTATION, variables
from webhook.commands.export.mutating_policy.shapes import answers_of, vocabulary
from webhook.model.decision import Outcome
from webhook.policy.match import PODS_CREATE
from webhook.registration.cel import JSON, policy_and_binding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.commands.export.mutating_policy.shapes import Answers
    from webhook.engine.bundle import Bundle
    from webhook.engine.index import Policy
    from webhook.policy.errors import Problem
    from webhook.rules.context import Context
    from webhook.rules.graceful_termination.rule import GracefulTermination
    from webhook.rules.spot_placement.rule import SpotPlacement

SINCE: Final = (1, 36)
"""The version since which Kubernetes serves MutatingAdmissionPolicies as v1, and by default."""

NAME: Final = "pods.spotgate.dev"
_PLACEMENT: Final = "SpotPlacement"
_TERMINATION: Final = "GracefulTermination"
_POD: Final = ("CREATE", "", "pods")


def export(bundle: Bundle, context: Context) -> tuple[list[JSON], list[Problem], list[str]]:
    """Return the policy with its binding, what is left out of the policies, and which Pods are left alone.

    Raise CannotJudgeError if the node pools are unknown, or the policies can't be one.
    """
    if context.view.pools is None:
        raise CannotJudgeError(f"error: the node pools are unknown: {context.view.why_unknown} {context.view.remedy}")
    if contested := [each.name for each in bundle.policies if each.standing.overrides or each.standing.rivals]:
        raise CannotJudgeError(
            f"error: which policy decides for a Pod depends on others (`overrides` or `provider` of "
            f"{', '.join(contested)}), which a MutatingAdmissionPolicy can't say; export a set of policies without "
            "that, with --policies"
        )
    found: dict[str, ExportedPolicy] = {}
    left_out: list[Problem] = []
    for exported in exported_policies(bundle, context.now.date()):
        policy = exported.policy
        if policy.kind.name not in {_PLACEMENT, _TERMINATION} or not policy.matches(*_POD):
            continue
        if policy.enforcement is Outcome.AUDIT:
            exported.leave_out((), "not exported: its enforcement is audit, which changes nothing")
            left_out += exported.left_out[-1:]
            continue
        if policy.kind.name in found:
            other = found[policy.kind.name].policy.name
            raise CannotJudgeError(
                f"error: {other} and {policy.name} are both {policy.kind.name}: a MutatingAdmissionPolicy can't say in "
                "which order they change a Pod; export one of them, with --policies"
            )
        exported.leave_out_system_namespaces()
        found[policy.kind.name] = exported
    if not found:
        return [], left_out, []
    placement, termination = found.get(_PLACEMENT), found.get(_TERMINATION)
    constraints, common, own = _matching(found)
    left_out += [problem for each in found.values() for problem in each.left_out]
    rules = (
        cast("SpotPlacement | None", placement and placement.policy.mutator),
        cast("GracefulTermination | None", termination and termination.policy.mutator),
    )
    words = vocabulary(context, bundle.providers, (name for each in found.values() for name in each.spec.provider))
    answers = answers_of(words, *rules, context)
    schedulers = [glob for each in bundle.providers.values() for glob in each.hands_off_schedulers.patterns]
    written = variables(
        words,
        answers,
        schedulers=list(dict.fromkeys(schedulers)),
        placing=own.get(_PLACEMENT, "false"),
        termination=rules[1],
        stopping=own.get(_TERMINATION, "false"),
    )
    spec: JSON = {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": constraints,
        "matchConditions": common,
        "variables": written,
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": MUTATION}}],
    }
    printed = list(policy_and_binding("MutatingAdmissionPolicy", NAME, spec, {}))
    return printed, left_out, list(_left_alone(answers))


def _matching(found: dict[str, ExportedPolicy]) -> tuple[JSON, dict[str, str], dict[str, str]]:
    """Return constraints, the match conditions that all policies have, and the rest of each by its kind."""
    parts = {kind: _part(each.policy) for kind, each in found.items()}
    first, *others = (each.constraints(parts[kind]) for kind, each in found.items())
    if any(each != first for each in others):
        both = " and ".join(each.policy.name for each in found.values())
        raise CannotJudgeError(
            f"error: `match` of {both} differs in resourceRules or selectors, which a MutatingAdmissionPolicy has "
            "once; give them the same, or export one of them, with --policies"
        )
    conditions = {kind: each.conditions(parts[kind]) for kind, each in found.items()}
    every = next(iter(conditions.values()))
    common = {name: text for name, text in every.items() if all(each.get(name) == text for each in conditions.values())}
    own = {
        kind: " && ".join(f"({text})" for name, text in each.items() if name not in common) or "true"
        for kind, each in conditions.items()
    }
    return first, common, own


def _part(policy: Policy) -> Part:
    rules = [each for each in policy.rules if each.names(*_POD)]
    narrow = [as_rule(each) | {key: as_rule(PODS_CREATE)[key] for key in ("resources", "operations")} for each in rules]
    # What lowers a denial to a warning changes nothing of what is injected.
    return Part(name="pods", rules=merged(narrow), outcome=Outcome.WARN, validations=[])


def _left_alone(answers: Answers) -> Iterator[str]:
    """Yield which Pods are left alone although the webhook may change them."""
    yield "Pods that need more than a table of node pools, listed in docs/cli/export.md, and all warnings"
    if answers.left_out:
        yield f"Pods of {answers.left_out} rare kinds: the table is full, as there are many node pools"

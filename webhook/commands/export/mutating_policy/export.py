"""Export SpotPlacement, GracefulTermination, and ReclaimNotice as one MutatingAdmissionPolicy with its binding.

The policy changes a Pod exactly as the webhook does. It skips Pods whose changes it can't compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from msgspec.structs import replace

from webhook.base.exits import CannotJudgeError
from webhook.commands.export.admission_policies.matching import ExportedPolicy, Part, exported_policies
from webhook.commands.export.mutating_policy.expressions import (
    MUTATION,
    NOTICE,
    notice_variables,
    placement_variables,
    termination_variables,
)
from webhook.commands.export.mutating_policy.shapes import answers_of
from webhook.commands.export.mutating_policy.traits import traits_of
from webhook.model.decision import Outcome
from webhook.policy.match import PODS_CREATE
from webhook.registration.cel import JSON, policy_and_binding

if TYPE_CHECKING:
    from webhook.engine.bundle import Bundle
    from webhook.engine.index import Policy
    from webhook.policy.errors import Problem
    from webhook.rules.context import Context
    from webhook.rules.graceful_termination.rule import GracefulTermination
    from webhook.rules.reclaim_notice.rule import ReclaimNotice
    from webhook.rules.spot_placement.rule import SpotPlacement

NAME: Final = "pods.spotgate.dev"
_PLACEMENT: Final = "SpotPlacement"
_TERMINATION: Final = "GracefulTermination"
_NOTICE: Final = "ReclaimNotice"
_POD: Final = ("CREATE", "", "pods")


def export(bundle: Bundle, context: Context) -> tuple[list[JSON], list[Problem], list[str]]:
    """Return the policy with its binding, a problem for each omission, and descriptions of the skipped Pods.

    Raise CannotJudgeError if the node pools are unknown, or one policy can't express these policies.
    """
    if context.view.pools is None:
        raise CannotJudgeError(f"error: the node pools are unknown: {context.view.why_unknown} {context.view.remedy}")
    if contested := [policy.name for policy in bundle.policies if policy.standing.overrides or policy.standing.rivals]:
        raise CannotJudgeError(
            f"error: which policy decides for a Pod depends on others (`overrides` or `provider` of "
            f"{', '.join(contested)}), which a MutatingAdmissionPolicy can't say; export a set of policies without "
            "that, with --policies"
        )
    chosen: dict[str, ExportedPolicy] = {}
    left_out: list[Problem] = []
    for exported in exported_policies(bundle, context.now.date()):
        policy = exported.policy
        if policy.kind.name not in {_PLACEMENT, _TERMINATION, _NOTICE} or not policy.matches(*_POD):
            continue
        if policy.enforcement is Outcome.AUDIT:
            exported.leave_out((), "not exported: its enforcement is audit, which changes nothing")
            left_out += exported.left_out[-1:]
            continue
        if policy.kind.name in chosen:
            other = chosen[policy.kind.name].policy.name
            raise CannotJudgeError(
                f"error: {other} and {policy.name} are both {policy.kind.name}: a MutatingAdmissionPolicy can't say in "
                "which order they change a Pod; export one of them, with --policies"
            )
        exported.leave_out_matches()
        chosen[policy.kind.name] = exported
    if not chosen:
        return [], left_out, []
    constraints, common, own = _matching(chosen)
    left_out += [problem for exported in chosen.values() for problem in exported.left_out]
    mutators = {kind: exported.policy.mutator for kind, exported in chosen.items()}
    placement = cast("SpotPlacement | None", mutators.get(_PLACEMENT))
    termination = cast("GracefulTermination | None", mutators.get(_TERMINATION))
    notice = cast("ReclaimNotice | None", mutators.get(_NOTICE))
    named = [name for exported in chosen.values() for name in exported.spec.provider]
    traits = traits_of(context, bundle.providers, named)
    answers = answers_of(traits, placement, termination, context)
    expression = f"({MUTATION}) +\n{NOTICE}" if notice else MUTATION
    spec: JSON = {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": constraints,
        "matchConditions": common,
        "variables": {
            **placement_variables(traits, answers, bundle.providers.values(), own.get(_PLACEMENT, "false")),
            **termination_variables(termination, own.get(_TERMINATION, "false")),
            **(notice_variables(notice, own[_NOTICE]) if notice else {}),
        },
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    alone = ["Pods that need more than a table of node pools, listed in docs/cli/export.md, and all warnings"]
    if answers.left_out:
        alone.append(f"Pods of {answers.left_out} rare kinds: the table is full, as there are many node pools")
    return list(policy_and_binding("MutatingAdmissionPolicy", NAME, spec, {})), left_out, alone


def _matching(chosen: dict[str, ExportedPolicy]) -> tuple[JSON, dict[str, str], dict[str, str]]:
    """Return the constraints, the match conditions that the policies share, and the other conditions by policy kind."""
    parts = {kind: _part(exported.policy) for kind, exported in chosen.items()}
    constraints, *others = (exported.constraints(parts[kind]) for kind, exported in chosen.items())
    if any(other != constraints for other in others):
        both = " and ".join(exported.policy.name for exported in chosen.values())
        raise CannotJudgeError(
            f"error: `match` of {both} differs in resourceRules or selectors, which a MutatingAdmissionPolicy has "
            "once; give them the same, or export one of them, with --policies"
        )
    conditions = {kind: exported.conditions(parts[kind]).items() for kind, exported in chosen.items()}
    common = dict(
        item for item in conditions[next(iter(chosen))] if all(item in given for given in conditions.values())
    )
    own = {
        kind: " && ".join(f"({text})" for name, text in given if name not in common) or "true"
        for kind, given in conditions.items()
    }
    return constraints, common, own


def _part(policy: Policy) -> Part:
    rules = (
        replace(rule, resources=PODS_CREATE.resources, operations=PODS_CREATE.operations)
        for rule in policy.rules
        if rule.names(*_POD)
    )
    return Part(name="pods", rules=list(rules))

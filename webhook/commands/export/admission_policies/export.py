"""Export policies as ValidatingAdmissionPolicies, which also apply while the webhook is down.

The exported policies deny nothing that spotgate admits. They omit the rules that Kubernetes can't express.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from webhook.commands.export.admission_policies import labels, validation
from webhook.commands.export.admission_policies.matching import WRITES, ExportedPolicy, Part, exported_policies
from webhook.engine.break_glass import FIELD
from webhook.policy.terms import BREAK_GLASS
from webhook.registration.cel import JSON, any_glob_matches, policy_and_binding, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import date

    from webhook.engine.bundle import Bundle
    from webhook.policy.errors import Problem

_OF_CONTROLLERS: Final = (
    "!object.?metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))"
)


def _break_glass(exported: ExportedPolicy) -> Iterator[Part]:
    """Yield one part if the policy has ``breakGlass``. The groups of all policies can write the annotation."""
    if not exported.policy.break_glass:
        return
    exported.leave_out(("breakGlass",), "it also applies after `until`: Kubernetes has no clock")
    rules = [
        replace(rule, resources=resources, operations=WRITES)
        for rule in exported.policy.rules
        if (resources := tuple(path for path in rule.resources if "/" not in path))
    ]
    if not rules:
        return
    globs = dict.fromkeys(glob for policy in exported.bundle.policies for glob in policy.break_glass.patterns)
    written = f"[?{quoted(BREAK_GLASS)}].orValue('')"
    after = f"object.?metadata.?annotations{written}"
    before = f"(oldObject == null ? '' : oldObject.?metadata.?annotations{written})"
    member = f"request.userInfo.?groups.orValue([]).exists(group, {any_glob_matches('group', globs)})"
    only_members = {
        "expression": f"{after} == '' || {after} == {before} || {member}",
        "message": f"only members of these groups may write {FIELD}: {', '.join(globs)}",
        "reason": "Forbidden",
    }
    conditions = {"spotgate.dev/no-copies": _OF_CONTROLLERS}
    yield Part(name="break-glass", rules=rules, conditions=conditions, validations=[only_members])


_PARTS: Final[Mapping[str, Callable[[ExportedPolicy], Iterator[Part]]]] = {
    "ReservedLabels": labels.parts,
    "Validation": validation.parts,
}
"""The policy kinds that can be exported. `PolicyKind.not_exported` has the reason for the others."""


def export(bundle: Bundle, today: date) -> tuple[list[JSON], list[Problem]]:
    """Return the exported policies with their bindings, and a problem for each omission."""
    printed: list[JSON] = []
    left_out: list[Problem] = []
    for exported in exported_policies(bundle, today):
        policy = exported.policy
        if policy.kind.name in _PARTS:
            exported.leave_out_matches()
            for part in chain(_PARTS[policy.kind.name](exported), _break_glass(exported)):
                if not part.validations:
                    continue
                spec: JSON = {
                    "failurePolicy": "Fail",
                    "matchConstraints": exported.constraints(part),
                    "matchConditions": exported.conditions(part),
                    "variables": part.variables,
                    "validations": part.validations,
                }
                binding = {"validationActions": [str(policy.enforcement).capitalize()]}
                name = f"{policy.name}.{part.name}.spotgate.dev"
                printed += policy_and_binding("ValidatingAdmissionPolicy", name, spec, binding)
        else:
            exported.left_out = []  # the exemptions aren't exported either
            exported.leave_out((), f"not exported: {policy.kind.not_exported}")
        left_out += exported.left_out
    return printed, left_out

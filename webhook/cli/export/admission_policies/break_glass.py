"""A ValidatingAdmissionPolicy that restricts the break-glass annotation, for each policy with breakGlass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.break_glass import FIELD
from webhook.cli.export.admission_policies.matching import JSON, Part, as_rule, merged
from webhook.cli.export.cel import names, quoted
from webhook.policy.terms import BREAK_GLASS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.cli.export.admission_policies.matching import ExportedPolicy

_WRITES: Final = ("CREATE", "UPDATE")
_OF_CONTROLLERS: Final = (
    "!object.?metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false))"
)


def parts(exported: ExportedPolicy) -> Iterator[Part]:
    """Yield one part if the policy has ``breakGlass``. Groups that other policies name may write it, too."""
    if not exported.policy.break_glass:
        return
    exported.leave_out(("breakGlass",), "it holds past `until`, too: Kubernetes has no clock")
    globs = dict.fromkeys(glob for each in exported.bundle.policies for glob in each.break_glass.patterns)
    rules: list[JSON] = []
    for rule in exported.policy.rules:
        resources = tuple(path for path in rule.resources if "/" not in path)
        if resources:
            narrow = msgspec.structs.replace(rule, resources=resources, operations=_WRITES)
            rules.append(as_rule(narrow))
    if not rules:
        return
    written = f"[?{quoted(BREAK_GLASS)}].orValue('')"
    after = f"object.?metadata.?annotations{written}"
    before = f"(oldObject == null ? '' : oldObject.?metadata.?annotations{written})"
    member = f"request.userInfo.?groups.orValue([]).exists(group, {names('group', list(globs))})"
    says = f"only members of these groups may write {FIELD}: {', '.join(globs)}"
    yield Part(
        name="break-glass",
        rules=merged(rules),
        outcome=exported.policy.enforcement,
        conditions={"spotgate.dev/no-copies": _OF_CONTROLLERS},
        validations=[
            {
                "expression": f"{after} == '' || {after} == {before} || {member}",
                "message": says,
                "reason": "Forbidden",
            }
        ],
    )

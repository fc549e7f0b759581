"""Export of policies as ValidatingAdmissionPolicies, which hold while the webhook is down.

They deny nothing that spotgate admits. They admit what Kubernetes can't express of a policy.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from webhook.bundle import policy_kinds
from webhook.cli.export.admission_policies import break_glass, labels, validation
from webhook.cli.export.admission_policies.matching import JSON, ExportedPolicy
from webhook.cli.export.cel import with_items
from webhook.decision import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import date

    from webhook.bundle import Bundle
    from webhook.cli.export.admission_policies.matching import Part
    from webhook.policy.errors import Problem

_PARTS: Final[Mapping[str, Callable[[ExportedPolicy], Iterator[Part]]]] = {
    "ReservedLabels": labels.parts,
    "Validation": validation.parts,
}
"""The kinds that can be exported; `PolicyKind.not_exported` says why others can't."""
_ACTIONS: Final = {Outcome.DENY: "Deny", Outcome.WARN: "Warn", Outcome.AUDIT: "Audit"}
_CONDITIONS_AT_MOST: Final = 64
"""Kubernetes' limit of matchConditions in one policy."""


def export(bundle: Bundle, today: date) -> tuple[list[JSON], list[Problem]]:
    """Return the policies with their bindings, and what is left out of them, and why."""
    documents = {each.name: each for each in bundle.documents if each.is_policy}
    printed: list[JSON] = []
    left_out: list[Problem] = []
    for policy in sorted(bundle.policies, key=lambda each: (each.kind, each.name)):
        exported = ExportedPolicy(bundle, policy, documents[policy.name], today)
        if policy.kind in _PARTS:
            exported.leave_out_system_namespaces()
            for part in chain(_PARTS[policy.kind](exported), break_glass.parts(exported)):
                printed += _documents(exported, part)
        else:
            exported.left_out = []  # nor are its exemptions
            exported.leave_out((), f"not exported: {policy_kinds()[policy.kind].not_exported}")
        left_out += exported.left_out
    return printed, left_out


def _documents(exported: ExportedPolicy, part: Part) -> Iterator[JSON]:
    if not part.validations:
        return
    conditions = exported.conditions(part)
    if len(conditions) > _CONDITIONS_AT_MOST:
        at_most = f"Kubernetes takes {_CONDITIONS_AT_MOST} at most"
        exported.leave_out((), f"{part.name}: not exported: {len(conditions)} match conditions, and {at_most}")
        return
    metadata = {
        "name": f"{exported.policy.name}.{part.name}.spotgate.dev",
        "labels": {"app.kubernetes.io/name": "spotgate", "app.kubernetes.io/component": "exported-policy"},
    }
    spec: JSON = {
        "failurePolicy": "Fail",
        "matchConstraints": exported.constraints(part),
        "matchConditions": with_items(conditions),
        "variables": with_items(part.variables),
        "validations": part.validations,
    }
    api_version = "admissionregistration.k8s.io/v1"
    yield {"apiVersion": api_version, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec}
    binding = {"policyName": metadata["name"], "validationActions": [_ACTIONS[part.outcome]]}
    yield {"apiVersion": api_version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": binding}

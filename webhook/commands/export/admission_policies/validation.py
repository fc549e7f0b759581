"""Export `Validation`: one policy for objects, and others for the pod templates of workloads."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final

from webhook.cel.text import Text, substituted, without_strings
from webhook.commands.export.admission_policies.matching import OWN, ExportedPolicy, Part, templates_of
from webhook.registration.cel import JSON, literal
from webhook.report.report import alike

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from webhook.kube.templates import Workload
    from webhook.policy.match import ResourceRule

_BUILT_IN: Final = frozenset({"", "apps", "batch"})
_ON_TEMPLATES: Final = {
    "object": re.compile(r"\s*\.\??\s*(spec\b|metadata\s*\.\??\s*(labels|annotations)\b)"),
    "request": re.compile(r"\s*\.\??\s*(namespace|userInfo|dryRun)\b"),
}
"""The fields that an expression can read if a pod template replaces the Pod: it has no name, kind, or operation."""


def parts(exported: ExportedPolicy) -> Iterator[Part]:
    """Yield a part for the matched objects, then parts for their pod templates."""
    export = _Export(exported)
    for number, condition in enumerate(exported.spec.match_conditions):
        if why_not := export.why_not(condition.expression):
            exported.leave_out(("matchConditions", number), f"not exported, and so nothing of the policy is: {why_not}")
            return
    if not export.validations:
        return
    yield export.part("objects", exported.policy.rules, {})
    if exported.policy.judges_templates():
        yield from export.of_templates()


class _Export:
    def __init__(self, exported: ExportedPolicy) -> None:
        self.exported = exported
        self.spec = exported.spec
        self.variables = {variable.name: variable.expression for variable in self.spec.variables}
        self.foreign: dict[str, str] = {}
        for name, expression in self.variables.items():
            self.foreign[name] = self.why_not(expression)
        self.params = "params"
        while self.params in self.variables:
            self.params += "_"

    def why_not(self, expression: str) -> str:
        """Return why Kubernetes can't evaluate the expression or one of its variables; empty if it can."""
        text = Text(expression)
        if "pools" in text.words:
            return "it reads the cluster's node pools"
        return next(filter(None, map(self.foreign.__getitem__, text.variables)), "")

    @cached_property
    def validations(self) -> list[JSON]:
        """Return the validations that need no lookup."""
        validations: list[JSON] = []
        for number, validation in enumerate(self.spec.validations):
            if why_not := self.why_not(validation.expression):
                self.exported.leave_out(("validations", number), f"not exported: {why_not}")
                continue
            written: JSON = {"expression": validation.expression.strip()}
            if validation.message.strip():
                written["message"] = validation.message.strip()
            if validation.message_expression.strip() and not self.why_not(validation.message_expression):
                written["messageExpression"] = validation.message_expression.strip()
            validations.append({**written, "reason": validation.reason or "Forbidden"})
        return validations

    def part(self, name: str, rules: Sequence[ResourceRule], given: Mapping[str, str], labels: str = "") -> Part:
        """Return one part. `given` maps names in the expressions to their replacements."""
        inside = {**given, "params": f"variables.{self.params}"}
        own_variables = {name: text for name, text in self.variables.items() if not self.foreign[name]}
        variables = {self.params: f"dyn({literal(self.spec.params)})"} if self.spec.params else {}
        variables |= {name: substituted(text, inside) for name, text in own_variables.items()}
        # Not as matchConditions of Kubernetes, which can't read variables and the namespace.
        conditions = (substituted(condition.expression.strip(), inside) for condition in self.spec.match_conditions)
        guard = " && ".join(f"({text})" for text in conditions)
        return Part(
            name=name,
            rules=list(rules),
            validations=[_written(validation, inside, guard) for validation in self.validations],
            variables=variables,
            template_labels=labels,
        )

    def of_templates(self) -> Iterator[Part]:
        """Yield parts for the pod templates of built-in workloads. Other templates may lack fields of a Pod."""
        expressions = [
            *self.variables.values(),
            *(condition.expression for condition in self.spec.match_conditions),
            *(text for validation in self.validations for key, text in validation.items() if "xpression" in key),
        ]
        if any(map(_names_more, expressions)):
            why = "pod templates: it reads fields of `object` or `request` that a template doesn't have"
            self.exported.leave_out((), why)
            return
        plain: list[Workload] = []
        others: list[Workload] = []
        for workload in self.exported.bundle.index.workloads.values():
            path, *more = (path.text for path in workload.paths) if workload.group in _BUILT_IN else ("*",)
            (others if more or set("*[") & set(path) else plain).append(workload)
        if others:
            names = ", ".join(workload.resource for workload in others)
            self.exported.leave_out((), f"pod templates of {names}: they may lack fields of a Pod")
        for path, workloads in alike(plain, lambda workload: workload.paths[0].text).items():
            template, old = f"object.{path}", f"oldObject.{path}"
            (name, *_), rules = zip(*map(templates_of, workloads), strict=True)
            given = {"object": template, "oldObject": "dyn(null)"}
            part = self.part(name, rules, given, f"{template}.?metadata.?labels.orValue({{}})")
            # Skip unchanged templates: they were evaluated before.
            part.conditions[f"{OWN}changed"] = f"has({template}) && (oldObject == null || {template} != {old})"
            yield part


def _written(validation: JSON, given: Mapping[str, str], guard: str) -> JSON:
    """Return a validation with replaced names, which passes if the guard is false."""
    written = {key: substituted(text, given) if "xpression" in key else text for key, text in validation.items()}
    if guard:
        # Not `||`: if the guard is an error, the validation must be an error, like a match condition.
        written["expression"] = f"{guard} ? ({written['expression']}) : true"
    if written["expression"] != validation["expression"]:
        written.setdefault("message", f"failed expression: {validation['expression']}")
    return written


def _names_more(expression: str) -> bool:
    names = without_strings(expression)
    return any(
        not what.match(names, match.end())
        for name, what in _ON_TEMPLATES.items()
        for match in re.finditer(rf"(?<![\w.]){name}\b", names)
    )

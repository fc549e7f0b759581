"""Validation: a team's own rule, with the fields of a ValidatingAdmissionPolicy.

Intent
    Teams write rules in CEL, without Python. A ValidatingAdmissionPolicy accepts the same expressions unchanged. In
    spotgate, the expressions can also read the cluster's node pools.
Reads
    The fields that the expressions read: of the object, the old object, the request, its namespace, and the node pools.
    A pod template is evaluated as its future Pod.
Writes
    Nothing. A MutatingAdmissionPolicy changes objects in the API server itself.
Finds
    failed, error, unknown
Source
    https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.cel import language
from webhook.cel.errors import EvaluationError
from webhook.model.decision import Violation
from webhook.policy.errors import SpecError, SpecErrors
from webhook.rules.protocol import Facts, PolicyKind
from webhook.rules.validation.spec import ValidationSpec
from webhook.rules.validation.values import values_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.cel.library import Expression, Language, Values
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject

_MESSAGE_AT_MOST: Final = 5 * 1024
"""Bytes of the result of a messageExpression, as in Kubernetes."""


class _Condition(msgspec.Struct, frozen=True):
    """One compiled entry of ``matchConditions``."""

    where: str
    text: str
    expression: Expression


class _Rule(_Condition, frozen=True):
    """One compiled entry of ``validations``."""

    message: str
    message_expression: Expression | None


class Validation(msgspec.Struct, frozen=True):
    """The compiled rule."""

    language: Language
    conditions: tuple[_Condition, ...]
    rules: tuple[_Rule, ...]
    reads_pools: bool

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the places of the validations in the policy."""
        return tuple(rule.where for rule in self.rules)

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:
        """Yield a violation for each expression that is false or has no result."""
        values = values_of(subject, context, self.language, pools=self.reads_pools)
        failed: list[Violation] = []
        for condition in self.conditions:  # one false condition decides, even if others have no result
            try:
                if not condition.expression.evaluate(values):
                    subject.trace.skip("%s is false", condition.where, cause=condition.where)
                    return
            except EvaluationError as error:
                failed.append(_no_result(error, condition, context))
        yield from failed
        for rule in () if failed else self.rules:
            try:
                if rule.expression.evaluate(values):
                    subject.trace.say("%s is true", rule.where)
                    continue
            except EvaluationError as error:
                yield _no_result(error, rule, context)
                continue
            subject.trace.say("%s is false", rule.where)
            yield Violation(id="failed", reason=_message(rule, values), part=rule.where)


def _no_result(error: EvaluationError, condition: _Condition, context: Context) -> Violation:
    if not error.unknown:
        fix = f"in the policy, {error.hint}" if error.hint else ""
        detail = f"{condition.where} is `{condition.text}`."
        return Violation(id="error", reason=f"expression failed: {error}", detail=detail, fix=fix)
    remedy = "pass the namespace's manifest with --state" if context.offline else ""
    why, remedy = {
        "pools": (context.view.why_unknown, context.view.remedy),
        "request.userInfo": ("The user is unknown.", "pass --user and --group"),
        "oldObject": ("The old object is unknown.", "pass the object's manifest from the cluster with --state"),
    }.get(error.unknown, ("spotgate knows only the name of the request's namespace.", remedy))
    reason = f"can't evaluate {condition.where}: {error.unknown} is unknown"
    return Violation(id="unknown", reason=reason, detail=why, fix=remedy, unknown=True)


def _message(rule: _Rule, values: Values) -> str:
    if rule.message_expression is not None:
        try:
            message = str(rule.message_expression.evaluate(values)).strip()
        except EvaluationError:
            message = ""
        if message and "\n" not in message and len(message.encode()) <= _MESSAGE_AT_MOST:
            return message
    return rule.message or f"failed expression: {rule.text}"


def _compile(spec: ValidationSpec, facts: Facts) -> Validation:  # noqa: ARG001 - expressions need none
    from webhook.cel.limits import BUDGET_NS  # noqa: PLC0415
    from webhook.rules.validation.compiler import Compiler  # noqa: PLC0415

    cel = language()
    compiler = Compiler(spec, cel)
    conditions: list[_Condition] = []
    for number, condition in enumerate(spec.match_conditions):
        text, path = condition.expression, ("matchConditions", number, "expression")
        if (expression := compiler.compile(text, path, bool)) is not None:
            conditions.append(_Condition(f"matchConditions[{number}] {condition.name}", text.strip(), expression))
    rules: list[_Rule] = []
    for number, spec_rule in enumerate(spec.validations):
        below = ("validations", number)
        expression = compiler.compile(spec_rule.expression, (*below, "expression"), bool)
        text = spec_rule.message_expression
        message = compiler.compile(text, (*below, "messageExpression"), str) if text.strip() else None
        if expression is not None:
            where, text = f"validations[{number}]", spec_rule.expression.strip()
            rules.append(_Rule(where, text, expression, spec_rule.message.strip(), message))
    if spec.match.resource_rules is None:
        compiler.mistakes.append(
            SpecError(("match", "resourceRules"), "is required: it selects the objects that the policy evaluates")
        )
    if sum(condition.expression.cost.least for condition in (*conditions, *rules)) > BUDGET_NS:
        text = f"together they may take more than {BUDGET_NS // 1_000_000} ms on every object: simplify them"
        compiler.mistakes.append(SpecError(("validations",), text))
    if compiler.mistakes:
        raise SpecErrors(compiler.mistakes)
    return Validation(
        language=cel,
        conditions=tuple(conditions),
        rules=tuple(rules),
        reads_pools="pools" in compiler.names,
    )


KIND: Final = PolicyKind(
    name="Validation",
    spec=ValidationSpec,
    compile=_compile,
    rules=lambda _: (),  # `match.resourceRules` is required
    expressions=True,
)

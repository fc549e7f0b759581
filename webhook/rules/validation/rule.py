"""Validation: a team's own rule, with the fields of a ValidatingAdmissionPolicy.

Intent
    Teams write rules in CEL, without Python. A ValidatingAdmissionPolicy accepts the same expressions unchanged. In
    spotgate, the expressions can also read the cluster's node pools.
Reads
    The fields that the expressions read: of the object, the old object, the request, its namespace, and the node pools.
    docs/policies/validation.md lists them.
    A pod template is evaluated as its future Pod.
Writes
    Nothing. A MutatingAdmissionPolicy changes objects in the API server itself.
Finds
    failed, error, unknown
Source
    https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.caching import identity_cache
from webhook.cel import language
from webhook.cel.errors import HAS_NUL, NOT_KNOWN, EvaluationError
from webhook.cel.names import NAMES
from webhook.model.decision import Violation
from webhook.policy.errors import SpecError, SpecErrors
from webhook.policy.match import RequestAttributes
from webhook.rules.protocol import Facts, PolicyKind
from webhook.rules.validation.spec import ValidationSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.capacity.providers.pool import Pool
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


_MEMO: Final = "cel"
_NUL: Final = b"\\u0000"
_REMEMBERED: Final = 4
"""States of the node pools in the cache: the newest, and those of requests in progress."""


def values_of(subject: Subject, context: Context, language: Language, *, pools: bool) -> Values:
    """Return the values for the expressions on this subject, which all policies share.

    Policies that read the pools share a second result, because a cluster can have many pools.
    """
    memo, other = (_MEMO, pools), (_MEMO, not pools)
    values: Values | None = subject.memo.get(memo)
    if values is None:
        shown = _shown(subject, context)
        if pools and context.view.pools is not None:
            shown["pools"] = _plain_pools(context.view.pools)
        part_of = len(subject.request.object) if subject.template else 0
        values = subject.memo[memo] = language.values(shown, subject.memo.get(other), part_of)
    return values


def _shown(subject: Subject, context: Context) -> dict[str, Any]:
    request, view = subject.request, context.view
    shown = subject.shown
    # Search only the template, not the whole object again for each template.
    written = (msgspec.json.encode(shown),) if subject.template else map(bytes, (request.object, request.old_object))
    nul = any(_NUL in text for text in written)
    old = None if subject.template else subject.old_object
    user = request.user_info
    about = _about(subject)
    values: dict[str, Any] = {
        "object": HAS_NUL if nul and _has_nul(shown) else shown,
        "oldObject": HAS_NUL if nul and _has_nul(old) else old,
        "request": about,
        "request.userInfo": NOT_KNOWN,
        "namespaceObject": None,
        "pools": NOT_KNOWN,
    }
    if context.offline and old is None and subject.operation == "UPDATE":
        values["oldObject"] = NOT_KNOWN
    if user.username:
        values["request.userInfo"] = about["userInfo"] = {"username": user.username, "groups": list(user.groups or ())}
    if RequestAttributes.of(request).in_namespace:
        labels = view.namespaces.get(request.namespace)
        known = {"metadata": {"name": request.namespace, "labels": dict(labels or ())}}
        values["namespaceObject"] = NOT_KNOWN if labels is None else known
        values["namespaceObject.metadata.name"] = request.namespace
    return values


def _about(subject: Subject) -> dict[str, Any]:
    """Return the request as in the API server, without empty fields; for a template, the request of its future Pod."""
    request = subject.request
    about = {
        "operation": subject.operation,
        "kind": _POD if subject.template else msgspec.to_builtins(request.kind),
        "resource": _PODS if subject.template else msgspec.to_builtins(request.resource),
        "subResource": request.sub_resource,
        "name": "" if subject.template else request.name,
        "namespace": request.namespace,
        "dryRun": bool(request.dry_run),
    }
    return {key: value for key, value in about.items() if value not in ("", None)}


_POD: Final = {"group": "", "version": "v1", "kind": "Pod"}
_PODS: Final = {"group": "", "version": "v1", "resource": "pods"}


def _has_nul(value: object) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any("\0" in key or _has_nul(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_has_nul, value))


@identity_cache(maxsize=_REMEMBERED)
def _plain_pools(pools: tuple[Pool, ...]) -> list[dict[str, Any]]:
    return [_plain(pool) for pool in pools]


_CAPITAL: Final = re.compile("(?=[A-Z])")


def _plain(pool: Pool) -> dict[str, Any]:
    """Return the fields of a node pool for expressions. docs/policies/validation.md describes each field."""
    fields = NAMES.fields["pools[]"]
    values = {name: value for name in fields if (value := getattr(pool, _CAPITAL.sub("_", name).lower())) is not None}
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(values, order="deterministic"))
    return plain


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

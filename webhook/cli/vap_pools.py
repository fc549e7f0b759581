"""`NodePoolRules` as ValidatingAdmissionPolicies: the fields of each resource, and checks that CEL can say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.provider import readers_by_resource
from webhook.cli.vap_cel import Fields, literal, quoted
from webhook.cli.vap_jmespath import UntranslatableError, condition
from webhook.cli.vap_matching import JSON, Part, as_rule, merged
from webhook.decision import Outcome
from webhook.policy.terms import Enforcement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.cli.vap_matching import Source
    from webhook.rules.node_pool_rules_spec import CheckSpec, PoolResourceSpec

_WRITES: Final = ("CREATE", "UPDATE")
_TYPES: Final = {"string": "string", "integer": "int", "boolean": "bool", "object": "map", "array": "list"}
_A: Final = {"object": "an object", "array": "an array", "integer": "an integer"}
_PLACEHOLDER: Final = re.compile(r"\$\{([^{}]*)\}")
_PATH: Final = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*", re.ASCII)


def parts(source: Source) -> Iterator[Part]:
    """For each resource what is denied, and what is warned of."""
    readers = readers_by_resource(source.bundle.providers.values())
    if any(rule.names("CREATE", *key) for rule in source.policy.rules for key in readers):
        why = "what takes a pool's CapacityProvider to know is not looked at: superchips, taints, instance types, "
        source.leave_out((), f"{why}requirements and budgets")
    for number, item in enumerate(source.spec.resources):
        rules = merged(_rules(source, item))
        fields = Fields()
        found: dict[Outcome, list[JSON]] = {}
        for validation in _of_fields(item, fields):
            found.setdefault(source.policy.enforcement, []).append(validation)
        for index, check in enumerate(item.checks):
            if check.enforcement is Enforcement.OFF:
                continue
            outcome = min(Outcome[check.enforcement.name], source.policy.enforcement)
            try:
                validation = _of_check(check, fields)
            except UntranslatableError as error:
                path = ("resources", number, "checks", index, "when")
                source.leave_out(path, f"CEL has no equal of this JMESPath ({error})")
                continue
            found.setdefault(outcome, []).append(validation)
        name = ".".join(filter(None, (item.resource, item.group)))
        for outcome, validations in found.items() if rules else ():
            yield Part(
                name=name if outcome is source.policy.enforcement else f"{outcome}.{name}",
                rules=rules,
                outcome=outcome,
                validations=validations,
                variables=fields.variables,
            )


def _rules(source: Source, item: PoolResourceSpec) -> Iterator[JSON]:
    for rule in source.policy.rules:
        operations = tuple(each for each in _WRITES if rule.names(each, item.group, item.resource))
        if operations:
            yield as_rule(
                msgspec.structs.replace(
                    rule, api_groups=(item.group,), resources=(item.resource,), operations=operations
                )
            )


def _of_fields(item: PoolResourceSpec, fields: Fields) -> Iterator[JSON]:
    """What is wrong with one field. An update that leaves it as it is says nothing new."""
    for field in item.fields:
        path, detail = field.path.split("."), field.detail
        value, old, kept = fields.value(path), fields.value(path, old=True), fields.kept(path)
        if field.required:
            yield _validation(f"{kept} || !{_absent(value)}", f"{field.path} is missing", detail)
        right = ""
        if field.type is not None:
            right = f"type({value}) == {_TYPES[field.type]}"
            message = f"{field.path} is not {_A.get(field.type, f'a {field.type}')}"
            yield _validation(f"{kept} || {_absent(value)} || {right}", message, detail)
        skipped = f"{kept} || {_absent(value)} || " + (f"{right.replace(' == ', ' != ')} || " if right else "")
        if field.values:
            listed = [each.casefold() for each in field.values] if field.any_case else list(field.values)
            one_of = f"{value}{'.lowerAscii()' if field.any_case else ''} in {literal(listed)}"
            message = f"{field.path} is not one of {', '.join(field.values)}"
            yield _validation(f"{skipped}{one_of}", message, detail)
        if field.minimum is not None:
            yield _validation(
                f"{skipped}{value} >= {field.minimum}", f"{field.path} is less than {field.minimum}", detail
            )
        if field.immutable:
            message = f"{field.path} can't be changed: keep it, and create another pool"
            yield _validation(f"{skipped}{_absent(old)}", message, detail)


def _absent(value: str) -> str:
    return f"({value} == null || {value} == '')"


def _of_check(check: CheckSpec, fields: Fields) -> JSON:
    """What may not be, across fields.

    Raises:
        UntranslatableError: CEL can't say it.
    """
    wrong = condition(check.when, fields)
    kept = " && ".join(fields.kept(each.split(".")) for each in check.fields)
    validation = _validation(f"({kept}) || !{wrong}", _PLACEHOLDER.sub(r"\1", check.message), "")
    says = _message(check.message, fields)
    return {**validation, "messageExpression": says} if says else validation


def _message(text: str, fields: Fields) -> str:
    """The messageExpression of a text with ``${fields}`` in it; empty: it has none, or they are more than fields."""
    parts = _PLACEHOLDER.split(text)
    if len(parts) == 1 or not all(_PATH.fullmatch(each) for each in parts[1::2]):
        return ""
    written = [
        f"string({fields.value(each.split('.'))})" if number % 2 else quoted(each)
        for number, each in enumerate(parts)
        if each
    ]
    return " + ".join(written)


def _validation(expression: str, message: str, detail: str) -> JSON:
    return {"expression": expression, "message": f"{message}. {detail}" if detail else message, "reason": "Forbidden"}

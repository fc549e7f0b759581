"""Evaluate the fields and checks that a NodePoolRules policy declares for one resource."""

from __future__ import annotations

import json
import re
from difflib import SequenceMatcher
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.placeholders import filling_in, placeholder_in
from webhook.documents.yaml_writer import dump
from webhook.model.decision import Outcome, Trace, Violation
from webhook.rules.node_pool_rules.message import on_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.rules.node_pool_rules.spec import CheckSpec, FieldSpec

_SHOWN: Final = 60
"""Characters of a user's value that a finding repeats, for a terminal."""

_TYPES: Final[Mapping[str, type]] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
    "duration": str,
}
_DURATION: Final = re.compile(r"([0-9]+[smh])+", re.ASCII)
"""The pattern of durations in Karpenter's CRD, which is also valid in Go."""
_NO_INTEGER: Final = 2**63
"""JSON integers from this value on are decoded as floats."""
_NAMES: Final[Mapping[type, str]] = {
    str: "a string",
    int: "an integer",
    float: "a number with decimals",
    bool: "a boolean",
    dict: "an object",
    list: "an array",
}


class FieldRule(msgspec.Struct, frozen=True):
    """The rule for one field of a resource, from its schema.

    Attributes:
        part: the place in the policy, and the field's path.
    """

    part: str
    spec: FieldSpec

    def judge(self, value: Mapping[str, Any], old: Mapping[str, Any] | None) -> Iterator[Violation]:
        """Yield a violation for each mistake in the field, if the request changes it."""
        spec, query = self.spec, self.spec.path
        given, before = self._value(value), self._value(old) if old is not None else None
        if old is not None and same(given, before):
            return
        path = query.text
        if given is None:
            if spec.required:
                fix, problem = f"add it{self._example()}", query.answer(value)[1]
                yield self._violation("required", f"{path} is missing", "", fix, problem)
            return
        if spec.type and type(given) is not _TYPES[spec.type]:
            wanted = _NAMES[_TYPES[spec.type]]
            kind = _NAMES.get(type(given), "something else")
            if isinstance(given, float) and abs(given) >= _NO_INTEGER:
                kind = "a number that is too large"
            reason = f"{path} is {kind}, not {wanted}"
            written = json.dumps(on_one_line(given)) if isinstance(given, str) else on_one_line(given)
            fix = f"write {wanted}{self._example()}"
            yield self._violation("type", reason, f"The value is {written}.", fix, given)
            return
        if isinstance(given, str):
            yield from self._judge_text(given)
        if spec.minimum is not None and given < spec.minimum:
            fix = f"write {spec.minimum} or more:\n{as_yaml(path, spec.minimum)}"
            yield self._violation("minimum", f"{path} is {given}, less than {spec.minimum}", "", fix)
        if spec.immutable and before is not None:
            was = f"The request changes {on_one_line(before)} to {on_one_line(given)}."
            fix = f"create another pool with {on_one_line(given)}, and keep this value here:\n{as_yaml(path, before)}"
            yield self._violation("immutable", f"{path} can't be changed", was, fix, given)

    def _judge_text(self, given: str) -> Iterator[Violation]:
        spec, path = self.spec, self.spec.path.text
        if spec.type == "duration":
            if given not in spec.values and _DURATION.fullmatch(given) is None:
                reason = f"{path} is {given[:_SHOWN]!r}, not {' or '.join(('a duration', *spec.values))}"
                yield self._violation("values", reason, "", f"write numbers with units{self._example()}", given)
        elif spec.values and self._spelt(given) not in map(self._spelt, spec.values):
            reason = f"{path} is {given[:_SHOWN]!r}, not one of {', '.join(spec.values)}"
            meant = max(spec.values, key=partial(_likeness, given))
            fix = f"write one of these values, for example:\n{as_yaml(path, meant)}"
            yield self._violation("values", reason, "", fix, given)

    def _value(self, manifest: Mapping[str, Any]) -> Any:
        written = self.spec.path(manifest)
        return self.spec.default if written is None or written == "" else written

    def _violation(self, what: str, reason: str, detail: str, fix: str, given: object = None) -> Violation:
        return Violation(
            id=what,
            reason=reason,
            field=self.spec.path.text,
            detail=" ".join(filter(None, (detail, self.spec.detail))),
            fix=filling_in(given) or fix,
            part=self.part,
            unknown=isinstance(given, str) and bool(placeholder_in(given)),
        )

    def _example(self) -> str:
        return "" if self.spec.example is None else f", for example:\n{as_yaml(self.spec.path.text, self.spec.example)}"

    def _spelt(self, text: str) -> str:
        return text.casefold() if self.spec.any_case else text


_NUMBERS: Final = (int, float)
"""Types that are always true in JMESPath, even 0."""


class Check(msgspec.Struct, frozen=True):
    """A condition across fields that must be false.

    Attributes:
        part: the place in the policy, and the first of the check's fields.
    """

    part: str
    spec: CheckSpec

    def judge(self, value: Mapping[str, Any], old: Mapping[str, Any] | None) -> Violation | None:
        """Return the violation at the first field that the request changes, or None if there is none."""
        spec, outcome = self.spec, Outcome[self.spec.enforcement.name]
        changed = [field for field in spec.fields if old is None or not same(field(value), field(old))]
        if not changed:
            return None
        holds, problem = spec.when.search(value)
        if problem:
            return Violation(
                id="check-failed",
                reason=f"can't evaluate a check of {changed[0].text}: {problem}",
                field=problem.partition(" ")[0],
                detail=f"The check is `{on_one_line(spec.when.text)}`.",
                fix="set the field to a value of the type in its schema, or correct the check in the policy",
                outcome=outcome,
                unknown=True,
            )
        if not holds and type(holds) not in _NUMBERS:
            return None
        filling = filling_in([field.answer(value) for field in spec.fields])
        return Violation(
            id="check",
            reason=spec.message(value),
            field=changed[0].text,
            detail=spec.detail(value),
            fix=filling or spec.fix(value),
            outcome=outcome,
            part=self.part,
            unknown=bool(filling),
        )


class ResourceChecks(msgspec.Struct, frozen=True):
    """The fields and checks that a policy declares for one resource."""

    fields: tuple[FieldRule, ...]
    checks: tuple[Check, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the places of the fields and checks in the policy."""
        return (*(field.part for field in self.fields), *(check.part for check in self.checks))

    def judge(self, value: Mapping[str, Any], old: Mapping[str, Any] | None, trace: Trace) -> Iterator[Violation]:
        """Yield the violations of an object in the fields that the request changes."""
        trace.say("evaluating %s fields and %s checks of this kind", len(self.fields), len(self.checks))
        wrong: set[str] = set()
        for field in self.fields:
            for violation in field.judge(value, old):
                wrong.add(violation.field)
                yield violation
        for check in self.checks:
            failure = check.judge(value, old)
            if failure is None:
                continue
            # Report a wrong field once, not for each check that fails on it.
            if failure.unknown and not wrong.isdisjoint({failure.field, *(field.text for field in check.spec.fields)}):
                continue
            wrong.add(failure.field)
            yield failure


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one.casefold()[:_SHOWN], other.casefold()).ratio()


def same(one: object, other: object) -> bool:
    """Return whether both are the same JSON value. In Python, True equals 1."""
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def as_yaml(path: str, value: Any) -> str:
    """Return the value as YAML at its place in a manifest."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return dump(value)

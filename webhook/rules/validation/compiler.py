"""Compile the expressions of one Validation policy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from webhook.cel.errors import ExpressionError
from webhook.cel.reads import shown_path
from webhook.cel.text import Text, bound_name, shown_name
from webhook.policy.errors import SpecError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.base.field_paths import FieldPath
    from webhook.cel.library import Expression, Language
    from webhook.rules.validation.spec import ValidationSpec


_KNOWN: Final = ("object", "oldObject", "request", "namespaceObject", "pools", "params", "variables")
_TYPES: Final = {str: "a string", bool: "a bool", int: "a number", float: "a number", list: "a list"}


class Compiler:
    """A compiler for the expressions of one policy, with its ``params`` and ``variables``.

    Attributes:
        mistakes: the mistakes in the expressions so far.
        names: the variables of the language that the expressions read.
    """

    def __init__(self, spec: ValidationSpec, language: Language) -> None:
        self.mistakes: list[SpecError] = []
        self.names: set[str] = set()
        self._language = language
        self._given = spec.params
        self._params = _literal(spec.params)
        self._variables: dict[str, Text] = {}
        self._broken: set[str] = set()
        self._all = {f"variables.{variable.name}" for variable in spec.variables}
        for number, variable in enumerate(spec.variables):
            name, path = variable.name, ("variables", number)
            if name in self._variables or name in self._broken:
                self.mistakes.append(SpecError((*path, "name"), f"there is another variable {name!r}"))
            elif self.compile(variable.expression, (*path, "expression"), None) is None:
                self._broken.add(name)
            else:
                self._variables[name] = Text(variable.expression)

    def compile(self, expression: str, path: FieldPath, result: type[bool | str] | None) -> Expression | None:
        """Compile one expression. Return None if the expression, or a variable that it reads, has a mistake."""
        try:
            text = Text(expression)
            if self._broken.intersection(text.variables):
                return None
            compiled = self._language.compile(text.text, result, self._bound(text))
            self._check_params(compiled, text.text)
        except ExpressionError as error:
            self.mistakes.append(SpecError(path, self._problem(error)))
        except RecursionError:
            self.mistakes.append(SpecError(path, "the expression is nested too deeply"))
        else:
            self.names |= compiled.reads.names
            return compiled
        return None

    def _bound(self, text: Text) -> dict[str, str]:
        """Return the variables that the expression reads, directly or through other variables, in the policy's order.

        Raise ExpressionError if the expression reads ``params`` and the policy has none.
        """
        read = dict.fromkeys(text.variables)
        words, bound = set(text.words), dict(text.bound)
        for name in reversed(self._variables):
            if name in read:
                read |= self._variables[name].variables
                words |= self._variables[name].words
                bound |= self._variables[name].bound
        if "params" in words and not self._given:
            raise ExpressionError("the policy has no `spec.params`")
        bound |= {bound_name(name): variable.text for name, variable in self._variables.items() if name in read}
        return {"params": self._params, **bound} if "params" in words else bound

    def _check_params(self, expression: Expression, text: str) -> None:
        """Check that the policy has every member of ``params`` that the expression reads.

        Raise ExpressionError for a missing member, unless the expression tests for the member.
        """
        for path in expression.reads.paths:
            value: Any = self._given if path[0] == "params" else None
            for number, step in enumerate(path[1:], start=1):
                if step is None or value is None:
                    break
                parent = shown_path(path[:number])
                if not isinstance(value, dict) and f"type({parent})" in text:
                    break
                if not isinstance(value, dict):
                    raise ExpressionError(f"`{parent}` is {_TYPES[type(value)]}, and has no field `{step}`")
                if step not in value and path[: number + 1] in expression.reads.tested:
                    break
                if step not in value:
                    hint = f"; `{parent}` has {', '.join(value) or 'nothing'}"
                    problem = f"there is no `{shown_path(path[: number + 1])}`"
                    raise ExpressionError(problem, step, known=tuple(value), hint=hint)
                value = value[step]

    def _problem(self, error: ExpressionError) -> str:
        if not error.name:
            return str(error)
        name = shown_name(error.name)
        problem = error.naming(name)
        if name in self._all:
            return f"{problem} yet: a variable can read only the variables before it"
        return problem + (did_you_mean(name, error.known or self._known(name)) or error.hint)

    def _known(self, name: str) -> list[str]:
        """Return the names that a misspelled name may mean."""
        if "." in name:
            return [f"variables.{variable}" for variable in (*self._variables, *self._broken)]
        return [*_KNOWN, *self._language.functions]


def _literal(params: Mapping[str, Any]) -> str:
    """Return the parameters as a CEL literal, of type ``dyn`` as in Kubernetes."""
    return f"dyn({json.dumps(params, ensure_ascii=False, allow_nan=False)})"

"""Compiles the expressions of one `webhook.rules.validation` policy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from webhook.cel import ExpressionError
from webhook.cel.text import Text, bound_name, shown_name
from webhook.policy.errors import SpecError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.cel import Expression, Language
    from webhook.rules.validation_spec import ValidationSpec

_KNOWN: Final = ("object", "oldObject", "request", "namespaceObject", "pools", "params", "variables")


class Compiler:
    """What an expression reads of ``params`` and ``variables`` is bound to it.

    Attributes:
        names: the variables that the expressions name so far.

    Raises:
        SpecError: at the variable that is wrong.
    """

    def __init__(self, spec: ValidationSpec, of: Language) -> None:
        self.language = of
        self.names: set[str] = set()
        self.params = _literal(spec.params)
        self.given = spec.params
        self.variables: dict[str, Text] = {}
        for number, variable in enumerate(spec.variables):
            path = ("variables", number)
            if variable.name in self.variables:
                raise SpecError((*path, "name"), f"there is another variable {variable.name!r}")
            self.compile(variable.expression, (*path, "expression"), None)
            self.variables[variable.name] = Text(variable.expression)

    def compile(self, expression: str, path: tuple[str | int, ...], result: type[bool | str] | None) -> Expression:
        """One expression.

        Raises:
            SpecError: at ``path``.
        """
        try:
            text = Text(expression)
            self._check_params(text)
            compiled = self.language.compile(text.text, result, self._bound(text))
        except ExpressionError as error:
            name = shown_name(error.name)
            problem = str(error).replace(f"`{error.name}`", f"`{name}`") if error.name else str(error)
            hint = did_you_mean(name, self._known(name)) if error.name else ""
            raise SpecError(path, f"{problem}{hint}") from None
        except RecursionError:
            raise SpecError(path, "the expression is nested too deeply") from None
        self.names |= compiled.names
        return compiled

    def _bound(self, text: Text) -> dict[str, str]:
        """What the expression reads, and what that reads, in the order in which it is written."""
        read = dict.fromkeys(text.variables)
        words = set(text.words)
        for name in reversed(self.variables):
            if name in read:
                read |= self.variables[name].variables
                words |= self.variables[name].words
        bound = {bound_name(name): each.text for name, each in self.variables.items() if name in read}
        return {"params": self.params, **bound} if "params" in words else bound

    def _check_params(self, text: Text) -> None:
        for name in text.params:
            if name not in self.given:
                raise ExpressionError(f"there is no `params.{name}`", f"params.{name}")

    def _known(self, name: str) -> list[str]:
        """What may have been meant."""
        if "." in name:
            return [f"variables.{each}" for each in self.variables] + [f"params.{each}" for each in self.given]
        return [*_KNOWN, *self.language.functions]


def _literal(params: Mapping[str, Any]) -> str:
    """The parameters as CEL writes them: JSON is nearly that."""
    try:
        return json.dumps(params, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SpecError(("params",), f"no JSON: {error}") from None

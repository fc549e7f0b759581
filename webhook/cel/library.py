"""Compile and evaluate expressions with cel-expr-python (Google's cel-cpp). No other module imports that library.

Version 0.1.3 has three defects. This module works around them:

- Reading a null result releases a reference to None that the library doesn't own. After a few thousand reads, the
  interpreter aborts. So this module reads only Booleans and strings.
- The library truncates strings at a NUL character. So values that contain one aren't evaluated.
- The library limits only the rounds of all loops together, to 10,000. `webhook.cel.limits` limits the time.
"""

from __future__ import annotations

import re
from itertools import product
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cel_expr_python import cel  # type: ignore[import-untyped]

from webhook.base.caching import identity_cache
from webhook.cel.errors import NOT_KNOWN, EvaluationError, ExpressionError
from webhook.cel.functions import ADDRESS, FUNCTIONS, NETWORK, QUANTITY, URL
from webhook.cel.limits import BUDGET_NS, Budget, Cost
from webhook.cel.mistakes import failed, refused, wrong_type
from webhook.cel.names import NAMES
from webhook.cel.reads import Reads, check
from webhook.cel.sizes import Measured
from webhook.cel.tree import read_tree
from webhook.kube.layouts import member

if TYPE_CHECKING:
    from collections.abc import Mapping


LENGTH_AT_MOST: Final = 10_000
"""The maximum length of an expression, including its bindings, in characters."""
SIZE_AT_MOST: Final = 2 * 1024 * 1024
"""The maximum JSON size of all values together, in bytes. An object of this size takes up to 80 ms to convert."""

_ORDER: Final = ("_<_", "_<=_", "_>_", "_>=_")
_NUMBERS: Final = ("int", "uint", "double")
_ORDERED: Final = (*_NUMBERS, "string", "bool", "bytes", "timestamp", "duration")
"""The comparable types. Numbers of different types are also comparable, but the library's type check rejects it."""

_TYPES: Final = {
    **{name: getattr(cel.Type, name.upper()) for name in (*_ORDERED, "dyn", "list")},
    "map": cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
    "strings": cel.Type.List(cel.Type.STRING),
    "query": cel.Type.Map(cel.Type.STRING, cel.Type.List(cel.Type.STRING)),
    QUANTITY: cel.Type.Map(cel.Type.BOOL, cel.Type.STRING),
    ADDRESS: cel.Type.Map(cel.Type.INT, cel.Type.STRING),
    NETWORK: cel.Type.Map(cel.Type.BOOL, cel.Type.List(cel.Type.STRING)),
    URL: cel.Type.Map(cel.Type.INT, cel.Type.List(cel.Type.STRING)),
}

VARIABLES: Final = {name: _TYPES[kind] for name, kind in NAMES.variables.items()}
_FIELDS: Final = tuple((name, tuple(name.split("."))) for name in VARIABLES)

_NO_IMPLEMENTATION: Final = re.compile(r"reference resolve step for (\S+)")
_MACROS: Final = {"cel.@mapInsert": "transformMap() and transformMapEntry() aren't"}
"""The macros that call functions that the library lacks, by function."""
_KINDS: Final = {bool: "BOOL", str: "STRING"}
_CACHED_STATES: Final = 4
"""The number of cached states of node pools: the latest state, and those of requests in progress."""


@identity_cache(maxsize=_CACHED_STATES)
def _measured_pools(pools: object) -> Measured:
    """Measure node pools. The result is cached, because many objects share the pools."""
    return Measured({"pools": pools})


class Values:
    """The values of variables (the library's activation), their sizes, and the remaining budget.

    The library converts each value once, when the first expression reads it.
    """

    def __init__(self, activation: cel.Activation, values: Mapping[str, Any]) -> None:
        self.activation = activation
        self.shown = Measured({name: value for name, value in values.items() if name != "pools"})
        self.pools = _measured_pools(values.get("pools"))
        self.budget = Budget(BUDGET_NS)
        self.user_unknown = values.get("request.userInfo") is NOT_KNOWN


class Expression:
    """A compiled and type-checked expression.

    Attributes:
        cost: the maximum time of an evaluation.
        reads: the variables and fields that it reads.
    """

    def __init__(self, expression: cel.Expression, kind: str) -> None:
        """Raise ExpressionError if the expression costs too much, or can't work as written."""
        tree = read_tree(expression.serialize())
        self._expression = expression
        self._type = kind
        self.cost = Cost(tree)
        self.reads = Reads(tree)
        check(self.reads)

    def evaluate(self, values: Values) -> bool | str:
        """Return the result, of the type that the expression was compiled for.

        Raise EvaluationError if there is no result. Never treat that error as true.
        """
        shown = values.shown
        if shown.size > SIZE_AT_MOST:
            raise EvaluationError(f"the object is larger than {SIZE_AT_MOST // 1024} KiB")
        if self.reads.user and values.user_unknown:
            raise EvaluationError("request.userInfo is not known", unknown="request.userInfo")
        if not values.budget.spend(self.cost, shown, values.pools):
            raise EvaluationError(f"it takes too long on this object ({shown.size} bytes, {shown.values} values)")
        try:
            result = self._expression.eval(values.activation)
        except Exception as error:  # noqa: BLE001 - the C++ code raises errors of any type
            raise failed(str(error) or type(error).__name__) from None
        kind = result.type().name()
        if kind == "ERROR":
            raise failed(repr(result))
        if kind != self._type:
            raise EvaluationError(f"it returned {kind.lower()}, not {self._type.lower()}")
        value: bool | str = result.value()
        return value


def _declared() -> list[cel.FunctionDecl]:
    overloads: dict[str, list[cel.Overload]] = {}
    for number, function in enumerate(FUNCTIONS):
        overload = cel.Overload(
            f"{function.name}_{number}",
            return_type=_TYPES[function.result],
            parameters=[_TYPES[parameter] for parameter in function.parameters],
            is_member=function.member,
            impl=function.call,
        )
        overloads.setdefault(function.name, []).append(overload)
    for name in _ORDER:
        overloads[name] = [
            cel.Overload(f"{name}_{one}_{other}", return_type=cel.Type.BOOL, parameters=[_TYPES[one], _TYPES[other]])
            for one, other in product(_ORDERED, repeat=2)
            if one == other or {one, other} <= set(_NUMBERS)
        ]
    return [cel.FunctionDecl(name, variants) for name, variants in overloads.items()]


class Language:
    """The expression language with Kubernetes' functions.

    Attributes:
        functions: the names of all functions, to suggest one for a misspelled name.
    """

    functions = (*NAMES.functions, *(function.name for function in FUNCTIONS if function.name[0].islower()))

    def __init__(self) -> None:
        config = cel.NewEnvConfigFromYaml(Path(__file__).with_name("environment.yaml").read_text())
        self._environment = cel.NewEnv(config=config, variables=VARIABLES, functions=_declared())
        self._nothing = self.values(dict.fromkeys(VARIABLES, NOT_KNOWN))
        self._nothing.user_unknown = False  # so that trial evaluations reach the library
        self._nothing.budget = Budget(inf)

    def compile(self, text: str, result: type[bool | str] | None, bound: Mapping[str, str]) -> Expression:
        """Compile an expression.

        If ``result`` is None, the result can have any type. ``bound`` maps names to expressions, which can read the
        names before them; each is evaluated when its name is first read. Raise ExpressionError if it doesn't compile.
        """
        before = "".join(f"cel.bind({name},\n{value}\n,\n" for name, value in bound.items())
        whole = f"{before}{text}\n{')' * len(bound)}"
        if len(whole) > LENGTH_AT_MOST:
            raise ExpressionError(f"it has more than {LENGTH_AT_MOST} characters, including its variables")
        lines_before = 0
        try:
            # The text must also parse without the bindings around it.
            self._environment.compile(text, disable_check=True)
            lines_before = before.count("\n")
            expression = self._environment.compile(whole)
        except RuntimeError as error:
            raise refused(str(error), text, lines_before, self.functions) from None
        wanted = _KINDS[result] if result is not None else ""
        kind = expression.return_type().name()
        if wanted and kind != wanted:
            raise wrong_type(kind, wanted)
        compiled = Expression(expression, wanted)
        try:  # a trial evaluation without values, to find functions that the library doesn't implement
            compiled.evaluate(self._nothing)
        except EvaluationError as error:
            if (match := _NO_IMPLEMENTATION.search(str(error))) is not None:
                problem = _MACROS.get(match[1], f"{match[1]}() isn't")
                raise ExpressionError(f"{problem} supported") from None
        return compiled

    def values(self, values: Mapping[str, Any], like: Values | None = None, part_of: int = 0) -> Values:
        """Return values for expressions, with a time budget for all evaluations that read them.

        Each variable is JSON, `NOT_KNOWN`, or `HAS_NUL`. Values of the same object share the budget of ``like``. Values
        of a part of an object get a budget in proportion to their share of the object's ``part_of`` bytes.
        """
        fields = {name: value for name, path in _FIELDS if (value := member(values, path)) is not None}
        converted = Values(self._environment.Activation({**fields, **values}), values)
        if like is not None:
            converted.budget = like.budget
        elif part_of:
            converted.budget = Budget(BUDGET_NS * min(1, converted.shown.size / part_of))
        return converted

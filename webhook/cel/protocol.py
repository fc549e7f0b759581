"""The Protocols of the expression language, its errors and its special values: all that rules know of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ReadPath = tuple[str | None, ...]
"""A variable and the fields below it; None stands for any item of a list or map."""


class MissingLibraryError(Exception):
    """Report that the optional extra is not installed. ``str()`` says how to install it."""


class ExpressionError(Exception):
    """Report an expression that can't be compiled. ``str()`` says what is wrong and how to fix it.

    Attributes:
        problem: what is wrong.
        name: the unknown name, function or field; empty where something else is wrong.
        known: the names that are possible there; empty: those of all variables and functions.
        hint: how to fix it; it follows the problem if no known name is close.
        offset: of the mistake in the expression, in characters; None if that is not known.
    """

    def __init__(
        self, problem: str, name: str = "", *, known: Sequence[str] = (), hint: str = "", offset: int | None = None
    ) -> None:
        super().__init__(f"{problem}{hint}")
        self.problem = problem
        self.name = name
        self.known = known
        self.hint = hint
        self.offset = offset


class EvaluationError(Exception):
    """Report an expression without a result. ``str()`` is the reason alone, as "no such key: x".

    Attributes:
        unknown: the variable whose value is not known, if that is the reason.
        hint: how to fix it; may be empty.
    """

    def __init__(self, problem: str, unknown: str = "", *, hint: str = "") -> None:
        super().__init__(problem)
        self.unknown = unknown
        self.hint = hint


class Values(Protocol):
    """Hold the values of variables. Each is converted once, when the first expression reads it."""


class Expression(Protocol):
    """Describe a compiled and type-checked expression.

    Attributes:
        names: the variables that it reads, such as ``pools`` or ``request.userInfo``.
        paths: the fields of variables and bound names that it reads, and how each is written:
            ``("object", "spec", "containers", None, "name")`` (None: an item) is ``c.name``.
        tested: those of the paths that it tests, as ``has(c.name)``, so that they may be absent.
    """

    names: frozenset[str]
    paths: Mapping[ReadPath, str]
    tested: frozenset[ReadPath]

    def evaluate(self, values: Values) -> bool | str:
        """Return the result, of the type that the expression was compiled for.

        Raise EvaluationError if it has no result. Never read that as true.
        """


class Language(Protocol):
    """Hold the language with Kubernetes' functions.

    Attributes:
        functions: the names of all functions, for suggestions where one is misspelt.
    """

    functions: tuple[str, ...]

    def compile(self, text: str, result: type[bool | str] | None, bound: Mapping[str, str]) -> Expression:
        """Compile an expression.

        ``result`` None admits any type. ``bound`` maps further names to expressions, which may name those before them;
        each is evaluated where the name is first read. Raise ExpressionError if it can't be compiled.
        """

    def values(self, values: Mapping[str, Any], like: Values | None = None, part_of: int = 0) -> Values:
        """Return values for expressions, with a budget of time for all evaluations over them.

        Each variable has JSON, `NOT_KNOWN` or `HAS_NUL`. The budget is shared with ``like``, other values of the same
        object; values of a part of an object get its share of the ``part_of`` bytes.
        """


class NotKnown:
    """Stand for a value that is not known. An expression that depends on it has no result."""


class HasNul:
    """Stand for a value with a NUL character in a string, which the library would cut there."""


NOT_KNOWN: Final = NotKnown()
HAS_NUL: Final = HasNul()

"""Define the errors of the expression language, and its special values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ReadPath = tuple[str | None, ...]
"""A variable and the fields below it; None stands for any item of a list or map."""


class ExpressionError(Exception):
    """The error for an expression that can't be compiled. ``str()`` says what is wrong and how to fix it.

    Attributes:
        problem: what is wrong.
        name: the unknown name, function or field; empty where something else is wrong.
        known: the names that are possible there; empty: those of all variables and functions.
        hint: how to fix it; it follows the problem if no known name is close.
    """

    def __init__(self, problem: str, name: str = "", *, known: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(f"{problem}{hint}")
        self.problem = problem
        self.name = name
        self.known = known
        self.hint = hint


class EvaluationError(Exception):
    """The error for an expression without a result. ``str()`` is the reason alone, as "no such key: x".

    Attributes:
        unknown: the variable whose value is not known, if that is the reason.
        hint: how to fix it; may be empty.
    """

    def __init__(self, problem: str, unknown: str = "", *, hint: str = "") -> None:
        super().__init__(problem)
        self.unknown = unknown
        self.hint = hint


class NotKnown:
    """The type of an unknown value. An expression that depends on it has no result."""


class HasNul:
    """The type of a value with a NUL character in a string, which the library would cut there."""


NOT_KNOWN: Final = NotKnown()
HAS_NUL: Final = HasNul()

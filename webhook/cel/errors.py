"""Define the errors of the expression language, and its special values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ReadPath = tuple[str | None, ...]
"""A variable and the fields below it. None is any item of a list or map."""


class ExpressionError(Exception):
    """The error for an expression that doesn't compile. ``str()`` returns the problem and its fix.

    Attributes:
        problem: the problem, without its fix.
        name: the unknown name, function, or field; empty for other problems.
        known: the valid names there; if empty, the names of all variables and functions.
        hint: the fix, which follows the problem if no known name is similar.
    """

    def __init__(self, problem: str, name: str = "", *, known: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(f"{problem}{hint}")
        self.problem = problem
        self.name = name
        self.known = known
        self.hint = hint

    def naming(self, name: str) -> str:
        """Return the problem with another name in place of the unknown one."""
        return self.problem.replace(f"`{self.name}`", f"`{name}`")


class EvaluationError(Exception):
    """The error for an expression without a result. ``str()`` returns only the reason, such as "no such key: x".

    Attributes:
        unknown: the variable whose value is unknown, if that is the reason.
        hint: the fix; may be empty.
    """

    def __init__(self, problem: str, unknown: str = "", *, hint: str = "") -> None:
        super().__init__(problem)
        self.unknown = unknown
        self.hint = hint


class NotKnown:
    """The type of an unknown value. An expression that depends on it has no result."""


class HasNul:
    """The type of a value with a NUL character, where the library would truncate the string."""


NOT_KNOWN: Final = NotKnown()
HAS_NUL: Final = HasNul()

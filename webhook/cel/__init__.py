"""Kubernetes' expression language (CEL), behind a Protocol: what a rule may know of the library that evaluates it.

The library is an optional extra, ``pip install spotgate[cel]``, and is imported when the first expression is compiled.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Path = tuple[str | None, ...]
"""Fields, and None for an item of a list."""


class MissingLibraryError(Exception):
    """The optional extra is not installed. ``str()`` says how to install it."""


class ExpressionError(Exception):
    """An expression that can't be used. ``str()`` says what is wrong, and what would be right.

    Attributes:
        problem: what is wrong.
        name: the name, function or field that nobody knows; empty where something else is wrong.
        known: what may have been meant instead; empty: whatever may be named there.
        hint: what would be right, to follow the problem where no name is close.
        offset: where that is in the expression, in characters; None: nobody knows.
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
    """An expression that came to no result. ``str()`` says why, without saying that it failed.

    Attributes:
        unknown: the variable that could not be known, where that is why.
        hint: what would be right; may be empty.
    """

    def __init__(self, problem: str, unknown: str = "", *, hint: str = "") -> None:
        super().__init__(problem)
        self.unknown = unknown
        self.hint = hint


class Values(Protocol):
    """What expressions are evaluated over. Each value is converted once, when the first expression reads it."""


class Expression(Protocol):
    """A compiled and type-checked expression.

    Attributes:
        names: the variables that it names, ``pools`` or ``request.userInfo``.
        paths: what it reads of variables and bound names, as far as its text says, and how that is written:
            ``("object", "spec", "containers", None, "name")`` (None: an item) is ``c.name``.
        asked: those of them that it asks about first, as ``has(c.name)``, and may be absent.
    """

    names: frozenset[str]
    paths: Mapping[Path, str]
    asked: frozenset[Path]

    def evaluate(self, values: Values) -> bool | str:
        """Its result; of the type that it was compiled for.

        Raises:
            EvaluationError: it has none. Never read that as true.
        """


class Language(Protocol):
    """The language with Kubernetes' functions.

    Attributes:
        functions: what may be called, to suggest where a name is misspelt.
    """

    functions: tuple[str, ...]

    def compile(self, text: str, result: type[bool | str] | None, bound: Mapping[str, str]) -> Expression:
        """Compile an expression.

        Args:
            text: the expression.
            result: what it must be; None: anything.
            bound: further names, and the expression that each stands for, which may name those before it. One is
                evaluated where it is first read.

        Raises:
            ExpressionError: it can't be used.
        """

    def values(self, values: Mapping[str, Any], like: Values | None = None, part_of: int = 0) -> Values:
        """Values for expressions, and a budget of time for all of them.

        Args:
            values: of every variable that there is: JSON, `NOT_KNOWN` or `HAS_NUL`.
            like: others about the same object, with the same budget.
            part_of: bytes of the object that they are a part of: they have that part of its budget.
        """


class NotKnown:
    """What stands for a value that nobody knows: an expression that depends on it has no result."""


class HasNul:
    """What stands for a value with a NUL character in a string: the library would read the string up to there."""


NOT_KNOWN: Final = NotKnown()
HAS_NUL: Final = HasNul()


@cache
def language() -> Language:
    """The language.

    Raises:
        MissingLibraryError: its library is not installed.
    """
    try:
        from webhook.cel.library import CelCpp  # noqa: PLC0415 - 50 ms, and optional
    except ImportError as error:
        raise MissingLibraryError(f"needs an optional library ({error.name}): pip install 'spotgate[cel]'") from None
    return CelCpp()

"""What is left of the budget of an object, and what the functions in Python take of it, counted as they are called."""

from __future__ import annotations

from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

TOO_LONG: Final = "takes too long on this object"
_NS_OF_A_CALL: Final = 15_000
_NS_OF_A_CHARACTER: Final = 5
"""In the terms of `webhook.cel.cost`: what takes longest."""


class Budget:
    """What expressions may take together.

    Attributes:
        left: nanoseconds.
    """

    __slots__ = ("left",)

    def __init__(self, nanoseconds: float) -> None:
        self.left = nanoseconds

    def spend(self, nanoseconds: float) -> bool:
        """Take it, if there is as much."""
        if nanoseconds > self.left:
            return False
        self.left -= nanoseconds
        return True


UNDER_WAY: Final[ContextVar[Budget]] = ContextVar("UNDER_WAY")
"""The budget of the evaluation under way."""


def spend(text: str = "") -> None:
    """Count a call, or a search, over a text.

    Raises:
        ValueError: the budget of the object is spent.
    """
    if not UNDER_WAY.get().spend(_NS_OF_A_CALL + len(text) * _NS_OF_A_CHARACTER):
        raise ValueError(TOO_LONG)


def metered(call: Callable[..., Any]) -> Callable[..., Any]:
    """The function, counted."""

    @wraps(call)
    def counted(*args: Any) -> Any:  # noqa: ANN401 - values of expressions
        spend(args[0] if isinstance(args[0], str) else "")
        return call(*args)

    return counted

"""What the functions in Python take, counted while they are called: a call takes longer than a round of the library."""

from __future__ import annotations

from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

TOO_LONG: Final = "takes too long on this object"
_NS_OF_A_CALL: Final = 80_000
_NS_OF_A_CHARACTER: Final = 10
"""In the terms of `webhook.cel.cost`: four times what was measured."""


LEFT: Final[ContextVar[float]] = ContextVar("LEFT", default=float("inf"))
"""What is left for the evaluation under way, in nanoseconds."""


def spend(text: str = "") -> None:
    """Count a call, or a search, over a text.

    Raises:
        ValueError: the budget of the object is spent.
    """
    left = LEFT.get() - _NS_OF_A_CALL - len(text) * _NS_OF_A_CHARACTER
    LEFT.set(left)
    if left < 0:
        raise ValueError(TOO_LONG)


def metered(call: Callable[..., Any]) -> Callable[..., Any]:
    """The function, counted."""

    @wraps(call)
    def counted(*args: Any) -> Any:  # noqa: ANN401 - values of expressions
        spend(args[0] if isinstance(args[0], str) else "")
        return call(*args)

    return counted

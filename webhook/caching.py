"""Results that are remembered for the very objects they were made of, which need not have a hash."""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")
_Given = TypeVarTuple("_Given")


class _Same:
    """Equal to nothing but the same object, which it keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:  # noqa: ANN401 - it is only compared
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def identity_cache(*, maxsize: int) -> Callable[[Callable[[*_Given], _Result]], Callable[[*_Given], _Result]]:
    """As `functools.lru_cache`, by the identity of the arguments: nothing may change them afterwards."""

    def decorate(function: Callable[[*_Given], _Result]) -> Callable[[*_Given], _Result]:
        @lru_cache(maxsize)
        def of(*same: _Same) -> _Result:
            given: Any = [each.value for each in same]
            return function(*given)

        @wraps(function)
        def cached(*given: *_Given) -> _Result:
            return of(*map(_Same, given))

        return cached

    return decorate

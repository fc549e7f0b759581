"""Cache results by the identity of the arguments, which need no hash."""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")
_Given = TypeVarTuple("_Given")


class _Same:
    """A cache key that equals only itself for the same object, and keeps that object alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:  # noqa: ANN401 - it is only compared
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def identity_cache(*, maxsize: int) -> Callable[[Callable[[*_Given], _Result]], Callable[[*_Given], _Result]]:
    """Cache results as `functools.lru_cache` does, by the identity of the arguments, which must never change."""

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

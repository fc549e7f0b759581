"""Cache results by the identity of the arguments, which don't have to be hashable."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")
_Given = TypeVarTuple("_Given")


def identity_cache(*, maxsize: int) -> Callable[[Callable[[*_Given], _Result]], Callable[[*_Given], _Result]]:
    """Cache the newest results by the identity of the arguments, which must be immutable."""

    def decorate(function: Callable[[*_Given], _Result]) -> Callable[[*_Given], _Result]:
        results: dict[tuple[int, ...], tuple[tuple[*_Given], _Result]] = {}
        """The results and their arguments. The reference keeps an argument alive, because Python reuses ids."""

        @wraps(function)
        def cached(*given: *_Given) -> _Result:
            key = tuple(map(id, given))
            if key not in results:
                result = function(*given)
                if len(results) >= maxsize:
                    results.pop(next(iter(results)), None)
                results[key] = given, result
            return results[key][1]

        return cached

    return decorate

"""How long a pool's Pods have to stop, where the pool itself says: kubelet settings, Karpenter's own limit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.query import Query

_PART: Final = re.compile(r"([0-9]{1,7})([hms])")
_DURATION: Final = re.compile(f"({_PART.pattern})+")
"""A duration as Kubernetes writes it: ``1h30m``, ``90s``."""

_UNITS: Final = {"h": 3600, "m": 60, "s": 1}

_MOST: Final = 10**7


class PoolGrace(msgspec.Struct, frozen=True):
    """The time to stop, and what of it to keep free; in seconds."""

    seconds: int
    margin: int

    @property
    def left(self) -> int:
        """The longest grace period that fits."""
        return self.seconds - self.margin


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Another time to stop than the provider's.

    Attributes:
        when: where it holds; None: wherever it says something.
        seconds: the time; None: the pool says it.
        total: where the pool says it.
        reserved: what of that is not an ordinary Pod's.
        margin: to keep free of the rest.
    """

    when: Query | None
    seconds: int | None
    total: Query | None
    reserved: Query | None
    margin: int


class Grace(msgspec.Struct, frozen=True, kw_only=True):
    """Where pools of one kind say how long their Pods have.

    Attributes:
        usual: of the provider.
        windows: instead of that; the first that holds.
        limit: the most that the pool lets a Pod have, whatever the provider does; no margin is kept of it.
    """

    usual: PoolGrace
    windows: tuple[Window, ...] = ()
    limit: Query | None = None

    def of(self, value: Mapping[str, Any], problems: list[str]) -> PoolGrace | None:
        """What a pool says; None: nothing of its own. What can't be, or be read, is added to the problems."""
        own = next((found for window in self.windows if (found := _window(window, value, problems))), None)
        limit = _seconds(self.limit, value, problems)
        if limit is not None and limit < (own or self.usual).left:
            return PoolGrace(limit, 0)
        return own


def _window(window: Window, value: Mapping[str, Any], problems: list[str]) -> PoolGrace | None:
    if window.when is not None and not window.when(value):
        return None
    if window.seconds is not None:
        return PoolGrace(window.seconds, window.margin)
    total = _seconds(window.total, value, problems)
    if total is None:
        return None
    reserved = _seconds(window.reserved, value, problems) or 0
    if window.total is not None and total <= reserved:
        of = f", of which {window.reserved.field} takes {reserved} s" if window.reserved is not None else ""
        problems.append(f"{window.total.field} is {total} s{of}: no time to stop is left")
        return None
    return PoolGrace(total - reserved, window.margin)


def _seconds(query: Query | None, value: Mapping[str, Any], problems: list[str]) -> int | None:
    found = query(value) if query is not None else None
    if query is None or found is None:
        return None
    if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= _MOST:
        return found
    if isinstance(found, str) and _DURATION.fullmatch(found):
        return sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(found))
    problems.append(f"{query.field} is neither a number of seconds nor a duration such as 90s")
    return None

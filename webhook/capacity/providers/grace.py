"""Read how long a pool's Pods have to stop: from kubelet settings, or Karpenter's own limit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.query import Query

_PART: Final = re.compile(r"([0-9]{1,7})([hms])")
_DURATION: Final = re.compile(f"({_PART.pattern}){{1,3}}")
"""A duration as Kubernetes writes it: ``1h30m``, ``90s``; it has no more than three parts."""

_UNITS: Final = {"h": 3600, "m": 60, "s": 1}

_MOST: Final = 10**7


class PoolGrace(msgspec.Struct, frozen=True):
    """Hold the time to stop, and the safety margin to keep free of it, in seconds."""

    seconds: int
    margin: int

    @property
    def left(self) -> int:
        """Return the longest grace period that fits."""
        return self.seconds - self.margin


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Say where a pool gives another time to stop than its provider.

    Attributes:
        when: the condition for it; None for any pool that says a time.
        seconds: the time; None if the pool says it.
        total: the field in which the pool says it.
        reserved: the part of it that is not for ordinary Pods.
        margin: the safety margin to keep free of the rest.
    """

    when: Query | None
    seconds: int | None
    total: Query | None
    reserved: Query | None
    margin: int


class Grace(msgspec.Struct, frozen=True, kw_only=True):
    """Say where pools of one kind give the time their Pods have to stop.

    Attributes:
        usual: the provider's time to stop.
        windows: other times instead of that; the first that holds counts.
        limit: the most that the pool gives a Pod, whatever the provider does; no margin is kept of it.
    """

    usual: PoolGrace
    windows: tuple[Window, ...] = ()
    limit: Query | None = None

    def of(self, value: Mapping[str, Any], problems: list[str]) -> PoolGrace | None:
        """Return the time to stop that a pool sets, or None. Unreadable values are added to ``problems``."""
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

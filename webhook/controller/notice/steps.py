"""Decide the next step for one Pod: a pure function of the Pod, the notice of its Node, and the time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from webhook.capacity.providers.signals import Notice
    from webhook.controller.notice.objects import NotifiedNode, NotifiedPod

_JITTER: Final = timedelta(seconds=5)
"""Two replicas read the same signal at different moments, and so estimate different times."""
_LEAST_MARGIN: Final = 5
"""Seconds that the request for an Eviction can take. Its grace period begins when the API server handles it."""


class Clear(msgspec.Struct, frozen=True):
    """Remove the annotation: the Node has no notice."""


class Inform(msgspec.Struct, frozen=True):
    """Write the annotation."""

    removal: datetime


class Evict(msgspec.Struct, frozen=True):
    """Evict the Pod with this grace period, in seconds."""

    grace: int


NoticeStep: TypeAlias = Clear | Inform | Evict


def next_step(pod: NotifiedPod, notice: Notice | None, now: datetime, *, refused: bool) -> NoticeStep | None:
    """Return the next step for a Pod, or None. ``refused``: an Eviction of the Pod was refused before.

    A terminating Pod is left alone: another Eviction doesn't change when its containers stop.
    """
    if not pod.alive:
        return None
    if notice is None:
        return Clear() if pod.annotated else None
    jitter = _JITTER if notice.estimated else timedelta(0)
    if pod.told is None or pod.told > notice.removal + jitter:
        return Inform(notice.removal)
    grace = granted_seconds((notice.removal - now).total_seconds(), notice.margin, pod.grace)
    may_return = pod.created >= notice.since  # times of objects are whole seconds
    if pod.evict and not may_return and grace is not None and (now < notice.drain or not refused):
        return Evict(grace)
    return None


def granted_seconds(left: float, margin: int, own: float) -> int | None:
    """Return the grace period of an Eviction, in seconds, or None if the Pod has as much without it.

    ``left`` and ``margin`` are the seconds until the removal, and those before it by which the Pod must have stopped.
    """
    grace = int(left) - max(margin, _LEAST_MARGIN)
    return grace if grace > own else None


def lasting(before: NotifiedNode, after: NotifiedNode) -> NotifiedNode:
    """Return the newer Node, or the older one unless a second look at the same signal leaves less time."""
    same = (before.uid, before.notice.signal) == (after.uid, after.notice.signal)
    return before if same and before.notice.removal <= after.notice.removal else after

"""The clock of a reclaim: a schedule of actions by second after the notice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from enum import IntEnum
from typing import TypeAlias

Action: TypeAlias = Callable[[], Awaitable[None]]


class Rank(IntEnum):
    """The order of actions in the same second."""

    CORDON = 1
    DRAIN = 2
    READY = 3
    STOP = 4
    EVICT = 5
    GROW = 6
    KILL = 7
    REMOVE = 8
    RECREATE = 9


class Clock:
    """A schedule of actions.

    Attributes:
        now: the current second after the notice.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._due: defaultdict[tuple[float, Rank], list[Action]] = defaultdict(list)

    def at(self, seconds: float, rank: Rank, action: Action) -> None:
        """Schedule an action."""
        self._due[seconds, rank].append(action)

    @property
    def next(self) -> float | None:
        """Return the second of the next action, or None if there is none."""
        return min(self._due)[0] if self._due else None

    def due(self) -> Iterator[tuple[Rank, list[Action]]]:
        """Yield the actions of the current second by rank, including those scheduled in the meantime."""
        while self.next == self.now:
            first = min(self._due)
            yield first[1], self._due.pop(first)

"""The time axis of an SVG drawing, and the events of a node on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.reclaim.timeline import clock, ticks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHARACTER: Final = 7.8
"""The average width in pixels of a character in a wide font, for measuring texts."""


class Mark(NamedTuple):
    """The events of a node at one coordinate. The label is empty if there is no room for it."""

    x: float
    label: str
    anchor: str


class TimeAxis(NamedTuple):
    """A time axis from the notice up to ``end`` seconds after it, between two x coordinates."""

    left: int
    right: int
    end: int

    def x(self, seconds: float) -> float:
        """Return the x coordinate of a moment, at most the right end."""
        return round(self.left + (self.right - self.left) * min(seconds, self.end) / self.end, 1)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Return the coordinates and texts of round times."""
        return [(self.x(tick), clock(tick)) for tick in ticks(self.end)]

    def marks(self, moments: Iterable[tuple[float, str]]) -> list[Mark]:
        """Return the events of a node in order. Those at the same coordinate share a label."""
        at: dict[float, list[str]] = {}
        for seconds, name in moments:
            at.setdefault(self.x(seconds), []).append(name)
        return list(self._placed({x: ", ".join(at[x]) for x in sorted(at)}))

    def _placed(self, labels: dict[float, str]) -> Iterator[Mark]:
        end, free = max(labels), 0.0
        for x, label in labels.items():
            width = CHARACTER * len(label)
            ends = x == end > self.left + width
            begin = x - 6 - width if ends else x + 6
            yield Mark(x, label if begin >= free else "", "end" if ends else "start")
            free = begin + width if begin >= free else free

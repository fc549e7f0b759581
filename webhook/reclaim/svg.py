"""Draw timelines as SVG without scripts, fonts, or references, for light and dark mode: ``explain -o svg``.

Rehearsals draw on the same time axis.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.pages import drawing
from webhook.reclaim.timeline import AS_WRITTEN, SPANS, ReclaimTimeline, Span, clock, ticks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from markupsafe import Markup


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


def draw(drawn: Sequence[tuple[str, ReclaimTimeline]], *, whole: bool) -> Markup:
    """Return titled drawings, stacked vertically: a file if ``whole``, or else a part of a page."""
    *tops, height = accumulate((_height(timeline) for _, timeline in drawn), initial=0)
    return drawing(
        "timeline.svg",
        whole=whole,
        drawn=[(title, timeline, top) for (title, timeline), top in zip(drawn, tops, strict=True)],
        height=height,
        below_lanes=_below_lanes,
        label_of=_label,
        legend_of=lambda timeline: [(name, SPANS[name].about) for name in timeline.used],
        clock=clock,
        TimeAxis=TimeAxis,
        CHARACTER=CHARACTER,
        SPANS=SPANS,
        AS_WRITTEN=AS_WRITTEN,
    )


def _height(timeline: ReclaimTimeline) -> int:
    """Return the height of a drawing in pixels."""
    return _below_lanes(timeline) + 22 * (len(timeline.events) + 3 + bool(timeline.gone))


def _below_lanes(timeline: ReclaimTimeline) -> int:
    return 118 + 34 * len(timeline.lanes)


def _label(span: Span, axis: TimeAxis) -> str:
    """Return the longest label that fits into a span, or an empty string."""
    labels = [f"{SPANS[span.name].label} {span.seconds} s", f"{span.seconds} s"]
    if span.end > axis.end:
        labels.insert(0, f"{labels[0]}, up to {clock(span.end)}")
    room = (axis.x(span.end) - axis.x(span.begin)) / CHARACTER
    return next((label for label in labels if len(label) < room), "")

"""Draw timelines as SVG without scripts, fonts, or references, for light and dark mode: ``explain -o svg``."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from webhook.pages import drawing
from webhook.reclaim.axis import CHARACTER, TimeAxis
from webhook.reclaim.timeline import AS_WRITTEN, SPANS, ReclaimTimeline, Span, clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup


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

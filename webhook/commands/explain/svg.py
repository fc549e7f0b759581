"""Show the timelines of reclaims as one SVG file: ``explain -o svg``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.reclaim.svg import draw
from webhook.reclaim.timeline import ReclaimTimeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.report.explanation import Explanation


def show(explained: Iterable[Explanation]) -> None:
    """Print the drawing."""
    print(draw([drawn for explanation in explained for drawn in titled(explanation)], whole=True))


def titled(explained: Explanation) -> Iterator[tuple[str, ReclaimTimeline]]:
    """Yield the timelines of an object, each with a title."""
    for timeline in explained.timelines:
        if isinstance(timeline, ReclaimTimeline):
            where = f", {timeline.where}" if timeline.where else ""
            yield f"{explained.title}{where}, on {timeline.provider}", timeline

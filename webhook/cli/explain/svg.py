"""``explain -o svg``: the timelines in one picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.cli.explain import timeline_svg
from webhook.cli.explain.timeline import ReclaimTimeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.cli.explain.explanation import Explanation


def show(explained: Iterable[Explanation]) -> None:
    """Print the picture."""
    print(timeline_svg.render([drawn for each in explained for drawn in titled(each)]))


def titled(explained: Explanation) -> Iterator[tuple[str, ReclaimTimeline]]:
    """Yield the timelines of an object, each with a title."""
    for timeline in explained.timelines:
        if isinstance(timeline, ReclaimTimeline):
            where = f", {timeline.where}" if timeline.where else ""
            yield f"{explained.title}{where}, on {timeline.provider}", timeline

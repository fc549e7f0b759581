"""Draw timelines as SVG without scripts, fonts, or references, for light and dark mode: ``explain -o svg``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.pages.drawing import CHARACTER, STYLE, WIDTH, bar, legend, safe, text
from webhook.reclaim.axis import TimeAxis
from webhook.reclaim.timeline import AS_WRITTEN, SPANS, Event, Lane, ReclaimTimeline, Span, clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_LEFT: Final = 150
"""The left end of the time axis."""
_RIGHT: Final = WIDTH - 24
_ROW: Final = 34
_LINE: Final = 22
_BAR: Final = 22


def render(drawn: Sequence[tuple[str, ReclaimTimeline]]) -> str:
    """Return one SVG file with all drawings, stacked vertically."""
    y, parts = 0, []
    for title, timeline in drawn:
        height = height_of(timeline)
        parts.append(f'<g transform="translate(0 {y})">\n{"".join(_drawing(title, timeline))}</g>\n')
        y += height
    titles = "; ".join(f"{title}: it {timeline.verdict}" for title, timeline in drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="spotgate" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" '
        f'height="{y}" role="img">\n<title>{safe(titles)}</title>\n<style>\n{STYLE}</style>\n'
        f'<rect class="bg" width="{WIDTH}" height="{y}"/>\n{"".join(parts)}</svg>'
    )


def element(title: str, timeline: ReclaimTimeline) -> str:
    """Return one drawing for a page that includes ``drawing.css``."""
    height = height_of(timeline)
    return (
        f'<svg class="spotgate" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">\n'
        f"<title>{safe(f'{title}: it {timeline.verdict}')}</title>\n{''.join(_drawing(title, timeline))}</svg>"
    )


def height_of(timeline: ReclaimTimeline) -> int:
    """Return the height of a drawing in pixels."""
    return _below(timeline) + _LINE * (len(timeline.events) + 3 + bool(timeline.gone))


def _below(timeline: ReclaimTimeline) -> int:
    """Return the y coordinate below the lanes."""
    return 118 + _ROW * len(timeline.lanes)


def _drawing(title: str, timeline: ReclaimTimeline) -> Iterator[str]:
    below = _below(timeline)
    axis = TimeAxis(_LEFT, _RIGHT, timeline.end)
    yield text(16, 28, title, "title", most=76)
    yield text(16, 48, f"{timeline.because}.", "faint", most=112)
    yield from axis.grid(76, below - 8)
    yield text(16, 100, "node", "strong")
    yield from axis.node(timeline.moments, 96, below - 8)
    for number, lane in enumerate(timeline.lanes):
        yield from _lane(lane, 118 + _ROW * number, axis)
    y = below + 18
    yield from legend(((name, SPANS[name].about) for name in timeline.used), y)
    for event in timeline.events:
        y += _LINE
        yield from _event(event, y, timeline)
    y += _LINE + 4
    yield bar(timeline.outcome, 16, y - 11, 5, 14)
    yield text(28, y, f"It {timeline.verdict}.", "strong", most=112)
    if timeline.gone:
        y += _LINE
        yield text(28, y, f"Gone with the node, whatever the Pod does: volume {', '.join(timeline.gone)}", most=112)


def _lane(lane: Lane, y: int, axis: TimeAxis) -> Iterator[str]:
    before = " before" if lane.name == AS_WRITTEN else ""
    yield text(16, y + 15, lane.name, "faint" if before else "strong", most=15)
    for span in lane.spans:
        if span.begin < axis.end:
            yield from _span(span, y, axis, before)


def _span(span: Span, y: int, axis: TimeAxis, before: str) -> Iterator[str]:
    begin, end = axis.x(span.begin), axis.x(span.end)
    about = f"{SPANS[span.name].about}: {span.seconds} s, from {clock(span.begin)} to {clock(span.end)}"
    yield bar(f"{span.name}{before}", begin, y, max(end - begin, 2), _BAR, about)
    room = (end - begin) / CHARACTER
    name = SPANS[span.name].label
    labels = [f"{name} {span.seconds} s", f"{span.seconds} s"]
    if span.end > axis.end:  # a gap in the bar marks a span that exceeds the axis
        gap = f"{end - 14},{y} {end - 10},{y} {end - 16},{y + _BAR} {end - 20},{y + _BAR}"
        yield f'<polygon class="bg cut" points="{gap}"/>\n'
        labels.insert(0, f"{labels[0]}, up to {clock(span.end)}")
    label = next((label for label in labels if len(label) < room), "")
    if label and span.name != "running":
        yield text((begin + end) / 2, y + 15, label, "" if before else "on", anchor="middle")


def _event(event: Event, y: int, timeline: ReclaimTimeline) -> Iterator[str]:
    late = " lost" if event.name == "SIGKILL" and not timeline.fits else ""
    yield text(58, y, clock(event.seconds), "faint", anchor="end")
    yield text(72, y, event.name, f"strong{late}")
    yield text(_LEFT, y, event.text, late.strip(), most=54)
    if event.source:
        yield text(_RIGHT, y, event.source, "faint", anchor="end", most=46)

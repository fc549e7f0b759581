"""Timelines drawn with characters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.cli.explain.timeline import AS_WRITTEN, SPANS, ReclaimTimeline, clock, ticks
from webhook.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.cli.explain.timeline import Lane, SpanName
    from webhook.cli.terminal import Line

_WIDTH: Final = 60
"""Characters of the time axis: with the names before it, it fits 80 columns."""
_NAME: Final = 14
"""Characters of a lane's name, with the space after it."""

_GLYPHS: Final[dict[SpanName, tuple[str, str]]] = {
    "running": ("─", "dim"),
    "preStop": ("▒", "yellow"),
    "hook": ("▓", "yellow"),
    "shutdown": ("█", "cyan"),
    "margin": ("·", "green"),
    "lost": ("X", "bold red"),
}


_GOES_ON: Final = "»"
"""The mark after a lane that is not drawn to its end; the time of the end follows."""


def lines(timeline: ReclaimTimeline) -> Iterator[Line]:
    """Yield the drawing: an axis, the node, each lane, the legend, the events and how it ends."""
    scale = _WIDTH / timeline.end
    yield [(" " * _NAME + _axis(timeline.end, scale), "dim")]
    yield from _node(timeline, scale)
    for lane in timeline.lanes:
        yield _lane(lane, scale, timeline.end)
    yield []
    used = {span.name for lane in timeline.lanes for span in lane.spans}
    yield _legend(
        [name for name in SPANS if name in used], cut=any(lane.spans[-1].end > timeline.end for lane in timeline.lanes)
    )
    yield []
    width = max(len(event.text) for event in timeline.events)
    for event in timeline.events:
        style = "bold red" if event.name == "SIGKILL" and not timeline.fits else ""
        yield [
            (f"{clock(event.seconds):>6}  ", "bold"),
            (f"{event.name:<8}  ", style),
            (f"{printable(event.text):<{width}}  ", style),
            (event.source, "dim"),
        ]
    yield []
    yield [("  it ", ""), (timeline.verdict, _style(timeline))]
    if timeline.gone:
        names = ", ".join(timeline.gone)
        yield [(f"  gone with the node, whatever the Pod does: volume {printable(names)}", "yellow")]


def _style(timeline: ReclaimTimeline) -> str:
    if timeline.loses:
        return "bold red"
    return "green" if timeline.margin >= timeline.wanted else "yellow"


def _axis(end: int, scale: float) -> str:
    axis = ""
    for tick in ticks(end):
        axis = f"{axis:<{round(tick * scale)}}{clock(tick)} "
    return axis.rstrip()


def _node(timeline: ReclaimTimeline, scale: float) -> Iterator[Line]:
    """Draw the events of the node; those that are too close together move on."""
    moments = [(timeline.cordon, "cordon"), (timeline.drain, "drain"), (timeline.removal, "removal")]
    if timeline.window < timeline.removal:
        moments.insert(2, (timeline.window, "time up"))
    line = ""
    for seconds, name in moments:
        column = round(seconds * scale)
        mark = f"┤{name}" if name == "removal" else f"├{name}"
        if name == "removal":
            mark, column = f"{name}┤", max(column - len(name), 0)
        line = f"{line:<{column}}{mark}" if len(line) <= column else f"{line}{mark}"
    yield [(f"{'  node':<{_NAME}}", ""), (line, "dim")]


def _lane(lane: Lane, scale: float, end: int) -> Line:
    """Draw the spans of a lane, each of at least one character: a sleep of 5 s in seven minutes shows too."""
    name = printable(lane.name)
    room = _NAME - 3
    name = name if len(name) <= room else f"{name[: room - 1]}…"
    faint = "dim " if lane.name == AS_WRITTEN else ""
    line: Line = [(f"  {name:<{room}} ", faint.strip())]
    column = 0
    for span in lane.spans:
        glyph, style = _GLYPHS[span.name]
        until = max(round(min(span.end, end) * scale), column + 1)
        line.append((glyph * (until - column), f"{faint}{style}"))
        column = until
    if lane.spans[-1].end > end:
        line.append((f"{_GOES_ON} {clock(lane.spans[-1].end)}", f"{faint}bold".strip()))
    return line


def _legend(names: list[SpanName], *, cut: bool) -> Line:
    line: Line = [("  ", "")]
    for name in names:
        glyph, style = _GLYPHS[name]
        line += [(glyph * 2, style), (f" {SPANS[name]}   ", "dim")]
    if cut:
        line += [(_GOES_ON, "bold"), (" goes on until   ", "dim")]
    return line

"""Show explanations as text, with timelines drawn in characters: ``explain -o text``."""

from __future__ import annotations

import textwrap
from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.base import terminal
from webhook.base.text import printable
from webhook.model.decision import Finding, Outcome
from webhook.reclaim.timeline import AS_WRITTEN, SPANS, Lane, ReclaimTimeline, SpanName, clock, ticks
from webhook.report.additions import as_field
from webhook.report.explanation import CHANGES, VERBS, Explanation, PolicyVerdict, PoolReading, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.base.terminal import Line
    from webhook.reclaim.pods import NoTimeline

_wrap = partial(textwrap.wrap, width=92, break_on_hyphens=False, break_long_words=False)

_INDENT: Final = " " * 12
"""An indentation as wide as the longest verdict and a space."""

_STYLES: Final = {
    CHANGES: "bold cyan",
    VERBS[Outcome.DENY]: "bold red",
    VERBS[Outcome.WARN]: "bold yellow",
    VERBS[Outcome.INDETERMINATE]: "bold magenta",
    VERBS[Outcome.AUDIT]: "bold blue",
}
_QUIET: Final = "dim"


def show(explained: Iterable[Explanation]) -> None:
    """Print the explanations."""
    terminal.show(_lines(explained))


def _lines(explained: Iterable[Explanation]) -> Iterator[Line]:
    for number, explanation in enumerate(explained):
        if number:
            yield from ([], [])
        yield from _object(explanation)


def _object(explained: Explanation) -> Iterator[Line]:
    operation = f"  {explained.operation}" if explained.operation else ""
    yield [(printable(explained.title), "bold underline"), (f"  {explained.file}:{explained.line}{operation}", _QUIET)]
    sections = [_steps(note, "") for note in explained.notes] + list(map(_verdict, explained.verdicts))
    if explained.others:
        sections.append(_wrapped(others_of(explained), "", _QUIET))
    if explained.pool is not None:
        sections.append(_pool(explained.pool))
    for section in (*sections, *map(_timeline, explained.timelines)):
        yield []
        yield from section


def others_of(explained: Explanation) -> str:
    """Return a sentence that lists the policies that don't match the object."""
    if not explained.verdicts:
        return "no policy is for this kind of object"
    return f"not for this kind of object: {', '.join(explained.others)}"


def _verdict(verdict: PolicyVerdict) -> Iterator[Line]:
    style = _STYLES.get(verdict.word, _QUIET)
    yield [
        (f"{verdict.word:<{len(_INDENT)}}", style),
        (verdict.policy, "bold" if verdict.word in _STYLES else ""),
        (f"  {verdict.about}", _QUIET),
    ]
    for reason in verdict.reasons:
        yield from _steps(reason, _INDENT)
    for addition in verdict.additions:
        lines = f"+ {as_field(addition.field, addition.value)}".split("\n")
        yield from ([(f"{_INDENT}{printable(line)}", "cyan")] for line in lines)
    for finding in verdict.findings:
        yield from _finding(finding)


def _steps(reason: Reason, indent: str) -> Iterator[Line]:
    if reason.where:
        yield [(f"{indent}{printable(reason.where)}:", _QUIET)]
    for step in reason.steps:
        yield from _wrapped(step.text, indent + "  " * bool(reason.where), _QUIET)


def _finding(finding: Finding) -> Iterator[Line]:
    style = _STYLES[VERBS[finding.outcome]].removeprefix("bold ")
    yield from _wrapped(f"{finding.outcome}: {finding.reason}", _INDENT, style)
    if finding.field:
        yield [(f"{_INDENT}  at {printable(finding.field)}", _QUIET)]
    for text in filter(None, (finding.lowered, finding.detail)):
        yield from _wrapped(text, f"{_INDENT}  ", _QUIET)
    if finding.fix:
        yield from _wrapped(f"Fix: {finding.fix}", f"{_INDENT}  ", "")


def _pool(reading: PoolReading) -> Iterator[Line]:
    yield [("How the node pool is read", "bold"), (f"  {printable(reading.reader)}", _QUIET)]
    width = max(len(fact.name) for fact in reading.facts) + 2
    for fact in reading.facts:
        text = f"{fact.value}  ({fact.source})" if fact.source else fact.value
        first, *more = _wrapped(text, " " * (width + 2), "")
        yield [(f"  {fact.name:<{width}}", _QUIET), ("".join(part for part, _ in first).strip(), "")]
        yield from more


def _timeline(timeline: ReclaimTimeline | NoTimeline) -> Iterator[Line]:
    if not isinstance(timeline, ReclaimTimeline):
        yield from _wrapped(f"no timeline: {timeline}", "", _QUIET)
        return
    where = f"  {printable(timeline.where)}" if timeline.where else ""
    yield [("When the node is reclaimed", "bold"), (where, _QUIET)]
    yield from _wrapped(f"{timeline.because}.", "  ", _QUIET)
    yield []
    yield from timeline_lines(timeline)


def _wrapped(text: str, indent: str, style: str) -> Iterator[Line]:
    """Wrap prose. Keep the lines of a text with several, such as YAML to copy."""
    for line in map(printable, text.split("\n")):
        parts = [f"{indent}{line}"] if "\n" in text else _wrap(line, initial_indent=indent, subsequent_indent=indent)
        yield from ([(part, style)] for part in parts)


_AXIS: Final = 60
"""The width of the time axis in characters. With the names before it, it fits 80 columns."""
_NAME: Final = 14
"""The width of a lane's name in characters, with the space after it."""

_GOES_ON: Final = "»"
"""The mark of a lane that continues past the axis, followed by its end time."""


def timeline_lines(timeline: ReclaimTimeline) -> Iterator[Line]:
    """Yield the drawing: the axis, the node, the lanes, the legend, the events, and the outcome."""
    scale = _AXIS / timeline.end
    yield [(" " * _NAME + _axis(timeline.end, scale), "dim")]
    yield from _node(timeline, scale)
    for lane in timeline.lanes:
        yield _lane(lane, scale, timeline.end)
    yield []
    yield _legend(timeline.used, cut=any(lane.spans[-1].end > timeline.end for lane in timeline.lanes))
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
    yield [("  it ", ""), (timeline.verdict, SPANS[timeline.outcome].colour)]
    if timeline.gone:
        names = ", ".join(timeline.gone)
        yield [(f"  gone with the node, whatever the Pod does: volume {printable(names)}", "yellow")]


def _axis(end: int, scale: float) -> str:
    axis = ""
    for tick in ticks(end):
        axis = f"{axis:<{round(tick * scale)}}{clock(tick)} "
    return axis.rstrip()


def _node(timeline: ReclaimTimeline, scale: float) -> Iterator[Line]:
    """Draw the events of the node. Move an event right if the previous one overlaps it."""
    line = ""
    for seconds, name in timeline.moments:
        column, mark = round(seconds * scale), f"├{name}"
        if name == "removal":
            mark, column = f"{name}┤", max(column - len(name), 0)
        line = f"{line:<{column}}{mark}"
    yield [(f"{'  node':<{_NAME}}", ""), (line, "dim")]


def _lane(lane: Lane, scale: float, end: int) -> Line:
    """Draw the spans of a lane with at least one character each, so that a sleep of 5 s in seven minutes is visible."""
    name = printable(lane.name)
    room = _NAME - 3
    name = name if len(name) <= room else f"{name[: room - 1]}…"
    faint = "dim " if lane.name == AS_WRITTEN else ""
    line: Line = [(f"  {name:<{room}} ", faint.strip())]
    column = 0
    for span in lane.spans:
        _, _, glyph, style = SPANS[span.name]
        until = max(round(min(span.end, end) * scale), column + 1)
        line.append((glyph * (until - column), f"{faint}{style}"))
        column = until
    if lane.spans[-1].end > end:
        line.append((f"{_GOES_ON} {clock(lane.spans[-1].end)}", f"{faint}bold".strip()))
    return line


def _legend(names: list[SpanName], *, cut: bool) -> Line:
    line: Line = [("  ", "")]
    for name in names:
        about, _, glyph, style = SPANS[name]
        line += [(glyph * 2, style), (f" {about}   ", "dim")]
    if cut:
        line += [(_GOES_ON, "bold"), (" goes on until   ", "dim")]
    return line

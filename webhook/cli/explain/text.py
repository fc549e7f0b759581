"""``explain -o text``: text for people, on a terminal or in a pipe."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from webhook.cli import terminal
from webhook.cli.explain import timeline_text
from webhook.cli.explain.explanation import CHANGES, WORDS
from webhook.cli.explain.timeline import ReclaimTimeline
from webhook.decision import Outcome
from webhook.documents.yaml_writer import dump
from webhook.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.cli.explain.explanation import Explanation, PolicyVerdict, Said
    from webhook.cli.explain.pool import PoolReading
    from webhook.cli.explain.reclaims import NoTimeline
    from webhook.cli.judging.additions import Addition
    from webhook.cli.terminal import Line
    from webhook.decision import Finding

_WIDTH: Final = 92
_INDENT: Final = " " * 12
"""Indentation by the longest word and a space."""

_STYLES: Final = {
    CHANGES: "bold cyan",
    WORDS[Outcome.DENY]: "bold red",
    WORDS[Outcome.WARN]: "bold yellow",
    WORDS[Outcome.INDETERMINATE]: "bold magenta",
    WORDS[Outcome.AUDIT]: "bold blue",
}
_QUIET: Final = "dim"


def show(explained: Iterable[Explanation]) -> None:
    """Print the explanations."""
    terminal.show(_lines(explained))


def _lines(explained: Iterable[Explanation]) -> Iterator[Line]:
    for number, each in enumerate(explained):
        if number:
            yield from ([], [])
        yield from _object(each)


def _object(explained: Explanation) -> Iterator[Line]:
    operation = f"  {explained.operation}" if explained.operation else ""
    yield [(printable(explained.title), "bold underline"), (f"  {explained.file}:{explained.line}{operation}", _QUIET)]
    for note in explained.notes:
        yield []
        yield from _said(note, "")
    for verdict in explained.verdicts:
        yield []
        yield from _verdict(verdict)
    if explained.others:
        yield []
        yield from _wrapped(others_of(explained), "", _QUIET)
    if explained.pool is not None:
        yield []
        yield from _pool(explained.pool)
    for timeline in explained.timelines:
        yield []
        yield from _timeline(timeline) if isinstance(timeline, ReclaimTimeline) else _no_timeline(timeline)


def others_of(explained: Explanation) -> str:
    """Return a sentence that lists the policies for other objects."""
    if not explained.verdicts:
        return "no policy is for this kind of object"
    return f"not for this kind of object: {', '.join(explained.others)}"


def _verdict(verdict: PolicyVerdict) -> Iterator[Line]:
    style = _STYLES.get(verdict.word, _QUIET)
    about = ", ".join(filter(None, (verdict.kind, verdict.enforcement and f"enforcement: {verdict.enforcement}")))
    yield [
        (f"{verdict.word:<{len(_INDENT)}}", style),
        (verdict.policy, "bold" if verdict.word in _STYLES else ""),
        (f"  {about}", _QUIET),
    ]
    for said in verdict.said:
        yield from _said(said, _INDENT)
    for addition in verdict.additions:
        yield from _addition(addition)
    for finding in verdict.findings:
        yield from _finding(finding)


def _said(said: Said, indent: str) -> Iterator[Line]:
    if said.where:
        yield [(f"{indent}{printable(said.where)}:", _QUIET)]
    for step in said.steps:
        yield from _wrapped(step, indent + "  " * bool(said.where), _QUIET)


def _addition(addition: Addition) -> Iterator[Line]:
    if not isinstance(addition.value, dict | list):
        yield [(f"{_INDENT}+ {printable(addition.field)}: {as_yaml(addition.value)}", "cyan")]
        return
    yield [(f"{_INDENT}+ {printable(addition.field)}:", "cyan")]
    for line in as_yaml(addition.value).split("\n"):
        yield [(f"{_INDENT}    {printable(line)}", "cyan")]


def as_yaml(value: object) -> str:
    """Return a value as YAML, in block style."""
    return dump(value, width=_WIDTH)


def _finding(finding: Finding) -> Iterator[Line]:
    style = _STYLES[WORDS[finding.outcome]].removeprefix("bold ")
    yield from _wrapped(f"{finding.outcome}: {finding.reason}", _INDENT, style)
    if finding.field:
        yield [(f"{_INDENT}  at {printable(finding.field)}", _QUIET)]
    if finding.lowered:
        yield from _wrapped(finding.lowered, f"{_INDENT}  ", _QUIET)
    if finding.detail:
        yield from _wrapped(finding.detail, f"{_INDENT}  ", _QUIET)
    if finding.fix:
        yield from _wrapped(f"Fix: {finding.fix}", f"{_INDENT}  ", "")


def _pool(reading: PoolReading) -> Iterator[Line]:
    yield [("How the node pool is read", "bold"), (f"  {printable(reading.reader)}", _QUIET)]
    width = max(len(fact.name) for fact in reading.facts) + 2
    for fact in reading.facts:
        said = f"{fact.value}  ({fact.source})" if fact.source else fact.value
        first, *more = _wrapped(said, " " * (width + 2), "")
        yield [(f"  {fact.name:<{width}}", _QUIET), ("".join(text for text, _ in first).strip(), "")]
        yield from more


def _timeline(timeline: ReclaimTimeline) -> Iterator[Line]:
    where = f"  {printable(timeline.where)}" if timeline.where else ""
    yield [("When the node is reclaimed", "bold"), (where, _QUIET)]
    yield from _wrapped(f"{timeline.because}.", "  ", _QUIET)
    yield []
    yield from timeline_text.lines(timeline)


def _no_timeline(timeline: NoTimeline) -> Iterator[Line]:
    about = f"{timeline.where}: " if timeline.where else ""
    yield from _wrapped(f"no timeline: {about}{timeline.because}", "", _QUIET)


def _wrapped(text: str, indent: str, style: str) -> Iterator[Line]:
    """Wrap prose. A text of several lines, as YAML to copy, keeps its lines."""
    for line in text.split("\n"):
        if "\n" in text:
            yield [(f"{indent}{printable(line)}", style)]
            continue
        for part in textwrap.wrap(
            printable(line),
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        ):
            yield [(part, style)]

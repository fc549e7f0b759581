"""``check -o table``: text for people, on a terminal or in the log of a pipeline. No line is cut."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from webhook.cli import terminal
from webhook.cli.judging.additions import addition_of
from webhook.cli.output import Format
from webhook.cli.report.model import named
from webhook.cli.terminal import counted, plain, printable
from webhook.policy.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.cli.report.model import Patch, Report, Result
    from webhook.cli.terminal import Line

_PLAIN: Final = ""
_STRONG: Final = "bold"
_FAINT: Final = "dim"
_UNREADABLE: Final = "bold red"
_STYLES: Final = {"deny": "bold red", "warn": "yellow", "indeterminate": "magenta", "audit": "cyan"}


def show(report: Report) -> None:
    """Print the report: in colour on a terminal that wants it, else plain."""
    terminal.show(_lines(report))


def render(report: Report) -> str:
    """Return the report as plain text, with what can't be judged, which standard error shows otherwise."""
    return plain([*_unreadable(report), *_lines(report)])


def _lines(report: Report) -> Iterator[Line]:
    for result in report.results:
        yield from _finding(result)
        yield []
    if report.patches:
        yield [("spotgate would inject:", _STRONG)]
        for patch in report.patches:
            yield from _patch(patch)
        yield []
    yield _totals(report)


def _unreadable(report: Report) -> Iterator[Line]:
    if not report.unreadable:
        return
    yield [("can't be judged:", _STRONG)]
    for each in report.unreadable:
        problem = Problem(each.file, each.line, each.column, each.field, each.message)
        yield [(f"  {problem}", _PLAIN)]
    yield []


def _finding(result: Result) -> Iterator[Line]:
    yield [
        (f"{result.file}:{result.line}", _STRONG),
        ("  ", _PLAIN),
        (result.outcome, _STYLES[result.outcome]),
        (f"  {_object(result)}  ", _PLAIN),
        (named(result.policy, result.id), _FAINT),
    ]
    at = f" (at {result.field})" if result.field else ""
    yield [(f"    {result.reason}{at}", _PLAIN)]
    if result.detail:
        yield from _indented(result.detail, _FAINT)
    if result.fix:
        yield from _indented(f"Fix: {result.fix}", _PLAIN)


def _patch(patch: Patch) -> Iterator[Line]:
    yield [("  ", _PLAIN), (f"{patch.file}:{patch.line}", _STRONG), (f"  {_object(patch)}", _PLAIN)]
    for operation in patch.patch:
        added = addition_of(operation)
        yield [(f"    {printable(added.field)}: {json.dumps(added.value)}", _PLAIN)]


def _totals(report: Report) -> Line:
    summary = report.summary
    skipped = f", {summary.skipped} skipped" if summary.skipped else ""
    line = [(f"{counted(summary.documents, 'object')}{skipped}: ", _PLAIN)]
    counts = [(outcome, getattr(summary, outcome)) for outcome in _STYLES]
    found = [(f"{number} {outcome}", _STYLES[outcome]) for outcome, number in counts if number]
    if report.unreadable:
        found.append((f"{len(report.unreadable)} can't be judged", _UNREADABLE))
    for index, piece in enumerate(found or [("no findings", _PLAIN)]):
        line += [(", ", _PLAIN), piece] if index else [piece]
    if summary.patched:
        line.append((f"; {counted(summary.patched, 'object')} would be changed", _PLAIN))
    return line


def _object(about: Result | Patch) -> str:
    name = f"{about.namespace}/{about.name}" if about.namespace else about.name
    return printable(f"{about.kind} {name}".rstrip())


def _indented(text: str, style: str) -> Iterator[Line]:
    for line in text.split("\n"):
        yield [("    ", _PLAIN), (printable(line), style)]


FORMAT: Final = Format(about="people; the default", render=render, show=show)

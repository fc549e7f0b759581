"""Write the report as text for a terminal or a pipeline's log: ``check -o table``. No line is cut.

Findings with the same id or the same entry of their policy kind form a group, and so do equal patches. With
``--verbose``, each is listed separately.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from webhook.base import terminal
from webhook.base.terminal import Line, counted, plain
from webhook.base.text import printable
from webhook.formats import Format
from webhook.policy.errors import problem_lines
from webhook.report.report import ObjectReport, ReclaimRisk, Report, Result, alike, entry_of, named, title_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence, Sized


T = TypeVar("T")

_LISTED: Final = 3
"""The number of places, reasons, and objects of an entry to list. The others are counted."""
_ALL: Final = "`-o table --verbose` shows all"
_NOT_JUDGED: Final = (
    "  not checked: whether the Pods fit on other nodes; try `spotgate rehearse --lose {} --kubeconfig FILE`"
)
_STYLES: Final = {"deny": "bold red", "warn": "yellow", "indeterminate": "magenta", "audit": "cyan"}


def show(report: Report) -> None:
    """Print the report, in color if the terminal supports it."""
    terminal.show(_lines(report))


def render(report: Report) -> str:
    """Return the report as plain text, including the inputs that can't be evaluated."""
    return plain(_lines(report, [*_unreadable(report)]))


def _lines(report: Report, unreadable: Iterable[Line] = ()) -> Iterator[Line]:
    """Yield the report. ``unreadable`` lines follow the findings."""
    for results in _grouped(report):
        yield from _finding(results[0]) if len(results) == 1 else _group(results)
        yield []
    if report.patched:
        yield [("spotgate would inject:", "bold")]
        for changed in alike(report.patched, id if report.verbose else _additions).values():
            yield from _listed(
                changed, lambda judged: [("  ", ""), (_place(judged), "bold"), (f"  {_object(judged)}", "")]
            )
            for added in changed[0].additions:
                yield [(f"    {printable(added.field)}: {json.dumps(added.value)}", "")]
        yield []
    if report.on_spot is not None:
        yield from _on_spot(report.on_spot, verbose=report.verbose, all_read=not report.unreadable)
    yield from unreadable
    yield _totals(report)


def _grouped(report: Report) -> Iterable[list[Result]]:
    """Group the findings by policy, entry, and outcome, denials first. With ``--verbose``, list each separately."""
    if report.verbose:
        return ([result] for result in report.results)
    groups = alike(report.results, lambda result: (result.outcome, result.policy, entry_of(result) or result.id))
    order = list(_STYLES)
    return sorted(groups.values(), key=lambda results: order.index(results[0].outcome))


def _additions(changed: ObjectReport) -> bytes:
    return msgspec.json.encode(changed.additions)


def _unreadable(report: Report) -> Iterator[Line]:
    if report.unreadable:
        yield [("can't be evaluated:", "bold")]
        yield from ([(f"  {line}", "")] for line in problem_lines(report.unreadable, alone=report.verbose))
        yield []


def _finding(result: Result) -> Iterator[Line]:
    yield [
        (_place(result), "bold"),
        ("  ", ""),
        (result.outcome, _STYLES[result.outcome]),
        (f"  {_object(result)}  " if result.line else "  ", ""),
        (named(result.policy, result.id), "dim"),
    ]
    at = f" (at {result.field})" if result.field else ""
    yield [(f"    {result.reason}{at}", "")]
    if result.detail:
        yield from _indented(result.detail, "dim")
    if result.fix:
        yield from _indented(f"Fix: {result.fix}", "")


def _group(results: list[Result]) -> Iterator[Line]:
    first = results[0]
    ids = alike(results, lambda result: result.id)
    objects = [same[0] for same in alike(results, lambda result: (result.file, _object(result))).values()]
    shown, name = (results, first.id) if len(ids) == 1 else (objects, entry_of(first))
    few = len(shown) <= _LISTED
    places = list(
        dict.fromkeys(f"{_place(result)}{f' {_object(result)}' if few and result.line else ''}" for result in shown)
    )
    yield [
        (first.outcome, _STYLES[first.outcome]),
        (f"  {len(shown)} x {named(first.policy, name)}: ", "bold"),
        (f"{', '.join(places[:_LISTED])}{_more(places)}", ""),
    ]
    for same in ids.values():
        if len(ids) > 1:
            yield [(f"  {len(same)} x {same[0].id}", "dim")]
        yield from _explanation(same)


def _explanation(results: list[Result]) -> Iterator[Line]:
    """Yield the reasons of findings with one id, and the detail and fix of the first finding for each field."""
    first = results[0]
    reasons = alike(results, lambda result: result.reason)
    at = f" (at {first.field})" if first.field and all(result.field == first.field for result in results) else ""
    for reason, (result, *others) in islice(reasons.items(), _LISTED):
        where = f": {_place(result)}{f' and {len(others)} more' if others else ''}" if len(reasons) > 1 else ""
        yield [(f"    {reason}{at}{where}", "")]
    if len(reasons) > _LISTED:
        yield [(f"    and {counted(len(reasons) - _LISTED, 'other reason')}", "")]
    fields = alike(results, lambda result: result.field) if len(reasons) > 1 else {"": results}
    distinct = {(same[0].detail, same[0].fix): same[0] for same in reversed(fields.values())}
    for result in islice(reversed(distinct.values()), _LISTED):
        if result.detail:
            yield from _indented(result.detail, "dim")
        if result.fix:
            whose = f" for {_object(result)} at {_place(result)}" if result.line else f" for {_place(result)}"
            whose = "" if all(other.fix == result.fix for other in results) else whose
            yield from _indented(f"Fix{whose}: {result.fix}", "")


def _more(items: Sized) -> str:
    """Return how many items are omitted, and how to list them; empty if none is."""
    return f" and {len(items) - _LISTED} more; {_ALL}" if len(items) > _LISTED else ""


def _listed(items: Sequence[T], line: Callable[[T], Line]) -> Iterator[Line]:
    """Yield a line for each of the first items, and the number of omitted ones."""
    yield from map(line, items[:_LISTED])
    if more := _more(items):
        yield [(f" {more}", "")]


def _on_spot(workloads: list[ReclaimRisk], *, verbose: bool, all_read: bool) -> Iterator[Line]:
    """Yield the workloads on spot Nodes that would not survive a reclaim, grouped by their reasons."""
    at_risk = [risk for risk in workloads if risk.reasons]
    of = counted(len(workloads), "workload")
    note = "" if all_read else ", among the objects that can be read"
    yield [(f"would not survive a reclaim today: {len(at_risk)} of {of} on spot Nodes{note}", "bold")]
    for group in alike(at_risk, id if verbose else _reasons).values():
        yield from _listed(group, _risk)
        yield from ([(f"    {reason.reason}  ", ""), (reason.id, "dim")] for reason in group[0].reasons)
    if workloads:
        yield [(_NOT_JUDGED.format(min((pool for risk in workloads for pool in risk.pools), default="POOL")), "dim")]
    yield []


def _risk(workload: ReclaimRisk) -> Line:
    where = f" on {', '.join(workload.pools)}" if workload.pools else ""
    return [(f"  {_object(workload)}", "bold"), (f": {counted(workload.pods, 'Pod')}{where}", "")]


def _reasons(risk: ReclaimRisk) -> tuple[tuple[str, str], ...]:
    return tuple((reason.id, reason.reason) for reason in risk.reasons)


def _totals(report: Report) -> Line:
    summary = report.summary
    skipped = f", {report.skipped} skipped" if report.skipped else ""
    skipped += f", {counted(report.not_rendered, 'folder')} not rendered" if report.not_rendered else ""
    line = [(f"{counted(summary['documents'], 'object')}{skipped}: ", "")]
    pieces = [(f"{summary[outcome]} {outcome}", style) for outcome, style in _STYLES.items() if summary[outcome]]
    if report.unreadable:
        pieces.append((f"{len(report.unreadable)} can't be evaluated", "bold red"))
    for index, piece in enumerate(pieces or [("no findings", "")]):
        line += [(", ", ""), piece] if index else [piece]
    if report.patched:
        line.append((f"; {counted(summary['patched'], 'object')} would be changed", ""))
    return line


def _place(about: Result | ObjectReport) -> str:
    return f"{about.file}:{about.line}" if about.line else about.file


def _object(about: Result | ObjectReport | ReclaimRisk) -> str:
    return printable(title_of(about))


def _indented(text: str, style: str) -> Iterator[Line]:
    for line in text.split("\n"):
        yield [("    ", ""), (printable(line), style)]


FORMAT: Final = Format(about="people; the default", render=render, show=show)

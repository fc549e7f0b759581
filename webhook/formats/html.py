"""Write the report as one page for teams with many workloads: ``check -o html``.

The page groups findings with the same reason or the same entry of their policy kind, with all their places. It also
groups equal patches and timelines.
"""

from __future__ import annotations

from collections import Counter
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.base.terminal import counted
from webhook.engine.bundle import policy_kinds
from webhook.formats import Format
from webhook.pages import page
from webhook.reclaim import svg
from webhook.report.additions import as_field
from webhook.report.report import NO_NAME, ObjectReport, Report, Result, alike, entry_of, title_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from markupsafe import Markup

    Found = tuple[ObjectReport, Result]
    Place = tuple[ObjectReport, int, str]  # an object, a line of its file, and a field

_MEANINGS: Final = {
    "deny": "would be denied",
    "warn": "admitted with a warning",
    "indeterminate": "can't be decided from the files",
    "audit": "only recorded",
}
OUTCOMES: Final = tuple(_MEANINGS)
_OPEN_AT_MOST: Final = 25
"""The maximum number of entries for which denials are expanded."""

_ROWS: Final = 12
"""The number of table rows to show. The page folds the others."""

_DRAWN_AT_MOST: Final = 30


def render(report: Report) -> str:
    """Return the report as a page."""
    pairs = [(judged, result) for judged in report.objects for result in judged.results]
    by_policy = _rows(pairs, lambda pair: pair[1].policy)
    parts = [_part(report, name, [pair for pair in pairs if pair[1].policy == name]) for name, _ in by_policy]
    drawn = _drawn(report)
    changed = alike(
        (judged for judged in report.objects if judged.additions), lambda judged: msgspec.json.encode(judged.additions)
    )
    return page(
        "check.html",
        style="drawing.css",
        script="check.js",
        MEANINGS=_MEANINGS,
        SHOWN=_ROWS,
        verdict=_verdict(report),
        report=report,
        files=len({judged.file for judged in report.objects}),
        numbered=counted,
        counts=report.summary,
        outcomes=[outcome for outcome in OUTCOMES if report.summary[outcome]],
        unreadable=alike(report.unreadable, lambda problem: problem.text),
        warnings=alike(report.warnings, lambda problem: problem.text),
        policies=parts,
        opened=sum(len(part["groups"]) for part in parts) <= _OPEN_AT_MOST,
        by_policy=by_policy,
        by_namespace=_rows(pairs, lambda pair: pair[0].namespace or NO_NAME),
        by_team=_rows(pairs, lambda pair: pair[0].team),
        namespaces=sorted({judged.namespace or NO_NAME for judged in report.objects}),
        teams=sorted({judged.team for judged in report.objects}),
        cut_off=drawn[:_DRAWN_AT_MOST],
        undrawn=len(drawn[_DRAWN_AT_MOST:]),
        injected=[(same[0].additions, [(judged, judged.line, "") for judged in same]) for same in changed.values()],
        as_field=as_field,
        title_of=title_of,
        NO_NAME=NO_NAME,
    )


def _verdict(report: Report) -> str:
    denied = sum(any(result.outcome == "deny" for result in judged.results) for judged in report.objects)
    if denied:
        return f"{denied} of {counted(report.summary['documents'], 'object')} would be denied"
    if report.unreadable:
        return "Not everything could be evaluated"
    return "Nothing would be denied" if report.results else "No findings"


def _rows(pairs: Iterable[Found], name_of: Callable[[Found], str]) -> list[tuple[str, Counter[str]]]:
    """Return the number of findings of each outcome by policy, namespace, or team, most denials first."""
    rows = [(name, Counter(result.outcome for _, result in same)) for name, same in alike(pairs, name_of).items()]
    return sorted(rows, key=lambda row: (*(-row[1][outcome] for outcome in OUTCOMES), row[0]))


def _part(report: Report, policy: str, pairs: list[Found]) -> dict[str, Any]:
    """Return a policy with its findings, grouped by outcome and by entry or reason."""
    kind, kinds = report.kinds.get(policy, ""), policy_kinds()
    groups = alike(pairs, lambda pair: (pair[1].outcome, entry_of(pair[1]) or f"{pair[1].id}: {pair[1].reason}"))
    ordered = sorted(map(_group, groups.values()), key=lambda group: OUTCOMES.index(group["outcome"]))
    about = cleandoc(kinds[kind].spec.__doc__ or "") if kind in kinds else ""
    return {"name": policy, "kind": kind, "about": about, "groups": ordered}


def _group(pairs: list[Found]) -> dict[str, Any]:
    """Return a group: the shared detail, and variants by detail and fix with their places."""
    first = pairs[0][1]
    several = len({result.reason for _, result in pairs}) > 1

    def wording(pair: Found) -> tuple[str, str]:
        result = pair[1]
        return f"{result.reason}\n{result.detail}" if several else result.detail, result.fix

    variants: list[dict[str, Any]] = [
        {"detail": detail, "fix": fix, "places": [(judged, result.line, result.field) for judged, result in same]}
        for (detail, fix), same in alike(pairs, wording).items()
    ]
    detail = first.detail if all(variant["detail"] == first.detail for variant in variants) else ""
    places = [place for variant in variants for place in variant["places"]]
    return {
        "id": ", ".join(dict.fromkeys(result.id for _, result in pairs)),
        "outcome": first.outcome,
        "reason": entry_of(first) if several else first.reason,
        "detail": detail,
        "variants": [variant | {"detail": "" if detail else variant["detail"]} for variant in variants],
        "places": places,
    }


def _drawn(report: Report) -> list[tuple[Markup, list[Place]]]:
    """Return the drawing of each timeline, with the places of its objects."""
    pairs = [((judged, judged.line, line.where), line) for judged in report.objects for line in judged.cut_off]
    drawn = []
    for timeline, same in alike(pairs, lambda pair: replace(pair[1], where="")).items():
        what = title_of(same[0][0][0]) if len(same) == 1 else f"{len(same)} workloads"
        picture = svg.draw([(f"{what}, on {timeline.provider}", timeline)], whole=False)
        drawn.append((picture, [place for place, _ in same]))
    return drawn


FORMAT: Final = Format(about="a page to search and share", render=render, timelines=True)

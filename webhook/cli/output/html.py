"""``check -o html``: a page for people who are responsible for many workloads, in one file.

Findings with the same reason are one entry with many places, and so are equal patches and timelines.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec
from markupsafe import Markup
from msgspec.structs import replace

from webhook.cli.explain import timeline_svg
from webhook.cli.explain.html import as_field
from webhook.cli.output import Format
from webhook.cli.report.build import NOBODY
from webhook.cli.terminal import counted
from webhook.pages import page
from webhook.pages.drawing import STYLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cli.explain.timeline import ReclaimTimeline
    from webhook.cli.judging.additions import Addition
    from webhook.cli.report.model import ObjectReport, Report, Result

OUTCOMES: Final = ("deny", "warn", "indeterminate", "audit")
_MEANINGS: Final = {
    "deny": "would be denied",
    "warn": "admitted with a warning",
    "indeterminate": "can't be decided from the files",
    "audit": "only recorded",
}
_OPEN_AT_MOST: Final = 25
"""Entries up to which denials are shown open."""

_ROWS: Final = 12
"""Rows of a table that are shown; the rest is folded."""

_DRAWN_AT_MOST: Final = 30


class Place(msgspec.Struct, frozen=True):
    """The place of an object.

    Attributes:
        where: file and line.
        field: field of the object; may be empty.
    """

    title: str
    namespace: str
    team: str
    where: str
    field: str = ""


class Variant(msgspec.Struct, frozen=True):
    """Places with the same detail and fix."""

    detail: str
    fix: str
    places: list[Place]


class Group(msgspec.Struct, frozen=True):
    """The findings with one id, outcome and reason.

    Attributes:
        detail: if it is the same everywhere; the variants have none then.
    """

    id: str
    outcome: str
    reason: str
    detail: str
    variants: list[Variant]

    @property
    def places(self) -> list[Place]:
        """The places of all variants."""
        return [place for variant in self.variants for place in variant.places]


class PolicyFindings(msgspec.Struct, frozen=True):
    """The findings of a policy, denials first."""

    name: str
    kind: str
    about: str
    groups: list[Group]


class Row(msgspec.Struct, frozen=True):
    """The number of findings of each outcome of a policy, namespace or team."""

    name: str
    counts: Counter[str]


class Drawing(msgspec.Struct, frozen=True):
    """The picture of a timeline, and the places of its objects."""

    picture: Markup
    places: list[Place]


class Injection(msgspec.Struct, frozen=True):
    """The same additions to some objects.

    Attributes:
        fields: names of the fields that are added.
    """

    fields: list[str]
    additions: tuple[Addition, ...]
    places: list[Place]


def render(report: Report) -> str:
    """Return the report as a page."""
    found = [(each, result) for each in report.objects for result in each.results]
    parts = _parts(report, found)
    drawn = _drawn(report)
    counts = msgspec.to_builtins(report.summary)
    return page(
        "check.html",
        style=STYLE,
        script="check.js",
        MEANINGS=_MEANINGS,
        SHOWN=_ROWS,
        verdict=_verdict(report),
        summary=_summary(report),
        counts=counts,
        found=[outcome for outcome in OUTCOMES if counts[outcome]],
        unreadable=report.unreadable,
        warnings=report.warnings,
        policies=parts,
        opened=sum(len(part.groups) for part in parts) <= _OPEN_AT_MOST,
        by_policy=_rows(found, lambda pair: pair[1].policy),
        by_namespace=_rows(found, lambda pair: pair[0].namespace or NOBODY),
        by_team=_rows(found, lambda pair: pair[0].team),
        namespaces=sorted({each.namespace or NOBODY for each in report.objects}),
        teams=sorted({each.team for each in report.objects}),
        cut_off=drawn[:_DRAWN_AT_MOST],
        undrawn=len(drawn[_DRAWN_AT_MOST:]),
        injected=_injected(report),
        as_field=as_field,
    )


def _verdict(report: Report) -> str:
    summary = report.summary
    denied = sum(any(result.outcome == "deny" for result in each.results) for each in report.objects)
    if denied:
        return f"{denied} of {counted(summary.documents, 'object')} would be denied"
    if report.unreadable:
        return "Not everything could be judged"
    if summary.warn or summary.indeterminate or summary.audit:
        return "Nothing would be denied"
    return "No findings"


def _summary(report: Report) -> str:
    summary = report.summary
    files = len({each.file for each in report.objects})
    parts = [f"{counted(summary.documents, 'object')} in {counted(files, 'file')}"]
    if summary.patched:
        parts.append(f"{summary.patched} would be changed by the webhook")
    if summary.skipped:
        parts.append(f"{summary.skipped} skipped")
    return "; ".join(parts)


def _rows(found: list[tuple[ObjectReport, Result]], name_of: Callable[[tuple[ObjectReport, Result]], str]) -> list[Row]:
    counts: dict[str, Counter[str]] = {}
    for pair in found:
        counts.setdefault(name_of(pair), Counter())[pair[1].outcome] += 1
    rows = [Row(name, each) for name, each in counts.items()]
    return sorted(rows, key=lambda row: (*(-row.counts[outcome] for outcome in OUTCOMES), row.name))


def _parts(report: Report, found: list[tuple[ObjectReport, Result]]) -> list[PolicyFindings]:
    groups: dict[str, dict[tuple[str, str, str], dict[tuple[str, str], Variant]]] = {}
    for each, result in found:
        variants = groups.setdefault(result.policy, {}).setdefault((result.id, result.outcome, result.reason), {})
        said = (result.detail, result.fix)
        variants.setdefault(said, Variant(*said, [])).places.append(_place(each, result.line, result.field))
    titles = {title.name: title for title in report.policies}
    parts = []
    for row in _rows(found, lambda pair: pair[1].policy):
        title = titles.get(row.name)
        parts.append(
            PolicyFindings(
                name=row.name,
                kind=title.kind if title else "",
                about=title.about if title else "",
                groups=sorted(
                    (_group(*key, list(variants.values())) for key, variants in groups[row.name].items()),
                    key=lambda group: OUTCOMES.index(group.outcome),
                ),
            )
        )
    return parts


def _group(id_: str, outcome: str, reason: str, variants: list[Variant]) -> Group:
    details = {variant.detail for variant in variants}
    if len(details) > 1:
        return Group(id_, outcome, reason, "", variants)
    return Group(id_, outcome, reason, details.pop(), [replace(variant, detail="") for variant in variants])


def _drawn(report: Report) -> list[Drawing]:
    places: dict[ReclaimTimeline, list[Place]] = {}
    for each in report.objects:
        for timeline in each.cut_off:
            places.setdefault(replace(timeline, where=""), []).append(_place(each, each.line, timeline.where))
    return [
        Drawing(Markup(timeline_svg.element(_title(timeline, found), timeline)), found)  # noqa: S704 - it escapes
        for timeline, found in places.items()
    ]


def _title(timeline: ReclaimTimeline, places: list[Place]) -> str:
    what = places[0].title if len(places) == 1 else f"{len(places)} workloads"
    return f"{what}, on {timeline.provider}"


def _injected(report: Report) -> list[Injection]:
    alike: dict[bytes, Injection] = {}
    for each in report.objects:
        if each.additions:
            names = list(dict.fromkeys(added.name for added in each.additions))
            key = msgspec.json.encode(each.additions)
            alike.setdefault(key, Injection(names, each.additions, [])).places.append(_place(each, each.line))
    return list(alike.values())


def _place(judged: ObjectReport, line: int, field: str = "") -> Place:
    name = f"{judged.namespace}/{judged.name}" if judged.namespace else judged.name
    return Place(
        f"{judged.kind} {name}".rstrip(), judged.namespace or NOBODY, judged.team, f"{judged.file}:{line}", field
    )


FORMAT: Final = Format(
    about="those who answer for many workloads: a page to open, search and hand on", render=render, timelines=True
)

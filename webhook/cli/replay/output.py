"""Output of ``spotgate replay``: JSON, and text in which the same change of many reviews is one entry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cli.judging.additions import field_at
from webhook.cli.terminal import counted
from webhook.documents import parse_pointer
from webhook.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from webhook.cli.replay.changes import AnswerChange
    from webhook.cli.terminal import Line
    from webhook.decision import Verdict
    from webhook.policy.errors import Problem
    from webhook.server.recording import Found

_PLAIN: Final = ""
_STRONG: Final = "bold"
_FAINT: Final = "dim"
_STYLES: Final = {"denied": "bold red", "warned": "yellow", "audited": "cyan", "allowed": "green"}
_NAMED: Final = 3
"""Reviews with the same change that are named; the others are counted."""


def as_json(changes: Sequence[AnswerChange], reviews: int, problems: Iterable[Problem]) -> str:
    """Return all changes as JSON; ``unreadable`` is left out if it is empty."""
    shown: dict[str, Any] = {"changes": [_as_json(each) for each in changes], "summary": _summary(changes, reviews)}
    if unreadable := [
        {"file": each.file, "line": each.line, "field": each.field, "message": each.text} for each in problems
    ]:
        shown["unreadable"] = unreadable
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()


def as_lines(changes: Sequence[AnswerChange], reviews: int) -> Iterator[Line]:
    """Yield the changes as lines for people."""
    groups: dict[tuple[Any, ...], list[AnswerChange]] = {}
    for change in changes:
        told = tuple(_told(change))
        groups.setdefault((change.phase, change.before, change.after, told), []).append(change)
    for (phase, before, after, told), alike in groups.items():
        first, *others = alike
        yield [
            (_place(first), _STRONG),
            (f"  {_verdict(before, after)}", _STYLES.get(after, _PLAIN)),
            (f"  {printable(first.review.request.describe())}", _PLAIN),
            (f"  {phase}", _FAINT),
        ]
        yield from ([(line, _PLAIN)] for line in told)
        if others:
            yield [(f"    the same for {counted(len(others), 'other review')}: {_names(others)}", _FAINT)]
        yield []
    yield [(_totals(changes, reviews), _PLAIN)]


def _as_json(change: AnswerChange) -> dict[str, Any]:
    request = change.review.request
    return {
        "file": change.review.file,
        "line": change.review.line,
        "phase": str(change.phase),
        "operation": request.operation,
        "resource": request.path,
        "namespace": request.namespace,
        "name": request.name,
        "user": request.user_info.username,
        "before": change.before,
        "after": change.after,
        "findings": {"new": change.new, "gone": change.gone},
        "patch": {"new": change.patched, "gone": change.unpatched},
    }


def _summary(changes: Sequence[AnswerChange], reviews: int) -> dict[str, int]:
    """Count the reviews, and the changes of each sort; a change may be of several."""
    return {
        "reviews": reviews,
        "changes": len(changes),
        "denied": sum(each.after == "denied" != each.before for each in changes),
        "allowed": sum(each.before == "denied" != each.after for each in changes),
        "findings": sum(bool(each.new or each.gone) for each in changes),
        "patches": sum(bool(each.patched or each.unpatched) for each in changes),
    }


def _told(change: AnswerChange) -> Iterator[str]:
    yield from (f"    - {_finding(each)}" for each in change.gone)
    yield from (f"    + {_finding(each)}" for each in change.new)
    yield from (f"    - {_operation(each)}" for each in change.unpatched)
    yield from (f"    + {_operation(each)}" for each in change.patched)


def _finding(found: Found) -> str:
    at = f" (at {found.field})" if found.field else ""
    return printable(f"{found.outcome}  [{found.policy}] {found.reason}{at} [{found.id}]")


def _operation(operation: dict[str, Any]) -> str:
    field = field_at(parse_pointer(operation["path"]))
    return printable(f"{field}: {json.dumps(operation.get('value'), ensure_ascii=False)}")


def _verdict(before: Verdict, after: Verdict) -> str:
    return before if before == after else f"{before} -> {after}"


def _place(change: AnswerChange) -> str:
    return f"{change.review.file}:{change.review.line}"


def _names(changes: Sequence[AnswerChange]) -> str:
    named = ", ".join(f"{_place(each)} {printable(each.review.request.describe())}" for each in changes[:_NAMED])
    return named if len(changes) <= _NAMED else f"{named}, ..."


def _totals(changes: Sequence[AnswerChange], reviews: int) -> str:
    summary = _summary(changes, reviews)
    if not changes:
        return f"{counted(reviews, 'review')}: no change" if reviews else "no review was judged"
    sorts = (
        ("denied", "denied now"),
        ("allowed", "no longer denied"),
        ("findings", "with other findings"),
        ("patches", "with another patch"),
    )
    told = ", ".join(f"{summary[name]} {words}" for name, words in sorts if summary[name])
    return f"{counted(reviews, 'review')}: {counted(len(changes), 'change')}: {told}"

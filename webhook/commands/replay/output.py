"""Print the changes of a replay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from webhook.base.field_paths import parse_pointer
from webhook.base.terminal import Line, counted
from webhook.base.text import printable
from webhook.report.additions import field_at
from webhook.report.report import alike, problem_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from webhook.commands.replay.replay import Answer, AnswerChange
    from webhook.policy.errors import Problem

_STYLES: Final = {"denied": "bold red", "warned": "yellow", "audited": "cyan", "allowed": "green"}
_SORTS: Final[dict[str, tuple[str, Callable[[AnswerChange], bool]]]] = {
    "denied": ("denied now", lambda change: change.after == "denied" != change.before),
    "allowed": ("no longer denied", lambda change: change.before == "denied" != change.after),
    "findings": ("with other findings", lambda change: bool(change.new.findings or change.gone.findings)),
    "patches": ("with another patch", lambda change: bool(change.new.patch or change.gone.patch)),
}
_NAMED: Final = 3
"""How many reviews with the same change are named; the others are counted."""


def changes_json(changes: Sequence[AnswerChange], reviews: int, problems: Sequence[Problem]) -> dict[str, Any]:
    """Return all changes as JSON. Omit an empty ``unreadable``."""
    shown = {"changes": [_as_json(change) for change in changes], "summary": _summary(changes, reviews)}
    return shown | ({"unreadable": list(map(problem_members, problems))} if problems else {})


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
        "findings": {"new": change.new.findings, "gone": change.gone.findings},
        "patch": {"new": change.new.patch, "gone": change.gone.patch},
    }


def _summary(changes: Sequence[AnswerChange], reviews: int) -> dict[str, int]:
    """Count the reviews, and the changes of each sort. A change can have several sorts."""
    sorts = {name: sum(map(applies, changes)) for name, (_, applies) in _SORTS.items()}
    return {"reviews": reviews, "changes": len(changes), **sorts}


def change_lines(changes: Sequence[AnswerChange], reviews: int) -> Iterator[Line]:
    """Yield the changes as lines of text."""
    groups = alike(changes, lambda change: (change.phase, change.before, change.after, tuple(_details(change))))
    for (phase, before, after, details), (first, *others) in groups.items():
        place, request = _names(first)
        yield [
            (place, "bold"),
            (f"  {before if before == after else f'{before} -> {after}'}", _STYLES.get(after, "")),
            (f"  {request}", ""),
            (f"  {phase}", "dim"),
        ]
        yield from ([(line, "")] for line in details)
        if others:
            named = [" ".join(_names(change)) for change in others[:_NAMED]] + ["..."] * (len(others) > _NAMED)
            yield [(f"    the same for {counted(len(others), 'other review')}: {', '.join(named)}", "dim")]
        yield []
    yield [(_totals(changes, reviews), "")]


def _names(change: AnswerChange) -> tuple[str, str]:
    review = change.review
    return f"{review.file}:{review.line}", printable(review.request.describe())


def _details(change: AnswerChange) -> Iterator[str]:
    for lines in (_findings, _operations):
        yield from (f"    - {line}" for line in lines(change.gone))
        yield from (f"    + {line}" for line in lines(change.new))


def _findings(answer: Answer) -> Iterator[str]:
    for finding in answer.findings:
        at = f" (at {finding.field})" if finding.field else ""
        yield printable(f"{finding.outcome}  [{finding.policy}] {finding.reason}{at} [{finding.id}]")


def _operations(answer: Answer) -> Iterator[str]:
    for operation in answer.patch:
        field = field_at(parse_pointer(operation["path"]))
        yield printable(f"{field}: {json.dumps(operation.get('value'), ensure_ascii=False)}")


def _totals(changes: Sequence[AnswerChange], reviews: int) -> str:
    if not changes:
        return f"{counted(reviews, 'review')}: no change" if reviews else "no review was evaluated"
    summary = _summary(changes, reviews)
    totals = ", ".join(f"{summary[name]} {words}" for name, (words, _) in _SORTS.items() if summary[name])
    return f"{counted(reviews, 'review')}: {counted(len(changes), 'change')}: {totals}"

"""Replay recorded reviews: judge them again by other policies, and say what changes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.base import terminal
from webhook.base.terminal import counted
from webhook.base.text import printable
from webhook.documents import parse_pointer
from webhook.documents.reading import read_file
from webhook.engine.engine import decide
from webhook.model.decision import Outcome, verdict_of
from webhook.model.patch import apply_all
from webhook.model.review import BadReviewError, decode_object, decode_review
from webhook.offline.additions import field_at
from webhook.offline.manifests.files import STDIN
from webhook.offline.report import alike, problem_members
from webhook.offline.review_errors import position_of
from webhook.policy import errors
from webhook.policy.errors import Problem, unreadable
from webhook.rules.context import NOTHING_KNOWN, Context, Phase, utc_now
from webhook.server.recording import SUFFIX, Found, decode_notes, found_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from webhook.base.terminal import Line
    from webhook.capacity.view import ClusterView
    from webhook.engine.bundle import Bundle
    from webhook.model.decision import Decision, Verdict
    from webhook.model.patch import Operation
    from webhook.model.review import Request
    from webhook.server.recording import Found, Recorded

_SUFFIXES: Final = (SUFFIX, ".json")


class Review(msgspec.Struct, frozen=True):
    """Describe one review, by where it begins, with the answer and context if those were recorded."""

    file: str
    line: int
    request: Request
    recorded: Recorded | None


class _Notes(msgspec.Struct):
    spotgate: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_notes_decoder: Final = msgspec.json.Decoder(_Notes)


def read_reviews(paths: list[str], problems: list[Problem]) -> Iterator[Review]:
    """Yield the reviews in files, folders and standard input, in order. Mistakes are added to ``problems``."""
    for path in paths:
        for file in _files(Path(path), problems) if path != STDIN else (path,):
            try:
                data = sys.stdin.buffer.read() if file == STDIN else read_file(file, pipes=file == path)
            except OSError as error:
                problems.append(unreadable(errors.escaped_name(file), error))
                continue
            yield from _reviews(errors.escaped_name(file), data, problems)


def _files(path: Path, problems: list[Problem]) -> list[str]:
    if not path.is_dir():
        return [str(path)]
    inside = (each for each in path.rglob("*") if each.suffix in _SUFFIXES and each.is_file())
    found = sorted(
        str(each) for each in inside if not any(part.startswith(".") for part in each.relative_to(path).parts)
    )
    if not found:
        problems.append(
            Problem(str(path), 0, 0, "", f"holds no reviews ({', '.join(f'*{each}' for each in _SUFFIXES)})")
        )
    return found


def _reviews(file: str, data: bytes, problems: list[Problem]) -> Iterator[Review]:
    """Yield the one review of a file, or the review on each line."""
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    if not lines:
        problems.append(Problem(file, 1, 1, "", "is empty; it should hold reviews"))
    elif file.endswith(SUFFIX) or any(_is_review(line) for _, line in lines):
        for number, line in lines:
            yield from _review(file, number, line, problems)
    else:
        yield from _review(file, 1, data, problems)


def _is_review(line: bytes) -> bool:
    try:
        decode_review(line)
    except BadReviewError:
        return False
    return True


def _review(file: str, line: int, data: bytes, problems: list[Problem]) -> Iterator[Review]:
    try:
        data.decode()  # the objects in it are not decoded yet
        request = decode_review(data)
    except (BadReviewError, UnicodeDecodeError) as error:
        row, column = position_of(data, str(error))
        row = min(row, data.count(b"\n") + 1)  # what is cut off is wrong behind its end
        problems.append(Problem(file, line + row - 1, column, "", str(error)))
        return
    try:
        recorded = None if _notes_decoder.decode(data).spotgate is msgspec.UNSET else decode_notes(data)
    except msgspec.MsgspecError as error:
        text = f"was recorded by a version of spotgate that this one does not understand: {error}"
        problems.append(Problem(file, line, 1, "spotgate", text))
        return
    yield Review(file, line, request, recorded)


class ReplayedAnswer(msgspec.Struct, frozen=True):
    """Hold the findings and the patch in answer to a review."""

    findings: tuple[Found, ...]
    patch: list[dict[str, Any]]

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on the request; outcomes that this version does not know are ignored."""
        found = {each.outcome for each in self.findings}
        return verdict_of(outcome for outcome in Outcome if str(outcome) in found)

    @classmethod
    def of(cls, decision: Decision) -> ReplayedAnswer:
        """Return the answer of a decision."""
        return cls(found_in(decision), [] if decision.denied else [each.as_json() for each in decision.patch])

    @classmethod
    def recorded(cls, recorded: Recorded) -> ReplayedAnswer:
        """Return the answer that was recorded."""
        return cls(recorded.spotgate.findings, recorded.response.operations)


class AnswerChange(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a review that is answered differently.

    Attributes:
        new, gone: findings that only the new or the old answer has.
        patched, unpatched: operations that only the new or the old patch has.
    """

    review: Review
    phase: Phase
    before: Verdict
    after: Verdict
    new: list[Found]
    gone: list[Found]
    patched: list[dict[str, Any]]
    unpatched: list[dict[str, Any]]


class Policies:
    """Describe a bundle, and the cluster that it judges against: without ``view`` as it was recorded.

    ``version`` is that of Kubernetes where the view does not say it.
    """

    def __init__(self, bundle: Bundle, view: ClusterView | None, version: tuple[int, int]) -> None:
        self._index = bundle.index
        self._view = view
        self._version = version

    def answer(self, review: Review, phase: Phase) -> ReplayedAnswer:
        """Return the answer to the review as it is."""
        return ReplayedAnswer.of(decide(review.request, self._index, self._context(review, phase)))

    def answer_injected(self, review: Review) -> ReplayedAnswer:
        """Return the validating webhook's answer after the injections of the mutating webhook of these policies."""
        patch = decide(review.request, self._index, self._context(review, Phase.MUTATE)).patch
        if patch:
            review = replace(review, request=_patched(review.request, patch))
        return self.answer(review, Phase.VALIDATE)

    def _context(self, review: Review, phase: Phase) -> Context:
        notes = review.recorded.spotgate if review.recorded is not None else None
        view = self._view or (notes.view if notes is not None else None)
        now = notes.time if notes is not None else utc_now()
        # Without notes no server judged it with what it knew.
        return Context(phase=phase, now=now, offline=notes is None).seeing(view or NOTHING_KNOWN, self._version)


def changes_of_recorded(
    review: Review, recorded: Recorded, new: Policies, old: Policies | None
) -> Iterator[AnswerChange]:
    """Yield the change from the old policies, or from the recorded answer, to the new policies."""
    phase = recorded.spotgate.phase
    before = ReplayedAnswer.recorded(recorded) if old is None else old.answer(review, phase)
    after = new.answer(review, phase)
    if after != before and phase is Phase.VALIDATE:
        # What was recorded had gone through the old policies' mutating webhook; now it would be the new ones'.
        after = new.answer_injected(review)
    yield from _change(review, phase, before, after)


def changes_of_plain(review: Review, new: Policies, old: Policies) -> Iterator[AnswerChange]:
    """Yield the changes from the old to the new policies, in both webhooks."""
    yield from _change(review, Phase.MUTATE, old.answer(review, Phase.MUTATE), new.answer(review, Phase.MUTATE))
    yield from _change(review, Phase.VALIDATE, old.answer_injected(review), new.answer_injected(review))


def _change(review: Review, phase: Phase, before: ReplayedAnswer, after: ReplayedAnswer) -> Iterator[AnswerChange]:
    change = AnswerChange(
        review=review,
        phase=phase,
        before=before.verdict,
        after=after.verdict,
        new=[each for each in after.findings if each not in before.findings],
        gone=[each for each in before.findings if each not in after.findings],
        patched=[each for each in after.patch if each not in before.patch],
        unpatched=[each for each in before.patch if each not in after.patch],
    )
    if change.new or change.gone or change.patched or change.unpatched:
        yield change


def _patched(request: Request, patch: Iterable[Operation]) -> Request:
    changed = apply_all(patch, decode_object(request.object))
    return replace(request, object=msgspec.Raw(msgspec.json.encode(changed)))


_PLAIN: Final = ""
_STRONG: Final = "bold"
_FAINT: Final = "dim"
_STYLES: Final = {"denied": "bold red", "warned": "yellow", "audited": "cyan", "allowed": "green"}
_NAMED: Final = 3
"""Reviews with the same change that are named; the others are counted."""


def changes_json(changes: Sequence[AnswerChange], reviews: int, problems: Iterable[Problem]) -> str:
    """Return all changes as JSON; ``unreadable`` is left out if it is empty."""
    shown: dict[str, Any] = {"changes": [_as_json(each) for each in changes], "summary": _summary(changes, reviews)}
    if unreadable := list(map(problem_members, problems)):
        shown["unreadable"] = unreadable
    return terminal.as_json(shown)


def change_lines(changes: Sequence[AnswerChange], reviews: int) -> Iterator[Line]:
    """Yield the changes as lines for people."""
    groups = alike(changes, lambda each: (each.phase, each.before, each.after, tuple(_told(each))))
    for (phase, before, after, told), (first, *others) in groups.items():
        yield [
            (_place(first), _STRONG),
            (f"  {before if before == after else f'{before} -> {after}'}", _STYLES.get(after, _PLAIN)),
            (f"  {printable(first.review.request.describe())}", _PLAIN),
            (f"  {phase}", _FAINT),
        ]
        yield from ([(line, _PLAIN)] for line in told)
        if others:
            named = [f"{_place(each)} {printable(each.review.request.describe())}" for each in others[:_NAMED]]
            listed = ", ".join([*named, "..."] if len(others) > _NAMED else named)
            yield [(f"    the same for {counted(len(others), 'other review')}: {listed}", _FAINT)]
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


def _place(change: AnswerChange) -> str:
    return f"{change.review.file}:{change.review.line}"


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

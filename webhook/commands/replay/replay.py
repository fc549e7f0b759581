"""Evaluate recorded reviews again with other policies, and compare the answers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.base.reading import read_file
from webhook.engine.engine import decide
from webhook.inputs.files import STDIN
from webhook.inputs.review_errors import position_of
from webhook.model.decision import Decision, Outcome, Verdict, verdict_of
from webhook.model.patch import patched_object
from webhook.model.review import BadReviewError, Request, decode_review
from webhook.policy.errors import Problem, escaped_name, unreadable
from webhook.rules.context import NOTHING_KNOWN, Context, Phase, utc_now
from webhook.runtime.recording import SUFFIX, Recorded, RecordedFinding, decode_notes, recorded_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.capacity.view import ClusterView
    from webhook.engine.bundle import Bundle

_SUFFIXES: Final = (SUFFIX, ".json")


class Review(msgspec.Struct, frozen=True):
    """A review with its position, and with its recorded answer and context, if any."""

    file: str
    line: int
    request: Request
    recorded: Recorded | None


def read_reviews(paths: Sequence[str]) -> Iterator[Review | Problem]:
    """Yield the reviews in files, folders, and standard input, in order, and a problem for each mistake."""
    for path in paths:
        files = _files(Path(path)) if path != STDIN and Path(path).is_dir() else [path]
        if not files:
            yield Problem(path, 0, 0, "", f"contains no reviews ({', '.join(f'*{suffix}' for suffix in _SUFFIXES)})")
        for file in files:
            try:
                data = sys.stdin.buffer.read() if file == STDIN else read_file(file, pipes=file == path)
            except OSError as error:
                yield unreadable(escaped_name(file), error)
            else:
                yield from _reviews(escaped_name(file), data)


def _files(folder: Path) -> list[str]:
    files = (file for file in folder.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    return sorted(
        str(file) for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )


def _reviews(file: str, data: bytes) -> Iterator[Review | Problem]:
    """Yield the single review of a file, or the review on each line."""
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), start=1) if line.strip()]
    if not lines:
        yield Problem(file, 1, 1, "", "is empty; it should hold reviews")
    elif file.endswith(SUFFIX) or any(isinstance(_review(file, 1, line), Review) for _, line in lines):
        yield from (_review(file, number, line) for number, line in lines)
    else:
        yield _review(file, 1, data)


def _review(file: str, line: int, data: bytes) -> Review | Problem:
    try:
        data.decode()  # decode_review doesn't decode the objects
        request = decode_review(data)
    except (BadReviewError, UnicodeDecodeError) as error:
        row, column = position_of(data, str(error))
        row = min(row, data.count(b"\n") + 1)  # the error of a truncated review is after its end
        return Problem(file, line + row - 1, column, "", str(error))
    try:
        members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        recorded = decode_notes(data) if "spotgate" in members else None
    except msgspec.MsgspecError as error:
        text = f"was recorded by a version of spotgate that this one does not understand: {error}"
        return Problem(file, line, 1, "spotgate", text)
    return Review(file, line, request, recorded)


class Answer(msgspec.Struct, frozen=True):
    """The findings and the patch of an answer."""

    findings: Sequence[RecordedFinding]
    patch: Sequence[dict[str, Any]]

    @property
    def verdict(self) -> Verdict:
        """Return the verdict. Outcomes that this version doesn't know are ignored."""
        outcomes = {finding.outcome for finding in self.findings}
        return verdict_of(outcome for outcome in Outcome if str(outcome) in outcomes)

    def without(self, other: Answer) -> Answer:
        """Return the findings and the operations that are missing in the other answer."""
        return Answer(
            [finding for finding in self.findings if finding not in other.findings],
            [operation for operation in self.patch if operation not in other.patch],
        )


class AnswerChange(msgspec.Struct, frozen=True):
    """A review with a changed answer.

    Attributes:
        new, gone: the findings and operations that only the new or the old answer has.
    """

    review: Review
    phase: Phase
    before: Verdict
    after: Verdict
    new: Answer
    gone: Answer


class Policies(msgspec.Struct, frozen=True):
    """A bundle, and the cluster to evaluate against. Without ``view``, each review uses its recorded cluster.

    ``version`` is the Kubernetes version if the view has none. ``problems`` collects the failures of the policies.
    """

    bundle: Bundle
    view: ClusterView | None
    version: tuple[int, int]
    problems: set[Problem] = set()

    def answer(self, review: Review, phase: Phase) -> Answer:
        """Return the answer to the review."""
        decision = self._decide(review, phase)
        patch = [] if decision.denied else [operation.as_json() for operation in decision.patch]
        return Answer(recorded_findings(decision), patch)

    def answer_injected(self, review: Review) -> Answer:
        """Return the validating answer after the injections of these policies' mutating webhook."""
        if patch := self._decide(review, Phase.MUTATE).patch:
            injected = patched_object(review.request.object, patch)
            review = replace(review, request=replace(review.request, object=injected))
        return self.answer(review, Phase.VALIDATE)

    def _decide(self, review: Review, phase: Phase) -> Decision:
        if review.recorded is None:  # no server recorded its cluster
            context = Context(phase=phase, now=utc_now(), offline=True)
            view = self.view or NOTHING_KNOWN
        else:
            context = Context(phase=phase, now=review.recorded.spotgate.time)
            view = self.view or review.recorded.spotgate.view
        decision = decide(review.request, self.bundle.index, context.seeing(view, self.version))
        self.problems.update(Problem(review.file, review.line, 1, "", str(failure)) for failure in decision.failures)
        return decision


def changes_of(review: Review, new: Policies, old: Policies | None) -> Iterator[AnswerChange]:
    """Yield the changes from the old policies, or without them from the recorded answer, to the new policies."""
    if review.recorded is not None:
        phase = review.recorded.spotgate.phase
        if old is not None:
            before = old.answer(review, phase)
        else:
            before = Answer(review.recorded.spotgate.findings, review.recorded.response.operations)
        after = new.answer(review, phase)
        if after != before and phase is Phase.VALIDATE:
            # The recorded object has the injections of the old policies; add those of the new ones.
            after = new.answer_injected(review)
        yield from _change(review, phase, before, after)
    elif old is not None:
        yield from _change(review, Phase.MUTATE, old.answer(review, Phase.MUTATE), new.answer(review, Phase.MUTATE))
        yield from _change(review, Phase.VALIDATE, old.answer_injected(review), new.answer_injected(review))


def _change(review: Review, phase: Phase, before: Answer, after: Answer) -> Iterator[AnswerChange]:
    new, gone = after.without(before), before.without(after)
    if new.findings or gone.findings or new.patch or gone.patch:
        yield AnswerChange(review, phase, before.verdict, after.verdict, new, gone)

"""Changes between the answers of two sets of policies to the same reviews."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from webhook.context import Context, Phase, utc_now
from webhook.decision import Outcome, verdict_of
from webhook.engine import decide
from webhook.patch import apply_all
from webhook.review import decode_object
from webhook.server.recording import Found, found_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.bundle import Bundle
    from webhook.cli.replay.reading import Review
    from webhook.cluster.protocol import ClusterView
    from webhook.decision import Decision, Verdict
    from webhook.patch import Operation
    from webhook.review import Request
    from webhook.server.recording import Recorded


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
        patch = recorded.response.patch
        return cls(recorded.spotgate.findings, msgspec.json.decode(base64.b64decode(patch)) if patch else [])


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
    """Describe a bundle, and the cluster that it judges against.

    Without ``view`` the cluster is as it was recorded, and ``version`` that of Kubernetes where the view does not say
    it.
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
        context = Context(
            phase=phase,
            now=notes.time if notes is not None else utc_now(),
            api_server=self._version,
            oldest_kubelet=self._version,
            offline=notes is None,  # no server judged it with what it knew
        )
        if view is None:
            return context
        return replace(
            context,
            view=view,
            api_server=view.api_server or self._version,
            oldest_kubelet=view.oldest_kubelet or self._version,
        )


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

"""Decide one call of the API server: for one phase, or for both."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from webhook.engine.enforcement import is_controllers_pod
from webhook.engine.engine import decide, decide_both
from webhook.engine.response import respond
from webhook.model.patch import patched_object
from webhook.rules.context import Context, Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.engine.bundle import Bundle
    from webhook.model.decision import Decision
    from webhook.model.review import Request

Decided: TypeAlias = "tuple[Request, Decision, Context]"
"""A request with the decision of one phase, and the context of the decision."""


def phases_of(request: Request, phase: Phase, bundle: Bundle) -> Sequence[Phase]:
    """Return the phases that a call for ``phase`` decides: for a controller's Pod, ``/mutate`` may decide both."""
    is_once = phase is Phase.MUTATE and bundle.decides_once and is_controllers_pod(request)
    return tuple(Phase) if is_once else (phase,)


def decide_call(request: Request, bundle: Bundle, context: Context) -> list[Decided]:
    """Return the decision of each phase that the call decides: the second is about the patched object."""
    if len(phases_of(request, context.phase, bundle)) == 1:
        return [(request, decide(request, bundle.index, context), context)]
    patched, validate = replace(request), replace(context, phase=Phase.VALIDATE)

    def patch(mutation: Decision) -> None:
        patched.object = patched_object(request.object, mutation.patch)

    mutation, validation = decide_both(patched, bundle.index, context, validate, patch)
    both = [(request, mutation, context), (patched, validation, validate)]
    return both[:1] if mutation.denied else both


def respond_to_call(decided: Sequence[Decided]) -> bytes:
    """Return the response with the patch of the first decision, and the findings and audit annotations of all."""
    request, decision, context = decided[0]
    if len(decided) > 1:
        findings = dict.fromkeys(finding for _, one, _ in decided for finding in one.findings)
        audit = {key: text for _, one, _ in decided for key, text in one.audit.items()}
        decision = replace(decision, findings=tuple(findings), audit=audit)
    return respond(request.uid, decision, context.phase)

"""Reasons why policies found nothing in a case, in the words of ``explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.cli.explain.explanation import EXEMPTS, SKIPS, steps_of, verdict_on

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.cli.explain.explanation import PolicyVerdict
    from webhook.cli.judging.judge import Judgement
    from webhook.index import Index
    from webhook.manifests.objects import Manifest
    from webhook.review import Request


def silent(manifest: Manifest, judgement: Judgement, index: Index, names: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each policy that neither found nor changed anything.

    Empty ``names`` stand for all policies for this kind of object.
    """
    trace = judgement.trace
    if trace is None:
        return
    left_out = {policy.name: why for policy, why in index.left_out(trace.request)}
    steps = steps_of(trace)
    of_all = "; ".join(text for (policy, _), texts in steps.items() if not policy for text in texts)
    for policy in index.policies:
        if names and policy.name not in names:
            continue
        if policy.name in left_out:
            if why := left_out[policy.name] or (names and f"it never looks at {_resource(trace.request)}"):
                yield f"{policy.name} {SKIPS}: {why}"
            continue
        verdict = verdict_on(policy, steps, manifest, judgement, trace)
        if not verdict.findings and not verdict.additions:
            yield f"{policy.name} {verdict.word}: {_said(verdict) or of_all}".removesuffix(": ")


def matched_by_none(judgement: Judgement, index: Index) -> str:
    """Return a phrase if all policies are for other kinds of objects; empty if one is for this kind."""
    trace = judgement.trace
    if trace is None:
        return ""
    left_out = index.left_out(trace.request)
    if len(left_out) < len(index.policies) or any(why for _, why in left_out):
        return ""
    names = ", ".join(policy.name for policy in index.policies)
    return f"{names} never look{'s' * (len(index.policies) == 1)} at {_resource(trace.request)}"


def _said(verdict: PolicyVerdict) -> str:
    """Return the last step of a policy that skips or exempts the object, else all its steps."""
    last = slice(-1, None) if verdict.word in {SKIPS, EXEMPTS} else slice(None)
    return "; ".join(": ".join(filter(None, (each.where, "; ".join(each.steps[last])))) for each in verdict.said)


def _resource(request: Request) -> str:
    return ".".join(filter(None, (request.path, request.resource.group)))

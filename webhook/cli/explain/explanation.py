"""Explanations of judgements, built from their traces: why each policy did or did not act on an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from webhook.cli.explain.pool import read_pool
from webhook.cli.explain.timeline import reclaims
from webhook.cli.judging.additions import addition_of
from webhook.decision import ENGINE, Outcome
from webhook.policy.terms import Enforcement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.cli.explain.pool import PoolReading
    from webhook.cli.explain.timeline import NoTimeline, ReclaimTimeline
    from webhook.cli.judging.additions import Addition
    from webhook.cli.judging.judge import Judgement, PhaseDecisions
    from webhook.cli.judging.session import Judgements
    from webhook.decision import Finding
    from webhook.index import Policy
    from webhook.manifests.objects import Manifest
    from webhook.policy.document import PolicyDocument

WORDS: Final = {
    Outcome.DENY: "denies",
    Outcome.WARN: "warns",
    Outcome.AUDIT: "records",
    Outcome.INDETERMINATE: "can't tell",
}
"""What a policy does, by the highest outcome of its findings."""

CHANGES: Final = "changes"
PASSES: Final = "passes"
SKIPS: Final = "skips"
EXEMPTS: Final = "exempts"
OFF: Final = "off"

ITSELF: Final = "the object itself"

_LEFT_OUT: Final = {"match.": SKIPS, "matchConditions[": SKIPS, "exempt: ": EXEMPTS}
"""How the last step of a policy begins that is not for the object or exempts it."""

_NOT_EXEMPT: Final = "not exempt by "


class Said(msgspec.Struct, frozen=True):
    """Hold the trace steps of a policy on the object, or on one pod template in it.

    Attributes:
        where: the template's field path, or `ITSELF`; empty if the steps are the same for all.
    """

    where: str
    steps: tuple[str, ...]


class PolicyVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what one policy did, and why.

    Attributes:
        word: one of `WORDS`, `CHANGES`, `PASSES`, `SKIPS`, `EXEMPTS`, `OFF`.
        enforcement: deny, warn or audit; empty for the engine itself.
    """

    policy: str
    kind: str
    word: str
    enforcement: str = ""
    said: tuple[Said, ...] = ()
    findings: tuple[Finding, ...] = ()
    additions: tuple[Addition, ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Explain one object.

    Attributes:
        file, line: where the object begins.
        notes: the engine's own reasons, which hold for all policies.
        verdicts: the policies that are for this kind of object; those that judged it come first, in their order.
        others: names of the other policies.
        pool: how the object is read, if it is a node pool.
        timelines: the timeline of each Pod or pod template.
    """

    file: str
    line: int
    title: str
    operation: str
    notes: tuple[Said, ...]
    verdicts: tuple[PolicyVerdict, ...]
    others: tuple[str, ...]
    pool: PoolReading | None
    timelines: tuple[ReclaimTimeline | NoTimeline, ...]


def explanations(judged: Judgements) -> Iterator[Explanation]:
    """Yield the explanation of each object that could be judged."""
    for manifest, judgement in judged.objects:
        if judgement.problem is None:
            yield _explanation(manifest, judgement, judged)


def _explanation(manifest: Manifest, judgement: Judgement, judged: Judgements) -> Explanation:
    trace, bundle = judgement.trace, judged.bundle
    name = f"{judgement.namespace}/{manifest.shown_name}" if judgement.namespace else manifest.shown_name
    bare = Explanation(
        file=manifest.file,
        line=manifest.line,
        title=f"{manifest.kind} {name}".rstrip(),
        operation="",
        notes=(),
        verdicts=tuple(_engine(judgement.findings)),
        others=tuple(policy.name for policy in bundle.policies),
        pool=None,
        timelines=(),
    )
    if trace is None:  # nobody knows which resource it is
        return bare
    request = trace.request
    steps = steps_of(trace)
    notes = tuple(Said(where, texts) for (policy, where), texts in steps.items() if not policy)
    left_out = bundle.index.left_out(request)
    unmatched = {policy.name for policy, _ in left_out}
    if bundle.index.is_in_system_namespace(request, judged.view):
        naming = (each for each in bundle.policies if each.matcher.names(request.namespace))
        judging = (verdict_on(each, steps, manifest, judgement, trace) for each in naming if each.name not in unmatched)
        return replace(bare, operation=request.operation, notes=notes, verdicts=(*bare.verdicts, *judging), others=())
    verdicts = [
        *_engine(judgement.findings),
        *(
            verdict_on(each, steps, manifest, judgement, trace)
            for each in bundle.policies
            if each.name not in unmatched
        ),
        *(
            PolicyVerdict(policy=each.name, kind=each.kind, word=SKIPS, said=(Said("", (why,)),))
            for each, why in left_out
            if why
        ),
        *map(_off, filter(_is_off, bundle.documents)),
    ]
    return replace(
        bare,
        operation=request.operation,
        notes=notes,
        verdicts=tuple(verdicts),
        others=tuple(policy.name for policy, why in left_out if not why),
        pool=read_pool(trace, bundle, judged.view),
        timelines=tuple(reclaims(trace, bundle, judged.view)),
    )


def steps_of(trace: PhaseDecisions) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the trace steps by policy and place.

    Of a policy with steps in both phases those of the first: in the second it sees its own changes.
    """
    steps: dict[tuple[str, str], tuple[str, ...]] = {}
    for decision in (trace.validation, trace.mutation):
        found: dict[tuple[str, str], list[str]] = {}
        for policy, where, text in decision.steps:
            said = found.setdefault((policy, where), [])
            if text not in said:
                said.append(text)
        steps |= {key: tuple(said) for key, said in found.items()}
    return steps


def _engine(findings: tuple[Finding, ...]) -> Iterator[PolicyVerdict]:
    """Yield the verdict of the engine itself, if it has findings."""
    own = tuple(finding for finding in findings if finding.policy == ENGINE)
    if own:
        yield PolicyVerdict(policy=ENGINE, kind="", word=WORDS[max(each.outcome for each in own)], findings=own)


def verdict_on(
    policy: Policy,
    steps: dict[tuple[str, str], tuple[str, ...]],
    manifest: Manifest,
    judgement: Judgement,
    trace: PhaseDecisions,
) -> PolicyVerdict:
    """Return what a policy did that is for such objects, or for pod templates in them."""
    findings = tuple(each for each in judgement.findings if each.policy == policy.name)
    said = _said({where: texts for (name, where), texts in steps.items() if name == policy.name}, steps, findings)
    additions = tuple(
        addition_of(written, len(manifest.path))
        for written, operation in zip(judgement.patch, trace.mutation.patch, strict=True)
        if operation.policy == policy.name
    )
    word = _word(said, findings, additions)
    if word == PASSES and not said and any(not name for name, _ in steps):
        word = SKIPS  # for the engine's reasons, which are said once
    return PolicyVerdict(
        policy=policy.name,
        kind=policy.kind,
        word=word,
        enforcement=str(policy.enforcement),
        said=_without_exemptions(said) if word == PASSES else said,
        findings=findings,
        additions=additions,
    )


def _without_exemptions(said: tuple[Said, ...]) -> tuple[Said, ...]:
    """Return the steps without exemptions that do not apply, which do not matter if nothing is found."""
    others = ((each.where, tuple(step for step in each.steps if not step.startswith(_NOT_EXEMPT))) for each in said)
    return tuple(Said(where, steps) for where, steps in others if steps)


def _said(
    own: dict[str, tuple[str, ...]], steps: dict[tuple[str, str], tuple[str, ...]], findings: tuple[Finding, ...]
) -> tuple[Said, ...]:
    """Return the steps of a policy, with their places if they differ between places."""
    templates = {where for _, where in steps if where}
    alike = len(set(own.values())) == 1
    if not templates or (alike and not findings and (templates <= own.keys() or "" in own)):
        return tuple(Said("", texts) for texts in dict.fromkeys(own.values()))
    if len(templates) == 1 and "" not in own:
        return tuple(Said("", texts) for texts in own.values())
    return tuple(Said(where or ITSELF, texts) for where, texts in own.items())


def _word(said: tuple[Said, ...], findings: tuple[Finding, ...], additions: tuple[Addition, ...]) -> str:
    if findings:
        return WORDS[max(finding.outcome for finding in findings)]
    if additions:
        return CHANGES
    words = {next((word for how, word in _LEFT_OUT.items() if each.steps[-1].startswith(how)), PASSES) for each in said}
    return words.pop() if len(words) == 1 else PASSES


def _is_off(document: PolicyDocument) -> bool:
    return document.is_policy and document.spec.enforcement is Enforcement.OFF


def _off(document: PolicyDocument) -> PolicyVerdict:
    return PolicyVerdict(policy=document.name, kind=document.kind, word=OFF, said=(Said("", ("enforcement: off",)),))

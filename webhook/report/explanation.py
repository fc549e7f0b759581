"""Explain a judgement from its trace: why each policy did or didn't act on an object.

For a node pool, also explain the properties that the provider's reader finds, with their fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from webhook.base.terminal import counted
from webhook.capacity.placement.supply import can_be_spot
from webhook.capacity.providers.joins import with_template_of, with_used
from webhook.capacity.providers.pool import Gpu, Pool
from webhook.capacity.providers.provider import Provider, readers_by_resource
from webhook.kube.layouts import member
from webhook.model.decision import ENGINE, Finding, Outcome, PhaseDecisions, Step, StepKind
from webhook.model.review import decode_object, is_null
from webhook.policy.terms import Enforcement
from webhook.reclaim.pods import NoTimeline, reclaims
from webhook.report.additions import Addition, addition_of
from webhook.report.report import alike

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.capacity.providers.query import Query
    from webhook.capacity.providers.reader import PoolReader
    from webhook.capacity.view import ClusterView
    from webhook.engine.bundle import Bundle
    from webhook.engine.index import Policy
    from webhook.inputs.objects import Manifest
    from webhook.judging.judge import Judgement
    from webhook.judging.session import Judgements
    from webhook.reclaim.timeline import ReclaimTimeline

_NOT_SPECIFIED: Final = "not specified"
_GPUS: Final = {Gpu.ANY: "as its Pods request", Gpu.UNKNOWN: "unknown: counts as GPU for spot, not for on-demand"}


class PoolFact(msgspec.Struct, frozen=True):
    """One property of a pool, with its source fields or the missing ones."""

    name: str
    value: str
    source: str = ""


class PoolReading(msgspec.Struct, frozen=True):
    """The properties of a node pool, and its reader."""

    reader: str
    facts: tuple[PoolFact, ...]


def read_pool(trace: PhaseDecisions, bundle: Bundle, view: ClusterView) -> PoolReading | None:
    """Read the node pool of a request. Return None if the object is no node pool."""
    request = trace.request
    readers = readers_by_resource(bundle.providers.values())
    raw = request.old_object if is_null(request.object) else request.object
    kind_readers = readers.get((request.resource.group, request.resource.resource))
    if kind_readers is None or is_null(raw):
        return None
    value = decode_object(raw)
    reader = kind_readers.of(value)
    written = reader.read(value)
    known = (pool for pool in view.pools or () if pool.identity == written.identity)
    pool = next(known, with_template_of(written, view.templates))
    pool = with_used(pool, (*(view.pools or ()), *view.node_groups))
    title = f"CapacityProvider {reader.provider}: {reader.kind} of {reader.group}"
    return PoolReading(title, tuple(_facts(reader, bundle.providers[reader.provider], pool, value)))


def _facts(reader: PoolReader, provider: Provider, pool: Pool, value: dict[str, Any]) -> Iterator[PoolFact]:
    def source(*queries: Query | None) -> str:
        places = ((query, query.place(value)) for query in queries if query is not None)
        sources = (
            f"no {place}" if place == query.field and member(value, query.path) is None else place
            for query, place in places
        )
        return "; ".join(dict.fromkeys(sources))

    accelerators = reader.accelerators
    machine = reader.requirements if reader.instance_type is None else reader.instance_type
    capacity = f"{reader.capacity.label} in {reader.capacity_query.field}" if reader.capacity.label else ""
    yield PoolFact("capacity", pool.capacity, capacity or source(reader.capacity_query))
    count = f", {pool.gpu_count} in each node" if pool.gpu_count else ""
    gpu = f"{_GPUS.get(pool.gpu, pool.gpu)}{count}{f' ({pool.gpu_type})' if pool.gpu_type else ''}"
    yield PoolFact("GPUs", gpu, source(accelerators.type, accelerators.count, accelerators.when, machine))
    yield PoolFact("instance types", pool.instance_type or _NOT_SPECIFIED, source(machine))
    size = _NOT_SPECIFIED if pool.desired is None else counted(pool.desired, "node")
    sizer = f"{pool.size.by[0]} {pool.size.by[2]}" if pool.size is not None else ""
    yield PoolFact("size", size, sizer or source(reader.size.desired))
    if pool.autoscaling:
        unbounded = "no maximum" if pool.unlimited else _NOT_SPECIFIED
        upper = unbounded if pool.maximum is None else counted(pool.maximum, "node")
        yield PoolFact("autoscaled to", upper, source(reader.size.autoscaling, reader.size.maximum, reader.size.limits))
    else:
        yield PoolFact("autoscaled", "no", source(reader.size.autoscaling))
    yield PoolFact("can have nodes", f"no: {pool.unusable}" if pool.unusable else "yes")
    assumption = " (assumed to be this one: the files describe no other, and no Nodes)" if pool.assumed_here else ""
    yield PoolFact("cluster", f"{pool.cluster_id or 'this one'}{assumption}", source(reader.cluster))
    taints = dict.fromkeys(map(str, (*pool.taints, *(() if pool.bare else provider.platform_taints_of(pool.labels)))))
    yield PoolFact("taints", ", ".join(taints) or "none", source(reader.taints, reader.without_platform_taints))
    labels = (f"{key}={text}" for key, text in sorted(pool.labels.items()))
    yield PoolFact("labels of nodes", ", ".join(labels) or "none", source(reader.labels))
    spot_taints = (str(spec.taint) for spec in provider.spot_node_taints if spec.declared_pools)
    spot_labels = (f"{key}={text}" for key, text in provider.marks_of(pool))
    if can_be_spot(pool, provider) and (added := ", ".join((*spot_taints, *spot_labels))):
        origin = f"of every {provider.title} spot node" if pool.marked else source(reader.own_spot_labels)
        yield PoolFact("spot nodes have", added, origin)
    zones = reader.requirements if reader.zones is None else reader.zones
    yield PoolFact("zones", ", ".join(sorted(pool.zones)) or _NOT_SPECIFIED, source(zones))
    own, seconds, margin = pool.grace_seconds is not None, pool.grace_seconds, pool.safety_margin_seconds
    seconds = provider.grace_period.budget_seconds if seconds is None else seconds
    margin = provider.grace_period.safety_margin_seconds if margin is None else margin
    free = f", with {margin} s reserved" if margin else ""
    yield PoolFact("time to stop", f"{seconds} s{free}", "from the pool" if own else f"of every {provider.title} pool")
    for problem in pool.problems:
        yield PoolFact("can't be read", problem)


VERBS: Final = {
    Outcome.DENY: "denies",
    Outcome.WARN: "warns",
    Outcome.AUDIT: "records",
    Outcome.INDETERMINATE: "can't tell",
}
"""The word for a policy's verdict, by the highest outcome of its findings."""

CHANGES: Final = "changes"
PASSES: Final = "passes"
SKIPS: Final = "skips"
EXEMPTS: Final = "exempts"
OVERRIDDEN: Final = "overridden"
OFF: Final = "off"

_LEFT_OUT: Final = {StepKind.SKIPPED: SKIPS, StepKind.EXEMPTED: EXEMPTS, StepKind.OVERRIDDEN: OVERRIDDEN}
"""The words for the last steps of policies that don't evaluate the object."""


class Reason(msgspec.Struct, frozen=True):
    """The trace steps of a policy. ``where``: the field path of a pod template, the object itself, or empty for all."""

    where: str
    steps: tuple[Step, ...]


class PolicyVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One policy's verdict, with its reasons.

    Attributes:
        word: one of `VERBS`, `CHANGES`, `PASSES`, `SKIPS`, `EXEMPTS`, `OVERRIDDEN`, `OFF`.
        enforcement: deny, warn, or audit; empty for the engine.
        replaces: whether it replaces a shipped policy.
    """

    policy: str
    kind: str
    word: str
    enforcement: str = ""
    replaces: bool = False
    reasons: tuple[Reason, ...] = ()
    findings: tuple[Finding, ...] = ()
    additions: tuple[Addition, ...] = ()

    @property
    def about(self) -> str:
        """Describe the kind, the enforcement, and whether it replaces a shipped policy."""
        enforcement = f"enforcement: {self.enforcement}" if self.enforcement else ""
        replaces = "replaces the shipped policy" if self.replaces else ""
        return ", ".join(filter(None, (self.kind, enforcement, replaces)))


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one object.

    Attributes:
        file, line: the position of the object.
        notes: the engine's reasons, which apply to all policies.
        verdicts: the policies for this kind of object, in order; those that evaluated it come first.
        others: the names of the other policies.
        pool: the properties of the object, if it is a node pool.
        timelines: the timeline of each Pod or pod template.
    """

    file: str
    line: int
    title: str
    operation: str = ""
    notes: tuple[Reason, ...] = ()
    verdicts: tuple[PolicyVerdict, ...] = ()
    others: tuple[str, ...] = ()
    pool: PoolReading | None = None
    timelines: tuple[ReclaimTimeline | NoTimeline, ...] = ()


def explanations(judged: Judgements) -> Iterator[Explanation]:
    """Yield the explanation of each evaluated object."""
    for manifest, judgement in judged.objects:
        if judgement.problem is None or judgement.trace is not None:
            yield _explanation(manifest, judgement, judged)


def _explanation(manifest: Manifest, judgement: Judgement, judged: Judgements) -> Explanation:
    trace, bundle = judgement.trace, judged.bundle
    name = f"{judgement.namespace}/{manifest.shown_name}" if judgement.namespace else manifest.shown_name
    engine_findings = tuple(finding for finding in judgement.findings if finding.policy == ENGINE)
    word = VERBS[max((finding.outcome for finding in engine_findings), default=Outcome.AUDIT)]
    engine = [PolicyVerdict(policy=ENGINE, kind="", word=word, findings=engine_findings)] if engine_findings else []
    explained = Explanation(
        file=manifest.file,
        line=manifest.line,
        title=f"{manifest.kind} {name}".rstrip(),
        verdicts=tuple(engine),
        others=tuple(policy.name for policy in bundle.policies),
    )
    if trace is None:  # the resource of its kind is unknown
        return explained
    request, steps = trace.request, steps_by_policy(trace)
    left_out = bundle.index.left_out(request)
    unmatched = {policy.name for policy, _ in left_out}
    replacing = {document.name for document in bundle.replacing if document.is_policy}
    in_system = bundle.index.system_namespaces.contains_object(request, judged.view)
    verdicts = (
        *engine,
        *(
            replace(verdict_on(policy, steps, manifest, judgement, trace), replaces=policy.name in replacing)
            for policy in bundle.policies
            if policy.name not in unmatched and (not in_system or policy.matcher.names(request.namespace))
        ),
    )
    notes = tuple(Reason(where, texts) for (policy, where), texts in steps.items() if not policy)
    explained = replace(explained, operation=request.operation, notes=notes, verdicts=verdicts, others=())
    if in_system:
        return explained
    skipped = [(policy.name, policy.kind.name, SKIPS, why) for policy, why in left_out if why]
    off = [
        (document.name, document.kind, OFF, "enforcement: off")
        for document in bundle.documents
        if document.is_policy and document.spec.enforcement is Enforcement.OFF
    ]
    unasked = (
        PolicyVerdict(policy=name, kind=kind, word=word, reasons=(Reason("", (Step(why),)),))
        for name, kind, word, why in (*skipped, *off)
    )
    return replace(
        explained,
        verdicts=(*verdicts, *unasked),
        others=tuple(policy.name for policy, why in left_out if not why),
        pool=read_pool(trace, bundle, judged.view),
        timelines=tuple(reclaims(trace, bundle, judged.view)),
    )


PlacedSteps: TypeAlias = dict[tuple[str, str], tuple[Step, ...]]
"""The trace steps by policy and place."""


def steps_by_policy(trace: PhaseDecisions) -> PlacedSteps:
    """Return the trace steps by policy and place.

    If a policy has steps in both phases, return those of mutation: validation sees the policy's changes.
    """
    steps: PlacedSteps = {}
    for decision in (trace.validation, trace.mutation):
        by_place = alike(decision.steps, lambda step: step[:2])
        steps |= {place: tuple(dict.fromkeys(step for *_, step in same)) for place, same in by_place.items()}
    return steps


def verdict_on(
    policy: Policy, steps: PlacedSteps, manifest: Manifest, judgement: Judgement, trace: PhaseDecisions
) -> PolicyVerdict:
    """Return the verdict of a policy that matches this kind of object or its pod templates."""
    findings = tuple(finding for finding in judgement.findings if finding.policy == policy.name)
    reasons = _reasons({where: texts for (name, where), texts in steps.items() if name == policy.name}, steps, findings)
    additions = tuple(
        addition_of(written, len(manifest.path))
        for written, operation in zip(judgement.patch, trace.mutation.patch, strict=True)
        if operation.policy == policy.name
    )
    word = _word(reasons, findings, additions)
    if word == PASSES and not reasons and any(not name for name, _ in steps):
        word = SKIPS  # because of the engine's reasons, which are shown once
    return PolicyVerdict(
        policy=policy.name,
        kind=policy.kind.name,
        word=word,
        enforcement=str(policy.enforcement),
        reasons=tuple(_without_exemptions(reasons)) if word in {PASSES, SKIPS} else reasons,
        findings=findings,
        additions=additions,
    )


def _without_exemptions(reasons: tuple[Reason, ...]) -> Iterator[Reason]:
    """Yield the steps without the exemptions that didn't apply: without findings, they don't matter."""
    for reason in reasons:
        if steps := tuple(step for step in reason.steps if step.kind is not StepKind.NOT_EXEMPTED):
            yield Reason(reason.where, steps)


def _reasons(
    own_steps: dict[str, tuple[Step, ...]], steps: PlacedSteps, findings: tuple[Finding, ...]
) -> tuple[Reason, ...]:
    """Return the steps of a policy, with their places if the steps differ by place."""
    templates = {where for _, where in steps if where}
    alike = len(set(own_steps.values())) == 1
    if not templates or (alike and not findings and (templates <= own_steps.keys() or "" in own_steps)):
        return tuple(Reason("", texts) for texts in dict.fromkeys(own_steps.values()))
    if len(templates) == 1 and "" not in own_steps:
        return tuple(Reason("", texts) for texts in own_steps.values())
    return tuple(Reason(where or "the object itself", texts) for where, texts in own_steps.items())


def _word(reasons: tuple[Reason, ...], findings: tuple[Finding, ...], additions: tuple[Addition, ...]) -> str:
    if findings:
        return VERBS[max(finding.outcome for finding in findings)]
    if additions:
        return CHANGES
    words = {_LEFT_OUT.get(reason.steps[-1].kind, PASSES) for reason in reasons}
    return PASSES if PASSES in words or not words else min(words)

"""Define the plan of SpotPlacement for one Pod, and build its violations, worded for the user who applies the Pod."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.text import listed
from webhook.capacity.placement.constraints import NODE_POOL_ANNOTATION, PodConstraints
from webhook.capacity.placement.supply import Supply, supply_of
from webhook.capacity.placement.target import CAPACITIES, CAPACITY_LABEL, ON_DEMAND, NotTargeting, Target, own_choice
from webhook.capacity.providers.pool import CapacityType, Gpu, Taint
from webhook.documents.yaml_writer import dump_on_one_line
from webhook.kube.affinity import REQUIRED, Term, Unmet, contradiction, describe, terms_of, unmet_constraint
from webhook.model.decision import Violation, warning
from webhook.policy.errors import did_you_mean
from webhook.rules.targeting import NOT_MUTATED, pod_noun, run_on_demand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from webhook.capacity.placement.feasible import Rejected
    from webhook.capacity.placement.supply import SpotNodes
    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.kube.pod import Pod, Requirement, Toleration
    from webhook.rules.subject import Subject

_ANNOTATION: Final = f'metadata.annotations["{NODE_POOL_ANNOTATION}"]'
_LONGEST: Final = 63
"""Characters of an unknown value that a finding repeats: an annotation may have 256 KiB."""
UNCHANGED: Final = "spotgate added no tolerations and no selector."


class PlacementPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to one Pod, and its violations.

    Attributes:
        required: required node affinity; each item is a list of alternatives, at least one of which must hold. An item
            that a nodeSelector can express becomes a nodeSelector.
        preferred: preferred node affinity; each item is one preference.
        gated: the Pod waits for the controller of the on-demand floor.
        because: how the Pod targets spot, as a phrase.
    """

    tolerations: tuple[Toleration, ...] = ()
    required: tuple[tuple[tuple[Requirement, ...], ...], ...] = ()
    preferred: tuple[tuple[Requirement, ...], ...] = ()
    gated: bool = False
    because: str = ""
    violations: tuple[Violation, ...] = ()


def not_targeting(
    subject: Subject, target: NotTargeting, view: ClusterView, providers: Mapping[str, Provider]
) -> Iterator[Violation]:
    """Yield the violations of a Pod that doesn't target spot, although its author may intend it to."""
    pod, constraints = subject.pod, PodConstraints.of(subject.pod)
    if target.chosen and pod.labels.get(CAPACITY_LABEL) == ON_DEMAND:
        pool = target.chosen[0]
        yield warning(
            id="on-demand-and-spot",
            reason=f"label {CAPACITY_LABEL}: {ON_DEMAND} contradicts the selected {pool}, which has spot nodes",
            field=constraints.field,
            detail="The label has no effect on where the Pod runs: the selected pool may place it on spot nodes.",
            fix=f"select a {pool.kind} without spot nodes, or remove the label",
        )
    if target.untouchable:
        return
    if target.unknown:
        yield pools_unknown(constraints.field, view)
        return
    own_label = pod.labels.get(CAPACITY_LABEL)
    namespace_labels = view.namespaces.get(subject.request.namespace) or {}
    value = namespace_labels.get(CAPACITY_LABEL) if own_label is None else own_label
    if value is not None and value not in CAPACITIES:
        shown, whose = value[:_LONGEST], "the namespace's label" if own_label is None else "the label"
        yield warning(
            id="unknown-capacity",
            reason=f"{whose} {CAPACITY_LABEL} has the unknown value `{shown}`{did_you_mean(shown, CAPACITIES)}",
            field="" if own_label is None else f'metadata.labels["{CAPACITY_LABEL}"]',
            detail=f"The label has no effect: the Pod isn't placed on spot. Known values: {', '.join(CAPACITIES)}.",
            fix="set one of the known values, or remove the label",
        )
    if own_label == ON_DEMAND:
        own = own_choice(constraints, supply_of(view, providers))
        if not isinstance(own, NotTargeting):
            yield warning(
                id="on-demand-and-spot",
                reason=f"label {CAPACITY_LABEL}: {ON_DEMAND} contradicts the Pod's own choice of spot",
                field=own.field,
                detail=f"The label wins, so spotgate adds no tolerations. But {own.because}. If the spot nodes are "
                "tainted, the Pod stays pending.",
                fix=f"remove `{own.field}`, or set `{CAPACITY_LABEL}: spot`",
            )
    elif constraints.named is not None and view.pools is not None:
        yield from no_such_spot_pool(constraints.named, view, supply_of(view, providers))


def bound_by_hand(view: ClusterView, supply: Supply) -> Iterator[Violation]:
    """Yield a violation for a Pod with ``spec.nodeName`` if the node may be a spot node."""
    if supply.known and not supply.spot and not view.spot_providers:
        return
    yield warning(
        id="bound-by-hand",
        reason="spec.nodeName binds the Pod to a node",
        field="spec.nodeName",
        detail="The Pod bypasses the scheduler, and spotgate injects nothing. If the node is spot, a reclaim "
        "kills the Pod.",
        fix="remove spec.nodeName; to choose a node, use `kubernetes.io/hostname` in a nodeSelector",
    )


def no_such_spot_pool(name: str, view: ClusterView, supply: Supply) -> Iterator[Violation]:
    """Yield a violation if the annotation names no spot pool."""
    spot = [(nodes.pool, nodes.closed) for nodes in supply.spot if nodes.pool is not None]
    if any(pool.is_named(name) for pool, _ in spot):
        return
    usable = [pool for pool, closed in spot if not closed]
    known = next((pool for pool in (*supply.pools, *(view.pools or ())) if pool.is_named(name)), None)
    shown_providers = (nodes.provider for nodes in supply.unseen(view.providers))
    unseen = {provider.name: provider for provider in shown_providers}.values()
    shown = name[:_LONGEST]
    hint = did_you_mean(shown, [name for pool in usable for name in (pool.name, pool.pool_name) if name])
    if unseen and known is None:
        labels = " or ".join(f"`{key}: {shown}`" for provider in unseen if (key := provider.pool_name_label))
        selector = f" and nodeSelector {labels}" if labels else ""
        titles = (provider.title for provider in unseen)
        yield warning(
            id="pool-unseen",
            reason=f"can't tell whether `{shown}` is spot: the cluster has no objects for node pools of "
            f"{listed(titles)}{hint}",
            field=_ANNOTATION,
            detail=f"The cluster has no Node of a pool with this name. {UNCHANGED}",
            fix=f"name a pool with Nodes, or use label `{CAPACITY_LABEL}: spot`{selector} instead",
        )
        return
    reason = f"there is no node pool `{shown}`{hint}"
    alternatives, fix = "No spot pool of this cluster admits Pods.", "remove the annotation"
    if usable:
        alternatives = f"Spot pools that admit Pods: {listed(pool.name for pool in usable)}."
        fix = "name one of these pools, or remove the annotation"
    if known is not None and known.elsewhere:
        reason = f"{known} belongs to another cluster, {known.cluster_id}"
        fix = f"if this is cluster {known.cluster_id}, {this_cluster([known.cluster_id])}; otherwise, {fix}"
    elif known is not None:
        reason = f"{known} is not a spot pool: its capacity is {known.capacity}"
    yield warning(
        id="no-such-spot-pool",
        reason=reason,
        field=_ANNOTATION,
        detail=f"The annotation must name the spot pool on which the Pod runs. {alternatives} {UNCHANGED}",
        fix=fix,
    )


def this_cluster(names: list[str]) -> str:
    """Return how to name this cluster, as an instruction."""
    name = names[0] if len(names) == 1 else "NAME"
    return f"set `--cluster {name}`, or `thisCluster: {name}` in the CapacityProvider"


def pools_unknown(field: str, view: ClusterView) -> Violation:
    """Return the violation for a Pod that targets spot with this field while the node pools are unknown."""
    return warning(
        id="pools-unknown",
        reason="the node pools are unknown, so spotgate can't tell which spot pools can run the Pod",
        field=field,
        detail=f"{view.why_unknown} {UNCHANGED}",
        fix=view.remedy,
        unknown=True,
    )


def not_told_apart(subject: Subject, target: Target) -> Violation:
    """Return the violation for a Pod whose spot pools no node label distinguishes from other pools."""
    where = dict.fromkeys(str(nodes.pool or f"the spot nodes of {nodes.provider.title}") for nodes in target.nodes)
    named = any(nodes.pool is not None and nodes.pool.pool_name for nodes in target.nodes)
    annotate = f", or annotate {pod_noun(subject)} with `{NODE_POOL_ANNOTATION}: POOL`" if named else ""
    return warning(
        id="no-common-label",
        reason="the Pod targets spot, and no label distinguishes the spot pools that can run it from other pools",
        field=target.field,
        detail=f"The Pod can run on {listed(where)}. {UNCHANGED}",
        fix=f"give the nodes of these pools a label that no other node has{annotate}",
    )


def too_many_terms(subject: Subject, target: Target, most: int) -> Violation:
    """Return the violation for a Pod whose own affinity has too many terms: each would need a selector."""
    terms, titles = len(terms_of(subject.pod.spec)), listed(provider.title for provider in target.providers)
    return warning(
        id="too-many-terms",
        reason=f"the Pod targets spot, but its own affinity has {terms} terms, too many to add a selector",
        field=f"{REQUIRED}.nodeSelectorTerms",
        detail=f"Pools of {titles} have no common label, so each term becomes several. {UNCHANGED}",
        fix=f"write at most {most} terms, or annotate {pod_noun(subject)} with `{NODE_POOL_ANNOTATION}: POOL`",
    )


def not_placed(plan: PlacementPlan) -> Violation:
    """Return the violation for planned changes that are missing."""
    missing = [f"toleration `{dump_on_one_line(msgspec.to_builtins(toleration))}`" for toleration in plan.tolerations]
    for alternatives in plan.required:
        kind = "nodeSelector" if node_label(alternatives) else "required node affinity"
        missing.append(f"{kind} {' or '.join(map(_demand, alternatives))}")
    missing += [f"preferred node affinity {_demand(requirements)}" for requirements in plan.preferred]
    return warning(
        id="not-placed",
        reason="the Pod targets spot, and lacks the tolerations or the selector for spot nodes",
        field="spec.tolerations" if plan.tolerations else "spec",
        detail=f"The Pod targets spot because {plan.because}. {NOT_MUTATED}",
        fix=f"add {listed(missing)}",
    )


def node_label(alternatives: Sequence[Sequence[Requirement]]) -> tuple[str, str] | None:
    """Return the equivalent nodeSelector entry, or None if no single entry is equivalent."""
    return alternatives[0][0].label if len(alternatives) == 1 == len(alternatives[0]) else None


def _demand(requirements: Sequence[Requirement]) -> str:
    """Format requirements as text. A requirement of one value looks like a nodeSelector entry."""
    return f"`{', '.join(': '.join(need.label) if need.label else describe(need) for need in requirements)}`"


def no_pool_fits(subject: Subject, target: Target, view: ClusterView, supply: Supply) -> Violation:
    """Return the violation for a Pod that targets spot, and that no spot pool admits."""
    pod, own = subject.pod, PodConstraints.of(subject.pod)
    on_demand = run_on_demand(subject, target)
    if own.named is not None:
        for violation in no_such_spot_pool(own.named, view, supply):
            return violation
    if (unfit := _one_unfit(own, target)) is not None:
        return unfit
    for rejected in target.rejected:
        if rejected.dedicated is not None:
            return _pool_dedicated(subject, target, rejected.nodes, rejected.dedicated)
    for group in _excluded_alone(pod, target, supply):
        if unmet := unmet_constraint(pod.spec, partial(_suit, group)):
            return _excluded(pod, target, supply, unmet, fix=f"remove requirement `{unmet.demand}`, or {on_demand}")
    if not target.rejected:
        return _no_spot_pool(target, view, supply, on_demand)
    return warning(
        id="no-pool-fits",
        reason="the Pod targets spot, and no spot pool can run it",
        field=target.field,
        detail=f"The Pod targets spot because {target.because}. {_reasons(target.rejected)} {UNCHANGED}",
        fix=f"change the Pod so that it fits one of these pools, or {on_demand}",
    )


def _one_unfit(own: PodConstraints, target: Target) -> Violation | None:
    """Return the violation for a Pod that requests GPUs and names one pool without GPUs, or None."""
    chosen = list(_chosen(own, target))
    if not target.gpu or len(chosen) != 1 or chosen[0].gpu is not Gpu.NO:
        return None
    return warning(
        id="pool-without-gpus",
        reason=f"{chosen[0].pool} has no GPUs, and the Pod requests GPUs",
        field=own.field,
        detail=f"The Pod names this pool, and no node of the pool can run the Pod. {UNCHANGED}",
        fix="name a pool with GPUs, or remove the GPU request",
    )


def _no_spot_pool(target: Target, view: ClusterView, supply: Supply, on_demand: str) -> Violation:
    """Return the violation for a Pod that targets spot in a cluster without spot pools."""
    because = f"The Pod targets spot because {target.because}. {UNCHANGED}"
    reason, fix = "the Pod targets spot, and the cluster has no spot pool", f"create a spot pool, or {on_demand}"
    if others := sorted({pool.cluster_id for pool in view.pools or () if pool.elsewhere and pool.spot}):
        because = f"Clusters with spot pools: {listed(others)}. {because}"
        reason = "the Pod targets spot, and all spot pools belong to other clusters"
        fix = f"if this cluster is among them, {this_cluster(others)}; otherwise, {fix}"
    elif mixed := [pool for pool in supply.pools if pool.capacity is CapacityType.BOTH]:
        reason = "the Pod targets spot, and no label distinguishes the spot nodes of a mixed pool from its other nodes"
        because = f"Mixed pools: {listed(map(str, mixed))}. {because}"
        fix = f"create a pool with only spot capacity, or {on_demand}"
    elif unmarked := [
        provider for provider in target.providers if not (provider.spot_node_labels or provider.pools_are_here)
    ]:
        reason = f"the Pod targets spot, and no label marks the spot nodes of {unmarked[0].title}"
        fix = (
            f"label them, and list the label in `spotNodeLabels` of CapacityProvider {unmarked[0].name}, or {on_demand}"
        )
    elif not supply.pools and not view.providers:
        because = f"The cluster has no node pool and no Node of a known provider. {because}"
        fix = f"name the provider in the policy's `spec.provider`, or add a CapacityProvider; otherwise, {fix}"
    return warning(id="no-spot-pool", reason=reason, field=target.field, detail=because, fix=fix)


def _suit(group: Sequence[SpotNodes], term: Term) -> bool:
    return any(nodes.admitted((term,), nodes.absent) for nodes in group)


def _chosen(own: PodConstraints, target: Target) -> Iterator[SpotNodes]:
    """Yield the rejected pools that the Pod names, by annotation or by the pool-name label in its own selector."""
    for nodes in (rejected.nodes for rejected in target.rejected):
        by_label = any(term.demands(nodes.provider.pool_labels) and _suit((nodes,), term) for term in own.terms)
        if by_label if own.named is None else nodes.pool is not None and nodes.pool.is_named(own.named):
            yield nodes


def _excluded_alone(pod: Pod, target: Target, supply: Supply) -> Iterator[tuple[SpotNodes, ...]]:
    """Yield the spot nodes that only the Pod's own constraints exclude: each pool, and all unseen nodes together.

    If the constraints contradict each other, they exclude all pools.
    """
    excluding_all = contradiction(pod.spec)
    yield from ((rejected.nodes,) for rejected in target.rejected if excluding_all or rejected.excluded)
    if unseen := supply.unseen(provider.name for provider in target.providers):
        yield unseen


def _excluded(pod: Pod, target: Target, supply: Supply, unmet: Unmet, *, fix: str) -> Violation:
    others = tuple(rejected for rejected in target.rejected if not rejected.excluded)
    closed = f" The other pools can't run it either: {_reasons(others)}" if others else ""
    which = "every spot pool that could run it" if others else "every spot pool"
    if NODE_POOL_ANNOTATION in pod.annotations:
        which = "the pool that its annotation names"
    return warning(
        id="own-selector-excludes",
        reason=f"the Pod targets spot, and its own nodeSelector or affinity excludes {which}",
        field=unmet.field,
        detail=f"The Pod targets spot because {target.because}, and requires `{unmet.demand}`"
        f"{_hint(unmet.requirement, supply) or '.'}{closed} {UNCHANGED}",
        fix=fix,
    )


def _hint(requirement: Requirement | None, supply: Supply) -> str:
    """Return a hint for a required value that no pool has, or an empty string."""
    if requirement is None or not requirement.values:
        return ""
    key, value = requirement.key, requirement.values[-1]
    if any(pool.is_named(value) or pool.labels.get(key) == value for pool in supply.pools):
        return ""
    return did_you_mean(value, filter(None, (nodes.only(key) for nodes in supply.spot)), cutoff=0.75)


def _pool_dedicated(subject: Subject, target: Target, nodes: SpotNodes, taint: Taint) -> Violation:
    """Return the violation for a Pod repelled by a taint, which dedicates its pool unless it is known to mean spot."""
    noun = pod_noun(subject)
    pattern = dump_on_one_line({"key": taint.key, **({"value": taint.value} if taint.value else {})})
    name = nodes.pool.pool_name or nodes.pool.name if nodes.pool is not None else ""
    named = f", or annotate {noun} with `{NODE_POOL_ANNOTATION}: {name}`" if name else ""
    remedy = f"if the taint only marks spot nodes, add `- {pattern}` to `spec.spotTaints` of the SpotPlacement policy"
    if target.gpu and nodes.gpu is Gpu.YES:
        where = f"`spec.gpu.taints` of CapacityProvider {nodes.provider.name}"
        remedy = f"if the taint only repels Pods without GPUs, add `- {pattern}` to {where}"
    return warning(
        id="pool-dedicated",
        reason=f"the Pod targets spot, and taint {taint} dedicates {nodes.pool} to other Pods",
        field=target.field,
        detail=f"The Pod targets spot because {target.because}. spotgate assumes that a taint dedicates a pool, unless "
        "the taint is known to mark spot. "
        f"{_reasons(target.rejected)} {UNCHANGED}",
        fix=f"{remedy}; if the Pod belongs on this pool, add a toleration to {noun}{named}",
    )


def _reasons(rejected: tuple[Rejected, ...]) -> str:
    reasons = (f"{refusal.nodes.pool}: {refusal.because}" for refusal in rejected)
    return listed(reasons, separator="; ", rest="; and ") + "."

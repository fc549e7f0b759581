"""Explain why no spot pool admits a Pod that targets spot, for the user who applies the Pod."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from webhook.base.text import listed
from webhook.capacity.placement.constraints import NODE_POOL_ANNOTATION, PodConstraints
from webhook.capacity.providers.pool import CapacityType, Gpu, Taint
from webhook.documents.yaml_writer import dump_on_one_line
from webhook.kube.affinity import Term, Unmet, contradiction, unmet_constraint
from webhook.model.decision import Violation, warning
from webhook.policy.errors import did_you_mean
from webhook.rules.spot_placement.findings import UNCHANGED, no_such_spot_pool, this_cluster
from webhook.rules.targeting import pod_noun, run_on_demand

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.capacity.placement.feasible import Rejected
    from webhook.capacity.placement.supply import SpotNodes, Supply
    from webhook.capacity.placement.target import Target
    from webhook.capacity.view import ClusterView
    from webhook.kube.pod import Pod, Requirement
    from webhook.rules.subject import Subject


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

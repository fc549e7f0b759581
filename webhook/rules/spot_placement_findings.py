"""The plan of `webhook.rules.spot_placement` for one Pod, and its findings, worded for whoever applies the Pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.landing import EXCLUDED
from webhook.capacity.pool import CapacityType
from webhook.capacity.targeting import (
    CAPACITIES,
    CAPACITY_LABEL,
    NODE_POOL_ANNOTATION,
    ON_DEMAND,
    NotTargeting,
    own_choice,
)
from webhook.decision import Outcome, Violation
from webhook.kube.affinity import REQUIRED, Answer, admits, describe, refusal, terms_of
from webhook.policy.loader import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.capacity.pool import Pool, Taint
    from webhook.capacity.provider import Provider
    from webhook.capacity.supply import SpotNodes, Supply
    from webhook.capacity.targeting import Target
    from webhook.cluster.protocol import ClusterView
    from webhook.kube.pod import Pod, Requirement, Toleration

_LABEL: Final = f'metadata.labels["{CAPACITY_LABEL}"]'
_ANNOTATION: Final = f'metadata.annotations["{NODE_POOL_ANNOTATION}"]'
_LISTED: Final = 5
"""Pools that a finding names before it only counts the rest."""
_LONGEST: Final = 63
"""How much of an unknown value is repeated: an annotation may have 256 KiB."""
_UNCHANGED: Final = "Nothing was changed about where it may run."


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about one Pod.

    Attributes:
        tolerations: to add.
        selector: requirements to add, all ``In``: to the nodeSelector, or the required affinity where it has several
            values; together as one preference where ``preferred``.
        preferred: spot is preferred, not demanded.
        because: how the Pod targets spot.
        violations: what the plan can't do.
    """

    tolerations: tuple[Toleration, ...] = ()
    selector: tuple[Requirement, ...] = ()
    preferred: bool = False
    because: str = ""
    violations: tuple[Violation, ...] = ()


def _finding(reason: str, field: str, detail: str, fix: str) -> Violation:
    """Placement is a service: what it can't do is said, and never stops a Pod."""
    return Violation(reason=reason, field=field, detail=detail, fix=fix, outcome=Outcome.WARN)


def _asked_at(pod: Pod) -> str:
    """The field by which a Pod asks for spot; empty where its namespace does, or its own selector."""
    if CAPACITY_LABEL in pod.labels:
        return _LABEL
    return _ANNOTATION if NODE_POOL_ANNOTATION in pod.annotations else ""


def not_targeting(
    pod: Pod,
    namespace_labels: Mapping[str, str],
    target: NotTargeting,
    view: ClusterView,
    supply: Supply,
    providers: Mapping[str, Provider],
) -> Iterator[Violation]:
    """What a Pod that is not placed on spot may have meant."""
    if target.untouchable:
        return
    if target.unknown:
        yield pools_unknown(pod, view)
        return
    said = pod.labels.get(CAPACITY_LABEL)
    inherited = namespace_labels.get(CAPACITY_LABEL)
    if said is not None and said not in CAPACITIES:
        yield _unknown_capacity(said, _LABEL, "the label")
    elif said is None and inherited is not None and inherited not in CAPACITIES:
        yield _unknown_capacity(inherited, "", "the namespace's label")
    if said == ON_DEMAND:
        own = own_choice(pod, terms_of(pod.spec), supply, providers)
        if not isinstance(own, NotTargeting):
            yield _on_demand_and_spot(pod, own)
    elif NODE_POOL_ANNOTATION in pod.annotations and supply.known:
        yield from _no_such_spot_pool(pod.annotations[NODE_POOL_ANNOTATION], view, supply)


def _unknown_capacity(value: str, field: str, whose: str) -> Violation:
    shown = value[:_LONGEST]
    return _finding(
        f"{whose} {CAPACITY_LABEL} has the unknown value `{shown}`{did_you_mean(shown, CAPACITIES)}",
        field,
        f"It has no effect: the Pod is not placed on spot by it. There are: {', '.join(CAPACITIES)}.",
        f"write `{CAPACITY_LABEL}: spot`, or one of the others",
    )


def _on_demand_and_spot(pod: Pod, own: str) -> Violation:
    return _finding(
        f"label {CAPACITY_LABEL}: {ON_DEMAND} contradicts the Pod's own choice of spot",
        _choice(pod),
        f"The label holds, and nothing is injected; but {own}. On tainted spot nodes the Pod stays pending.",
        f"remove the choice of spot, or set `{CAPACITY_LABEL}: spot`",
    )


def _choice(pod: Pod) -> str:
    """The field by which the Pod itself chooses where it runs."""
    if NODE_POOL_ANNOTATION in pod.annotations:
        return _ANNOTATION
    return "spec.nodeSelector" if pod.spec.nodeSelector else REQUIRED


def _no_such_spot_pool(name: str, view: ClusterView, supply: Supply) -> Iterator[Violation]:
    """Why an annotation names no spot pool; nothing where it names one."""
    spot = {nodes.pool.name: nodes.pool for nodes in supply.spot if nodes.pool is not None}
    if name in spot:
        return
    named = next((pool for pool in supply.pools if pool.name == name), None)
    elsewhere = next((pool for pool in view.pools or () if pool.name == name), None)
    if named is not None:
        reason = f"{named} is not a spot pool: its capacity is {named.capacity}"
    elif elsewhere is not None:
        reason = f"{elsewhere} belongs to another cluster, {elsewhere.cluster}"
    else:
        reason = f"there is no node pool `{name[:_LONGEST]}`{did_you_mean(name[:_LONGEST], spot)}"
    known = f"The spot pools of this cluster: {_listed(spot)}." if spot else "This cluster has no spot pool."
    yield _finding(
        reason,
        _ANNOTATION,
        f"The annotation names the spot pool that a Pod is to run on. {known} {_UNCHANGED}",
        "name one of them, or remove the annotation",
    )


def pools_unknown(pod: Pod, view: ClusterView) -> Violation:
    """It can't be told where the Pod could run."""
    why = view.why_unknown.rstrip(".")
    return Violation(
        reason="the node pools are unknown: it can't be told on which spot pools the Pod can run",
        field=_asked_at(pod),
        detail=f"{why[:1].upper()}{why[1:]}. {_UNCHANGED}",
        fix=view.remedy,
        outcome=Outcome.WARN,
        unknown=True,
    )


def nowhere(pod: Pod, target: Target, view: ClusterView, supply: Supply) -> Violation:
    """The Pod targets spot, and there is no spot pool that it can land on."""
    named = pod.annotations.get(NODE_POOL_ANNOTATION)
    if named is not None:
        for violation in _no_such_spot_pool(named, view, supply):
            return violation
    if all(because == EXCLUDED for _, because in target.refused):
        for nodes in _looked_at(target, supply):
            field, demand = refusal(pod.spec, nodes.labels, nodes.absent)
            if field:
                return _excluded(pod, target, supply, field=field, demand=demand)
    if not target.refused:
        return _finding(
            "the Pod targets spot, and the cluster has no spot pool",
            _asked_at(pod),
            f"It targets spot by {target.because}. {_UNCHANGED}",
            f"create a spot pool, or set `{CAPACITY_LABEL}: {ON_DEMAND}`",
        )
    return _finding(
        "the Pod targets spot, and there is no spot pool that it can land on",
        _asked_at(pod),
        f"It targets spot by {target.because}. {_reasons(target.refused)} {_UNCHANGED}",
        f"change the Pod so that it fits one of these pools, or set `{CAPACITY_LABEL}: {ON_DEMAND}`",
    )


def _looked_at(target: Target, supply: Supply) -> Iterator[SpotNodes]:
    refused = [pool for pool, _ in target.refused]
    yield from (nodes for nodes in supply.spot if any(nodes.pool is pool for pool in refused))
    names = {provider.name for provider in target.providers}
    yield from (nodes for nodes in supply.unseen if nodes.provider.name in names)


def _excluded(pod: Pod, target: Target, supply: Supply, *, field: str, demand: str) -> Violation:
    terms = terms_of(pod.spec)
    admitted = [
        str(pool)
        for pool in supply.pools
        if pool.capacity is CapacityType.ON_DEMAND and admits(terms, pool.labels) is Answer.YES
    ]
    wants = f" It admits only on-demand capacity: {_listed(admitted)}." if admitted else ""
    return _finding(
        "the Pod targets spot, and its own nodeSelector or affinity excludes every spot pool",
        field,
        f"It targets spot by {target.because}, and demands `{demand}`.{wants} {_UNCHANGED}",
        f"remove the requirement, or set `{CAPACITY_LABEL}: {ON_DEMAND}`",
    )


def not_told_apart(pod: Pod, target: Target) -> Violation:
    """No selector admits the Pod's pools and nothing else."""
    if target.pools is None:
        labels = [nodes.provider.spot_labels[0] for nodes in target.nodes]
        return _finding(
            "the Pod targets spot, and the cluster shows several providers of it",
            _asked_at(pod),
            f"No one label is on the spot nodes of {_listed(each.title for each in target.providers)}. {_UNCHANGED}",
            "give the Pod the nodeSelector of one of them: "
            + " or ".join(f"`{label.key}: {label.value}`" for label in labels),
        )
    return _finding(
        "the Pod targets spot, and no label tells its spot pools from the others",
        _asked_at(pod),
        f"It can land on {_listed(map(str, target.pools or ()))}. {_UNCHANGED}",
        "let these pools, and no others, give their nodes one label of the same value, or name one pool: "
        f"annotation `{NODE_POOL_ANNOTATION}`",
    )


def gpu_only(nodes: SpotNodes, taint: Taint) -> Violation:
    """The pool that the Pod names keeps it off."""
    return _finding(
        f"{nodes.pool} takes only Pods that request GPUs, and this one requests none",
        "spec.tolerations",
        f"Its taint {taint} keeps other Pods off GPU nodes. A toleration for it is injected only with a GPU request.",
        "request GPUs, name a pool without them, or add the toleration yourself",
    )


def no_gpus(pod: Pod, nodes: SpotNodes) -> Violation:
    """The pool that the Pod names can't run it."""
    return _finding(
        f"{nodes.pool} has no GPUs, and the Pod requests some",
        _choice(pod),
        "The Pod names this pool, so it is sent there; but none of its nodes can run it.",
        "name a pool with GPUs, or remove the request",
    )


def not_placed(plan: Plan) -> Violation:
    """What was planned is not there."""
    parts = [f"toleration `{_toleration(each)}`" for each in plan.tolerations]
    kind = "preferred node affinity" if plan.preferred else "nodeSelector"
    for each in plan.selector:
        several = len(each.values or ()) > 1
        shown = describe(each) if several else f"{each.key}: {(each.values or ('',))[0]}"
        parts.append(f"{'required node affinity' if several and not plan.preferred else kind} `{shown}`")
    return _finding(
        "the Pod targets spot, and lacks what it needs to run there",
        "spec.tolerations" if plan.tolerations else "spec",
        f"It targets spot by {plan.because}. The mutating webhook was skipped, or something undid its change, or the "
        "policy only audits.",
        f"add {_listed(parts)}",
    )


def _toleration(toleration: Toleration) -> str:
    value = f", value: '{toleration.value}'" if toleration.value else ""
    return f"{{key: {toleration.key}, operator: {toleration.operator}{value}, effect: {toleration.effect}}}"


def _reasons(refused: tuple[tuple[Pool, str], ...]) -> str:
    said = "; ".join(f"{pool}: {because}" for pool, because in refused[:_LISTED])
    more = len(refused) - _LISTED
    return f"{said}; and {more} more." if more > 0 else f"{said}."


def _listed(items: Iterable[str]) -> str:
    names = list(items)
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")

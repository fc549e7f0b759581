"""Apply the on-demand floor of a workload to one of its Pods, or to its pod template.

If the Pod has an ordinal, the ordinal decides. A Pod of a ReplicaSet gets a scheduling gate, and waits for the
controller, which counts the Pods. If neither can decide, the Pod prefers on-demand nodes.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#start-ordinal;
https://lws.sigs.k8s.io/docs/reference/labels-annotations-and-environment-variables/;
https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.floor import ASSIGNED_LABEL, FLOOR_ANNOTATION, FLOOR_GATE, FORMS, Floor, parse_floor
from webhook.capacity.placement.target import CAPACITY_LABEL, KEEP_ANNOTATION, Target, kept_fields
from webhook.capacity.providers.pool import Gpu, Pool
from webhook.kube.affinity import terms_of
from webhook.kube.pod import Pod, SchedulingGate
from webhook.kube.quantity import amount_of
from webhook.model.decision import Outcome, Violation, warning
from webhook.rules.context import Context, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.capacity.placement.supply import Supply
    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.rules.subject import Subject

_FIELD: Final = f'metadata.annotations["{FLOOR_ANNOTATION}"]'
_INDEX: Final = "apps.kubernetes.io/pod-index"
_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
_GROUPS: Final = "LeaderWorkerSet"
_DEPLOYMENT: Final = "Deployment"
_COUNTED: Final = "ReplicaSet.apps"
_KEEPING: Final = frozenset({_COUNTED, "StatefulSet.apps"})
"""Controllers whose Pods can have a floor. A LeaderWorkerSet creates its Pods through StatefulSets."""
_SHOWN: Final = 63
"""Characters of a value that a finding repeats: an annotation may have 256 KiB."""
_PREFERS: Final = "The Pod prefers on-demand nodes instead."
_GATE: Final = SchedulingGate(FLOOR_GATE)
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_GANG_KEYS: Final = (
    *("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/pod-group-name"),
    *("scheduling.x-k8s.io/pod-group", "scheduling.k8s.io/group-name"),
)
"""Labels and annotations of Pods that a gang scheduler starts together (Kueue, PodGroup, Volcano)."""


class FloorAssignment(StrEnum):
    """The capacity that a Pod of a workload with a floor is assigned to."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    TEMPLATE = "as each Pod of the template is assigned"
    GATED = "as the controller assigns it"
    PREFERRED = "on-demand nodes preferred"


class FloorCase(msgspec.Struct, frozen=True):
    """The assignment of one Pod, and the violations of its floor."""

    assignment: FloorAssignment
    violations: tuple[Violation, ...] = ()


def has_gate(pod: Pod) -> bool:
    """Return whether the Pod has the scheduling gate of the floor."""
    return _GATE in (pod.spec.schedulingGates or ())


def without_spot(pod: Pod, because: str) -> Iterator[Violation]:
    """Yield a violation for the floor of a Pod that doesn't target spot."""
    if FLOOR_ANNOTATION in pod.annotations:
        fix = f"label the Pod template with `{CAPACITY_LABEL}: spot-preferred`, or remove the annotation"
        yield _no_effect(f": {because}", fix)


def _no_effect(why: str, fix: str) -> Violation:
    return warning(id="floor-no-effect", reason=f"the on-demand floor has no effect{why}", field=_FIELD, fix=fix)


def floor_case(
    subject: Subject, target: Target, supply: Supply, context: Context, providers: Mapping[str, Provider]
) -> FloorCase | None:
    """Return the assignment of a Pod that targets spot, or None if its workload has no floor."""
    text = subject.pod.annotations.get(FLOOR_ANNOTATION)
    if text is None:
        return None
    if context.assigned:
        return FloorCase(FloorAssignment(context.assigned))
    floor = parse_floor(text)
    if floor is None:
        invalid = Violation(
            id="floor-invalid",
            reason=f"`{text[:_SHOWN]}` is not an on-demand floor",
            field=_FIELD,
            detail="A floor is a number of Pods, a percentage from 0% to 100%, or both.",
            fix=f"write {', '.join(FORMS[:-1])}, or {FORMS[-1]}",
        )
        return FloorCase(FloorAssignment.PREFERRED, (invalid,))
    if violation := _without_effect(subject, target):
        # The selector of a Pod may be injected. If the user wrote it, the pod template gets the warning.
        may_be_injected = target.own and not subject.template and _owner_of(subject.pod) in _KEEPING
        return FloorCase(FloorAssignment.SPOT, () if may_be_injected else (violation,))
    if subject.template:
        violations = _template_violations(subject, floor, target, supply, context.view, providers)
        return FloorCase(FloorAssignment.TEMPLATE, tuple(violations))
    by_count = _owner_of(subject.pod) == _COUNTED
    return _counted(subject.pod, context) if by_count else _ordinal(subject, floor, context)


def _owner_of(pod: Pod) -> str:
    return pod.controller.group_kind if pod.controller is not None else ""


def _without_effect(subject: Subject, target: Target) -> Violation | None:
    """Return the violation for a floor without effect, or None."""
    owner = subject.pod.controller
    if _owner_of(subject.pod) not in _KEEPING:
        whose = f"the Pods of a {owner.kind}" if owner else "a bare Pod"
        fix = "remove the annotation, or run the Pods in a Deployment, ReplicaSet, StatefulSet, or LeaderWorkerSet"
        return _no_effect(f" on {whose}", fix)
    if target.own:
        fix = f"remove `{target.own}`, and label the Pod template with `{CAPACITY_LABEL}: spot-preferred`"
        return _no_effect(f": `{target.own}` keeps the Pod on spot", fix)
    if "node-selector" in kept_fields(subject.pod):
        fix = f"remove annotation {FLOOR_ANNOTATION}, or {KEEP_ANNOTATION}"
        return _no_effect(f": annotation {KEEP_ANNOTATION} keeps the node selector unchanged", fix)
    return None


def _ordinal(subject: Subject, floor: Floor, context: Context) -> FloorCase:
    """Return the case of a Pod with an ordinal. It doesn't depend on other Pods."""
    pod, owner = subject.pod, subject.pod.controller
    label, start = _GROUP_INDEX, 0
    if label not in pod.labels and owner is not None:
        label, first = _INDEX, context.view.ordinal_starts.get(f"{subject.request.namespace}/{owner.name}")
        if first is None:
            allow = "allow spotgate's ServiceAccount to get statefulsets.apps"
            fix = "pass the StatefulSet with --state" if context.offline else allow
            return _undecided(f"the first ordinal of StatefulSet {owner.name} is unreadable", fix)
        start = first
    index = pod.labels.get(label, "")
    if not (index.isascii() and index.isdecimal()):
        fix = "let the StatefulSet or LeaderWorkerSet create the Pod: it sets the label"
        return _undecided(f"the Pod has no ordinal in label {label}", fix)
    ordinal = int(index) - start
    assignment = FloorAssignment.ON_DEMAND if floor.keeps(ordinal) else FloorAssignment.SPOT
    subject.trace.say("on-demand floor: ordinal %d runs on %s nodes", ordinal, assignment)
    return FloorCase(assignment)


def _undecided(why: str, fix: str) -> FloorCase:
    reason = f"the on-demand floor is undecided: {why}"
    return _preferring(warning(id="floor-undecided", reason=reason, field=_FIELD, detail=_PREFERS, fix=fix))


def _counted(pod: Pod, context: Context) -> FloorCase:
    """Return the case of a Pod of a ReplicaSet, whose Pods the controller counts."""
    # A gated Pod stays gated, even if the controller has stopped.
    runs = bool(context.view.floor_controller) if context.phase is Phase.MUTATE else has_gate(pod)
    violation = _not_kept(pod, runs=runs)
    return _preferring(violation) if violation else FloorCase(FloorAssignment.GATED)


def _not_kept(pod: Pod, *, runs: bool) -> Violation | None:
    """Return the violation for a Pod that the controller can't count, or None. ``runs``: the controller runs."""
    spec = pod.spec
    obstacles = {
        f"scheduler {spec.schedulerName} places the Pods": (spec.schedulerName or _DEFAULT_SCHEDULER)
        != _DEFAULT_SCHEDULER,
        "another scheduling gate holds the Pods": any(gate.name != FLOOR_GATE for gate in spec.schedulingGates or ()),
        f"label {ASSIGNED_LABEL} is already set": ASSIGNED_LABEL in pod.labels,
        "a gang scheduler starts the Pods": bool(spec.schedulingGroup)
        or any(key in keys for key in _GANG_KEYS for keys in (pod.labels, pod.annotations)),
    }
    if why := next((text for text, holds in obstacles.items() if holds), ""):
        fix = f"change the Pod so that this no longer applies, or remove annotation {FLOOR_ANNOTATION}"
    elif runs:
        return None
    else:
        why, fix = "`spotgate controller` doesn't run", "install the component on-demand-floor, or check its Pods"
    reason = f"spotgate can't keep the on-demand floor: {why}"
    return warning(id="floor-not-kept", reason=reason, field=_FIELD, detail=_PREFERS, fix=fix)


def _preferring(violation: Violation) -> FloorCase:
    return FloorCase(FloorAssignment.PREFERRED, (violation,))


def _template_violations(
    subject: Subject,
    floor: Floor,
    target: Target,
    supply: Supply,
    view: ClusterView,
    providers: Mapping[str, Provider],
) -> Iterator[Violation]:
    """Yield the split of a workload's replicas, and a violation for each reason why the floor can't be met."""
    workload, kind, replicas = subject.workload, subject.request.kind.kind, subject.workload.replicas
    pools = _on_demand_pools(target, subject.pod, supply)
    if replicas is not None:
        need, noun = floor.need(replicas), "groups" if kind == _GROUPS else "replicas"
        split = f"{replicas} {noun}: {need} on-demand, {replicas - need} spot"
        subject.trace.say("on-demand floor: %s", split)
        yield Violation(id="floor-split", reason=split, field=_FIELD, outcome=Outcome.AUDIT)
        if supply.known and pools and kind != _GROUPS:
            spare = workload.spare_pods(replicas) if kind == _DEPLOYMENT else None
            yield from _no_room(need, spare, _room_for(subject.pod, pools, providers))
    uncounted = _not_kept(subject.pod, runs=view.floor_controller is not False)
    if uncounted and _owner_of(subject.pod) == _COUNTED:
        yield uncounted
    if supply.known and not pools:
        yield warning(
            id="floor-no-pool",
            reason="no on-demand node pool admits the Pods, so those of the on-demand floor stay pending",
            field=_FIELD,
            fix="create an on-demand pool that matches the Pod's own selectors, or remove the annotation",
        )
    for scaler in view.autoscalers.get(subject.request.namespace, ()):
        if scaler.target == (kind, workload.name) and scaler.minimum < floor.base:
            yield warning(
                id="floor-autoscaler",
                reason=f"{scaler.kind} {scaler.name} may scale down to {scaler.minimum}, below the floor {floor.base}",
                field=_FIELD,
                fix=f"set {scaler.field} of {scaler.kind} {scaler.name} to {floor.base} or more",
            )


def _on_demand_pools(target: Target, pod: Pod, supply: Supply) -> list[Pool | None]:
    """Return the pools with on-demand nodes that the Pod's own constraints and GPU requests admit."""
    terms = terms_of(pod.spec)
    admitting = (nodes.pool for nodes in supply.other if nodes.admitted(terms, supply.telling))
    return [pool for pool in admitting if not (target.gpu and pool is not None and pool.gpu is Gpu.NO)]


def _no_room(need: int, spare: int | None, room: int | None) -> Iterator[Violation]:
    """Yield a violation if the on-demand pools have too little room for the floor, or for a rollout.

    ``spare`` is the number of Pods that a rollout adds before it removes one; None if it may remove one first. The
    rollout stops if all the added Pods wait for room. The old on-demand Pods keep theirs: spot Pods are removed first.
    """
    if room is None:
        return
    if room < need:
        reason = f"the on-demand pools have room for {room} of the {need} Pods of the on-demand floor"
        fix = "enlarge an on-demand pool, or lower the floor"
        yield warning(id="floor-no-room", reason=reason, field=_FIELD, fix=fix)
    elif spare is not None and room <= 2 * need - spare:
        reason = (
            f"a rollout can't finish: the on-demand pools have room for only {room} of the Pods, and the old and "
            f"the new ReplicaSet need {need} each"
        )
        detail = "With maxUnavailable 0, a rollout removes an old Pod only after a new one is ready."
        fix = "set `spec.strategy.rollingUpdate.maxUnavailable: 1`, or enlarge an on-demand pool"
        yield warning(id="floor-no-room", reason=reason, field=_FIELD, detail=detail, fix=fix)


def _room_for(pod: Pod, pools: Iterable[Pool | None], providers: Mapping[str, Provider]) -> int | None:
    """Count the Pods like this one that fit on the nodes of these pools. Return None if that is unknown.

    This requires the size of each pool, and the allocatable resources of its instance type in the provider's document.
    The nodes are assumed to be empty, so the count is an upper bound.
    """
    requests, room = _requests_of(pod), 0
    for pool in pools:
        if pool is None:
            return None
        size = pool.maximum if pool.autoscaling else pool.desired
        offered = providers[pool.provider].instance_types.allocatable.get(pool.instance_type, {})
        fitting = [int((amount_of(offered[name]) or 0) // least) for name, least in requests.items() if name in offered]
        if size is None or not fitting:
            return None
        room += 0 if pool.closed else size * min(fitting)
    return room


def _requests_of(pod: Pod) -> dict[str, Decimal]:
    """Return the total requests by resource, with the overhead, without zeros and invalid quantities."""
    total: defaultdict[str, Decimal] = defaultdict(Decimal)
    for container in pod.spec.containers:
        if (resources := container.resources) is not None:
            for name, quantity in {**(resources.limits or {}), **(resources.requests or {})}.items():
                total[name] += amount_of(quantity) or 0
    for name, quantity in (pod.spec.overhead or {}).items():
        total[name] += amount_of(quantity) or 0
    return {name: amount for name, amount in total.items() if amount > 0}

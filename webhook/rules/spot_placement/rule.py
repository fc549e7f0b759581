"""SpotPlacement: a Pod that targets spot gets the tolerations and selectors to run there, and only there.

Intent
    The user sets only the label ``spotgate.dev/capacity: spot``. Without tolerations, the Pod stays pending while spot
    nodes are free. Without a selector, it may run on more expensive on-demand nodes.
Reads
    Pods on CREATE: label ``spotgate.dev/capacity`` (spot, spot-preferred, on-demand) of the Pod and of its namespace;
    annotations ``spotgate.dev/node-pool``, ``spotgate.dev/on-demand-floor``, and ``spotgate.dev/keep`` (node-selector,
    tolerations); nodeSelector, required node affinity, tolerations, GPU requests, resource claims, volumes, owner,
    schedulerName. The node pools of the cluster, and the objects that claims and volumes name.
Writes
    ``spec.tolerations``: the narrowest toleration for each taint of the admitting spot pools that marks spot nodes or
    the Pod's platform (`capacity.placement.taints`), unless the Pod has a toleration that covers it. The rule tolerates
    the taint of an accelerator only if the Pod requests the accelerator, and the taint of a dedicated pool only if the
    Pod names the pool. It never tolerates a taint that the provider forbids to tolerate.
    ``spec.nodeSelector``, or ``spec.affinity.nodeAffinity`` (required ``In``) if one label isn't enough: the label that
    marks spot nodes, or else labels that only these pools have (`capacity.placement.selector`), unless the Pod's own
    constraints already select spot. If pools of several providers have no common label, each term of the affinity
    becomes one term for each provider. A required ``NotIn`` or ``DoesNotExist`` excludes other spot nodes that neither
    the Pod's own constraints nor a taint keep off.
    ``spec.affinity.nodeAffinity`` for spot-preferred: the same requirements as a preference (weight 100). Only nodes
    that the injected tolerations would open are excluded by a required one.
    Nothing, if no spot pool admits the Pod.
    With an on-demand floor (`webhook.rules.spot_placement.floor`): a requirement that only on-demand nodes meet, for a
    Pod that runs on demand; ``spec.schedulingGates`` for a Pod that the controller assigns; a preference for on-demand
    nodes if the floor is undecided; nothing in a pod template.
    It removes this scheduling gate from all other Pods, and the label ``spotgate.dev/assigned`` from bare Pods.
Finds
    unknown-capacity, on-demand-and-spot, no-such-spot-pool, pool-unseen, pools-unknown, no-common-label,
    too-many-terms, bound-by-hand, not-placed, no-spot-pool, no-pool-fits, own-selector-excludes, pool-without-gpus,
    pool-dedicated, floor-invalid, floor-no-effect, floor-split, floor-no-pool, floor-no-room,
    floor-autoscaler, floor-not-kept, floor-undecided
Source
    https://docs.coreweave.com/products/cks/nodes/spot-node-pools;
    https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/;
    https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.constraints import NODE_POOL_ANNOTATION
from webhook.capacity.placement.floor import ASSIGNED_LABEL, FLOOR_GATE, on_demand_only
from webhook.capacity.placement.selector import excluding, select
from webhook.capacity.placement.supply import Supply, in_play, supply_of
from webhook.capacity.placement.target import NotTargeting, Target, kept_fields
from webhook.kube.affinity import Term, contradiction, terms_of
from webhook.kube.tolerations import any_covers
from webhook.model.review import NODES, UserInfo
from webhook.policy.match import PODS_CREATE
from webhook.rules.protocol import Concern, Keys, PolicyKind
from webhook.rules.spot_placement import findings
from webhook.rules.spot_placement.findings import PlacementPlan
from webhook.rules.spot_placement.floor import FloorAssignment, FloorCase, floor_case, has_gate, without_spot
from webhook.rules.spot_placement.spec import SpotPlacementSpec
from webhook.rules.targeting import Targeting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.capacity.providers.schema import LabelSpec
    from webhook.capacity.view import ClusterView
    from webhook.kube.edit import PodEditor
    from webhook.kube.pod import Pod, Requirement, Toleration
    from webhook.model.decision import Violation
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject

WEIGHT: Final = 100
"""The maximum weight of a preference, so that the scheduler uses spot nodes first if it can."""

_DAEMON_SETS: Final = "system:serviceaccount:kube-system:daemon-set-controller"
_PLACERS: Final = frozenset({"system:kube-scheduler", "system:kube-controller-manager", _DAEMON_SETS})

TERMS_AT_MOST: Final = 64
"""Terms of a required node affinity that has a term for each provider. Users write one or two terms, and the scheduler
compares each one with every node."""


class SpotPlacement(msgspec.Struct, frozen=True):
    """The compiled rule."""

    targeting: Targeting
    labels: tuple[LabelSpec, ...]

    def concern(self, _group: str, _resource: str) -> Concern:
        """Return the fields that make a Pod target spot, or bypass placement, or that belong to the controller."""
        labels = Keys(frozenset({ASSIGNED_LABEL}))
        return self.targeting.concern() | Concern(node_name=True, labels=labels, gates=frozenset({FLOOR_GATE}))

    def mutate(self, subject: Subject, editor: PodEditor, context: Context) -> None:
        """Inject the planned tolerations and selectors."""
        plan = self.plan(subject, context)
        for toleration in plan.tolerations:
            editor.add_toleration(toleration)
        for alternatives in plan.required:
            label = findings.node_label(alternatives)
            if label and label[0] not in (subject.pod.spec.nodeSelector or {}):
                editor.add_node_selector(*label)
            else:
                editor.require(*alternatives)
        for requirements in plan.preferred:
            editor.prefer(WEIGHT, *requirements)
        if not subject.template and plan.gated != has_gate(subject.pod):
            editor.gate(FLOOR_GATE, closed=plan.gated)
        # A workload disowns a Pod without a label that its selector requires, so keep the labels of its Pods.
        if not subject.template and subject.pod.controller is None and ASSIGNED_LABEL in subject.pod.labels:
            editor.remove_label(ASSIGNED_LABEL)

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:
        """Yield the violations of the plan, and one for planned changes that are missing."""
        plan = self.plan(subject, context)
        yield from plan.violations
        if plan.tolerations or plan.required or plan.preferred:
            yield findings.not_placed(plan)

    def plan(self, subject: Subject, context: Context) -> PlacementPlan:
        """Return the plan for a Pod, with its violations."""
        pod, view, trace = subject.pod, context.view, subject.trace
        target = self.targeting.target(subject, view)
        if isinstance(target, NotTargeting):
            trace.skip("not placed on spot: %s", target.because)
            violations = findings.not_targeting(subject, target, view, self.targeting.providers)
            if pod.spec.nodeName and not _is_placed_by(subject.request.user_info, pod):
                violations = findings.bound_by_hand(view, supply_of(view, self.targeting.providers))
            return PlacementPlan(violations=(*violations, *without_spot(pod, target.because)))
        trace.say("targets spot: %s", target.because)
        if target.by_preference:
            trace.say("unchanged: its own affinity and tolerations place it")
            return PlacementPlan()
        supply = supply_of(view, self.targeting.providers)
        if supply.assumed:
            trace.say("cluster %s is assumed to be this one: the files describe no other, and no Nodes", supply.assumed)
        for rejected in dict.fromkeys((*target.rejected, *target.strays)) if trace.kept else ():
            where = rejected.nodes.pool or f"pools of {rejected.nodes.provider.title} without Nodes"
            trace.say("%s: %s", where, rejected.because)
        case = floor_case(subject, target, supply, context, self.targeting.providers)
        if case is not None and case.assignment is not FloorAssignment.SPOT:
            return self._assigned(subject, target, supply, view, case)
        if not target.nodes:
            known = target.pools is not None or contradiction(pod.spec)
            why = (
                findings.no_pool_fits(subject, target, view, supply)
                if known
                else findings.pools_unknown(target.field, view)
            )
            return PlacementPlan(violations=(why,))
        plan = self._placed(subject, target, supply)
        return msgspec.structs.replace(plan, violations=(*case.violations, *plan.violations)) if case else plan

    def _assigned(
        self, subject: Subject, target: Target, supply: Supply, view: ClusterView, case: FloorCase
    ) -> PlacementPlan:
        """Return the plan for a Pod that its on-demand floor doesn't assign to spot."""
        pod = subject.pod
        subject.trace.say("on-demand floor: %s", case.assignment)
        providers_in_play = in_play(view, self.targeting.providers).union(self.targeting.provider)
        here = [self.targeting.providers[name] for name in sorted(providers_in_play)] or target.providers
        on_demand = on_demand_only(supply, here) if "node-selector" not in kept_fields(pod) else ()
        preferred, required = case.assignment is FloorAssignment.PREFERRED, case.assignment is FloorAssignment.ON_DEMAND
        return PlacementPlan(
            tolerations=_missing_tolerations(subject, target) if preferred else (),
            required=_together(_missing(terms_of(pod.spec), on_demand)) if required else (),
            preferred=(on_demand,) if preferred and not _prefers(pod, on_demand) else (),
            gated=case.assignment is FloorAssignment.GATED,
            because=target.because,
            violations=case.violations,
        )

    def _placed(self, subject: Subject, target: Target, supply: Supply) -> PlacementPlan:
        pod, trace, keeps, preferred = subject.pod, subject.trace, kept_fields(subject.pod), target.preferred
        terms, others = terms_of(pod.spec), target.strays
        excluded: tuple[Requirement, ...] | None = ()
        if others and (target.pinned or preferred) and "tolerations" not in keeps:
            own = pod.spec.tolerations or ()  # Only the injected tolerations open these nodes.
            opened = tuple(stray for stray in others if stray.nodes.repels(own, perhaps=True))
            excluded = excluding(opened, target.nodes)
            if excluded:
                left = (Term(excluded),)
                others = tuple(stray for stray in others if stray.nodes.admitted(left, stray.nodes.absent))
        by_name = NODE_POOL_ANNOTATION in pod.annotations
        wanted = select(target.nodes, supply, self.labels, others, by_name=by_name)
        missing: tuple[tuple[Requirement, ...], ...] = ()
        if preferred:
            missing = tuple(selector for selector in wanted if not _prefers(pod, selector))
        elif wanted:
            missing = _missing_selectors(terms, wanted)
        selectors: tuple[tuple[Requirement, ...], ...] = ()
        if "node-selector" in keeps:
            trace.say("it keeps its node selector")
            excluded = ()
        elif excluded is None or not (target.pinned or wanted):
            return PlacementPlan(violations=(findings.not_told_apart(subject, target),))
        elif target.pinned or not (missing or preferred):
            trace.say("its own nodeSelector or affinity selects spot nodes: no selector is added")
        elif len(missing) > 1 and not preferred and len(terms) * len(missing) > TERMS_AT_MOST:
            return PlacementPlan(violations=(findings.too_many_terms(subject, target, TERMS_AT_MOST // len(missing)),))
        else:
            selectors = missing
        required = _together(_missing(terms, excluded)) if excluded else ()
        if selectors and not preferred:
            required = (selectors,) if len(selectors) > 1 else _together(selectors[0])
        return PlacementPlan(
            tolerations=_missing_tolerations(subject, target),
            required=required,
            preferred=selectors if preferred else (),
            because=target.because,
        )


def _together(requirements: tuple[Requirement, ...]) -> tuple[tuple[tuple[Requirement, ...], ...], ...]:
    """Return the requirements as items that must all hold: one for each nodeSelector entry, and one for the others."""
    others = tuple(need for need in requirements if not need.label)
    return (*(((need,),) for need in requirements if need.label), *(((others,),) if others else ()))


def _is_placed_by(user: UserInfo, pod: Pod) -> bool:
    """Return whether the user places Pods itself: a kubelet, a scheduler, or the DaemonSet controller."""
    of_daemon_set = pod.controller is not None and pod.controller.kind == "DaemonSet"
    return of_daemon_set or NODES in (user.groups or ()) or user.username in _PLACERS


def _missing_tolerations(subject: Subject, target: Target) -> tuple[Toleration, ...]:
    """Return the tolerations that the Pod lacks, or none if its annotation keeps its tolerations."""
    if "tolerations" in kept_fields(subject.pod):
        subject.trace.say("it keeps its tolerations")
        return ()
    own = subject.pod.spec.tolerations or ()
    return tuple(toleration for toleration in target.tolerations if not any_covers(own, toleration))


def _missing(terms: tuple[Term, ...], requirements: tuple[Requirement, ...]) -> tuple[Requirement, ...]:
    """Return the requirements that at least one term of the Pod's own constraints lacks."""
    return tuple(need for need in requirements if not all(need in term.requirements for term in terms))


def _missing_selectors(
    terms: tuple[Term, ...], selectors: tuple[tuple[Requirement, ...], ...]
) -> tuple[tuple[Requirement, ...], ...]:
    """Return the alternative selectors that the Pod's own constraints lack."""
    if len(selectors) > 1:
        present = all(any(set(selector) <= set(term.requirements) for selector in selectors) for term in terms)
        return () if present else selectors
    missing = _missing(terms, selectors[0])
    return (missing,) if missing else ()


def _prefers(pod: Pod, requirements: tuple[Requirement, ...]) -> bool:
    affinity = pod.spec.affinity and pod.spec.affinity.nodeAffinity
    return not requirements or any(
        not term.preference.matchFields and set(term.preference.matchExpressions or ()) == set(requirements)
        for term in (affinity and affinity.preferredDuringSchedulingIgnoredDuringExecution) or ()
    )


KIND: Final = PolicyKind(
    name="SpotPlacement",
    spec=SpotPlacementSpec,
    writes=(".spec.affinity", ".spec.nodeSelector", ".spec.tolerations"),
    not_exported="it changes Pods, and looks up the cluster's node pools",
    order=0,
    compile=lambda spec, facts: SpotPlacement(Targeting.of_policy(spec, facts), spec.selector_labels),
    rules=lambda _: (PODS_CREATE,),
)

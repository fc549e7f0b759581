"""SpotSuitability: workloads that target spot are suitable for it, and ready for a reclaim.

Intent
    A reclaim must be a non-event. It is an outage for a workload that has one replica, stores its data on the node,
    can't be evicted in time, or leads other Pods.
Reads
    Pods that target spot (`webhook.capacity.placement.target`), on CREATE: the controlling owner; labels such as
    ``spotgate.dev/workload-class`` and ``spark-role``; annotations that stop only voluntary disruption; volumes and
    mounts; readiness probes; ``spec.topologySpreadConstraints``. The workload of a pod template: ``spec.replicas``,
    ``spec.selector``, its controller; ``backoffLimit``, ``podFailurePolicy``, and ``podReplacementPolicy`` next to the
    template; labels and annotations that make its Pods a gang, and whether its other pod templates target spot.
    The PodDisruptionBudgets of the namespace.
    DaemonSets and Deployments that run AWS Node Termination Handler, if the cluster has Karpenter's nodes.
    The HorizontalPodAutoscaler or ScaledObject of the workload, if the files contain it.
    Pods don't repeat the findings of the workload that created them, unless denials also apply to Pods
    (``controllerCreated: deny``). A driver isn't also reported as a bare Pod, or a bare Pod as a singleton. A driver
    with fault tolerance (Ray's ``gcsFaultToleranceOptions``) is evaluated like any other Pod. Work that can be repeated
    (batch, checkpointing, queue-worker) needs no replicas, readiness probe, or PodDisruptionBudget. A Pod of a
    ReplicaSet that declares no port is a queue worker. Readiness matters only if another replica can answer.
Writes
    Nothing.
Finds
    driver, bare-pod, stateful-singleton, few-replicas, readiness-probe, disruption-budget-missing,
    disruption-budget-blocks, disruption-budget-several, disruption-budget-unknown, protection, data-on-node,
    termination-handler, job-fails, job-failure-policy, notice-unused, late-replacement, gang-split,
    topology-spread-capacity, topology-spread-rollout
Source
    https://docs.coreweave.com/products/cks/nodes/spot-node-pools (a reclaimed node is drained, then removed);
    https://kubernetes.io/docs/concepts/workloads/pods/disruptions/;
    https://karpenter.sh/docs/concepts/disruption/.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import asdict

from webhook.base.globs import Globs
from webhook.capacity.placement.budget import GraceBudgets
from webhook.capacity.placement.target import NotTargeting, Target
from webhook.capacity.placement.workload_class import CLASS_LABEL, REPEATABLE, is_queue_worker
from webhook.kube.containers import writable_claim
from webhook.kube.layouts import steps_of
from webhook.kube.workload import Autoscaler, WorkloadFields
from webhook.policy.match import PODS_CREATE
from webhook.rules.protocol import Concern, Facts, Levels, PolicyKind, SpecWarning, hint_for
from webhook.rules.spot_suitability import checks
from webhook.rules.spot_suitability.checks import KARPENTERS_SPREAD, SuitabilityCase
from webhook.rules.spot_suitability.gangs import Gangs
from webhook.rules.spot_suitability.jobs import job_violations
from webhook.rules.spot_suitability.spec import DriverSpec, SpotSuitabilitySpec
from webhook.rules.targeting import Targeting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from webhook.kube.pod import Pod
    from webhook.kube.templates import Workload
    from webhook.model.decision import Violation
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject

KARPENTERS_POOL_LABEL: Final = "karpenter.sh/nodepool"


class SpotSuitability(msgspec.Struct, frozen=True, kw_only=True):
    """The compiled rule.

    Attributes:
        reported_kinds: group and kind of the workloads whose templates are evaluated, and of their Pods' controllers.
        capacity_keys: the keys of the labels that mark nodes as spot or on-demand.
        karpenters: the names of the providers whose nodes Karpenter creates.
    """

    spec: SpotSuitabilitySpec
    levels: Levels
    reported_kinds: frozenset[tuple[str, str]]
    members: Mapping[str | int, DriverSpec]
    gangs: Gangs
    capacity_keys: frozenset[str]
    targeting: Targeting
    budgets: GraceBudgets
    karpenters: frozenset[str]

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the findings that are not off."""
        return self.levels.parts

    def concern(self, _group: str, _resource: str) -> Concern:
        """Return the fields that make a Pod target spot, and the images that drain Karpenter's nodes."""
        images = self.spec.termination_handlers if self.karpenters else ()
        return self.targeting.concern() | Concern(images=frozenset(images))

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:
        """Yield the violations of a Pod that targets spot."""
        yield from self.levels.lowered(self._find(subject, context))

    def _find(self, subject: Subject, context: Context) -> Iterator[Violation]:
        pod, say = subject.pod, subject.trace.say
        if subject.template and not subject.unchanged and self.karpenters & context.view.providers:
            yield from checks.judge_handlers(pod, self.spec.termination_handlers)
        workload = subject.workload if subject.template else WorkloadFields()
        controller = workload.controller if subject.template else pod.controller
        if controller is not None and (controller.group, controller.kind) in self.reported_kinds:
            subject.trace.skip("not evaluated: the findings are on the %s that creates it", controller.kind)
            return
        target = self.targeting.target(subject, context.view)
        if isinstance(target, NotTargeting):
            subject.trace.skip("not evaluated: %s", target.because)
            return
        if target.pools == ():
            subject.trace.skip("not evaluated: no spot pool can run it")
            return
        say("targets spot: %s", target.because)
        case = self._case(subject, target, workload, context)
        if subject.unchanged:
            before = self._case(subject, target, subject.old_workload, context)
            known = {violation.reason for violation in self._judge(before, context)}
            yield from (violation for violation in self._judge(case, context) if violation.reason not in known)
            return
        yield from self._judge(case, context)
        yield from self.gangs.violations(subject, target, self.targeting, context.view)
        yield from checks.judge_spread(subject, self.capacity_keys, case.replicas, preferred=target.preferred)

    def _case(self, subject: Subject, target: Target, workload: WorkloadFields, context: Context) -> SuitabilityCase:
        counts = subject.template and self.spec.replicated.match(subject.request.kind.group_kind)
        replicas, scaler = workload.replicas if counts else None, _autoscaler(subject, context)
        if scaler is not None and replicas:
            replicas = scaler.minimum
        return SuitabilityCase(
            subject=subject,
            target=target,
            workload=workload,
            replicas=replicas,
            autoscaler=scaler,
            minimum=self.spec.minimum_replicas,
            serves=bool(replicas) and not _can_be_repeated(subject.pod),
        )

    def _judge(self, case: SuitabilityCase, context: Context) -> Iterator[Violation]:
        yield from self._judge_work(case)
        yield from checks.judge_budgets(case, context)
        yield from job_violations(case.subject)
        yield from checks.judge_protections(case, self.spec.protections)
        yield from checks.judge_volumes(case.subject.pod, self.spec.data_volumes, self.spec.scratch_volumes)
        yield from checks.judge_notice(case.subject.pod, case.target, self.budgets)

    def _judge_work(self, case: SuitabilityCase) -> Iterator[Violation]:
        """Yield the violations of a Pod's role and state, and of the workload's replicas."""
        subject = case.subject
        leader = self._driver(subject)
        if leader is not None and not _is_fault_tolerant(leader, subject):
            yield checks.job_leader(case, leader.name)
        elif not subject.template and not subject.pod.metadata.ownerReferences:
            yield checks.bare_pod(case)
        elif case.replicas == 1 and case.autoscaler is None and (state := self._state(subject)):
            yield checks.stateful_singleton(case, state)
        elif case.serves:
            yield from checks.judge_replicas(case)

    def _state(self, subject: Subject) -> str:
        """Return where the Pod stores its state, as a phrase, or an empty string.

        A writable claim counts even if the Pod looks like a queue worker because it declares no port.
        """
        if subject.pod.labels.get(CLASS_LABEL) in REPEATABLE:
            return ""
        if self.spec.stateful.match(subject.request.kind.group_kind):
            return f"it is a {subject.request.kind.kind}"
        claim = writable_claim(subject.pod)
        return f"its Pod writes to claim `{claim}`" if claim else ""

    def _driver(self, subject: Subject) -> DriverSpec | None:
        """Return the driver that matches the Pod, or None."""
        labels = subject.pod.labels.items()
        by_path = (self.members[step] for step in subject.path if step in self.members)
        labelled = (
            driver for driver in self.spec.drivers if driver.label and (driver.label.key, driver.label.value) in labels
        )
        return next(chain(by_path, labelled), None)


def _autoscaler(subject: Subject, context: Context) -> Autoscaler | None:
    """Return the autoscaler of the pod template's workload, or None. Only files contain autoscalers."""
    target = (subject.request.kind.kind, subject.request.name)
    known = context.view.autoscalers.get(subject.request.namespace, ()) if subject.template else ()
    return next((scaler for scaler in known if scaler.target == target), None)


def _can_be_repeated(pod: Pod) -> bool:
    """Return whether a reclaim costs the Pod time, but loses no request."""
    named = pod.labels.get(CLASS_LABEL)
    return named in REPEATABLE if named else is_queue_worker(pod)


def _is_fault_tolerant(driver: DriverSpec, subject: Subject) -> bool:
    """Return whether the driver stores its state outside its Pod."""
    tolerance = driver.fault_tolerance
    if tolerance is None:
        return False
    annotated = (subject.workload.metadata.annotations or {}).items() | subject.pod.annotations.items()
    if not annotated.isdisjoint(tolerance.annotations.items()):
        return True
    if driver.member not in subject.path:
        return False
    return subject.holder(subject.path[: subject.path.index(driver.member)]).get(tolerance.member) is not None


def _compile(spec: SpotSuitabilitySpec, facts: Facts) -> SpotSuitability:
    providers = facts.providers
    reported: set[tuple[str, str]] = set()
    if spec.controller_created == "warn":
        for workload in facts.workloads:
            reported.add((workload.group, workload.kind))
            if workload.pod_owner is not None:
                reported.add((workload.pod_owner.group, workload.pod_owner.kind))
    members: dict[str | int, DriverSpec] = {driver.member: driver for driver in spec.drivers if driver.member}
    return SpotSuitability(
        spec=spec,
        levels=Levels.of(asdict(spec.findings)),
        reported_kinds=frozenset(reported),
        members=members,
        capacity_keys=frozenset(
            label.key for provider in providers.values() for label in provider.spot_node_labels if not label.spot_only
        ).union((KARPENTERS_SPREAD,)),
        gangs=Gangs(
            specs=tuple((gang, Globs(gang.kinds), steps_of(gang.elastic)) for gang in spec.gangs),
            leaders=Globs(str(leader).lower() for leader in (*spec.gang_leaders, *members)),
            workloads={(workload.group, workload.kind): workload for workload in facts.workloads},
        ),
        targeting=Targeting.of_policy(spec, facts),
        budgets=GraceBudgets(providers),
        karpenters=frozenset(
            provider.name for provider in providers.values() if provider.pool_name_label == KARPENTERS_POOL_LABEL
        ),
    )


def _lint(spec: SpotSuitabilitySpec, workloads: Collection[Workload]) -> Iterator[SpecWarning]:
    """Yield a warning for each driver with a misspelled template path."""
    members = {member for workload in workloads for path in workload.paths for member in path.members}
    for number, driver in enumerate(spec.drivers):
        if hint := hint_for(driver.member, members):
            yield SpecWarning(("drivers", number, "member"), f"no known template path has this member{hint}")


KIND: Final = PolicyKind(
    name="SpotSuitability",
    spec=SpotSuitabilitySpec,
    not_exported="it checks whether a Pod targets spot, and looks up the cluster's PodDisruptionBudgets",
    compile=_compile,
    lint=_lint,
    rules=lambda _: (PODS_CREATE,),
    budgets=True,
    order=2,
    counts_replicas=True,
    pods_only=True,
    entries=dict.fromkeys(("few-replicas", "bare-pod"), "too few copies to lose one")
    | dict.fromkeys(("readiness-probe", "disruption-budget-missing"), "not ready for a reclaim"),
)

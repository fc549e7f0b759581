"""Check a workload that targets spot: its replicas, its PodDisruptionBudgets, the effect of a reclaim, and the notice.

The reason of a violation is the risk. The fix is one line of instruction, followed by YAML.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/ (only nodes that the Pod's
selector admits count; ``matchLabelKeys``); https://github.com/kubernetes/kubernetes/issues/98215 (the old ReplicaSet's
Pods count).
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.capacity.placement.budget import unevicted_annotation, unevicted_seconds
from webhook.capacity.placement.target import (
    CAPACITY_LABEL,
    KEEP_RECLAIM_NOTICE,
    ON_DEMAND,
    SPOT_PREFERRED,
    Target,
    kept_fields,
)
from webhook.capacity.placement.workload_class import CHECKPOINTING, CLASS_LABEL, class_of
from webhook.kube.containers import on_the_node
from webhook.kube.layouts import member
from webhook.kube.notice import DIRECTORY, FILE, INFORM, ON_RECLAIM
from webhook.model.decision import Outcome, Violation, warning
from webhook.rules.targeting import run_on_demand

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from webhook.base.globs import Globs
    from webhook.capacity.placement.budget import GraceBudgets
    from webhook.kube.pod import Pod
    from webhook.kube.workload import Autoscaler, WorkloadFields
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject

_ON_DEMAND: Final = {"metadata": {"labels": {CAPACITY_LABEL: ON_DEMAND}}}
_OWN_LABELS: Final = "spotgate.dev/"
_LONGEST_DURATION: Final = 16
_SHOWN: Final = 63
"""Characters of a name that a finding repeats: an image may have a kilobyte."""


class SuitabilityCase(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod that targets spot, and its workload.

    Attributes:
        target: how the Pod targets spot.
        workload: the workload's fields outside the pod template; empty for a Pod.
        replicas: the replicas of the workload, or the minimum of its autoscaler; None if they don't matter.
        autoscaler: the autoscaler of the workload, if it is known.
        minimum: the replicas with which a service can lose one.
        serves: the replicas serve requests, so a reclaim costs more than repeated work.
    """

    subject: Subject
    target: Target
    workload: WorkloadFields
    replicas: int | None
    autoscaler: Autoscaler | None
    minimum: int
    serves: bool

    @property
    def selector(self) -> dict[str, Any]:
        """Return the selector for a PodDisruptionBudget that covers the Pods."""
        own = {key: value for key, value in self.subject.pod.labels.items() if not key.startswith(_OWN_LABELS)}
        return {"matchLabels": dict(sorted((self.workload.match_labels or own).items()))}

    def object(self, api_version: str, kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return a manifest in the namespace of the workload."""
        namespace = self.subject.request.namespace
        metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}

    def finding(self, id_: str, reason: str, detail: str, lead: str, field: str = "") -> Violation:
        """Return the violation for a Pod that belongs on demand. ``lead`` is the beginning of the fix."""
        chooses_spot = bool(self.target.own) and self.target.own == self.target.field
        fix = f"{lead}, and remove `{self.target.own}`, which selects spot" if chooses_spot else lead
        field = field or self.target.field
        return Violation(id=id_, reason=reason, field=field, detail=detail, fix=fix, yaml=_ON_DEMAND)


def job_leader(case: SuitabilityCase, name: str) -> Violation:
    """Return the violation for a Pod that leads other Pods, such as a Spark driver."""
    return case.finding(
        "driver",
        f"other Pods depend on the {name[:_SHOWN]}: a reclaim of its node ends or stalls their work",
        "Losing one of the other Pods costs less, so they can run on spot.",
        f"run the {name[:_SHOWN]} on demand",
    )


def bare_pod(case: SuitabilityCase) -> Violation:
    """Return the violation for a Pod without a controller that replaces it."""
    metadata = case.subject.pod.metadata
    name = metadata.generateName.rstrip("-") or metadata.name or "NAME"
    return Violation(
        id="bare-pod",
        reason="no controller replaces this Pod after its spot node is reclaimed",
        field="metadata.ownerReferences",
        detail="Use a Job for work that ends, and a Deployment for work that keeps running.",
        fix="create a Job or a Deployment with this Pod's metadata and spec",
        other=case.object("batch/v1", "Job", name, {"template": {"spec": {"restartPolicy": "Never"}}}),
    )


def stateful_singleton(case: SuitabilityCase, state: str) -> Violation:
    """Return the violation for a stateful workload with one replica. ``state`` is a phrase for where its state is."""
    return case.finding(
        "stateful-singleton",
        "the only replica holds state: a reclaim stops it until its volume is attached to another node",
        f"{state[:1].upper()}{state[1:]}. Until the replica is back, the service is down. Unwritten data is lost.",
        "run the workload on demand",
    )


def judge_replicas(case: SuitabilityCase) -> Iterator[Violation]:
    """Yield violations for a service that one reclaim stops, or whose replacement Pods get requests too early."""
    containers, replicas = case.subject.pod.spec.containers, case.replicas
    if (replicas or 0) < case.minimum:
        yield _few_replicas(case, "one replica" if replicas == 1 else f"{replicas} replicas")
    if replicas == 1 or not containers or any(container.readinessProbe for container in containers):
        return
    index = next((index for index, container in enumerate(containers) if container.ports), 0)
    name, ports = containers[index].name, containers[index].ports
    port = ports[0].containerPort if ports else 8080
    probe = {"httpGet": {"path": "/ready", "port": port}, "initialDelaySeconds": 15, "periodSeconds": 5}
    yield Violation(
        id="readiness-probe",
        reason="no container has a readiness probe: after a reclaim, Pods get requests before they can answer",
        field=f"spec.containers[{index}].readinessProbe",
        detail="A PodDisruptionBudget also counts these Pods as healthy, and allows the drain of the next node.",
        fix="add a readiness probe, and set `initialDelaySeconds` to the duration of a cold start",
        yaml={"spec": {"containers": [{"name": name, "readinessProbe": probe}]}},
    )


def _few_replicas(case: SuitabilityCase, count: str) -> Violation:
    """Return the violation for a service with fewer replicas than the policy's minimum; ``count`` is a phrase."""
    scaler, detail = case.autoscaler, f"With {case.minimum} or more replicas, a service on spot can lose one."
    if scaler is None:
        at, field = case.subject.request.kind.kind, "replicas"
        reason = f"the workload has {count}: unless an autoscaler keeps more, one reclaim may stop the service"
        detail += " spotgate reads autoscalers only from files, not from a live cluster."
    else:
        at, field = f"{scaler.kind} {scaler.name[:_SHOWN]}", scaler.field
        reason = f"{at} may scale down to {count}: one reclaim may stop the service"
    return Violation(
        id="few-replicas",
        reason=reason,
        field="spec.replicas",
        outside=True,
        detail=detail,
        fix=f"{run_on_demand(case.subject, case.target)}, or raise `spec.{field}` in the {at}",
        other={"spec": {field: case.minimum}},
    )


def judge_budgets(case: SuitabilityCase, context: Context) -> Iterator[Violation]:
    """Yield violations for Pods with no PodDisruptionBudget, with several, or with one that blocks every eviction."""
    wanted = case.serves and (case.replicas or 0) >= case.minimum
    finding = partial(Violation, field="metadata.labels")
    if context.view.budgets is None:
        if wanted:
            yield finding(
                id="disruption-budget-unknown",
                reason="can't tell whether a PodDisruptionBudget covers the Pods",
                detail="Without a budget, draining several nodes together stops all Pods at once.",
                fix="pass the PodDisruptionBudgets with the workload, or with --state"
                if context.offline
                else "permit spotgate's ServiceAccount to list and watch poddisruptionbudgets.policy",
                outcome=Outcome.WARN,
                unknown=True,
            )
        return
    budgets = context.view.budgets.get(case.subject.request.namespace, ())
    covering = [budget for budget in budgets if budget.covers(case.subject.pod.labels)]
    if len(covering) > 1:
        names = ", ".join(budget.name for budget in covering[:5])
        yield finding(
            id="disruption-budget-several",
            reason=f"{len(covering)} PodDisruptionBudgets cover the Pods: a reclaim kills the Pods without SIGTERM",
            detail=f"The budgets are {names}. The API server refuses to evict a Pod that several budgets "
            "cover, so a drain can't stop it in time.",
            fix="keep one of them, or narrow their selectors; this selector covers only these Pods",
            other={"spec": {"selector": case.selector}},
        )
    elif covering and covering[0].blocks(case.replicas or None):
        budget, of = covering[0], "" if case.replicas is None else f" of {case.replicas}"
        if (scaler := case.autoscaler) is not None:
            of += f", the minimum of {scaler.kind} {scaler.name[:_SHOWN]},"
        yield finding(
            id="disruption-budget-blocks",
            reason=f"PodDisruptionBudget {budget.name} blocks every eviction: a reclaim kills the Pods without SIGTERM",
            detail=f"`{budget.bound}`{of} allows no eviction, so the Pods get neither preStop nor SIGTERM.",
            fix=f"in PodDisruptionBudget {budget.name}, replace `{budget.bound}` with",
            other={"spec": {"maxUnavailable": 1}},
        )
    elif wanted and not covering:
        spec = {"selector": case.selector, "minAvailable": "50%"}
        yield finding(
            id="disruption-budget-missing",
            reason="no PodDisruptionBudget covers the Pods: draining several nodes together stops them all at once",
            detail="With a budget, a drain waits until replacements are ready, or until the node is removed.",
            fix="create a PodDisruptionBudget",
            other=case.object("policy/v1", "PodDisruptionBudget", case.workload.name, spec),
        )


def judge_protections(case: SuitabilityCase, protections: Mapping[str, str]) -> Iterator[Violation]:
    """Yield violations for annotations that don't stop a reclaim, or that block the Pod's eviction before it."""
    annotations = case.subject.pod.annotations
    for key, value in protections.items():
        drained = any(unevicted_annotation(provider, None) == key for provider in case.target.providers)
        if drained and (seconds := unevicted_seconds(case.subject.pod, key)):
            during = "" if seconds == math.inf else f" for its first {annotations[key][:_LONGEST_DURATION]}"
            yield case.finding(
                "protection",
                f"{key} blocks eviction of the Pod{during}: a reclaim kills the Pod without SIGTERM",
                "Unless the NodePool's `terminationGracePeriod` ends first, the drain skips the Pod until the machine "
                "stops. A kubelet may end it (AL2023, Kubernetes 1.34 or later). A duration needs Karpenter 1.12.",
                "remove the annotation, or run the Pod on demand",
                f'metadata.annotations["{key}"]',
            )
        elif annotations.get(key) == value:
            yield case.finding(
                "protection",
                f"{key} doesn't stop a reclaim",
                f"`{key}: {value}` only keeps the autoscaler from moving the Pod.",
                "save the work of the Pod when SIGTERM arrives, or run the Pod on demand",
                f'metadata.annotations["{key}"]',
            )


def judge_volumes(pod: Pod, data: Globs, scratch: Globs) -> Iterator[Violation]:
    """Yield violations for hostPath volumes whose names or mount paths indicate data, which is lost with the node.

    Skip emptyDir volumes: users know that they end with the Pod, and their names don't distinguish data from a cache.
    """
    for index, volume, mounts in on_the_node(pod):
        names = (volume.name, *mounts)
        if volume.hostPath is None or not any(map(data.match, names)) or any(map(scratch.match, names)):
            continue
        claim = {"name": volume.name, "persistentVolumeClaim": {"claimName": volume.name}}
        yield Violation(
            id="data-on-node",
            reason=f"data in {mounts[0][:_SHOWN]} is lost with the spot node: volume `{volume.name}` is a hostPath",
            field=f"spec.volumes[{index}].hostPath",
            detail="The replacement starts with an empty folder on another node.",
            fix="store the data in a PersistentVolumeClaim",
            yaml={"spec": {"volumes": [claim]}},
        )


def judge_handlers(pod: Pod, handlers: Sequence[str]) -> Iterator[Violation]:
    """Yield violations for containers with these images, which drain the same nodes as Karpenter."""
    for index, container in enumerate(pod.spec.containers):
        if any(part in container.image for part in handlers):
            yield Violation(
                id="termination-handler",
                reason="Node Termination Handler and Karpenter both drain a node, and Pods hang in Terminating",
                field=f"spec.containers[{index}].image",
                detail=f"`{container.image[:_SHOWN]}` drains Karpenter's nodes. Karpenter handles reclaims itself.",
                fix="remove this workload, and set `interruptionQueue` in the values of Karpenter's Helm chart",
                other={"settings": {"interruptionQueue": "QUEUE"}},
            )


def judge_notice(pod: Pod, target: Target, budgets: GraceBudgets) -> Iterator[Violation]:
    """Yield a violation for a checkpointing Pod without an action whose grace period is longer than the budget.

    Its node must show the notice before the drain.
    """
    if ON_RECLAIM in pod.labels or KEEP_RECLAIM_NOTICE in kept_fields(pod):
        return
    named = pod.labels.get(CLASS_LABEL) or class_of(pod, gpu=target.gpu is True)[0]
    strictest = budgets.strictest(target) if named == CHECKPOINTING else None
    if strictest is None:
        return
    budget, provider, _ = strictest
    early = provider.interruption.drain_seconds - provider.interruption.cordon_seconds
    if early > 0 and pod.grace_seconds > budget.seconds:
        yield warning(
            id="notice-unused",
            reason=f"the grace period exceeds the {budget.seconds} s of a drain, and could begin {early} s earlier",
            field="spec.terminationGracePeriodSeconds",
            detail=f"{provider.title} announces a reclaim {early} s before the drain. With label {ON_RECLAIM}, "
            f"the Pod finds its deadline in {DIRECTORY}/{FILE}.",
            fix="set this label, and let the program save its work when the file contains a time",
            yaml={"metadata": {"labels": {ON_RECLAIM: INFORM}}},
        )


KARPENTERS_SPREAD: Final = "capacity-spread"
"""The label in https://karpenter.sh/docs/concepts/scheduling/#on-demandspot-ratio-split."""

_ROLLING: Final = "Deployment.apps"


def judge_spread(
    subject: Subject, capacity_keys: Collection[str], replicas: int | None, *, preferred: bool
) -> Iterator[Violation]:
    """Yield at most one violation of each kind. ``capacity_keys`` are the labels that mark spot or on-demand nodes."""
    listed = subject.pod.spec.topologySpreadConstraints
    spreads = enumerate(listed if isinstance(listed, list) else ())
    keyed = [(index, spread, str(spread.get("topologyKey"))) for index, spread in spreads if isinstance(spread, dict)]
    index, key = next(((index, key) for index, _, key in keyed if key in capacity_keys), (None, ""))
    if index is not None and not preferred:
        yield Violation(
            id="topology-spread-capacity",
            reason=f"the constraint spreads Pods over {key}, but all of them must run on spot",
            field=f"spec.topologySpreadConstraints[{index}].topologyKey",
            detail="A spread constraint counts only nodes on which the Pod can run, so it keeps no Pod on demand.",
            fix=f"remove the constraint; or, to keep some Pods on demand, label the Pods with "
            f"`{CAPACITY_LABEL}: {SPOT_PREFERRED}`",
        )
    rolls = subject.template and subject.request.kind.group_kind == _ROLLING and (replicas or 0) > 1
    if not rolls or member(subject.object, ("spec", "strategy", "type")) == "Recreate":
        return
    others = ((index, spread) for index, spread, key in keyed if key not in capacity_keys)
    index = next((i for i, other in others if other.get("labelSelector") and not other.get("matchLabelKeys")), None)
    if index is not None:
        yield Violation(
            id="topology-spread-rollout",
            reason="a rollout can leave its Pods unevenly spread, because the scheduler also counts the old Pods",
            field=f"spec.topologySpreadConstraints[{index}]",
            detail="The Pods of the old ReplicaSet are gone after the rollout.",
            fix="add `matchLabelKeys: [pod-template-hash]` to the constraint",
            outcome=Outcome.AUDIT,
        )

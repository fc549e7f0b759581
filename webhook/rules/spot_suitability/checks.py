"""Judge one workload that targets spot: its replicas, its PodDisruptionBudgets, and what a reclaim does to its Pods.

Each violation states the risk in its reason, and the remedy as YAML below one line that says what to do with it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.capacity.placement.budget import unevicted_annotation, unevicted_seconds
from webhook.capacity.placement.target import CAPACITY_LABEL, ON_DEMAND
from webhook.documents.yaml_writer import UNBROKEN, dump
from webhook.kube.containers import on_the_node
from webhook.model.decision import Outcome, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from webhook.base.globs import Globs
    from webhook.capacity.placement.target import Target
    from webhook.kube.autoscalers import Autoscaler
    from webhook.kube.disruption import DisruptionBudget
    from webhook.kube.pod import Pod

_ON_DEMAND: Final = f"metadata:\n  labels:\n    {CAPACITY_LABEL}: {ON_DEMAND}"
_OWN_LABELS: Final = "spotgate.dev/"
_LONGEST_DURATION: Final = 16
_SHOWN: Final = 63
"""Characters of a name that a finding repeats: an image may have a kilobyte."""


class SuitabilityCase(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a Pod that targets spot, and its workload.

    Attributes:
        workload: the kind of its workload; empty for a Pod alone.
        name: the name of the workload, or of the Pod.
        replicas: the number of Pods of this template, or the least that its autoscaler leaves it; None: of no matter.
        autoscaler: the autoscaler of the workload, if one is known.
        minimum: the replicas that suffice while one of them is missing.
        serves: it has replicas that serve, so a reclaim costs more than repeating work.
        target: how it targets spot.
        run_on_demand: how to have it run on demand, as an instruction.
        match_labels: the labels by which the workload selects its Pods.
    """

    pod: Pod
    workload: str
    name: str
    namespace: str
    replicas: int | None
    autoscaler: Autoscaler | None
    minimum: int
    serves: bool
    target: Target
    run_on_demand: str
    match_labels: Mapping[str, str]

    @property
    def selector(self) -> dict[str, Any]:
        """Return the selector of a PodDisruptionBudget for the Pods."""
        own = {key: value for key, value in self.pod.labels.items() if not key.startswith(_OWN_LABELS)}
        return {"matchLabels": dict(sorted((self.match_labels or own).items()))}

    def metadata(self, name: str) -> dict[str, str]:
        """Return the metadata of a new object in the namespace of the workload."""
        return {"name": name, "namespace": self.namespace} if self.namespace else {"name": name}

    def finding(self, id_: str, reason: str, detail: str, lead: str, field: str = "") -> Violation:
        """Return a violation of work that belongs on demand; ``lead`` says what else can be done."""
        by_itself = bool(self.target.own) and self.target.own == self.target.field
        fix = f"{lead}, and remove its own choice of spot" if by_itself else lead
        field = field or self.target.field
        return Violation(id=id_, reason=reason, field=field, detail=detail, fix=fix, yaml=_ON_DEMAND)


def job_leader(case: SuitabilityCase, name: str) -> Violation:
    """Return the violation for a Pod that leads the work of others."""
    return case.finding(
        "driver",
        f"the {name[:_SHOWN]} holds the state of the whole job: one reclaimed node ends all of it",
        "Workers are made again and go on as long as it lives: they belong on spot, it belongs on demand.",
        "run it on demand",
    )


def bare_pod(case: SuitabilityCase) -> Violation:
    """Return the violation for a Pod that no controller replaces."""
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": case.metadata(case.pod.metadata.generateName.rstrip("-") or case.name or "NAME"),
        "spec": {"template": {"spec": {"restartPolicy": "Never"}}},
    }
    return Violation(
        id="bare-pod",
        reason="nothing makes this Pod again: when its spot node is reclaimed, it is gone for good",
        field="metadata.ownerReferences",
        detail="It has no controller. A Job starts work anew that ends by itself, a Deployment what always runs.",
        fix=_fix("let a Job or a Deployment make it, of this Pod's metadata and spec", job),
    )


def stateful_singleton(case: SuitabilityCase, state: str) -> Violation:
    """Return the violation for the only replica of stateful work; ``state`` is what holds it, as a phrase."""
    return case.finding(
        "stateful-singleton",
        "its only replica holds state: a reclaim stops it until its volume is attached to another node",
        f"There is no other replica, and {state}. Until it is back nothing serves, and what was not written is lost.",
        "run it on demand",
    )


def judge_replicas(case: SuitabilityCase) -> Iterator[Violation]:
    """Yield violations of a service that one reclaim stops, or whose Pods get requests too early after it."""
    pod, replicas = case.pod, case.replicas
    if (replicas or 0) < case.minimum:
        yield _few_replicas(case, "one replica" if replicas == 1 else f"{replicas} replicas")
    if replicas == 1 or any(container.readinessProbe for container in pod.spec.containers):
        return
    with_ports = ((index, each) for index, each in enumerate(pod.spec.containers) if each.ports)
    index, container = next(with_ports, (0, pod.spec.containers[0] if pod.spec.containers else None))
    name = container.name if container is not None else ""
    port = container.ports[0].containerPort if container is not None and container.ports else 8080
    probe = {"httpGet": {"path": "/ready", "port": port}, "initialDelaySeconds": 15, "periodSeconds": 5}
    yield Violation(
        id="readiness-probe",
        reason="no container has a readiness probe: after a reclaim, Pods get requests before they can answer",
        field=f"spec.containers[{index}].readinessProbe",
        detail="A PodDisruptionBudget counts them as healthy, too, and lets the next node be drained.",
        fix="say when it is ready, and how long a cold start takes",
        yaml=_yaml({"spec": {"containers": [{"name": name, "readinessProbe": probe}]}}),
    )


def _few_replicas(case: SuitabilityCase, count: str) -> Violation:
    """Return the violation for a service with fewer replicas than the policy's minimum; ``count`` is a phrase."""
    scaler, detail = case.autoscaler, f"On spot, {case.minimum} or more replicas can do without one."
    if scaler is None:
        at, field = case.workload, "replicas"
        reason = f"it has {count}: unless an autoscaler keeps more, one reclaim may stop the service"
        detail += " spotgate knows only autoscalers among its files, not those of a live cluster."
    else:
        at, field = f"{scaler.kind} {scaler.name[:_SHOWN]}", scaler.field
        reason = f"{at} may leave it {count}: one reclaim may stop the service"
    return Violation(
        id="few-replicas",
        reason=reason,
        field="spec.replicas",
        outside=True,
        detail=detail,
        fix=_fix(
            f"raise `spec.{field}` in the {at}, or {case.run_on_demand}",
            {"spec": {field: case.minimum}},
        ),
    )


def judge_budgets(
    case: SuitabilityCase, budgets: Mapping[str, Sequence[DisruptionBudget]] | None, *, offline: bool
) -> Iterator[Violation]:
    """Yield violations of Pods that no PodDisruptionBudget covers, that several do, or whose budget always blocks.

    ``budgets`` are those of each namespace, None if they are unknown.
    """
    field = "metadata.labels"
    wanted = case.serves and (case.replicas or 0) >= case.minimum
    if budgets is None and wanted:
        yield Violation(
            id="disruption-budget-unknown",
            reason="it is not known whether a PodDisruptionBudget covers its Pods",
            field=field,
            detail="Without one, nodes that are drained together stop all of them at once.",
            fix="pass the PodDisruptionBudgets along with the workload, or the cluster's manifests with --state"
            if offline
            else "allow spotgate's ServiceAccount to list and watch poddisruptionbudgets.policy",
            outcome=Outcome.WARN,
            unknown=True,
        )
    if budgets is None:
        return
    # With too few replicas, that is what is said; a budget is looked at as it will be with enough.
    replicas = max(case.replicas or 0, case.minimum) if case.serves else case.replicas or None
    covering = [each for each in budgets.get(case.namespace, ()) if each.covers(case.pod.labels)]
    if len(covering) > 1:
        names = ", ".join(budget.name for budget in covering[:5])
        yield Violation(
            id="disruption-budget-several",
            reason=f"{len(covering)} PodDisruptionBudgets cover its Pods: a reclaim kills them unprepared",
            field=field,
            detail=f"The API server refuses to evict a Pod that several cover ({names}), so the drain of a reclaimed "
            "node stops none of them in time.",
            fix=_fix(
                "delete all but one, or narrow their selectors; this one covers these Pods alone",
                {"spec": {"selector": case.selector}},
            ),
        )
    elif covering and covering[0].blocks(replicas):
        budget, of = covering[0], "" if case.replicas is None else f" of {case.replicas}"
        yield Violation(
            id="disruption-budget-blocks",
            reason=f"PodDisruptionBudget {budget.name} blocks every eviction: a reclaim kills the Pods unprepared",
            field=field,
            detail=f"`{budget.bound}`{of} lets none go. The drain of a reclaimed node is refused until the node is "
            "removed, and neither preStop nor SIGTERM comes.",
            fix=_fix(
                f"let {budget.name} allow an eviction, instead of `{budget.bound}`", {"spec": {"maxUnavailable": 1}}
            ),
        )
    elif wanted and not covering:
        one = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": case.metadata(case.name),
            "spec": {"selector": case.selector, "minAvailable": "50%"},
        }
        yield Violation(
            id="disruption-budget-missing",
            reason="no PodDisruptionBudget covers its Pods: nodes that are drained together stop all of them at once",
            field=field,
            detail="A budget makes a drain wait until replacements are ready, for as long as the node is there.",
            fix=_fix("apply one", one),
        )


def judge_protections(case: SuitabilityCase, protections: Mapping[str, str]) -> Iterator[Violation]:
    """Yield violations of annotations that do not protect from a reclaim, or keep the drain from stopping the Pod."""
    for key, value in protections.items():
        drained = any(unevicted_annotation(each, None) == key for each in case.target.providers)
        if drained and (seconds := unevicted_seconds(case.pod, key)):
            during = "" if seconds == math.inf else f" for its first {case.pod.annotations[key][:_LONGEST_DURATION]}"
            yield case.finding(
                "protection",
                f"{key} blocks its eviction{during}: a reclaim kills it without SIGTERM",
                "The drain skips it and waits for it; critical Pods come after it. Exceptions: the NodePool has "
                "a `terminationGracePeriod` that ends before the machine; or its kubelet shuts down gracefully (AL2023 "
                "from Kubernetes 1.34). A duration needs Karpenter 1.12.",
                "remove the annotation, or run it on demand",
                f'metadata.annotations["{key}"]',
            )
        elif case.pod.annotations.get(key) == value:
            yield case.finding(
                "protection",
                f"{key} does not stop a reclaim: the provider takes the node all the same",
                f"`{key}: {value}` only keeps the autoscaler from moving the Pod.",
                "let it save its work when SIGTERM comes, or run it on demand",
                f'metadata.annotations["{key}"]',
            )


def judge_volumes(pod: Pod, data: Globs, scratch: Globs) -> Iterator[Violation]:
    """Yield violations of hostPath volumes whose data is lost with the node, by their names and mount paths.

    An emptyDir ends with its Pod, so its author does not expect it to stay; its name doesn't tell data from a cache.
    """
    for index, volume, mounts in on_the_node(pod):
        names = (volume.name, *mounts)
        if volume.hostPath is None or not any(map(data.match, names)) or any(map(scratch.match, names)):
            continue
        claim = {"name": volume.name, "persistentVolumeClaim": {"claimName": volume.name}}
        yield Violation(
            id="data-on-node",
            reason=f"what is written to {mounts[0][:_SHOWN]} is lost with the spot node: `{volume.name}` is a hostPath",
            field=f"spec.volumes[{index}].hostPath",
            detail="A reclaimed node does not come back. The replacement begins with an empty folder on another one.",
            fix="keep it in a PersistentVolumeClaim",
            yaml=_yaml({"spec": {"volumes": [claim]}}),
        )


def judge_handlers(pod: Pod, handlers: Sequence[str]) -> Iterator[Violation]:
    """Yield violations of containers with such images: second controllers that drain the same nodes as Karpenter."""
    for index, container in enumerate(pod.spec.containers):
        if any(part in container.image for part in handlers):
            yield Violation(
                id="termination-handler",
                reason="Node Termination Handler beside Karpenter: both drain a reclaimed node, and Pods hang in "
                "Terminating",
                field=f"spec.containers[{index}].image",
                detail=f"The cluster has Karpenter's nodes, and `{container.image[:_SHOWN]}` drains them too. "
                "Karpenter does all of it with its interruption queue.",
                fix=_fix(
                    "remove this workload, and let Karpenter do it, in the values of its Helm chart",
                    {"settings": {"interruptionQueue": "QUEUE"}},
                ),
            )


def _fix(lead: str, value: dict[str, Any]) -> str:
    """Return the fix with YAML that belongs in another object, or in the workload outside its pod template."""
    return f"{lead}:\n{_yaml(value)}"


def _yaml(value: dict[str, Any]) -> str:
    return dump(value, width=UNBROKEN, short_in_brackets=True)

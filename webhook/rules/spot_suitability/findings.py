"""Build the violations of SpotSuitability, worded for whoever applies the workload.

Each states the risk in its reason, and the remedy as YAML below one line that says what to do with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.capacity.placement.target import CAPACITY_LABEL, ON_DEMAND
from webhook.decision import Outcome, Violation
from webhook.documents.yaml_writer import UNBROKEN, dump

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from webhook.kube.disruption import DisruptionBudget
    from webhook.kube.pod import Pod, Volume

_CAPACITY: Final = f'metadata.labels["{CAPACITY_LABEL}"]'
_ON_DEMAND: Final = f"metadata:\n  labels:\n    {CAPACITY_LABEL}: {ON_DEMAND}"
_OWN_LABELS: Final = "spotgate.dev/"
_SHOWN: Final = 63
"""Characters of a name that a finding repeats: an image may have a kilobyte."""


class SuitabilityCase(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a Pod that targets spot, and its workload.

    Attributes:
        workload: the kind of its workload; empty for a Pod alone.
        name: the name of the workload, or of the Pod.
        replicas: the number of Pods of this template, or None if it does not matter.
        serves: it has replicas that serve, so a reclaim costs more than repeating work.
        labelled: the Pod or its namespace asks for spot with the label.
        match_labels: the labels by which the workload selects its Pods.
    """

    pod: Pod
    workload: str
    name: str
    namespace: str
    replicas: int | None
    serves: bool
    labelled: bool
    match_labels: Mapping[str, str]


def driver(case: SuitabilityCase, name: str) -> Violation:
    """Return the violation for a Pod that leads the work of others."""
    return Violation(
        id="driver",
        reason=f"the {name[:_SHOWN]} holds the state of the whole job: one reclaimed node ends all of it",
        field=_CAPACITY,
        detail="Workers are made again and go on as long as it lives: they belong on spot, it belongs on demand.",
        fix=_on_demand(case, "run it on demand"),
        yaml=_ON_DEMAND,
    )


def bare_pod(case: SuitabilityCase) -> Violation:
    """Return the violation for a Pod that no controller replaces."""
    name = case.pod.metadata.generateName.rstrip("-") or case.name or "NAME"
    return Violation(
        id="bare-pod",
        reason="nothing makes this Pod again: when its spot node is reclaimed, it is gone for good",
        field="metadata.ownerReferences",
        detail="It has no controller. A Job starts work anew that ends by itself, a Deployment what always runs.",
        fix=_fix(
            "let a Job or a Deployment make it, of this Pod's metadata and spec",
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": _metadata(name, case.namespace),
                "spec": {"template": {"spec": {"restartPolicy": "Never"}}},
            },
        ),
    )


def stateful_singleton(case: SuitabilityCase, state: str) -> Violation:
    """Return the violation for the only replica of stateful work; ``state`` is what holds it, as a phrase."""
    return Violation(
        id="stateful-singleton",
        reason="its only replica holds state: a reclaim stops it until its volume is attached to another node",
        field=_CAPACITY,
        detail=f"spec.replicas is 1, and {state}. Nobody stands in for it meanwhile, and what was not written is lost.",
        fix=_on_demand(case, "run it on demand"),
        yaml=_ON_DEMAND,
    )


def few_replicas(case: SuitabilityCase, minimum: int) -> Violation:
    """Return the violation for a workload of which one reclaim may take all replicas."""
    reason = (
        "it has one replica: a reclaim stops the service until another Pod is ready"
        if case.replicas == 1
        else f"it has {case.replicas} replicas: spot nodes that are reclaimed together take all of them"
    )
    return Violation(
        id="few-replicas",
        reason=reason,
        field=_CAPACITY,
        detail=f"spec.replicas is {case.replicas}; on spot, {minimum} or more can do without one. Where an autoscaler "
        "keeps more, its minimum belongs there.",
        fix=_fix(
            f"raise them in the {case.workload}, or label its pod template `{CAPACITY_LABEL}: {ON_DEMAND}`",
            {"spec": {"replicas": minimum}},
        ),
    )


def readiness_probe(pod: Pod) -> Violation:
    """Return the violation for Pods without a readiness probe."""
    index, container = next(
        ((index, each) for index, each in enumerate(pod.spec.containers) if each.ports),
        (0, pod.spec.containers[0]) if pod.spec.containers else (0, None),
    )
    name = container.name if container is not None else ""
    port = container.ports[0].containerPort if container is not None and container.ports else 8080
    probe = {"httpGet": {"path": "/ready", "port": port}, "initialDelaySeconds": 15, "periodSeconds": 5}
    return Violation(
        id="readiness-probe",
        reason="no container has a readiness probe: after a reclaim, Pods get requests before they can answer",
        field=f"spec.containers[{index}].readinessProbe",
        detail="A PodDisruptionBudget counts them as healthy, too, and lets the next node be drained.",
        fix="say when it is ready, and how long a cold start takes",
        yaml=_yaml({"spec": {"containers": [{"name": name, "readinessProbe": probe}]}}),
    )


def no_budget(case: SuitabilityCase) -> Violation:
    """Return the violation for a workload without a PodDisruptionBudget."""
    return Violation(
        id="disruption-budget-missing",
        reason="no PodDisruptionBudget covers its Pods: nodes that are drained together stop all of them at once",
        field="metadata.labels",
        detail="A budget makes a drain wait until replacements are ready, for as long as the node is there.",
        fix=_budget(case),
    )


def blocking_budget(case: SuitabilityCase, budget: DisruptionBudget) -> Violation:
    """Return the violation for a PodDisruptionBudget that never allows an eviction."""
    of = "" if case.replicas is None else f" of {case.replicas}"
    return Violation(
        id="disruption-budget-blocks",
        reason=f"PodDisruptionBudget {budget.name} blocks every eviction: a reclaim kills the Pods unprepared",
        field="metadata.labels",
        detail=f"`{budget.bound}`{of} lets none go. The drain of a reclaimed node is refused until the node is "
        "removed, and neither preStop nor SIGTERM comes.",
        fix=_fix(f"let {budget.name} allow an eviction, instead of `{budget.bound}`", {"spec": {"maxUnavailable": 1}}),
    )


def several_budgets(case: SuitabilityCase, budgets: Sequence[DisruptionBudget]) -> Violation:
    """Return the violation for Pods with several PodDisruptionBudgets, which the Eviction API refuses to evict."""
    names = ", ".join(budget.name for budget in budgets[:5])
    return Violation(
        id="disruption-budget-several",
        reason=f"{len(budgets)} PodDisruptionBudgets cover its Pods: a reclaim kills them unprepared",
        field="metadata.labels",
        detail=f"The API server refuses to evict a Pod that several cover ({names}), so the drain of a reclaimed node "
        "stops none of them in time.",
        fix=_fix(
            "delete all but one, or narrow their selectors; this one covers these Pods alone",
            {"spec": {"selector": _selector(case)}},
        ),
    )


def budgets_unknown(*, offline: bool) -> Violation:
    """Return the violation for a Pod whose PodDisruptionBudgets are unknown."""
    return Violation(
        id="disruption-budget-unknown",
        reason="it is not known whether a PodDisruptionBudget covers its Pods",
        field="metadata.labels",
        detail="Without one, nodes that are drained together stop all of them at once.",
        fix="pass the PodDisruptionBudgets along with the workload, or the cluster's manifests with --state"
        if offline
        else "allow spotgate's ServiceAccount to list and watch poddisruptionbudgets.policy",
        outcome=Outcome.WARN,
        unknown=True,
    )


def protection(case: SuitabilityCase, key: str, value: str) -> Violation:
    """Return the violation for an annotation that does not protect from a reclaim."""
    return Violation(
        id="protection",
        reason=f"{key} does not stop a reclaim: the provider takes the node all the same",
        field=f'metadata.annotations["{key}"]',
        detail=f"`{key}: {value}` only keeps the autoscaler from moving the Pod.",
        fix=_on_demand(case, "let it save its work when SIGTERM comes, or run it on demand"),
        yaml=_ON_DEMAND,
    )


def data_on_node(index: int, volume: Volume, mounts: Sequence[str]) -> Violation:
    """Return the violation for a volume whose data is lost with the node."""
    kind = "hostPath" if volume.hostPath is not None else "emptyDir"
    holds = f"`{volume.name}` is {'a' if kind == 'hostPath' else 'an'} {kind}"
    return Violation(
        id="data-on-node",
        reason=f"what is written to {mounts[0][:_SHOWN]} is lost with the spot node: {holds}",
        field=f"spec.volumes[{index}].{kind}",
        detail="A reclaimed node does not come back. The replacement begins with an empty folder on another one.",
        fix="keep it in a PersistentVolumeClaim",
        yaml=_yaml({"spec": {"volumes": [{"name": volume.name, "persistentVolumeClaim": {"claimName": volume.name}}]}}),
    )


def termination_handler(index: int, image: str) -> Violation:
    """Return the violation for a second controller that drains the same nodes."""
    return Violation(
        id="termination-handler",
        reason="Node Termination Handler beside Karpenter: both drain a reclaimed node, and Pods hang in Terminating",
        field=f"spec.containers[{index}].image",
        detail=f"The cluster has Karpenter's nodes, and `{image[:_SHOWN]}` drains them too. Karpenter does all of it "
        "with its interruption queue.",
        fix=_fix(
            "remove this workload, and let Karpenter do it, in the values of its Helm chart",
            {"settings": {"interruptionQueue": "QUEUE"}},
        ),
    )


def _on_demand(case: SuitabilityCase, lead: str) -> str:
    return lead if case.labelled else f"{lead}, and remove its own choice of spot"


def _budget(case: SuitabilityCase) -> str:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(case.name, case.namespace),
        "spec": {"selector": _selector(case), "minAvailable": "50%"},
    }
    return _fix("apply one", budget)


def _selector(case: SuitabilityCase) -> dict[str, Any]:
    own = {key: value for key, value in case.pod.labels.items() if not key.startswith(_OWN_LABELS)}
    return {"matchLabels": dict(sorted((case.match_labels or own).items()))}


def _metadata(name: str, namespace: str) -> dict[str, str]:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}


def _fix(lead: str, value: dict[str, Any]) -> str:
    """Return the fix with YAML that belongs in another object, or in the workload outside its pod template."""
    return f"{lead}:\n{_yaml(value)}"


def _yaml(value: dict[str, Any]) -> str:
    return dump(value, width=UNBROKEN, short_in_brackets=True)

"""Tell what is certain about a reclaim without a scheduler: little, and all of it by arithmetic.

No other node could ever take a Pod; a grace period is longer than the window; a budget allows no eviction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.cli.rehearse.inputs.resources import (
    JOB,
    POD,
    controller_of,
    kind_of_object,
    pod_spec_of,
    requests_of,
)
from webhook.cli.rehearse.result import Figure, Rehearsal, WorkloadResult
from webhook.globs import Globs
from webhook.kube.containers import DEVICE_CLASS_RESOURCES
from webhook.kube.disruption import KIND as BUDGET
from webhook.kube.disruption import budget_from
from webhook.kube.pod import DEFAULT_GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.cli.rehearse.inputs.nodes import RehearsedNode
    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.cli.rehearse.inputs.selection import Loss
    from webhook.cli.rehearse.inputs.snapshot import ClusterSnapshot
    from webhook.kube.pod import PodSpec

NEEDS_SCHEDULER: Final = "unknown: needs the scheduler"
HOW: Final = (
    "there is no scheduler here, so only what arithmetic proves is told: `spotgate rehearse --prepare` gets it or says "
    "why not, --binaries and KUBEBUILDER_ASSETS name a folder with it"
)
_TEMPLATES: Final = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Job"})


def prove(snapshot: ClusterSnapshot, loss: Loss) -> Rehearsal:
    """Return what is certain when these Nodes are lost."""
    classes = (each.get("spec") or {} for each in snapshot.objects if each["kind"] == "DeviceClass")
    devices = Globs([DEVICE_CLASS_RESOURCES, *(each.get("extendedResourceName") or "" for each in classes)])
    workloads = (_result(value, replicas, snapshot, loss, devices) for value, replicas in _workloads(snapshot))
    return Rehearsal(
        lost=loss.named,
        runs=0,
        scheduler=None,
        not_simulated=(*snapshot.not_simulated, HOW),
        workloads=tuple(each for each in workloads if each is not None),
        windows=loss.windows,
    )


def _workloads(snapshot: ClusterSnapshot) -> Iterator[tuple[JSON, int]]:
    """Yield each Pod, and each workload that has made none, with its number of Pods."""
    for value in snapshot.objects:
        if kind_of_object(value) is POD:
            yield value, 1
        elif value["kind"] in _TEMPLATES and controller_of(value) is None and not value["metadata"].get("uid"):
            replicas = (value.get("spec") or {}).get("parallelism" if value["kind"] == JOB.kind else "replicas")
            yield value, 1 if replicas is None else replicas


def _result(value: JSON, replicas: int, snapshot: ClusterSnapshot, loss: Loss, devices: Globs) -> WorkloadResult | None:
    """Return what is certain of a workload. Return None if it has no Pod on lost Nodes."""
    spec = pod_spec_of(value)
    lost_nodes = [each for each in snapshot.nodes if each.name in loss.nodes]
    if (
        spec.nodeName not in loss.nodes
        if spec.nodeName
        else not any(_could_take(each, spec, devices) for each in lost_nodes)
    ):
        return None
    only_there = not any(_could_take(each, spec, devices) for each in snapshot.nodes if each.name not in loss.nodes)
    lost = replicas if spec.nodeName or only_there else None
    reasons = []
    figures: dict[str, Any] = {}
    if only_there:
        figures = {"moved": Figure(0, 0), "pending": Figure(replicas, replicas)}
        reasons.append("no node that is left could take it: none has the labels and the room that it needs")
    grace = spec.terminationGracePeriodSeconds
    grace = DEFAULT_GRACE_SECONDS if grace is None else grace
    window = max(each.kill - each.drain for each in loss.windows)
    if grace > window:
        figures["killed_early"] = Figure(lost, lost)
        reasons.append(f"its grace period of {grace} s is longer than the window of {window:g} s")
    for budget in _blocking(value, replicas, snapshot) if all(each.evicts for each in loss.windows) else ():
        figures["killed_early"] = Figure(lost, lost)
        reasons.append(f"PodDisruptionBudget {budget} allows no eviction: its Pods run until they are killed")
    return WorkloadResult(
        api_version=value["apiVersion"],
        kind=value["kind"],
        namespace=value["metadata"].get("namespace", ""),
        name=value["metadata"].get("name", ""),
        replicas=replicas,
        lost=lost,
        reasons=tuple(reasons) or (NEEDS_SCHEDULER,),
        **figures,
    )


def _could_take(node: RehearsedNode, spec: PodSpec, devices: Globs) -> bool:
    """Return whether the node, were it empty, has the labels and the room. Taints and affinity are left out.

    So are requests for ``devices``, which a driver offers in a ResourceSlice, and not the Node.
    """
    if any(node.labels.get(key) != value for key, value in (spec.nodeSelector or {}).items()):
        return False
    offered = node.allocatable
    return all(offered.get(name, 0) >= amount or devices.match(name) for name, amount in requests_of(spec).items())


def _blocking(value: JSON, replicas: int, snapshot: ClusterSnapshot) -> Iterator[str]:
    pod = value if value["kind"] == POD.kind else (value.get("spec") or {}).get("template") or {}
    labels = (pod.get("metadata") or {}).get("labels") or {}
    for each in snapshot.objects:
        if each["kind"] == BUDGET and each["metadata"]["namespace"] == value["metadata"].get("namespace"):
            budget = budget_from(each)
            if budget.covers(labels) and budget.blocks(replicas):
                yield budget.name

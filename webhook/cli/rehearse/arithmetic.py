"""What is certain about a reclaim without a scheduler: little, and all of it by arithmetic.

No other node could ever take a Pod; a grace period is longer than the window; a budget allows no eviction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from webhook.cli.rehearse.inputs.resources import kind_of_object
from webhook.cli.rehearse.result import Figure, Rehearsal, RehearsalSummary, WorkloadResult
from webhook.kube.disruption import budget_from
from webhook.kube.pod import DEFAULT_GRACE_SECONDS
from webhook.kube.quantity import amount_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.cli.rehearse.inputs.selection import Loss
    from webhook.cli.rehearse.inputs.snapshot import ClusterSnapshot

UNKNOWN: Final = "unknown: needs the scheduler"
HOW: Final = (
    "there is no scheduler here, so only what arithmetic proves is told: `spotgate rehearse --prepare` gets it or says "
    "why not, --binaries and KUBEBUILDER_ASSETS name a folder with it"
)
_TEMPLATES: Final = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Job", "Pod"})


@dataclass(frozen=True, slots=True)
class _Part:
    """Pods that are alike."""

    workload: JSON
    template: JSON
    replicas: int


def prove(snapshot: ClusterSnapshot, loss: Loss) -> Rehearsal:
    """Return what is certain when these Nodes are lost."""
    left = [node for node in snapshot.nodes if node["metadata"]["name"] not in loss.nodes]
    window = max((each.kill - each.drain for each in loss.windows), default=0.0)
    results = tuple(
        result for part in _parts(snapshot) if (result := _result(part, snapshot, loss, left, window)) is not None
    )
    unknown = Figure()
    return Rehearsal(
        lost=loss.named,
        runs=0,
        scheduler=None,
        not_simulated=(*snapshot.not_simulated, HOW),
        modelled=(),
        summary=RehearsalSummary(moved=unknown, pending=unknown, killed_early=unknown, work_lost_gpu_hours=unknown),
        workloads=results,
        windows=loss.windows,
    )


def _result(
    part: _Part, snapshot: ClusterSnapshot, loss: Loss, left: list[JSON], window: float
) -> WorkloadResult | None:
    spec, metadata = part.template["spec"], part.workload["metadata"]
    placed = spec.get("nodeName")
    if placed and placed not in loss.nodes:
        return None
    lost_nodes = [node for node in snapshot.nodes if node["metadata"]["name"] in loss.nodes]
    if not placed and not any(_could_take(node, spec) for node in lost_nodes):
        return None  # they are elsewhere
    only_there = not any(_could_take(node, spec) for node in left)
    lost = part.replicas if placed or only_there else None
    reasons = []
    moved, pending, killed = Figure(), Figure(), Figure()
    if only_there:
        moved, pending = Figure(0, 0), Figure(part.replicas, part.replicas)
        reasons.append("no node that is left could take it: none has the labels and the room that it needs")
    grace = spec.get("terminationGracePeriodSeconds")
    grace = DEFAULT_GRACE_SECONDS if grace is None else grace
    if grace > window:
        killed = Figure(lost, lost)
        reasons.append(f"its grace period of {grace} s is longer than the window of {window:g} s")
    for budget in _blocking(part, snapshot) if all(each.evicts for each in loss.windows) else ():
        killed = Figure(lost, lost)
        reasons.append(f"PodDisruptionBudget {budget} allows no eviction: its Pods run until they are killed")
    return WorkloadResult(
        api_version=part.workload["apiVersion"],
        kind=part.workload["kind"],
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        replicas=part.replicas,
        lost=lost,
        moved=moved,
        pending=pending,
        killed_early=killed,
        lowest_ready=Figure(),
        seconds_below_budget=Figure(),
        work_lost_gpu_hours=Figure(),
        reasons=tuple(reasons) or (UNKNOWN,),
    )


def _parts(snapshot: ClusterSnapshot) -> Iterator[_Part]:
    for value in (*snapshot.applied, *snapshot.stored):
        if kind_of_object(value) is None or value["kind"] not in _TEMPLATES:
            continue
        spec = value.get("spec") or {}
        owned = any(each.get("controller") for each in value["metadata"].get("ownerReferences") or ())
        if value["kind"] == "Pod":
            yield _Part(value, value, 1)
        elif not owned and not value["metadata"].get("uid"):
            replicas = spec.get("parallelism" if value["kind"] == "Job" else "replicas")
            yield _Part(value, spec.get("template") or {"spec": {}}, 1 if replicas is None else replicas)


def _could_take(node: JSON, spec: Mapping[str, Any]) -> bool:
    """Return whether the node, were it empty, has the labels and the room. Taints and affinity are left out."""
    labels = node["metadata"]["labels"]
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    offered = node["status"]["allocatable"]
    return all((amount_of(offered.get(resource, 0)) or 0) >= amount for resource, amount in _requests(spec).items())


def _requests(spec: Mapping[str, Any]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for container in spec.get("containers") or ():
        resources = container.get("resources") or {}
        for resource, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            total[resource] = total.get(resource, 0) + (amount_of(amount) or 0)
    return total


def _blocking(part: _Part, snapshot: ClusterSnapshot) -> Iterator[str]:
    labels = (part.template.get("metadata") or {}).get("labels") or {}
    for value in (*snapshot.applied, *snapshot.stored):
        if value["kind"] == "PodDisruptionBudget" and value["metadata"]["namespace"] == part.workload["metadata"].get(
            "namespace"
        ):
            budget = budget_from(value)
            if budget.covers(labels) and budget.blocks(part.replicas):
                yield budget.name

"""Propose fixes for the harm of a reclaim, and build the cluster with the fixes for another rehearsal."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.base.terminal import counted
from webhook.capacity.placement.target import CAPACITY_LABEL, SPOT_PREFERRED
from webhook.capacity.providers.machines import TYPE_LABEL
from webhook.capacity.providers.manifest import on_demand_manifest
from webhook.kube.containers import device_classes_of, quantities_of
from webhook.kube.disruption import budget_from
from webhook.kube.notice import EVICT, ON_RECLAIM
from webhook.rehearse.inputs.nodes import RehearsedNode, size_of
from webhook.rehearse.inputs.resources import (
    BUDGET,
    DAEMON_SET,
    DEPLOYMENT,
    POD,
    controller_of,
    manifest_of,
    requests_of,
    template_of,
    workload_identity,
)
from webhook.rehearse.inputs.snapshot import ClusterSnapshot, snapshot_of
from webhook.rehearse.reasons import Cause
from webhook.rehearse.result import Fix, Rehearsal, WorkloadResult
from webhook.rehearse.runs.drain import PAUSE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.rehearse.inputs.resources import JSON
    from webhook.rehearse.inputs.selection import Growth

_WITH_SELECTOR: Final = frozenset({"Deployment", "StatefulSet", "ReplicaSet"})
_WITH_TEMPLATE: Final = _WITH_SELECTOR | {"ReplicationController", "Job"}
_BACKOFF_LIMIT: Final = 6
"""The default of a Job's backoffLimit."""

_IGNORE_DISRUPTIONS: Final = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def fixes_of(result: Rehearsal, snapshot: ClusterSnapshot) -> tuple[Fix, ...]:
    """Return fixes. Each one changes an existing object or adds a new one."""
    objects = _objects(snapshot)
    seconds = min(window.kill - _whole_pauses(window.drain) for window in result.windows)
    evicts = all(window.drained_by == "eviction" for window in result.windows)
    sharing = Counter((workload.namespace, workload.budget) for workload in result.workloads)
    fixes: list[Fix] = []
    for workload in result.workloads:
        value = objects.get(workload.identity)
        if value is None or value["kind"] != workload.kind:
            continue
        # With a budget, the eviction of one Pod waits until the replacement of another is ready.
        longest = seconds - _whole_pauses(workload.startup_seconds) if evicts and workload.budget else seconds
        if workload.kind in _WITH_TEMPLATE:
            waits = seconds - longest
            from_notice = all(
                window.notice is not None and window.granted(window.notice + waits, workload.grace_seconds)
                for window in result.windows
            )
            fixes += _of_template(workload, value, snapshot, longest, from_notice=from_notice)
        if workload.failed:
            fixes.append(_of_failed_job(workload, value))
        # Several workloads with one budget would get contradictory changes.
        if evicts and workload.lost and (not workload.budget or sharing[workload.namespace, workload.budget] == 1):
            fixes += _of_budget(workload, value, objects, seconds, min(workload.grace_seconds, longest))
    return (*fixes, *_fallback_pools(result, snapshot, objects))


def with_fixes(snapshot: ClusterSnapshot, fixes: Iterable[Fix]) -> ClusterSnapshot:
    """Return the cluster with these fixes. Raise CannotJudgeError."""
    changes = [manifest_of("the fixes", dict(fix.manifest)) for fix in fixes]
    return snapshot_of(snapshot.source.with_changes(changes), snapshot.bundle, snapshot.allocatable)


def growth_of(after: ClusterSnapshot, seconds: float | None) -> list[Growth]:
    """Return the nodes that each new pool adds to reach its maximum, and when.

    ``seconds`` overrides the provisioning time of the provider.
    """
    return [
        (
            pool.name,
            pool.maximum - size_of(pool),
            after.bundle.providers[pool.provider].interruption.provisioning_seconds if seconds is None else seconds,
        )
        for pool in after.pools
        if after.source.has_added(pool) and pool.autoscaling and pool.maximum
    ]


def _objects(snapshot: ClusterSnapshot) -> dict[tuple[str, str, str], JSON]:
    """Return the objects by identity. For a workload that isn't among them, return one of its Pods."""
    objects = {workload_identity(value): value for value in snapshot.objects}
    for pod in list(objects.values()):
        if pod["kind"] == POD.kind and (owner := controller_of(pod)) is not None:
            objects.setdefault((owner["kind"], pod["metadata"]["namespace"], owner["name"]), pod)
    return objects


def _of_template(
    workload: WorkloadResult, value: JSON, snapshot: ClusterSnapshot, longest: float, *, from_notice: bool
) -> Iterator[Fix]:
    """Propose changes to a workload's pod template.

    ``longest`` is the grace period that fits after the drain. ``from_notice``: the workload's own fits from the notice.
    """
    elsewhere = any(not node.spot for node in snapshot.nodes)
    who = "; create the Job again to change it" if workload.kind == "Job" else ""
    if workload.pending.max and template_of(value).labels.get(CAPACITY_LABEL) == "spot" and elsewhere:
        yield _change(
            f"{workload}: {counted(int(workload.pending.max), 'pending Pod')} can run only on spot nodes; with "
            f"{SPOT_PREFERRED}, its Pods can also run on the on-demand nodes that its own selector admits{who}",
            value,
            {"template": {"metadata": {"labels": {CAPACITY_LABEL: SPOT_PREFERRED}}}},
        )
    if workload.killed_early.max and workload.grace_seconds > longest > 0:
        why = (
            f"{workload}: its grace period of {workload.grace_seconds:g} s is longer than the {longest:g} s that the "
            f"reclaim leaves{' under its PodDisruptionBudget' if workload.budget else ''}"
        )
        if from_notice and template_of(value).labels.get(ON_RECLAIM) != EVICT:
            why += f"; with {ON_RECLAIM}: {EVICT} and the controller's reclaim notices, the period begins at the notice"
            change: JSON = {"metadata": {"labels": {ON_RECLAIM: EVICT}}}
        else:
            change = {"spec": {"terminationGracePeriodSeconds": int(longest)}}
        yield _change(f"{why}{who}", value, {"template": change})


def _of_failed_job(workload: WorkloadResult, value: JSON) -> Fix:
    """Propose a change that lets a Job survive the loss of a Pod."""
    spec = value["spec"]
    if template_of(value).spec.restartPolicy == "Never":
        rules = (spec.get("podFailurePolicy") or {}).get("rules") or []
        change: JSON = {"podFailurePolicy": {"rules": [_IGNORE_DISRUPTIONS, *rules]}}
        how = "with this rule, disruptions don't count; you can't add the rule to an existing Job"
    else:
        change = {"backoffLimit": spec.get("backoffLimit", _BACKOFF_LIMIT) + max(workload.lost, 1)}
        how = "set restartPolicy Never and a podFailurePolicy that ignores disruptions, or raise the limit"
    return _change(f"{workload}: the Job fails, because lost Pods count as failures; {how}", value, change)


def _whole_pauses(seconds: float) -> float:
    """Return the first second at or after this one at which a drain retries."""
    return math.ceil(seconds / PAUSE) * PAUSE


def _of_budget(
    workload: WorkloadResult, value: JSON, objects: Mapping[tuple[str, str, str], JSON], seconds: float, grace: float
) -> Iterator[Fix]:
    """Propose a budget that permits the evictions that a drain of ``seconds`` needs, and protects the other Pods."""
    parallel = workload.kind in {"Deployment", "ReplicaSet"}  # others replace an evicted Pod when it has stopped
    again = workload.startup_seconds + (0 if parallel else grace)
    rounds = 1 + int(max(seconds - grace, 0) // max(_whole_pauses(again), PAUSE))
    # A StatefulSet replaces its Pods one after another. Evicted Pods without room stay unavailable.
    roomless = int((workload.pending.max or 0) + (workload.missing.max or 0))
    at_once = max(math.ceil(workload.lost / rounds) if parallel else workload.lost - rounds + 1, roomless, 1)
    waiting = f", in addition to {workload.pending_before} that were pending before" if workload.pending_before else ""
    assumed = f"Pods stop in {grace:g} s, and replacements are ready after {again:g} s"
    assumed += f", except {roomless} without room" if roomless else ""
    computed = f"{counted(at_once, 'Pod')} at a time{waiting} (assumed: {assumed})"
    unavailable = at_once + workload.pending_before
    budget, name = objects.get((BUDGET.kind, workload.namespace, workload.budget)), f"{BUDGET.kind} {workload.budget}"
    blocks = any(reason.budget == workload.budget for reason in workload.reasons)
    if budget is not None and workload.killed_early.max and blocks:
        bound: JSON = {"minAvailable": None, "maxUnavailable": unavailable}
        allowed = workload.replicas - budget_from(budget).least(workload.replicas + workload.pending_before)
        if workload.seconds_below_budget.max is None:
            # The disruption controller doesn't know the number of Pods. An absolute minAvailable doesn't need it.
            bound, allowed = {"minAvailable": workload.replicas - at_once, "maxUnavailable": None}, 0
        if allowed < at_once < workload.replicas:
            yield _change(f"{workload}: {name} blocks the drain until SIGKILL; let it evict {computed}", budget, bound)
        elif workload.replicas == 1 and workload.kind == DEPLOYMENT.kind:
            why = f"{workload}: {name} blocks the eviction of its only Pod; with a second replica, it can allow one"
            yield _change(why, value, {"replicas": 2})
            if budget_from(budget).blocks(2):
                yield _change(why, budget, bound)
    elif (
        not (workload.budget or roomless)  # without room, a budget blocks the drain
        and workload.kind in _WITH_SELECTOR
        and workload.replicas > at_once
        and workload.lowest_ready.min == 0
        and (selector := value["spec"].get("selector"))
    ):
        metadata = {"name": workload.name, "namespace": workload.namespace}
        yield _change(
            f"{workload}: at times none of its {workload.replicas} Pods is ready; let a drain evict {computed}",
            {"apiVersion": BUDGET.api_version, "kind": BUDGET.kind, "metadata": metadata},
            {"maxUnavailable": unavailable, "selector": selector},
        )


def _fallback_pools(
    result: Rehearsal, snapshot: ClusterSnapshot, objects: Mapping[tuple[str, str, str], JSON]
) -> Iterator[Fix]:
    """Propose an on-demand pool for each lost spot pool with pending Pods, with enough nodes for those Pods."""
    nodes = {node.name: node for node in snapshot.nodes}
    needed: dict[str, tuple[RehearsedNode, list[Counter[str]]]] = {}
    for workload in result.workloads:
        pending = int(workload.pending.max or 0)
        spec = template_of(objects.get(workload.identity)).spec
        # A new pool brings no scheduler and no devices, and can't run a Pod that selects its pool by name.
        claims = bool(spec.resourceClaims) or bool(device_classes_of(quantities_of(spec)))
        if not (pending and workload.lost_on) or workload.has_reason(Cause.NO_SCHEDULER) or claims:
            continue
        like = nodes[workload.lost_on[0]]
        if like.provider is None or like.provider.pool_name_label not in (spec.nodeSelector or {}):
            _, pods = needed.setdefault(like.pool_name, (like, []))
            pods += [requests_of(spec) + Counter({"pods": 1})] * pending
    for name, (like, pods) in needed.items():
        pool, provider = like.pool, like.provider
        if not like.spot and (pool is not None or provider is None or provider.spot_node_labels):
            continue
        number = _nodes_for(pods, _free_of(like, snapshot))
        manifest = _on_demand(like, number, snapshot) if number else None
        if manifest is not None:
            yield Fix(
                f"{pool or name}: {counted(len(pods), 'Pod')} can't be scheduled elsewhere; the requests fit on "
                f"{counted(number, 'on-demand node')} of the same type",
                manifest,
            )


def _free_of(node: RehearsedNode, snapshot: ClusterSnapshot) -> Counter[str]:
    """Return a node's allocatable resources minus the requests of its DaemonSet Pods."""
    free = Counter(node.allocatable)
    for value in snapshot.existing:
        owner = controller_of(value) if value["kind"] == POD.kind else None
        if owner is not None and owner["kind"] == DAEMON_SET.kind and value["spec"].get("nodeName") == node.name:
            free.subtract(requests_of(template_of(value).spec) + Counter({"pods": 1}))
    return free


def _nodes_for(pods: Iterable[Counter[str]], offered: Counter[str]) -> int:
    """Return how many identical nodes the Pods need (first-fit decreasing), or 0 if a Pod fits on no node."""
    nodes: list[Counter[str]] = []
    for pod in sorted(pods, key=lambda pod: max(pod[name] / max(offered[name], 1e-9) for name in pod), reverse=True):
        node = next((node for node in nodes if pod <= node), None)
        if node is None:
            if not pod <= offered:
                return 0
            nodes.append(node := offered.copy())
        node.subtract(pod)
    return len(nodes)


def _on_demand(like: RehearsedNode, number: int, snapshot: ClusterSnapshot) -> JSON | None:
    """Return an on-demand pool that resembles a node's pool, or the node itself if no object describes the pool."""
    name, namespace, kind, instance_type = like.pool_name, "", "", like.labels.get(TYPE_LABEL, "")
    provider = like.provider.name if like.provider is not None else ""
    if (pool := like.pool) is not None:
        name, namespace, kind, instance_type = pool.name, pool.namespace, pool.kind, pool.instance_type
        provider = pool.provider
    pools = (manifest.value for manifest in snapshot.source.manifests if (manifest.kind, manifest.name) == (kind, name))
    write = partial(
        on_demand_manifest,
        name=f"{name}-fallback",
        namespace=namespace,
        instance_type=instance_type,
        maximum=number,
        like=next(pools, None),
    )
    readers = (
        reader for reader in snapshot.bundle.readers if reader.provider == provider and kind in {"", reader.kind}
    )
    return next(filter(None, map(write, readers)), None)


def _change(why: str, value: JSON, spec: JSON) -> Fix:
    """Return a change of an object as a merge patch that includes the object's identity."""
    metadata = {key: member for key, member in value["metadata"].items() if key in {"name", "namespace"}}
    return Fix(why, {"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": metadata, "spec": spec})

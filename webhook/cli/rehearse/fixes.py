"""What would mend what a reclaim does: proposals as YAML, and the cluster with them, to be rehearsed again."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from webhook.capacity.placement.target import CAPACITY_LABEL, SPOT_PREFERRED
from webhook.capacity.providers.machines import TYPE_LABEL
from webhook.capacity.providers.manifest import on_demand_manifest
from webhook.cli.rehearse.inputs.changes import with_changes
from webhook.cli.rehearse.inputs.nodes import pool_of_node
from webhook.cli.rehearse.inputs.resources import identity_of, manifest_of, pod_spec_of
from webhook.cli.rehearse.result import NO_SCHEDULER, Fix
from webhook.cli.terminal import counted
from webhook.kube.pod import DEFAULT_GRACE_SECONDS
from webhook.kube.quantity import amount_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.bundle import Bundle
    from webhook.capacity.providers.pool import Pool
    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.cli.rehearse.inputs.snapshot import ClusterSnapshot
    from webhook.cli.rehearse.result import Rehearsal, WorkloadResult

_WITH_TEMPLATE: Final = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Job"})
_WITH_SELECTOR: Final = frozenset({"Deployment", "StatefulSet", "ReplicaSet"})
_AT_LEAST_TWO: Final = 2
_BACKOFF_LIMIT: Final = 6
"""What the API server writes into a Job."""

_IGNORE_DISRUPTIONS: Final = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def fixes_of(result: Rehearsal, snapshot: ClusterSnapshot, bundle: Bundle, *, startup: float) -> tuple[Fix, ...]:
    """Return what would mend it: each a change of one object that is there, or a new one.

    Args:
        result: what was rehearsed.
        snapshot: the cluster.
        bundle: says how node pools are written.
        startup: seconds until a Pod that moves is ready; a drain waits for it where a budget demands it.
    """
    if not result.windows:
        return ()
    objects = _objects(snapshot)
    seconds = min(window.kill - window.drain for window in result.windows)
    evicts = all(window.evicts for window in result.windows)
    found: list[Fix] = []
    for workload in result.workloads:
        value = objects.get(workload.identity)
        if value is None or value["kind"] != workload.kind:
            continue
        if workload.kind in _WITH_TEMPLATE:
            longest = _longest_grace(workload, seconds, startup) if evicts else seconds
            found += _of_template(workload, value, snapshot, longest)
        if workload.failed:
            found.append(_of_failed_job(workload, value))
        if evicts:
            found += _of_budget(workload, value, objects, seconds, startup)
    return (*found, *_fallback_pools(result, snapshot, bundle, objects))


def with_fixes(
    snapshot: ClusterSnapshot, fixes: Iterable[Fix], bundle: Bundle, allocatable: Mapping[str, Mapping[str, str]]
) -> ClusterSnapshot:
    """Return the cluster with these fixes; a new pool is as large as it may get.

    Raises:
        CannotJudgeError: it is unknown what a new node offers.
    """
    changes = [manifest_of("the fixes", dict(fix.manifest)) for fix in fixes]
    return with_changes(
        snapshot,
        changes,
        bundle,
        allocatable,
        size=lambda pool: max(pool.desired or 0, pool.maximum or 0 if pool.autoscaling else 0),
    )


def _objects(snapshot: ClusterSnapshot) -> dict[tuple[str, str, str], JSON]:
    """Return the objects, and for a workload that is none of them one of its Pods."""
    objects = {identity_of(each): each for each in (*snapshot.stored, *snapshot.applied)}
    for pod in list(objects.values()):
        for owner in pod["metadata"].get("ownerReferences") or []:
            if pod["kind"] == "Pod" and owner.get("controller"):
                objects.setdefault((owner["kind"], pod["metadata"]["namespace"], owner["name"]), pod)
    return objects


def _of_template(workload: WorkloadResult, value: JSON, snapshot: ClusterSnapshot, longest: float) -> Iterator[Fix]:
    """Propose what a workload's pod template could say."""
    template = (value.get("spec") or {}).get("template") or {}
    named = _named(workload)
    labels = (template.get("metadata") or {}).get("labels") or {}
    if workload.pending.max and labels.get(CAPACITY_LABEL) == "spot" and _has_other_capacity(snapshot):
        yield _change(
            f"{named}: {_pods(workload.pending.max)} stay pending, as only spot nodes may have them; with "
            f"{SPOT_PREFERRED} on-demand nodes may, too",
            value,
            {"spec": {"template": {"metadata": {"labels": {CAPACITY_LABEL: SPOT_PREFERRED}}}}},
        )
    grace = _grace_of(value)
    if workload.killed_early.max and grace > longest > 0:
        yield _change(
            f"{named}: its grace period of {grace} s is longer than the {longest:g} s that the reclaim leaves it",
            value,
            {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": int(longest)}}}},
        )


def _of_failed_job(workload: WorkloadResult, value: JSON) -> Fix:
    """Propose a Job that survives the loss of a Pod."""
    spec = value["spec"]
    limit = spec.get("backoffLimit", _BACKOFF_LIMIT)
    if pod_spec_of(value).get("restartPolicy") == "Never":
        rules = (spec.get("podFailurePolicy") or {}).get("rules") or []
        change: JSON = {"podFailurePolicy": {"rules": [_IGNORE_DISRUPTIONS, *rules]}}
        how = "with this rule, which only a new Job can get, disruptions do not count"
    else:
        change = {"backoffLimit": limit + max(workload.lost or 0, 1)}
        how = "restartPolicy Never would allow a podFailurePolicy that ignores disruptions; else it needs a higher one"
    return _change(
        f"{_named(workload)}: it fails, as lost Pods count against its backoffLimit of {limit}; {how}",
        value,
        {"spec": change},
    )


def _longest_grace(workload: WorkloadResult, seconds: float, startup: float) -> float:
    """Return the longest grace period that a drain leaves. With a budget, a Pod waits for another that moves."""
    return seconds - startup if workload.budget else seconds


def _grace_of(value: JSON) -> int:
    grace = pod_spec_of(value).get("terminationGracePeriodSeconds")
    return grace if isinstance(grace, int) else DEFAULT_GRACE_SECONDS


def _of_budget(
    workload: WorkloadResult, value: JSON, objects: Mapping[tuple[str, str, str], JSON], seconds: float, startup: float
) -> Iterator[Fix]:
    """Propose a budget that lets the drain through in time, and keeps as many Pods as that permits."""
    grace = min(_grace_of(value), _longest_grace(workload, seconds, startup))
    rounds = 1 + math.floor(max(seconds - grace, 0) / startup) if startup else 1
    at_once = math.ceil((workload.lost or 0) / rounds)
    named = _named(workload)
    budget = objects.get(("PodDisruptionBudget", workload.namespace, workload.budget))
    if budget is not None and workload.killed_early.max and _blocks(workload, budget):
        if workload.replicas >= _AT_LEAST_TWO:
            # One that can't be counted, for want of its owner's scale, can still keep a number of Pods.
            counted = workload.seconds_below_budget.max is not None
            least = None if counted else max(workload.replicas - at_once, 0)
            yield _change(
                f"{named}: PodDisruptionBudget {workload.budget} holds the drain up until SIGKILL; {at_once} at a time "
                "are through in time",
                budget,
                {"spec": {"minAvailable": least, "maxUnavailable": at_once if counted else None}},
            )
        elif workload.kind == "Deployment":
            yield _change(
                f"{named}: its only Pod can't be drained, as PodDisruptionBudget {workload.budget} demands it; if it "
                "may run twice, one of two can",
                value,
                {"spec": {"replicas": 2}},
            )
    elif (
        not workload.budget
        and workload.kind in _WITH_SELECTOR
        and workload.replicas > at_once
        and workload.replicas >= _AT_LEAST_TWO
        and workload.lowest_ready.min == 0
        and (selector := (value.get("spec") or {}).get("selector"))
    ):
        yield Fix(
            f"{named}: at times none of its {workload.replicas} Pods is ready; a budget lets {at_once} go at a time, "
            "which the drain has time for",
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": workload.name, "namespace": workload.namespace},
                "spec": {"maxUnavailable": at_once, "selector": selector},
            },
        )


def _blocks(workload: WorkloadResult, budget: JSON) -> bool:
    name = budget["metadata"]["name"]
    return any(f"PodDisruptionBudget {name} " in each for each in workload.reasons)


def _fallback_pools(
    result: Rehearsal, snapshot: ClusterSnapshot, bundle: Bundle, objects: Mapping[tuple[str, str, str], JSON]
) -> Iterator[Fix]:
    """Propose an on-demand pool for each lost spot pool whose Pods stay pending, as large as they need."""
    nodes = {each["metadata"]["name"]: each for each in snapshot.nodes}
    lost = {name for window in result.windows for name in window.nodes}
    was_on: dict[tuple[str, str, str], str] = {}
    for event in result.events:
        if event.workload is not None and event.node in lost and event.name in {"evicted", "killed", "stopped"}:
            found = pool_of_node(nodes[event.node]["metadata"]["labels"], bundle.providers)
            was_on.setdefault(event.workload, found[0] if found else "")
    needed: dict[str, Counter[str]] = defaultdict(Counter)
    for workload in result.workloads:
        pending = int(workload.pending.max or 0)
        value = objects.get(workload.identity)
        # Neither a scheduler nor devices come with a node.
        helps = not workload.has_reason(NO_SCHEDULER) and not pod_spec_of(value).get("resourceClaims")
        if pending and helps and workload.identity in was_on:
            wanted = _requests(value)
            needed[was_on[workload.identity]] += Counter(
                {resource: amount * pending for resource, amount in wanted.items()} | {"pods": pending}
            )
    for name, wanted in needed.items():
        pool = next((each for each in snapshot.pools if each.is_named(name)), None)
        like = next((node for node in nodes.values() if _is_of(node, name, bundle)), None)
        if like is None or not _may_be_spot(pool, like, bundle):
            continue
        offered = like["status"]["allocatable"]
        sizes = [
            amount / _amount(offered.get(resource))
            for resource, amount in wanted.items()
            if _amount(offered.get(resource))
        ]
        number = math.ceil(max(sizes, default=1))
        manifest = _on_demand(name, pool, like, number, bundle)
        if manifest is not None:
            yield Fix(
                f"{pool or name}: nowhere is room for {_pods(wanted['pods'])} of it; "
                f"{counted(number, 'on-demand node')} of the same type {'has' if number == 1 else 'have'} it",
                manifest,
            )


def _may_be_spot(pool: Pool | None, node: JSON, bundle: Bundle) -> bool:
    if pool is not None:
        return pool.spot
    labels = node["metadata"]["labels"]
    found = pool_of_node(labels, bundle.providers)
    return found is not None and (not found[1].spot_node_labels or found[1].is_spot_node(labels))


def _on_demand(name: str, pool: Pool | None, like: JSON, number: int, bundle: Bundle) -> JSON | None:
    """Return an on-demand pool like a spot pool or, where no object describes that, like its Nodes."""
    labels = like["metadata"]["labels"]
    found = pool_of_node(labels, bundle.providers)
    provider = pool.provider if pool is not None else found[1].name if found is not None else ""
    manifests = (
        on_demand_manifest(
            reader,
            name=f"{pool.name if pool is not None else name}-fallback",
            namespace=pool.namespace if pool is not None else "",
            instance_type=pool.instance_type if pool is not None else labels.get(TYPE_LABEL, ""),
            maximum=number,
        )
        for reader in bundle.readers
        if reader.provider == provider and (pool is None or reader.kind == pool.kind)
    )
    return next((each for each in manifests if each is not None), None)


def _is_of(node: JSON, pool: str, bundle: Bundle) -> bool:
    found = pool_of_node(node["metadata"]["labels"], bundle.providers)
    return found is not None and found[0] == pool


def _requests(value: JSON | None) -> Counter[str]:
    """Return what one Pod of a workload requests."""
    wanted: Counter[str] = Counter()
    for container in pod_spec_of(value).get("containers") or []:
        resources = container.get("resources") or {}
        for resource, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            wanted[resource] += _amount(amount)  # type: ignore[assignment]
    return wanted


def _amount(value: object) -> float:
    return float(amount_of(value) or 0)


def _has_other_capacity(snapshot: ClusterSnapshot) -> bool:
    spot = {each.name for each in snapshot.pools if each.spot} | {
        each.pool_name for each in snapshot.pools if each.spot
    }
    return any(spot.isdisjoint(node["metadata"]["labels"].values()) for node in snapshot.nodes)


def _change(why: str, value: JSON, change: JSON) -> Fix:
    """Return a change of an object, as `kubectl patch --type merge` takes it, and `kubectl apply` for what it owns."""
    metadata = {key: each for key, each in value["metadata"].items() if key in {"name", "namespace"}}
    return Fix(why, {"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": metadata, **change})


def _named(workload: WorkloadResult) -> str:
    return f"{workload.kind} {workload.namespace}/{workload.name}"


def _pods(number: float) -> str:
    return counted(int(number), "Pod")

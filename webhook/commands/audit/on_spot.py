"""Find the workloads that run on spot Nodes, and why they would not survive a reclaim.

Reasons come from the rules: how each running Pod would stop on its Node (`ReclaimTimeline`), the SpotSuitability
findings of its workload, and the OnDemandFallback findings of the node pool.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.budget import GraceBudgets
from webhook.capacity.placement.constraints import NODE_POOL_ANNOTATION
from webhook.capacity.placement.floor import FLOOR_ANNOTATION, Floor, parse_floor
from webhook.capacity.placement.target import CAPACITY_LABEL, SPOT
from webhook.capacity.view import ClusterView, spot_nodes
from webhook.kube.affinity import Tristate
from webhook.kube.layouts import LaidOutPod
from webhook.kube.pod_decoding import decode_pod
from webhook.reclaim.timeline import timeline_of
from webhook.report.report import ReclaimRisk, RiskReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.engine.bundle import Bundle
    from webhook.inputs.objects import Identity, Manifest
    from webhook.judging.judge import Judge
    from webhook.kube.pod import OwnerReference
    from webhook.model.decision import Finding

_SUITABILITY: Final = "spot-suitability/"
_FALLBACK: Final = "on-demand-fallback/"
_REPLICA_SET: Final = ("apps", "ReplicaSet")
_OF_NODES: Final = frozenset({("apps", "DaemonSet"), ("", "Node")})
"""Owners whose Pods end with their Node."""


class SpotWorkload(msgspec.Struct, kw_only=True):
    """A workload with Pods on spot Nodes.

    Attributes:
        pods: the number of its Pods on spot Nodes; ``pools`` are their node pools.
        early: how many seconds of the grace period the worst of these Pods loses.
        reasons: why the workload would not survive.
        floors: the ReplicaSets below their on-demand floor.
    """

    api_version: str
    pods: int = 0
    pools: list[str] = []
    early: int = 0
    reasons: list[RiskReason] = []
    floors: list[RiskReason] = []


class FloorCount(msgspec.Struct):
    """The living Pods of a ReplicaSet with an on-demand floor."""

    floor: Floor
    pods: int = 0
    on_demand: int = 0


class OnSpot:
    """The workloads on spot Nodes, collected while the audit reads the objects of a cluster, Pods first."""

    def __init__(self, bundle: Bundle, view: ClusterView, judge: Judge) -> None:
        self._bundle = bundle
        self._view = view
        self._nodes = spot_nodes(view)
        self._judge = judge
        self._budgets = GraceBudgets(bundle.providers)
        self._workloads: dict[Identity, SpotWorkload] = {}
        self._floors: dict[Identity, FloorCount] = {}
        self._without_fallback: dict[str, RiskReason] = {}

    def take_pod(self, identity: Identity, controller: OwnerReference | None, node_name: str, raw: msgspec.Raw) -> None:
        """Count a Pod that runs on a spot Node or has an on-demand floor."""
        node = self._nodes.get(node_name)
        owner = (controller.group, controller.kind) if controller is not None else None
        if node_name and controller is not None and owner == _REPLICA_SET and FLOOR_ANNOTATION.encode() in bytes(raw):
            floor = parse_floor(decode_pod(raw).annotations.get(FLOOR_ANNOTATION, ""))
            if floor is not None:
                count = self._floors.setdefault((*owner, identity[2], controller.name), FloorCount(floor))
                count.pods += 1
                count.on_demand += node is None
        if node is None or owner in _OF_NODES:
            return
        _, _, namespace, _ = identity
        if self._bundle.index.system_namespaces.contains(namespace, self._view) is Tristate.YES:
            return
        self._workloads[identity] = self._of_pod(raw, self._bundle.providers[node[0]], node[1])
        if controller is not None:
            self.pass_on(identity, controller)

    def _of_pod(self, raw: msgspec.Raw, provider: Provider, pool: Pool | None) -> SpotWorkload:
        """Return a Pod as a workload, with a reason if it loses part of its grace period on its Node."""
        pools = [pool.name] if pool is not None and pool.name else []
        workload = SpotWorkload(api_version="v1", pods=1, pools=pools)
        pod = decode_pod(raw)
        budget = self._budgets.of_node(provider, pool)
        timeline = timeline_of("", pod, pod, provider=provider, pool=pool, budget=budget)
        if pod.annotations.get(timeline.unevicted) == "true":
            fix = f"remove the annotation `{timeline.unevicted}`, or run it on demand"
            workload.reasons.append(RiskReason(id="spot-suitability/protection", reason=timeline.verdict, fix=fix))
        elif timeline.loses and not timeline.unevicted:
            workload.early = max(-timeline.margin, 0)
            reason = RiskReason(
                id=f"graceful-termination/{'sleep-too-long' if timeline.fits else 'over-budget'}",
                reason=f"a grace period of {timeline.grace} s {timeline.verdict}",
                fix=f"set `terminationGracePeriodSeconds: {budget.seconds}`, and stop within that",
            )
            workload.reasons.append(reason)
        return workload

    def pass_on(self, identity: Identity, owner: OwnerReference) -> None:
        """Add the counts of a workload to its owner."""
        if (owned := self._workloads.pop(identity, None)) is None:
            return
        if (count := self._floors.get(identity)) and count.on_demand < (need := count.floor.need(count.pods)):
            reason = f"{count.on_demand} of {count.pods} Pods run on demand, fewer than the on-demand floor of {need}"
            fix = "delete a Pod on a spot Node: its replacement runs on demand while `spotgate controller` runs"
            owned.floors.append(RiskReason(id="spot-placement/floor-not-kept", reason=reason, fix=fix))
        owner_identity = (owner.group, owner.kind, identity[2], owner.name)
        workload = self._workloads.setdefault(owner_identity, SpotWorkload(api_version=owner.apiVersion))
        workload.pods += owned.pods
        workload.pools += [pool for pool in owned.pools if pool not in workload.pools]
        workload.floors += owned.floors
        if owned.reasons and (not workload.reasons or owned.early > workload.early):
            workload.early, workload.reasons = owned.early, owned.reasons

    def take_object(self, identity: Identity, manifest: Manifest, findings: Iterable[Finding]) -> None:
        """Record why a workload on spot Nodes would not survive, or that a node pool lacks an on-demand fallback."""
        for finding in findings:
            if finding.id.startswith(_FALLBACK):
                self._without_fallback.setdefault(manifest.name, _reason(finding))
        workload = self._workloads.get(identity)
        if workload is None:
            return
        as_spot = self._as_spot(manifest, workload.pools)
        if as_spot is not None:
            findings = self._judge.judge(as_spot).findings
        workload.reasons += (_reason(finding) for finding in findings if finding.id.startswith(_SUITABILITY))

    def _as_spot(self, manifest: Manifest, pools: list[str]) -> Manifest | None:
        """Return a copy that requests the spot pool of its Pods. Return None unless it has one plain pod template.

        The spot rules evaluate only workloads that request spot. A workload that only tolerates spot also runs there.
        """
        value = deepcopy(manifest.value)
        pod = value
        if (manifest.group, manifest.kind) != ("", "Pod"):
            workloads = {(kind.group, kind.kind): kind for kind in self._bundle.index.workloads.values()}
            templates = list(workloads[manifest.group, manifest.kind].templates(value))
            if len(templates) != 1 or isinstance(templates[0], LaidOutPod):
                return None
            pod = templates[0].value
        metadata = pod.setdefault("metadata", {})
        metadata["labels"] = {**(metadata.get("labels") or {}), CAPACITY_LABEL: SPOT}
        if len(pools) == 1:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), NODE_POOL_ANNOTATION: pools[0]}
        return msgspec.structs.replace(manifest, value=value)

    def risks(self) -> Iterator[ReclaimRisk]:
        """Yield the workloads on spot Nodes with their reasons, ordered by namespace and name."""
        for (_, kind, namespace, name), workload in sorted(self._workloads.items(), key=lambda item: item[0][2:]):
            fallback = (self._without_fallback[pool] for pool in workload.pools if pool in self._without_fallback)
            yield ReclaimRisk(
                api_version=workload.api_version,
                kind=kind,
                namespace=namespace,
                name=name,
                pods=workload.pods,
                pools=sorted(workload.pools),
                reasons=[*workload.reasons, *workload.floors, *fallback],
            )


def _reason(finding: Finding) -> RiskReason:
    return RiskReason(id=finding.id, reason=finding.reason, fix=finding.fix)

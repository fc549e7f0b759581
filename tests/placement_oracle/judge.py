"""The judge: where a Pod that asks for spot should run, and what is wrong with where it can run after admission.

The judge knows all potential Nodes of a cluster; spotgate sees some. A Node *should* run a Pod if all of this is true:

1. It is spot.
2. The Pod's own nodeSelector and required affinity admit it, and its resources and devices are enough.
3. Its platform is amd64 and Linux, or the Pod selects its platform: nodeSelector or a term that admits the Node lists it
   in `kubernetes.io/arch` or `kubernetes.io/os`, or `spec.os` names the system.
4. It has an accelerator if and only if the Pod requests one. Fractions, MIG slices, and claims for a GPU are requests. A
   claim for another device is none. If spotgate can't read a claim, machines of both kinds count.
5. The Pod itself tolerates each of its NoSchedule and NoExecute taints, or the taint
   - means spot: the provider puts it on spot nodes, its key or value says so in a word (spot, preemptible, ...), or all
     visible spot pools, at least two, have it and no other visible pool has it; or
   - reserves an accelerator that the Pod requests, or a platform that it selects.

   Any other taint dedicates the Node to other Pods.

A Pod that names a pool, in the annotation, or by the pool-name label in nodeSelector or in each term that admits the Node,
should run on that pool whatever its platform, accelerator, and dedicating taints are, and on no other pool.

Admission may go either way (`Verdict.EITHER`) where spotgate can't know better, or users can't agree:

- Nodes with a taint that no object and no Node shows: of pools at zero on GKE, EKS, and AKS, and taints of Nodes that the
  pool's object doesn't declare. Taints that providers set by themselves don't count as hidden.
- GPU machines of pools at zero on EKS, which have no label to exclude them by. Foreign platforms aren't excused: each Node
  has the labels of its platform.
- Machines of the wrong kind, if the Pod itself demands the provider's spot label, and either could run there without
  spotgate or was only kept off by a hidden taint.
- Machines of the wrong kind that have a label of the team's that the Pod demands, if no other Node should run the Pod.
- Machines of a platform that some terms of the Pod select and others don't.
- Machines of a Karpenter NodePool that lists several architectures: its owner leaves the choice to Karpenter.
- Nodes of EKS groups at zero in a cluster with spot NodePools of Karpenter, if no spot Node of EKS is up.
- Machines with a taint that spotgate never tolerates, if the Pod tolerates it.
- A named pool with a taint for an accelerator that the Pod doesn't request.

`spot-preferred` Pods should run on the same spot nodes, and keep the other Nodes, except machines of the wrong kind.
Admission may open only on-demand Nodes whose taints it may tolerate. If the Pod can run on on-demand Nodes, admission
makes it prefer all Nodes that should run it, and no other.

If no Node should run the Pod, admission may leave it unchanged with a finding.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tests.placement_oracle import scheduler
from tests.placement_oracle.providers import (
    ACCELERATOR_TAINTS,
    ACCELERATORS,
    ARCH,
    AUTOMATIC,
    FORBIDDEN_TAINTS,
    GPU,
    GPU_CLASS,
    NETWORK_CLASS,
    PLATFORM_TAINTS,
    POOL_LABELS,
    SPOT_LABELS,
    SYSTEM,
    TIER,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.placement_oracle.clusters import Cluster, Machine

JSON = dict[str, Any]

ON_DEMAND, PLATFORM, ACCELERATOR = "on-demand", "foreign platform", "accelerator that isn't requested"
USUAL: Final = {ARCH: "amd64", SYSTEM: "linux"}
WORDS: Final = re.compile(r"spot|preemptible|interruptible|interruptable|evictable", re.IGNORECASE)
CLAIMS: Final = {"gpu": {GPU_CLASS}, "network": {NETWORK_CLASS}, "unknown": set()}


class Verdict(Enum):
    """Whether a Pod should run on a Node."""

    YES = "should run the Pod"
    NO = "should not run the Pod"
    EITHER = "may run the Pod"


@dataclass(frozen=True)
class Wrong:
    """A wrong answer about a Node, and its kind."""

    kind: str
    machine: Machine

    def __str__(self) -> str:
        return f"{self.machine.name}: {self.kind}"


class Judge:
    """The judge of one Pod, as the user wrote it, in one cluster."""

    def __init__(self, pod: JSON, cluster: Cluster) -> None:
        self.pod = pod
        self.cluster = cluster
        self.preferred = pod["metadata"].get("labels", {}).get("spotgate.dev/capacity") == "spot-preferred"
        self.named = pod["metadata"].get("annotations", {}).get("spotgate.dev/node-pool")

    def can_run(self, pod: JSON, machine: Machine) -> bool:
        """Return whether the scheduler may bind this version of the Pod to the Node."""
        return scheduler.can_run(pod, machine.node) and self._is_enough(machine)

    def _is_enough(self, machine: Machine) -> bool:
        """Return whether the Node's resources and devices are enough for the Pod."""
        devices = self._claimed <= machine.devices and (not self._fraction or machine.accelerator == GPU)
        return devices and scheduler.fits(self.pod, machine.node)

    @cached_property
    def _fraction(self) -> bool:
        """Whether the Pod asks KAI, in an annotation, for a part of a GPU."""
        return "gpu-fraction" in self.pod["metadata"].get("annotations", {})

    @cached_property
    def _claimed(self) -> set[str]:
        names = (claim["resourceClaimTemplateName"] for claim in self.pod["spec"].get("resourceClaims", ()))
        return set().union(*(CLAIMS[name] for name in names))

    @cached_property
    def _requested(self) -> set[str]:
        """The accelerators that the Pod requests."""
        names = scheduler.requests_of(self.pod)
        gpus = self._fraction or GPU_CLASS in self._claimed or any(name.startswith("nvidia.com/") for name in names)
        return {*({GPU} if gpus else ()), *names} & set(ACCELERATORS.values())

    @cached_property
    def _unknown_claim(self) -> bool:
        return any(c["resourceClaimTemplateName"] == "unknown" for c in self.pod["spec"].get("resourceClaims", ()))

    def _admitting(self, machine: Machine) -> list[set[str]]:
        """Return the keys that each term demands that admits the Node."""
        terms = (term for term in scheduler.terms_of(self.pod) or () if scheduler.matches(term, machine.node))
        return [
            {need["key"] for need in term["matchExpressions"] if need["operator"] in {"In", "Exists"}} for term in terms
        ]

    def _demands(self, machine: Machine, *keys: str) -> bool:
        """Return whether nodeSelector, or each term that admits the Node, demands one of these labels."""
        demanded = [*self._admitting(machine)] or [set()]
        selected = {*self.pod["spec"].get("nodeSelector", {})}
        return not selected.isdisjoint(keys) or not any(term.isdisjoint(keys) for term in demanded)

    def _demands_spot(self, machine: Machine) -> bool:
        return self._demands(machine, *SPOT_LABELS[machine.provider])

    def _selects(self, key: str, machine: Machine) -> bool:
        """Return whether the Pod selects the platform of a Node that it admits."""
        if key == SYSTEM and "os" in self.pod["spec"]:
            return bool(self.pod["spec"]["os"]["name"] == machine.labels[SYSTEM])
        return key in self.pod["spec"].get("nodeSelector", {}) or any(key in d for d in self._admitting(machine))

    def _selects_sometimes(self, key: str) -> bool:
        """Return whether some terms select the platform, and others don't."""
        listed = [
            any(need["key"] == key for need in term["matchExpressions"]) for term in scheduler.terms_of(self.pod) or ()
        ]
        return key not in self.pod["spec"].get("nodeSelector", {}) and any(listed) and not all(listed)

    def _names(self, machine: Machine) -> bool:
        if self.named is not None:
            return bool(machine.pool == self.named)
        return self._demands(machine, POOL_LABELS[machine.provider])

    def should_run(self, machine: Machine) -> tuple[Verdict, str]:
        """Return whether the Node should run the Pod, and if not, the kind of reason."""
        repelling = scheduler.repelled_by(self.pod, machine.node)
        foreign = "" if self._names(machine) else self._foreign(machine)
        reasons = (
            (not machine.spot, ON_DEMAND),
            (self.named not in {None, machine.pool}, "not the pool that the annotation names"),
            (not scheduler.selects(self.pod, machine.node) or not self._is_enough(machine), "impossible"),
            (any(taint in FORBIDDEN_TAINTS for taint in repelling), "taint that must never be tolerated"),
            (bool(foreign), foreign),
            (not all(self._may_tolerate(taint, machine) for taint in repelling), "dedicated pool"),
        )
        because = next((reason for applies, reason in reasons if applies), "")
        hidden = any(taint in machine.hidden for taint in repelling)
        vague = self._is_vague(machine)
        excuses = (
            vague,
            self._is_mixed(machine),
            self._demands_spot(machine) and (hidden or self.can_run(self.pod, machine)),
            machine.provider == "eks" and not machine.shown and foreign == ACCELERATOR,
        )
        if because and not (because == foreign and any(excuses)):
            return Verdict.NO, because
        guarded = any(taint in ACCELERATOR_TAINTS[machine.provider].values() for taint in repelling)
        doubts = (
            bool(because),
            self._behind_karpenter(machine),
            hidden,
            vague,
            guarded and not self._requests(machine),
            any(taint in FORBIDDEN_TAINTS for taint in machine.taints),
        )
        return (Verdict.EITHER if any(doubts) else Verdict.YES), because

    def _is_vague(self, machine: Machine) -> bool:
        """Return whether only some terms of the Pod select the platform of the Node."""
        return any(machine.labels[key] != usual and self._selects_sometimes(key) for key, usual in USUAL.items())

    def _is_mixed(self, machine: Machine) -> bool:
        """Return whether the pool of the Node has several architectures."""
        same_pool = (other for other in self.cluster.machines if other.pool == machine.pool)
        return any(other.labels[ARCH] != machine.labels[ARCH] for other in same_pool)

    def _behind_karpenter(self, machine: Machine) -> bool:
        """Return whether the Node is of an invisible EKS group, and all visible spot capacity is Karpenter's."""
        spot = {other.provider for other in self.cluster.machines if other.spot and other.shown}
        return machine.provider == "eks" and not machine.shown and spot == {"karpenter"}

    def _foreign(self, machine: Machine) -> str:
        """Return why the machine is of the wrong kind for the Pod, or an empty string."""
        if any(machine.labels[key] != usual and not self._selects(key, machine) for key, usual in USUAL.items()):
            return PLATFORM
        return ACCELERATOR if machine.accelerator and not self._requested and not self._unknown_claim else ""

    def _requests(self, machine: Machine) -> bool:
        """Return whether the Pod requests, or may request, the accelerator of the machine."""
        return machine.accelerator in self._requested or self._unknown_claim

    def _may_tolerate(self, taint: JSON, machine: Machine) -> bool:
        """Return whether a taint means spot, or dedicates the Node to Pods like this one."""
        says_spot = WORDS.search(f"{taint['key'].rpartition('/')[2]} {taint.get('value', '')}")
        if self._names(machine) or taint in AUTOMATIC or says_spot:
            return True
        if taint in ACCELERATOR_TAINTS[machine.provider].values():
            return self._requests(machine)
        if taint in PLATFORM_TAINTS.values():
            key = ARCH if taint["key"] == ARCH else SYSTEM
            return self._selects(key, machine) or self._selects_sometimes(key)
        return taint in self._common

    @cached_property
    def _common(self) -> list[JSON]:
        """The taints of all visible spot pools, at least two, and of no other visible pool."""
        spot: dict[str, list[JSON]] = {}
        others: list[JSON] = []
        for machine in (machine for machine in self.cluster.machines if machine.shown):
            visible = [taint for taint in machine.taints if taint not in machine.hidden]
            if any(other.pool == machine.pool and not other.spot for other in self.cluster.machines):
                others += visible
            else:
                spot[machine.pool] = visible
        first, *rest = spot.values() or [[]]
        return [t for t in first if rest and all(t in taints for taints in rest) and t not in others]

    def judge(self, after: JSON, findings: tuple[str, ...], nodes: Collection[str]) -> list[Wrong]:
        """Return what is wrong with the Pod after admission, if it can run on the Nodes with these names."""
        verdicts = [(machine, *self.should_run(machine)) for machine in self.cluster.machines]
        fields = ("nodeSelector", "affinity", "tolerations")
        unchanged = all(self.pod["spec"].get(field) == after["spec"].get(field) for field in fields)
        if not any(verdict is Verdict.YES for _, verdict, _ in verdicts):
            if unchanged and findings:
                return []
            verdicts = [(m, Verdict.EITHER if self._chooses(m, why) else verdict, why) for m, verdict, why in verdicts]
        needed = any(machine.name in nodes for machine in self.cluster.machines if not machine.spot)
        wrong = []
        for machine, verdict, because in verdicts:
            gain = scheduler.preference(after, machine.node) - scheduler.preference(self.pod, machine.node)
            gain = gain if needed or verdict is Verdict.NO else 1
            if kind := self._wrong(machine, verdict, because, runs=machine.name in nodes, gain=gain):
                wrong.append(Wrong(kind if machine.shown else f"{kind} (unseen pool)", machine))
        return wrong

    def _chooses(self, machine: Machine, because: str) -> bool:
        """Return whether the Pod demands a label that the team gave to a machine of the wrong kind."""
        return because in {PLATFORM, ACCELERATOR} and self._demands(machine, TIER)

    def _wrong(self, machine: Machine, verdict: Verdict, because: str, *, runs: bool, gain: int) -> str:
        """Return the kind of a wrong answer about one Node, or an empty string if the answer is right.

        ``gain``: how much more admission makes the Pod prefer the Node; 1 if no preference is needed.
        """
        yes, no, ran = verdict is Verdict.YES, verdict is Verdict.NO, self.can_run(self.pod, machine)
        mistakes = [(yes and not runs, "unused: Nodes are up" if machine.up else "unused: pool at zero")]
        if self.preferred:
            mistakes += [
                (yes and gain <= 0, "not preferred: spot"),
                (no and runs and gain > 0, f"preferred: {because}"),
                (no and runs and not ran and not self._may_open(machine), f"opened: {because}"),
                (not machine.spot and ran and not runs and not self._foreign(machine), f"closed: {because}"),
            ]
        else:
            mistakes.append((no and runs, f"wide: {because}"))
        return next((kind for applies, kind in mistakes if applies), "")

    def _may_open(self, machine: Machine) -> bool:
        """Return whether admission may remove what repels a `spot-preferred` Pod from a Node that needn't run it."""
        repelling = scheduler.repelled_by(self.pod, machine.node)
        right = not machine.spot and (self._is_mixed(machine) or self._is_vague(machine) or not self._foreign(machine))
        return any(taint in machine.hidden for taint in repelling) or (
            right and all(self._may_tolerate(taint, machine) for taint in repelling)
        )

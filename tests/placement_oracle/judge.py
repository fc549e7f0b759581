"""The judge: where a Pod that asks for spot should run, and what is wrong with where it can run after admission.

It knows all potential Nodes of a cluster, spotgate sees only some. A Node *should* run a Pod if all of this is true:

1. It is spot.
2. The Pod's own nodeSelector and required affinity admit it, and its resources and devices are enough. spotgate only
   adds constraints, so it can't be wrong here.
3. Its platform is amd64 and Linux, or the Pod selects it: nodeSelector, or each term that admits the Node, names
   `kubernetes.io/arch` or `kubernetes.io/os`, or `spec.os` names the system. The reason: an image that nobody said
   runs on Arm doesn't.
4. It has an accelerator if and only if the Pod requests one. Fractions, MIG slices, and claims for a GPU are requests; a
   claim for another device is none; if spotgate can't read a claim, machines of both kinds count.
5. Each of its NoSchedule and NoExecute taints
   - is tolerated by the Pod itself; or
   - means spot: the provider puts it on spot nodes, or its key or value says so in a word (spot, preemptible, ...), or all
     visible spot pools, at least two, have it and no other visible pool has it; or
   - reserves an accelerator that the Pod requests, or a platform that it selects.
   Any other taint dedicates the Node to other Pods. No Pod should run on a Node with a `neverTolerate` taint.

A Pod that names a pool, in the annotation or by the pool-name label in nodeSelector or in every term, should run on that
pool whatever its platform, accelerator, and taints are, except `neverTolerate` taints, and on no other pool.

Either answer is right (`Verdict.EITHER`) where spotgate can't know better or needn't:

- Pools without a Node, where pools aren't objects (GKE, EKS, AKS), and taints that only Nodes would show: their own taints
  needn't be tolerated, unless the provider adds the taint by itself. Nor can a GPU machine without a taint be told from
  others on EKS, where no label says so. But every Node has the labels of its platform, so a foreign platform is wrong.
- Machines of a foreign platform or with an accelerator that the Pod could run on without spotgate, as its own constraints
  demand the provider's spot label: "nothing that is there is narrowed".
- Pods with `spot-preferred`: machines that aren't spot and of a foreign platform may be excluded.

`spot-preferred` Pods should run on the same spot nodes, and keep all other Nodes. Injected tolerations open no other
Node, except accelerators that the Pod requests and platforms that it selects. The preference gains exactly on the spot
nodes that should run the Pod, as far as it can run on the others.

If no Node should run the Pod, admission may leave it unchanged with a finding.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tests.placement_oracle import scheduler
from tests.placement_oracle.clusters import (
    ACCELERATOR_TAINTS,
    AUTOMATIC,
    FORBIDDEN_TAINTS,
    GPU,
    GPU_CLASS,
    NETWORK_CLASS,
    NEURON,
    PLATFORM_TAINTS,
    POOL_LABELS,
    SPOT_LABELS,
    TPU,
)

if TYPE_CHECKING:
    from tests.placement_oracle.clusters import Cluster, Machine

JSON = dict[str, Any]

ARCH, SYSTEM = "kubernetes.io/arch", "kubernetes.io/os"
PLATFORM: Final = {ARCH: "amd64", SYSTEM: "linux"}
WORDS: Final = re.compile(r"spot|preemptible|interruptible|interruptable|evictable", re.IGNORECASE)
CLAIMS: Final = {"gpu": {GPU_CLASS}, "network": {NETWORK_CLASS}, "unknown": set()}


class Verdict(Enum):
    """Whether a Pod should run on a Node."""

    YES = "should run the Pod"
    NO = "should not run the Pod"
    EITHER = "may run the Pod"


@dataclass(frozen=True)
class Wrong:
    """A wrong answer: its kind, the Node, and the reason that the judge gives."""

    kind: str
    machine: Machine | None = None
    because: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.machine.node['metadata']['name']}, {self.because}" if self.machine else self.kind


class Judge:
    """The judge of one Pod, as the user wrote it, in one cluster."""

    def __init__(self, pod: JSON, cluster: Cluster) -> None:
        self.pod = pod
        self.cluster = cluster
        self.preferred = pod["metadata"].get("labels", {}).get("spotgate.dev/capacity") == "spot-preferred"
        self.named = pod["metadata"].get("annotations", {}).get("spotgate.dev/node-pool")

    def can_run(self, pod: JSON, machine: Machine) -> bool:
        """Return whether the scheduler may bind this version of the Pod to the Node."""
        return scheduler.can_run(pod, machine.node) and self._devices_fit(machine)

    def _devices_fit(self, machine: Machine) -> bool:
        fraction = "gpu-fraction" in self.pod["metadata"].get("annotations", {})  # KAI scheduler
        return self._claimed <= machine.devices and (not fraction or machine.accelerator == GPU)

    @cached_property
    def _claimed(self) -> set[str]:
        names = (claim["resourceClaimTemplateName"] for claim in self.pod["spec"].get("resourceClaims", ()))
        return set().union(*(CLAIMS[name] for name in names))

    @cached_property
    def _requested(self) -> set[str]:
        """The accelerators that the Pod requests."""
        names = scheduler.requests_of(self.pod)
        gpus = any(name.startswith("nvidia.com/") for name in names) or GPU_CLASS in self._claimed
        gpus = gpus or "gpu-fraction" in self.pod["metadata"].get("annotations", {})
        return {*({GPU} if gpus else ()), *names} & {GPU, TPU, NEURON}

    @cached_property
    def _unknown_claim(self) -> bool:
        return any(c["resourceClaimTemplateName"] == "unknown" for c in self.pod["spec"].get("resourceClaims", ()))

    def _demands(self, keys: set[str], machine: Machine) -> bool:
        """Return whether nodeSelector or each term that admits the Node demands one of these labels."""
        terms = [term for term in scheduler.terms_of(self.pod) or () if scheduler.matches(term, machine.node)]
        listed = [{need["key"] for need in term["matchExpressions"] if need["operator"] == "In"} for term in terms]
        return bool(keys & self.pod["spec"].get("nodeSelector", {}).keys()) or (
            bool(listed) and all(keys & demanded for demanded in listed)
        )

    def _names(self, machine: Machine) -> bool:
        if self.named is not None:
            return machine.pool == self.named
        return self._demands({POOL_LABELS[machine.provider]}, machine)

    def _selects(self, key: str, machine: Machine) -> bool:
        """Return whether the Pod selects the platform of the Node."""
        if key == SYSTEM and "os" in self.pod["spec"]:
            return bool(self.pod["spec"]["os"]["name"] == machine.labels[SYSTEM])
        return self._demands({key}, machine)

    def should_run(self, machine: Machine) -> tuple[Verdict, str]:
        """Return whether the Node should run the Pod, and why not."""
        no = Verdict.NO
        if not machine.spot:
            return no, "it isn't spot"
        if self.named not in {None, machine.pool}:
            return no, "it is in another pool than the annotation names"
        if not (
            scheduler.selects(self.pod, machine.node)
            and scheduler.fits(self.pod, machine.node)
            and self._devices_fit(machine)
        ):
            return no, "the Pod can't run there"
        if forbidden := next((taint for taint in machine.taints if taint in FORBIDDEN_TAINTS), None):
            return no, f"{forbidden['key']} must never be tolerated"
        if not self._names(machine) and (because := self._foreign(machine)):
            mine = self._demands({SPOT_LABELS.get(machine.provider, ("",))[0]}, machine) and self.can_run(
                self.pod, machine
            )
            indistinct = machine.provider == "eks" and not machine.shown and because.startswith("it has a")
            return (Verdict.EITHER if mine or indistinct else no), because
        unknown = False
        for taint in scheduler.repelled_by(self.pod, machine.node):
            if not self._names(machine) and not self._may_tolerate(taint, machine):
                return no, f"{taint['key']} dedicates it"
            unknown = unknown or taint in machine.hidden
        return (Verdict.EITHER, "its taint can't be seen") if unknown else (Verdict.YES, "")

    def _foreign(self, machine: Machine) -> str:
        """Return why the Node is of the wrong kind for the Pod, or an empty string."""
        for key, usual in PLATFORM.items():
            if machine.labels[key] != usual and not self._selects(key, machine):
                return f"{machine.labels[key]} is a platform that the Pod doesn't select"
        if machine.accelerator and not self._requested and not self._unknown_claim:
            return f"it has a {machine.accelerator}, and the Pod requests none"
        return ""

    def _may_tolerate(self, taint: JSON, machine: Machine) -> bool:
        """Return whether a taint means spot, or reserves an accelerator or a platform for the Pod."""
        if taint in AUTOMATIC or WORDS.search(f"{taint['key'].rpartition('/')[2]} {taint.get('value', '')}"):
            return True
        if key := PLATFORM_TAINTS.get((taint["key"], taint.get("value", ""))):
            return self._selects(key, machine)
        if accelerator := ACCELERATOR_TAINTS.get((taint["key"], taint.get("value", ""))):
            return accelerator in self._requested or self._unknown_claim
        return taint in self._common

    @cached_property
    def _common(self) -> list[JSON]:
        """The taints of all visible spot pools, at least two, and of no other visible pool."""
        spot: dict[str, list[JSON]] = {}
        others: list[JSON] = []
        for machine in (machine for machine in self.cluster.machines if machine.shown):
            visible = [taint for taint in machine.taints if taint not in machine.hidden]
            mixed = any(other.pool == machine.pool and not other.spot for other in self.cluster.machines)
            if mixed:
                others += visible
            else:
                spot[machine.pool] = visible
        first, *rest = spot.values() or [[]]
        return [t for t in first if rest and all(t in taints for taints in rest) and t not in others]

    def judge(self, after: JSON, findings: tuple[str, ...]) -> list[Wrong]:
        """Return what is wrong with the Pod after admission."""
        verdicts = [(machine, *self.should_run(machine)) for machine in self.cluster.machines]
        unchanged = all(self.pod["spec"].get(f) == after["spec"].get(f) for f in ("nodeSelector", "affinity"))
        if not any(verdict is Verdict.YES for _, verdict, _ in verdicts) and unchanged and findings:
            return []
        wrong = [self._wrong(after, *one) for one in verdicts]
        return [one for one in wrong if one is not None]

    def _wrong(self, after: JSON, machine: Machine, verdict: Verdict, because: str) -> Wrong | None:
        runs, ran = self.can_run(after, machine), self.can_run(self.pod, machine)
        gain = scheduler.preference(after, machine.node) - scheduler.preference(self.pod, machine.node)
        if verdict is Verdict.YES and not runs:
            return Wrong("visible pool unused" if machine.up else "lost pool at zero", machine, because)
        if self.preferred:
            if verdict is Verdict.YES and gain <= 0:
                return Wrong("no preference for spot", machine, because)
            if verdict is Verdict.NO and runs and gain > 0:
                return Wrong("preference for a wrong Node", machine, because)
            if verdict is Verdict.NO and runs and not ran and not self._welcome(machine):
                return Wrong(f"opened: {_kind(machine, because)}", machine, because)
            if not machine.spot and ran and not runs and not self._foreign(machine):
                return Wrong("on-demand Node lost", machine, because)
            return None
        if verdict is Verdict.NO and runs:
            return Wrong(_kind(machine, because), machine, because)
        return None

    def _welcome(self, machine: Machine) -> bool:
        """Return whether an on-demand Node repelled the Pod only by taints that it may tolerate."""
        repelling = scheduler.repelled_by(self.pod, machine.node)
        return (
            not machine.spot and not self._foreign(machine) and all(self._may_tolerate(t, machine) for t in repelling)
        )


def _kind(machine: Machine, because: str) -> str:
    """Return the kind of a Node on which the Pod should not run."""
    if not machine.spot:
        return "on-demand"
    unseen = "" if machine.shown else " (unseen pool)"
    if "platform" in because:
        return f"foreign platform{unseen}"
    if "requests none" in because:
        return f"accelerator for a Pod without{unseen}"
    return f"{because.split(' ')[-1]}{unseen}" if "dedicates" not in because else f"dedicated pool{unseen}"

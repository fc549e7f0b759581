"""Map Pods to their top-level workload, gang, budgets, and the GPU work that they lose on a stop."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.globs import Globs
from webhook.capacity.placement.workload_class import BATCH, CHECKPOINTING, CLASS_LABEL, class_of
from webhook.kube.containers import quantities_of, requested_of
from webhook.kube.disruption import DisruptionBudget, budget_from
from webhook.kube.pod import MIRROR_ANNOTATION
from webhook.kube.quantity import amount_of
from webhook.rehearse.inputs.gangs import gang_of
from webhook.rehearse.inputs.resources import BY_NAME, POD, POD_OWNERS, RehearsedKind, requests_of
from webhook.rehearse.reasons import HarmReason  # noqa: TC001 - msgspec reads the annotation
from webhook.rehearse.result import PodState, WorkloadKey
from webhook.rehearse.runs.watching import READY, SeenObject, SeenPod, SeenReference, Watches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.engine.bundle import Bundle

CHECKPOINT: Final = "spotgate.dev/checkpoint-seconds"
_UNSAVED: Final = {CHECKPOINTING: 1800.0, BATCH: 3600.0}
"""The default seconds of work that a stopped Pod loses, by workload class: 30 minutes between checkpoints, and an hour
for a batch job."""

_HOUR: Final = 3600
_HISTORY_AT_MOST: Final = 1800.0


class RehearsedPod(msgspec.Struct, eq=False):
    """A Pod and its history in the rehearsal.

    Attributes:
        seen: the last observed state of the Pod.
        workload: the top-level workload.
        node: the first Node that ran the Pod; empty if there is none.
        grace: the grace period in seconds: the Pod's own, or the one that an eviction granted.
        requests: the resource requests, including 1 of ``pods``.
        budgets: the namespace and name of the PodDisruptionBudgets that cover the Pod.
        work: the GPU-hours of work that are lost when the Pod stops within its grace period.
        work_if_killed: the GPU-hours of work that are lost when the Pod is killed earlier.
        gang: the identity of the gang; see `gang_of`.
        leaves: whether the Pod belongs to its Node and never moves, such as a DaemonSet Pod or a static Pod.
        ran, waited: whether the Pod ran on a Node or was pending before the reclaim.
        evicted: the second of the eviction or deletion; None if there was none.
        killed: whether the Pod was killed before the end of its grace period.
        broken: whether the gang has lost a Pod.
        blocked: why the eviction was refused; None if it wasn't.
    """

    seen: SeenPod
    workload: WorkloadKey
    node: str
    grace: float
    requests: Counter[str]
    budgets: tuple[tuple[str, str], ...]
    work: float
    work_if_killed: float
    gang: tuple[str, ...] | None
    leaves: bool
    ran: bool = False
    waited: bool = False
    evicted: float | None = None
    killed: bool = False
    broken: bool = False
    blocked: HarmReason | None = None

    @property
    def state(self) -> PodState:
        """Return the state of the Pod for the drawing."""
        if self.evicted is not None:
            return "stopping"
        return "ready" if self.seen.ready else "starting" if self.seen.node else "pending"


class Workloads:
    """The Pods of a run with their workloads, which stay known after the owners are deleted.

    Attributes:
        known: all Pods observed so far, by UID.
    """

    def __init__(self, watches: Watches, bundle: Bundle) -> None:
        self.known: dict[str, RehearsedPod] = {}
        self._watches = watches
        self._gpus = Globs({glob for provider in bundle.providers.values() for glob in provider.gpu.resources.patterns})
        self._history: dict[WorkloadKey, list[float]] = {}
        self._budgets: dict[tuple[str, str], DisruptionBudget] = {}

    def of(self, seen: SeenPod) -> RehearsedPod:
        """Return the record of an observed Pod, updated to this state."""
        pod = self.known.get(seen.metadata.uid)
        if pod is None:
            pod = self.known[seen.metadata.uid] = self._read(seen)
        pod.seen, pod.node = seen, pod.node or seen.node
        return pod

    def pods(self) -> list[RehearsedPod]:
        """Return the existing Pods in their current state."""
        return [self.of(seen) for seen in self._watches.pods.values()]

    def exists(self, pod: RehearsedPod) -> bool:
        """Return whether the Pod still exists, and update its record."""
        seen = self._watches.pods.get(pod.seen.metadata.key)
        return seen is not None and self.of(seen) is pod

    def startup(self, workload: WorkloadKey, default: float) -> float:
        """Return the median seconds from binding to ready of the workload's Pods, or the default if unknown."""
        return median(self._history.get(workload, [default]))

    def _read(self, pod: SeenPod) -> RehearsedPod:
        owner = pod.controller
        workload = self._highest(WorkloadKey("v1", "Pod", *pod.metadata.key), pod.metadata.controller)
        self._remember(pod, workload)
        requests = requests_of(pod.spec)
        gpus = sum(requests[name] for name in requested_of(quantities_of(pod.spec), self._gpus))
        sort = pod.labels.get(CLASS_LABEL) or class_of(pod, gpu=gpus > 0)[0]
        every = amount_of(pod.annotations.get(CHECKPOINT))
        killed = gpus / _HOUR * (float(every) if every is not None else _UNSAVED.get(sort, 0.0))
        return RehearsedPod(
            seen=pod,
            workload=workload,
            node=pod.node,
            grace=float(pod.grace_seconds),
            requests=requests + Counter(pods=1),
            budgets=self._covering(pod),
            work=0.0 if sort == CHECKPOINTING and every is None else killed,
            work_if_killed=killed,
            gang=gang_of(pod),
            leaves=MIRROR_ANNOTATION in pod.annotations or (owner is not None and owner.kind in {"DaemonSet", "Node"}),
        )

    def missing(self) -> Counter[WorkloadKey]:
        """Return how many Pods of each workload are missing.

        A workload without a controller here wants the Pods that ran before the reclaim.
        """
        wanted: Counter[WorkloadKey] = Counter()
        for workload, _, owner in self.pod_owners():
            wanted[workload] += owner.pods_wanted
        cared_for = set(wanted)
        wanted.update(
            pod.workload for pod in self.known.values() if pod.ran and not pod.leaves and pod.workload not in cared_for
        )
        wanted.subtract(pod.workload for pod in self.pods() if pod.seen.alive)
        return +wanted

    def refused(self) -> Iterator[tuple[WorkloadKey, str, str]]:
        """Yield each workload with rejected Pods, the API path of the owner that creates them, and the reason."""
        missing, messages = self.missing(), self._watches.refusals
        for workload, kind, owner in self.pod_owners():
            if missing[workload] and owner.metadata.uid in messages:
                namespace, name = owner.metadata.key
                yield workload, f"{kind.collection(kind.api_version, namespace)}/{name}", messages[owner.metadata.uid]

    def pod_owners(self) -> Iterator[tuple[WorkloadKey, RehearsedKind, SeenObject]]:
        """Yield the owners whose controllers create Pods here, each with its workload and kind."""
        for kind in POD_OWNERS:
            for key, owner in self._watches.owners[kind].items():
                maker = WorkloadKey(kind.api_version, kind.kind, *key)
                yield self._highest(maker, owner.metadata.controller), kind, owner

    def _highest(self, workload: WorkloadKey, owner: SeenReference | None) -> WorkloadKey:
        """Return the top-level owner of a workload, given the workload's direct owner."""
        while owner is not None and owner.kind != "Node":
            workload = WorkloadKey(owner.apiVersion, owner.kind, workload.namespace, owner.name)
            kind = BY_NAME.get((owner.group, owner.kind), POD)
            above = self._watches.owners.get(kind, {}).get((workload.namespace, owner.name))
            owner = above.metadata.controller if above is not None else None
        return workload

    def _covering(self, pod: SeenPod) -> tuple[tuple[str, str], ...]:
        """Return the namespace and name of the budgets that cover the Pod."""
        if len(self._budgets) != len(self._watches.budgets):
            self._budgets = {
                key: budget_from({"metadata": {"name": key[1]}, "spec": watched.spec})
                for key, watched in self._watches.budgets.items()
            }
        namespace = pod.metadata.namespace
        return tuple(key for key, budget in self._budgets.items() if key[0] == namespace and budget.covers(pod.labels))

    def _remember(self, pod: SeenPod, workload: WorkloadKey) -> None:
        if READY in pod.annotations:
            return  # the rehearsal made it ready, not its cluster
        scheduled, ready = pod.status.condition("PodScheduled"), pod.status.condition("Ready")
        if scheduled.lastTransitionTime and ready.lastTransitionTime and ready.status == "True":
            took = (ready.lastTransitionTime - scheduled.lastTransitionTime).total_seconds()
            # 0 s isn't a measurement, and a longer time means that the Pod became ready again.
            if 0 < took <= _HISTORY_AT_MOST:
                self._history.setdefault(workload, []).append(took)

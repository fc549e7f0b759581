"""Whose a Pod is: the workload that people know, its gang, its GPUs, and what it loses when it stops."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.globs import Globs
from webhook.capacity.placement.workload_class import BATCH, CHECKPOINTING, CLASS_LABEL, derive_class
from webhook.kube.containers import requested_of
from webhook.kube.disruption import budget_from
from webhook.kube.pod import MIRROR_ANNOTATION
from webhook.kube.quantity import amount_of
from webhook.rehearse.inputs.gangs import gang_of
from webhook.rehearse.inputs.resources import BY_NAME, MAKERS, POD, requests_of
from webhook.rehearse.result import PodState, WorkloadKey
from webhook.rehearse.runs.watching import READY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.engine.bundle import Bundle
    from webhook.kube.disruption import DisruptionBudget
    from webhook.rehearse.inputs.resources import RehearsedKind
    from webhook.rehearse.runs.watching import SeenObject, SeenPod, SeenReference, Watches

CHECKPOINT: Final = "spotgate.dev/checkpoint-seconds"
_UNSAVED: Final = {CHECKPOINTING: 1800.0, BATCH: 3600.0}
"""Seconds of work that a Pod of a class loses that does not say how often it saves: half an hour between checkpoints,
an hour of a batch job."""

_HOUR: Final = 3600
_TRAINING_OPERATORS: Final = Globs(("*Job.kubeflow.org",))
_HISTORY_AT_MOST: Final = 1800.0


class RehearsedPod(msgspec.Struct, eq=False):
    """A Pod as it was first seen, and what has happened to it.

    Attributes:
        seen: the Pod as it was last seen.
        workload: its workload.
        node: where it runs; empty if it never did.
        grace: its grace period.
        requests: what it requests, by resource.
        budgets: namespace and name of those that cover it.
        work: its GPU-hours of work that are lost when it stops, even in time.
        work_if_killed: the same when it is killed before.
        gang: what the Pods of its gang have in common; of a Pod whose controller is not here, itself; or None.
        leaves: it goes with its Node, and nothing moves it: a DaemonSet's or static Pod.
        ran, waited: it was on a Node before the reclaim, or waited for one.
        evicted: the second in which it was told to stop; None if it was not.
        killed: it was killed before its grace period was over.
        broken: its gang has lost a Pod.
        blocked: why its eviction was refused; empty if it was not.
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
    blocked: str = ""

    @property
    def state(self) -> PodState:
        """Return its state in a picture."""
        if self.evicted is not None:
            return "stopping"
        return "ready" if self.seen.ready else "starting" if self.seen.node else "pending"


class Workloads:
    """The Pods of a run, each with its workload, also after its owner has gone.

    Attributes:
        known: every Pod that was ever seen, by UID.
    """

    def __init__(self, watches: Watches, bundle: Bundle) -> None:
        self.known: dict[str, RehearsedPod] = {}
        self._watches = watches
        self._gpus = Globs({glob for provider in bundle.providers.values() for glob in provider.gpu.resources.patterns})
        self._history: dict[WorkloadKey, list[float]] = {}
        self._budgets: dict[tuple[str, str], DisruptionBudget] = {}

    def of(self, seen: SeenPod) -> RehearsedPod:
        """Return a Pod that was seen, as it is now."""
        pod = self.known.get(seen.metadata.uid)
        if pod is None:
            pod = self.known[seen.metadata.uid] = self._read(seen)
        pod.seen, pod.node = seen, pod.node or seen.node
        return pod

    def here(self) -> list[RehearsedPod]:
        """Return the Pods that exist, as they are now."""
        return [self.of(seen) for seen in self._watches.pods.values()]

    def exists(self, pod: RehearsedPod) -> bool:
        """Return whether a Pod still exists, and look at it again."""
        seen = self._watches.pods.get(pod.seen.metadata.key)
        return seen is not None and self.of(seen) is pod

    def startup(self, workload: WorkloadKey, default: float) -> float:
        """Return the seconds from binding to ready: the median of what its Pods took, else the default."""
        return median(self._history.get(workload, [default]))

    def _read(self, pod: SeenPod) -> RehearsedPod:
        owner = pod.controller
        workload = self._highest(WorkloadKey("v1", "Pod", *pod.metadata.key), pod.metadata.controller)
        self._remember(pod, workload)
        requests = requests_of(pod.spec)
        gpus = sum(requests[name] for name in requested_of(pod.spec, self._gpus))
        sort = pod.labels.get(CLASS_LABEL) or derive_class(pod, _TRAINING_OPERATORS, gpu=gpus > 0)[0]
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
        """Return how many of the Pods that each workload is to have do not exist.

        A workload that no controller here looks after is to have those that ran.
        """
        wanted: Counter[WorkloadKey] = Counter()
        for workload, _, owner in self.makers():
            wanted[workload] += owner.pods_wanted
        cared_for = set(wanted)
        wanted.update(
            pod.workload for pod in self.known.values() if pod.ran and not pod.leaves and pod.workload not in cared_for
        )
        wanted.subtract(pod.workload for pod in self.here() if pod.seen.lives)
        return +wanted

    def refused(self) -> Iterator[tuple[WorkloadKey, str, str]]:
        """Yield each workload that lacks Pods, the path of what makes these, and why the API server refused them."""
        missing, messages = self.missing(), self._watches.refusals
        for workload, kind, owner in self.makers():
            if missing[workload] and owner.metadata.uid in messages:
                namespace, name = owner.metadata.key
                yield workload, f"{kind.collection(kind.api_version, namespace)}/{name}", messages[owner.metadata.uid]

    def makers(self) -> Iterator[tuple[WorkloadKey, RehearsedKind, SeenObject]]:
        """Yield the objects of which controllers here make Pods, each with its workload and its kind."""
        for kind in MAKERS:
            for key, owner in self._watches.owners[kind].items():
                maker = WorkloadKey(kind.api_version, kind.kind, *key)
                yield self._highest(maker, owner.metadata.controller), kind, owner

    def _highest(self, workload: WorkloadKey, owner: SeenReference | None) -> WorkloadKey:
        """Return the highest owner of a workload, from its own owner on."""
        while owner is not None and owner.kind != "Node":
            workload = WorkloadKey(owner.apiVersion, owner.kind, workload.namespace, owner.name)
            kind = BY_NAME.get((owner.group, owner.kind), POD)
            above = self._watches.owners.get(kind, {}).get((workload.namespace, owner.name))
            owner = above.metadata.controller if above is not None else None
        return workload

    def _covering(self, pod: SeenPod) -> tuple[tuple[str, str], ...]:
        """Return namespace and name of the budgets that cover a Pod."""
        if len(self._budgets) != len(self._watches.budgets):
            self._budgets = {
                key: budget_from({"metadata": {"name": key[1]}, "spec": watched.spec})
                for key, watched in self._watches.budgets.items()
            }
        namespace = pod.metadata.namespace
        return tuple(key for key, budget in self._budgets.items() if key[0] == namespace and budget.covers(pod.labels))

    def _remember(self, pod: SeenPod, workload: WorkloadKey) -> None:
        if READY in pod.annotations:
            return  # here, and not in its cluster
        scheduled, ready = pod.status.condition("PodScheduled"), pod.status.condition("Ready")
        if scheduled.lastTransitionTime and ready.lastTransitionTime and ready.status == "True":
            took = (ready.lastTransitionTime - scheduled.lastTransitionTime).total_seconds()
            # Nothing took no time, and what took longer became ready again.
            if 0 < took <= _HISTORY_AT_MOST:
                self._history.setdefault(workload, []).append(took)

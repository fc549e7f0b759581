"""Whose a Pod is: the workload that people know, its gang, its GPUs, and what it loses when it stops."""

from __future__ import annotations

from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.workload_class import BATCH, CHECKPOINTING, CLASS_LABEL, derive_class
from webhook.cli.rehearse.inputs.gangs import gang_of
from webhook.cli.rehearse.inputs.resources import JOB
from webhook.cli.rehearse.runs.restarts import CONTROLLED_HERE
from webhook.cli.rehearse.runs.watching import READY
from webhook.globs import Globs
from webhook.kube.containers import requested_of
from webhook.kube.pod import DEFAULT_GRACE_SECONDS, OwnerReference, Pod
from webhook.kube.pod import ObjectMeta as PodMeta
from webhook.kube.quantity import amount_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.bundle import Bundle
    from webhook.cli.rehearse.runs.watching import SeenOwner, SeenPod, SeenReference, Watches

CHECKPOINT: Final = "spotgate.dev/checkpoint-seconds"
_MIRROR: Final = "kubernetes.io/config.mirror"
_UNSAVED: Final = {CHECKPOINTING: 1800.0, BATCH: 3600.0}
"""Seconds of work that a Pod of a class loses that does not say how often it saves: half an hour between checkpoints,
an hour of a batch job."""

_HISTORY_AT_MOST: Final = 1800.0


class WorkloadKey(msgspec.Struct, frozen=True, order=True):
    """The workload that people know."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def identity(self) -> tuple[str, str, str]:
        """Kind, namespace and name."""
        return self.kind, self.namespace, self.name


class KnownPod(msgspec.Struct):
    """A Pod as it was first seen.

    Attributes:
        uid, namespace, name: its own.
        workload: whose it is.
        node: where it runs; empty: it did not then.
        grace: its grace period.
        gpus: that it requests.
        unsaved: seconds of work that are lost when it stops, even in time.
        unsaved_if_killed: the same when it is killed before.
        gang: what the Pods of its gang have in common; of a Pod whose controller is not here, itself; or None.
        leaves: it goes with its Node, and nobody moves it: a DaemonSet's or static Pod.
    """

    uid: str
    namespace: str
    name: str
    workload: WorkloadKey
    node: str
    grace: float
    gpus: float
    unsaved: float
    unsaved_if_killed: float
    gang: tuple[str, ...] | None
    leaves: bool


class Workloads:
    """Knows whose each Pod is, also after its owner has gone.

    Args:
        watches: the cluster.
        bundle: says what GPUs are.
    """

    def __init__(self, watches: Watches, bundle: Bundle) -> None:
        self._watches = watches
        self._gpus = Globs(sorted({each for one in bundle.providers.values() for each in one.gpu.resources.patterns}))
        self._known: dict[str, KnownPod] = {}
        self._history: dict[WorkloadKey, list[float]] = {}

    def of(self, pod: SeenPod) -> KnownPod:
        """Return what is known of a Pod."""
        known = self._known.get(pod.metadata.uid)
        if known is None:
            known = self._known[pod.metadata.uid] = self._read(pod)
        elif not known.node and pod.node:
            known.node = pod.node
        return known

    def startup(self, workload: WorkloadKey, default: float) -> float:
        """Return the seconds from binding to ready: the median of what its Pods took, else the default."""
        took = self._history.get(workload)
        return median(took) if took else default

    def _read(self, pod: SeenPod) -> KnownPod:
        owner = pod.controller
        workload = self._workload(pod)
        self._remember(pod, workload)
        gpus = self._gpus_of(pod)
        owners = [OwnerReference(owner.kind, owner.name, owner.apiVersion, controller=True)] if owner else []
        plain = Pod(metadata=PodMeta(ownerReferences=owners), spec=pod.spec)
        grace = pod.spec.terminationGracePeriodSeconds
        sort = (
            pod.metadata.labels.get(CLASS_LABEL) or derive_class(plain, Globs(("*Job.kubeflow.org",)), gpu=gpus > 0)[0]
        )
        every = amount_of(pod.metadata.annotations.get(CHECKPOINT))
        saves = sort == CHECKPOINTING
        killed = float(every) if every is not None else _UNSAVED.get(sort, 0.0)
        return KnownPod(
            uid=pod.metadata.uid,
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            workload=workload,
            node=pod.node,
            grace=float(DEFAULT_GRACE_SECONDS if grace is None else grace),
            gpus=gpus,
            unsaved=0.0 if saves and every is None else killed,
            unsaved_if_killed=killed,
            gang=_gang(pod),
            leaves=_MIRROR in pod.metadata.annotations or (owner is not None and owner.kind in {"DaemonSet", "Node"}),
        )

    def _workload(self, pod: SeenPod) -> WorkloadKey:
        namespace = pod.metadata.namespace
        found = WorkloadKey("v1", "Pod", namespace, pod.metadata.name)
        owner = pod.controller
        while owner is not None and owner.kind != "Node":
            found = WorkloadKey(owner.apiVersion, owner.kind, namespace, owner.name)
            above = self._owner(owner, namespace)
            owner = None if above is None else _controller(above.metadata.ownerReferences)
        return found

    def _owner(self, reference: SeenReference, namespace: str) -> SeenOwner | None:
        watched = {
            "ReplicaSet": self._watches.replica_sets,
            "Job": self._watches.jobs,
            "StatefulSet": self._watches.stateful_sets,
        }.get(reference.kind)
        return watched.items.get((namespace, reference.name)) if watched is not None else None

    def _gpus_of(self, pod: SeenPod) -> float:
        plain = Pod(spec=pod.spec)
        names = requested_of(plain, self._gpus)
        return sum(
            float(amount_of((each.resources.limits or each.resources.requests or {}).get(name, 0)) or 0)
            for each in pod.spec.containers
            if each.resources is not None
            for name in names
        )

    def _remember(self, pod: SeenPod, workload: WorkloadKey) -> None:
        if READY in pod.metadata.annotations:
            return  # here, and not in its cluster
        scheduled, ready = pod.condition("PodScheduled"), pod.condition("Ready")
        if scheduled and ready and scheduled.lastTransitionTime and ready.lastTransitionTime and ready.status == "True":
            took = (_time(ready.lastTransitionTime) - _time(scheduled.lastTransitionTime)).total_seconds()
            # Nothing took no time, and what took longer became ready again.
            if 0 < took <= _HISTORY_AT_MOST:
                self._history.setdefault(workload, []).append(took)


def _gang(pod: SeenPod) -> tuple[str, ...] | None:
    """Return the gang of a Pod. One that only a controller makes again which is not here is a gang of its own."""
    if (group := pod.spec.schedulingGroup) is not None:
        return (pod.metadata.namespace, f"PodGroup={group.podGroupName}")
    if (found := gang_of(pod.metadata.namespace, pod.metadata.labels, pod.metadata.annotations)) is not None:
        return found
    owner = pod.controller
    if owner is None or owner.kind == "Node" or owner.group_kind in {*CONTROLLED_HERE, (JOB.group, JOB.kind)}:
        return None
    return (owner.kind, *pod.metadata.key)


def _controller(owners: Iterable[SeenReference]) -> SeenReference | None:
    return next((each for each in owners if each.controller), None)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def requests_of(spec_containers: Iterable[object], resource: str) -> float:
    """Return how much of a resource containers request."""
    total = 0.0
    for each in spec_containers:
        resources = getattr(each, "resources", None)
        wanted: Mapping[str, object] = (resources.requests or resources.limits or {}) if resources is not None else {}
        total += float(amount_of(wanted.get(resource, 0)) or 0)
    return total

"""The normalised node pool: what every provider's node-pool resource is read into, and all that rules know of one."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from enum import StrEnum

import msgspec

from webhook.capacity.providers.requirements import LabelValues, Requirements  # noqa: TC001 - msgspec reads the annotations


class CapacityType(StrEnum):
    """What a pool's nodes run on."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    BOTH = "both"
    UNKNOWN = "unknown"


class Gpu(StrEnum):
    """Whether a pool's nodes have GPUs.

    ``any``: as the Pods ask; ``unknown``: nobody knows the instance type, or which of several the provider takes.
    """

    YES = "yes"
    NO = "no"
    ANY = "any"
    UNKNOWN = "unknown"


class Taint(msgspec.Struct, frozen=True):
    """A node taint; effect is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Size(msgspec.Struct, frozen=True):
    """The size that an object gives a pool.

    Attributes:
        by: kind, namespace and name of the object.
        pool: kind, namespace and name of the pool.
        desired: nodes that it should have; None: it does not say.
        autoscaling: an autoscaler sets ``desired``.
        cluster: the cluster of both, as `Pool.cluster`; empty: it does not say.
        deleting: the object is being deleted, and the pool with it.
    """

    by: tuple[str, str, str]
    pool: tuple[str, str, str]
    desired: int | None
    autoscaling: bool
    cluster: str = ""
    deleting: bool = False


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """One node pool, whoever provides it.

    Attributes:
        provider: name of the `CapacityProvider` whose reader read it.
        kind: kind of its resource, e.g. ``NodePool``.
        name: name of its resource; with ``namespace`` (empty: cluster-scoped) and ``kind`` it is its identity.
        pool_name: its name in its provider, which the pool-name label of its nodes has; empty: it is not known.
        capacity: spot, on-demand, both, unknown.
        gpu: whether its nodes have GPUs.
        gpu_type: the accelerator, where it says one apart from the instance type: ``nvidia-tesla-t4``.
        gpu_count: how many each node has; None: it does not say.
        instance_type: for ``same-type``; several are separated by commas; empty when unknown.
        machines: the same where it requires labels that describe machines: by key, what each may be.
        superchip: its instance type can never be spot.
        autoscaling: the autoscaler sizes it, up to ``maximum`` nodes; else it has ``desired``. None: it does not say.
        unlimited: it is autoscaled without a maximum.
        size: what another object says of its size; None: no other does.
        blocked: why it gets no nodes, as its status says, or its limits and requirements; empty when they do not.
        passing: what ``blocked`` says passes by itself, as a lack of capacity does.
        unread: what nobody can read of that on which it depends whether it can be used, as a reason; empty: nothing.
        held_by: the field that ``blocked`` or ``unread`` is about.
        taints: what its nodes are tainted with, as far as it says.
        requirements: what the labels of its nodes may be, where it says that; its own labels included.
        labels: what its nodes are labelled with, as far as it says, the pool-name label included. A label that is not
            here is unknown, not absent.
        zones: where its nodes are, empty when it does not say.
        grace_seconds: a limit of its own on Pods' grace periods, in seconds.
        safety_margin_seconds: what to subtract from that; None: the provider's.
        cluster: the cluster it belongs to, when it describes another than the one it is stored in; else empty.
        cluster_path: the same as the provider has it, where the pool names it so; see `clusters`.
        is_cluster: its resource is the cluster itself: all pools of the cluster go with it.
        deleting: it has a deletionTimestamp, or what it goes with has one.
        problems: what could not be read in it, each with its field.
    """

    provider: str
    kind: str
    name: str
    namespace: str = ""
    pool_name: str = ""
    capacity: CapacityType = CapacityType.UNKNOWN
    gpu: Gpu = Gpu.UNKNOWN
    gpu_type: str = ""
    gpu_count: int | None = None
    instance_type: str = ""
    machines: tuple[tuple[str, LabelValues], ...] = ()
    superchip: bool = False
    autoscaling: bool = False
    desired: int | None = None
    maximum: int | None = None
    unlimited: bool = False
    size: Size | None = None
    blocked: str = ""
    passing: bool = False
    unread: str = ""
    held_by: str = ""
    taints: tuple[Taint, ...] = ()
    requirements: Requirements | None = None
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    zones: frozenset[str] = frozenset()
    grace_seconds: int | None = None
    safety_margin_seconds: int | None = None
    cluster: str = ""
    cluster_path: str = ""
    is_cluster: bool = False
    deleting: bool = False
    problems: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What tells it from every other pool."""
        return (self.provider, self.kind, self.namespace, self.name)

    @property
    def cluster_id(self) -> str:
        """Its cluster, as exactly as it says."""
        return self.cluster_path or self.cluster

    @property
    def spot(self) -> bool:
        """Its nodes are spot, and nothing but spot."""
        return self.capacity is CapacityType.SPOT

    @property
    def unusable(self) -> str:
        """Why it gives no nodes, now or at most, or does not say how many; empty when it can."""
        return self.closed or self.blocked or self.unread or self._unsized

    @property
    def closed(self) -> str:
        """Why it has no nodes and gets none unless somebody changes it; empty where it may."""
        if self.deleting:
            return "it is being deleted"
        if self.blocked and not self.passing:
            return self.blocked
        if self.autoscaling:
            return "it is autoscaled to at most 0 nodes" if self.maximum is not None and self.maximum <= 0 else ""
        return "it has 0 nodes and no autoscaling" if self.desired is not None and self.desired <= 0 else ""

    @property
    def _unsized(self) -> str:
        if self.autoscaling:
            unsaid = self.maximum is None and not self.unlimited
            return "it is autoscaled and does not say its maximum size" if unsaid else ""
        return "it does not say how many nodes it has" if self.desired is None else ""

    def is_named(self, name: str) -> bool:
        """Is this its name, or that of its resource?"""
        return bool(name) and name in {self.name, self.pool_name}

    def __str__(self) -> str:
        name = self.name or "(without a name)"
        return f"{self.kind} {self.namespace}/{name}" if self.namespace else f"{self.kind} {name}"

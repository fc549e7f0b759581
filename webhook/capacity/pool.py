"""The normalised node pool: what every provider's node-pool resource is read into, and all that rules know of one."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping


class CapacityType(StrEnum):
    """What a pool's nodes run on."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    BOTH = "both"
    UNKNOWN = "unknown"


class Gpu(StrEnum):
    """Whether a pool's nodes have GPUs; ``any``: as the Pods ask; ``unknown``: nobody knows the instance type."""

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
    """

    by: tuple[str, str, str]
    pool: tuple[str, str, str]
    desired: int | None
    autoscaling: bool


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """One node pool, whoever provides it.

    Attributes:
        provider: name of the `CapacityProvider` whose reader read it.
        kind: kind of its resource, e.g. ``NodePool``.
        name: name of its resource; with ``namespace`` (empty: cluster-scoped) and ``kind`` it is its identity.
        capacity: spot, on-demand, both, unknown.
        gpu: whether its nodes have GPUs.
        gpu_type: the accelerator, where it says one apart from the instance type: ``nvidia-tesla-t4``.
        gpu_count: how many each node has; None: it does not say.
        instance_type: for ``same-type``; several are separated by commas; empty when unknown.
        superchip: its instance type can never be spot.
        autoscaling: the autoscaler sizes it, up to ``maximum`` nodes; else it has ``desired``. None: it does not say.
        unlimited: it is autoscaled without a maximum.
        size: what another object says of its size; None: no other does.
        blocked: why its status says that it gets no nodes; empty when it does not.
        taints: what its nodes are tainted with, as far as it says.
        labels: what its nodes are labelled with, as far as it says, the pool-name label included. A label that is not
            here is unknown, not absent.
        zones: where its nodes are, empty when it does not say.
        grace_seconds: a limit of its own on Pods' grace periods, in seconds.
        safety_margin_seconds: what to subtract from that; None: the provider's.
        cluster: the cluster it belongs to, when it describes another than the one it is stored in; else empty.
        deleting: it has a deletionTimestamp.
        problems: what could not be read in it, each with its field.
    """

    provider: str
    kind: str
    name: str
    namespace: str = ""
    capacity: CapacityType = CapacityType.UNKNOWN
    gpu: Gpu = Gpu.UNKNOWN
    gpu_type: str = ""
    gpu_count: int | None = None
    instance_type: str = ""
    superchip: bool = False
    autoscaling: bool = False
    desired: int | None = None
    maximum: int | None = None
    unlimited: bool = False
    size: Size | None = None
    blocked: str = ""
    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    zones: frozenset[str] = frozenset()
    grace_seconds: int | None = None
    safety_margin_seconds: int | None = None
    cluster: str = ""
    deleting: bool = False
    problems: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What tells it from every other pool."""
        return (self.provider, self.kind, self.namespace, self.name)

    @property
    def spot(self) -> bool:
        """Its nodes are spot, and nothing but spot."""
        return self.capacity is CapacityType.SPOT

    @property
    def unusable(self) -> str:
        """Why it gives no nodes, now or at most; empty when it can."""
        if self.deleting:
            return "it is being deleted"
        return self.blocked or (self._too_small_by_autoscaling() if self.autoscaling else self._too_small())

    def _too_small(self) -> str:
        if self.desired is None:
            return "it does not say how many nodes it has"
        return "it has 0 nodes and no autoscaling" if self.desired <= 0 else ""

    def _too_small_by_autoscaling(self) -> str:
        if self.maximum is None:
            return "" if self.unlimited else "it is autoscaled and does not say its maximum size"
        return "it is autoscaled to at most 0 nodes" if self.maximum <= 0 else ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

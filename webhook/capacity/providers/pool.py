"""Define the normalized node pool, the common form of every provider's node-pool resources."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from enum import StrEnum
from typing import Final

import msgspec

from webhook.capacity.providers.requirements import LabelValues, Requirements  # noqa: TC001 - msgspec reads the annotations

NODE_GROUP: Final = "node group"
"""The kind of a pool that is inferred from Nodes."""


class CapacityType(StrEnum):
    """The capacity type of a pool's nodes."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    BOTH = "both"
    LIMITED = "limited"
    UNKNOWN = "unknown"


class Gpu(StrEnum):
    """The presence of GPUs on a pool's nodes.

    ``any`` means that it depends on the Pods' requests, ``unknown`` that the instance type isn't known or listed.
    """

    YES = "yes"
    NO = "no"
    ANY = "any"
    UNKNOWN = "unknown"


class Taint(msgspec.Struct, frozen=True):
    """A node taint. Its effect is NoSchedule, PreferNoSchedule, or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Size(msgspec.Struct, frozen=True):
    """The size that another object sets for a pool.

    Attributes:
        by: the kind, namespace, and name of the object.
        pool: the kind, namespace, and name of the pool.
        desired: the number of nodes that the pool should have, or None.
        cluster: the cluster of both, in the form of `Pool.cluster`, or empty.
        deleting: whether the object, and so the pool, is being deleted.
    """

    by: tuple[str, str, str]
    pool: tuple[str, str, str]
    desired: int | None
    autoscaling: bool
    cluster: str = ""
    deleting: bool = False


TemplateRef = tuple[str, str, str]
"""The kind, namespace, and name of a template."""


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about the machines of a pool that its machine template sets, if it has one.

    Attributes:
        capacity: spot, on-demand, both, limited, or unknown.
        gpu_type: the accelerator, if the pool names one in addition to the instance type: ``nvidia-tesla-t4``.
        instance_type: the instance types, separated by commas; empty if unknown.
        superchip: whether there is at least one instance type, and none can be spot.
        marked: whether spot nodes have the provider's spot labels.
        own_marks: the labels that spot nodes have instead, if they aren't ``marked``.
    """

    capacity: CapacityType = CapacityType.UNKNOWN
    gpu: Gpu = Gpu.UNKNOWN
    gpu_type: str = ""
    gpu_count: int | None = None
    instance_type: str = ""
    superchip: bool = False
    marked: bool = True
    own_marks: tuple[tuple[str, str], ...] = ()


class Pool(MachineFacts, frozen=True, kw_only=True):
    """One node pool of any provider. A Node group and a machine template are read as pools, too.

    It is flat: recordings and expressions (``pools[0].gpuType``) have this form.

    Attributes:
        provider: the name of the `CapacityProvider` whose reader read the pool.
        kind: the kind of its resource, such as ``NodePool``.
        name: the name of its resource; with ``kind`` and ``namespace`` (empty if cluster-scoped), the pool's identity.
        pool_name: the name of the pool at its provider and in its nodes' pool-name label; empty if unknown.
        partly_limited: whether it is spot, and its other nodes end by themselves.
        machines: the possible values of each required label that describes machines, by key.
        taints: the declared taints of its nodes.
        shown_taints: the taints that its Nodes have now, and that new nodes need not have.
        bare: whether the provider adds no platform taints to its nodes.
        requirements: the possible values of its nodes' labels, including its own labels; None if it has no such list.
        labels: the declared labels of its nodes, including the pool-name label. A missing label is unknown, not absent.
        label_keys: the keys of all labels that its nodes may have, if its Nodes show them or the pool declares all of
            them; None if unknown.
        label_domains: the domains of other labels that its nodes may have, if the pool declares all labels.
        zones: the zones of its nodes; empty if unknown.
        autoscaling: whether an autoscaler sizes the pool, up to ``maximum`` nodes. If not, it has ``desired`` nodes.
        size: the size that another object sets for the pool, or None.
        blocked: why the pool gets no nodes, from its status, limits, or requirements; empty if it can get nodes.
        passing: whether the reason in ``blocked`` is temporary, such as a lack of capacity.
        unread: the reason why the pool's usability is unknown: a field that can't be read; empty if there is none.
        held_by: the field that is the cause of ``blocked`` or ``unread``.
        deleting: whether the pool, its cluster, or the object that sizes it has a deletionTimestamp.
        grace_seconds: the pool's own limit on the grace periods of Pods, in seconds.
        safety_margin_seconds: the seconds to subtract from that limit; None for the provider's margin.
        cluster: the cluster of its nodes, if that isn't the cluster that stores the pool; else empty.
        cluster_path: the provider's path of that cluster, if the pool contains the path; see `joins`.
        assumed_here: whether that cluster is assumed to be this one, because files show no other cluster and no Nodes.
        is_cluster: whether the resource is the cluster itself, so that all pools are deleted with it.
        chosen_by: the key of the label with which Pods must select the pool to run there; empty if there is none.
        uses: the names of other pools whose nodes it uses.
        template: the kind, namespace, and name of the object that describes its machines, or None.
        lacks_template: whether that object is unknown, and so are the machines.
        is_template: whether the object is a machine template, and not a pool.
        own: the pool before it was joined with its template or its size; None if it wasn't.
        problems: the problems with fields that can't be read, each with its field.
    """

    provider: str
    kind: str
    name: str
    namespace: str = ""
    pool_name: str = ""
    # Its nodes
    partly_limited: bool = False
    machines: tuple[tuple[str, LabelValues], ...] = ()
    taints: tuple[Taint, ...] = ()
    shown_taints: tuple[Taint, ...] = ()
    bare: bool = False
    requirements: Requirements | None = None
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    label_keys: frozenset[str] | None = None
    label_domains: frozenset[str] = frozenset()
    zones: frozenset[str] = frozenset()
    # How many nodes it has, and whether it can have some
    autoscaling: bool = False
    desired: int | None = None
    maximum: int | None = None
    unlimited: bool = False
    size: Size | None = None
    blocked: str = ""
    passing: bool = False
    unread: str = ""
    held_by: str = ""
    deleting: bool = False
    # The time that its Pods have to stop
    grace_seconds: int | None = None
    safety_margin_seconds: int | None = None
    # Where it is, and for which Pods
    cluster: str = ""
    cluster_path: str = ""
    assumed_here: bool = False
    is_cluster: bool = False
    chosen_by: str = ""
    uses: frozenset[str] = frozenset()
    # How it was read
    template: TemplateRef | None = None
    lacks_template: bool = False
    is_template: bool = False
    own: Pool | None = None
    problems: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Return the values that identify the pool among all pools."""
        return (self.provider, self.kind, self.namespace, self.name)

    @property
    def elsewhere(self) -> bool:
        """Return whether the pool's nodes are in another cluster."""
        return bool(self.cluster) and not self.assumed_here

    @property
    def cluster_id(self) -> str:
        """Return the most specific name that the pool has for its cluster."""
        return self.cluster_path or self.cluster

    @property
    def spot(self) -> bool:
        """Return whether all of the pool's nodes are spot."""
        return self.capacity is CapacityType.SPOT

    @property
    def only_uses(self) -> bool:
        """Return whether the pool has no nodes except those of other pools."""
        return bool(self.uses) and self.capacity is CapacityType.UNKNOWN

    @property
    def unusable(self) -> str:
        """Return why the pool provides no nodes, or an unknown number. Return an empty string if it is usable."""
        if why := self.closed or self.blocked or self.unread:
            return why
        if self.autoscaling:
            unknown = self.maximum is None and not self.unlimited
            return "it is autoscaled without a maximum size" if unknown else ""
        return "its number of nodes is unknown" if self.desired is None else ""

    @property
    def closed(self) -> str:
        """Return why the pool has no nodes until a user changes it. Return an empty string if it can have nodes."""
        if self.deleting:
            return "it is being deleted"
        if self.blocked and not self.passing:
            return self.blocked
        if self.autoscaling:
            return "it is autoscaled to at most 0 nodes" if self.maximum is not None and self.maximum <= 0 else ""
        return "it has 0 nodes and no autoscaling" if self.desired is not None and self.desired <= 0 else ""

    def is_named(self, name: str) -> bool:
        """Return whether the pool or its resource has this name."""
        return bool(name) and name in {self.name, self.pool_name}

    def __str__(self) -> str:
        name = self.name or "(without a name)"
        return f"{self.kind} {self.namespace}/{name}" if self.namespace else f"{self.kind} {name}"


def superchip_on_spot(pool: Pool | None) -> bool:
    """Return whether the pool is spot, and of an instance type that can't be spot."""
    return pool is not None and pool.spot and pool.superchip

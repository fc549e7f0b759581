"""Define the normalised node pool, into which every provider's node-pool resource is read."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from enum import StrEnum

import msgspec

from webhook.capacity.providers.requirements import LabelValues, Requirements  # noqa: TC001 - msgspec reads the annotations


class CapacityType(StrEnum):
    """The capacity that a pool's nodes can run on."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    BOTH = "both"
    UNKNOWN = "unknown"


class Gpu(StrEnum):
    """An answer to whether a pool's nodes have GPUs.

    ``any`` means as the Pods request, ``unknown`` that the instance type (or the one the provider picks) is unknown.
    """

    YES = "yes"
    NO = "no"
    ANY = "any"
    UNKNOWN = "unknown"


class Taint(msgspec.Struct, frozen=True):
    """A node taint. Its effect is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Size(msgspec.Struct, frozen=True):
    """The size that another object gives a pool.

    Attributes:
        by: kind, namespace and name of the object.
        pool: kind, namespace and name of the pool.
        desired: the number of nodes that the pool should have, or None.
        cluster: the cluster of both, as `Pool.cluster`, or empty.
        deleting: the object is being deleted, and the pool with it.
    """

    by: tuple[str, str, str]
    pool: tuple[str, str, str]
    desired: int | None
    autoscaling: bool
    cluster: str = ""
    deleting: bool = False


TemplateRef = tuple[str, str, str]
"""Kind, namespace and name of a template."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """One node pool of any provider.

    Attributes:
        provider: name of the `CapacityProvider` whose reader read it.
        kind: kind of its resource, e.g. ``NodePool``.
        name: name of its resource; with ``namespace`` (empty: cluster-scoped) and ``kind`` it is its identity.
        pool_name: its name at its provider, the value of its nodes' pool-name label; empty if unknown.
        capacity: spot, on-demand, both, unknown.
        gpu_type: the accelerator, if the pool names one apart from the instance type: ``nvidia-tesla-t4``.
        instance_type: the instance types, separated by commas; empty if unknown.
        machines: the possible values of each required label that describes machines, by key.
        autoscaling: an autoscaler sizes the pool, up to ``maximum`` nodes; else it has ``desired`` nodes.
        size: the size that another object gives the pool, or None.
        blocked: why the pool gets no nodes, by its status, limits or requirements; empty if it may get some.
        passing: the reason in ``blocked`` passes by itself, as a lack of capacity does.
        unread: what could not be read although the pool's use depends on it, as a reason; empty if there is nothing.
        held_by: the field that ``blocked`` or ``unread`` is about.
        taints: the taints of its nodes, as far as the pool says.
        bare: the provider puts no platform taints on its nodes.
        requirements: the possible values of its nodes' labels, its own labels included; None if it has no such list.
        labels: the labels of its nodes, as far as the pool says, the pool-name label included. A label that is not
            here is unknown, not absent.
        label_keys: the keys of all labels that its nodes may have, as its Nodes show them, or as the pool declares them
            completely; None if neither says so.
        label_domains: the domains of further labels that its nodes may have, if it declares its labels completely.
        zones: the zones of its nodes; empty if the pool does not say.
        grace_seconds: the pool's own limit on Pods' grace periods, in seconds.
        safety_margin_seconds: the seconds to subtract from that; None for the provider's margin.
        cluster: the cluster that the pool describes, if that is not the one it is stored in; else empty.
        cluster_path: the provider's path of that cluster, if the pool names it so; see `joins`.
        assumed_here: that cluster is taken for this one: files show no other, and no Nodes.
        chosen_by: the key of the label by which Pods choose this pool and no other; empty if they need not.
        uses: the names of other pools whose nodes it uses.
        is_cluster: the resource is the cluster itself: all pools of the cluster are deleted with it.
        template: kind, namespace and name of the object that says which machines its nodes are, or None.
        own: the pool as its own object describes it, if it has been joined with its template or its size; else None.
        marked: its spot nodes have the provider's spot labels.
        own_marks: labels that its spot nodes have instead, if it is not ``marked``.
        is_template: the object is such a template, and no pool.
        deleting: the pool, or the cluster or object that it is deleted with, has a deletionTimestamp.
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
    bare: bool = False
    requirements: Requirements | None = None
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    label_keys: frozenset[str] | None = None
    label_domains: frozenset[str] = frozenset()
    zones: frozenset[str] = frozenset()
    grace_seconds: int | None = None
    safety_margin_seconds: int | None = None
    cluster: str = ""
    cluster_path: str = ""
    assumed_here: bool = False
    chosen_by: str = ""
    uses: frozenset[str] = frozenset()
    is_cluster: bool = False
    template: TemplateRef | None = None
    own: Pool | None = None
    marked: bool = True
    own_marks: tuple[tuple[str, str], ...] = ()
    is_template: bool = False
    deleting: bool = False
    problems: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Return the values that identify the pool among all pools."""
        return (self.provider, self.kind, self.namespace, self.name)

    @property
    def missing_template(self) -> str:
        """Return that the template of its machines is not known, as a phrase for where that is so."""
        kind, _, name = self.template or ("", "", "")
        return f"{kind or 'template'} {name or '(without a name)'} is not known"

    @property
    def elsewhere(self) -> bool:
        """Return whether the pool's nodes are in another cluster."""
        return bool(self.cluster) and not self.assumed_here

    @property
    def cluster_id(self) -> str:
        """Return the pool's cluster as exactly as the pool names it."""
        return self.cluster_path or self.cluster

    @property
    def spot(self) -> bool:
        """Return whether the pool's nodes are spot and nothing else."""
        return self.capacity is CapacityType.SPOT

    @property
    def only_uses(self) -> bool:
        """Return whether all its nodes are those of other pools."""
        return bool(self.uses) and self.capacity is CapacityType.UNKNOWN

    @property
    def unusable(self) -> str:
        """Return why the pool gives no nodes, or does not say how many. Return an empty string if it can."""
        if why := self.closed or self.blocked or self.unread:
            return why
        if self.autoscaling:
            unsaid = self.maximum is None and not self.unlimited
            return "it is autoscaled and does not say its maximum size" if unsaid else ""
        return "it does not say how many nodes it has" if self.desired is None else ""

    @property
    def closed(self) -> str:
        """Return why the pool has no nodes until a user changes it. Return an empty string if it may have some."""
        if self.deleting:
            return "it is being deleted"
        if self.blocked and not self.passing:
            return self.blocked
        if self.autoscaling:
            return "it is autoscaled to at most 0 nodes" if self.maximum is not None and self.maximum <= 0 else ""
        return "it has 0 nodes and no autoscaling" if self.desired is not None and self.desired <= 0 else ""

    def is_named(self, name: str) -> bool:
        """Return whether this is the name of the pool or of its resource."""
        return bool(name) and name in {self.name, self.pool_name}

    def __str__(self) -> str:
        name = self.name or "(without a name)"
        return f"{self.kind} {self.namespace}/{name}" if self.namespace else f"{self.kind} {name}"

"""How a kind of node pool is read: a ``CapacityProvider`` document's reader, compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.capacity.providers.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.grace import Grace
    from webhook.capacity.providers.limits import Least
    from webhook.capacity.providers.machines import Machines
    from webhook.capacity.providers.pool import CapacityType, Pool
    from webhook.capacity.providers.query import Query
    from webhook.capacity.providers.sizes import Sizer

_BOOLEANS: Final[Mapping[str, object]] = {"true": True, "false": False}
"""Values of a field that is a boolean; a document has them as texts."""


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pool says whether it is spot.

    Attributes:
        query: the field.
        label: the field is the list of requirements, and this the label that counts; empty: it is the value.
        values: casefolded value -> what it means.
        default: what an absent or empty one means.
        words: the values as the provider spells them.
        on_demand: how on-demand is spelt; empty where no single value says so.
        flag: the field is a boolean, so that an empty text is no absent one.
    """

    query: Query
    label: str
    values: Mapping[str, CapacityType]
    default: CapacityType
    words: tuple[str, ...]
    on_demand: str
    flag: bool


class Accelerators(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pool says that its nodes have GPUs, apart from their instance type; each may be missing.

    Attributes:
        type: of the accelerator.
        count: of accelerators in each node.
        when: holds where they have.
    """

    type: Query | None = None
    count: Query | None = None
    when: Query | None = None


class Unusable(msgspec.Struct, frozen=True):
    """Something that a pool's status may say.

    Attributes:
        when: holds where it gets no nodes.
        because: what a person is told.
        passing: it passes by itself: Pods can wait for it.
    """

    when: Query
    because: str
    passing: bool


class PoolReader(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of node-pool resource, and where its fields are.

    Attributes:
        when: holds for the objects that it reads, where another provider reads the same resource.
        this_cluster: the name of the cluster it is read in, as ``cluster`` says it; empty: it is in no such field.
        pool_name: of the label that names a node's pool; None: the name of the resource.
        requirements: a list of requirements on the labels of its nodes.
        limits: the most that its nodes have together, by resource.
        least: what a machine has at least of what these limit.
        unlimited: without a maximum the autoscaler gives it as many nodes as are needed.
        sizer: another resource that says ``desired``.
        taint_texts: taints are written ``key=value:Effect``.
        taint_effects: effect as it is written -> as Kubernetes has it.
        unusable: where it says that it gets no nodes.
        known_labels: labels its nodes get without being listed.
        grace: limits on a Pod's grace period.
        cluster: the cluster it belongs to, in ``cluster_namespace``; there is none: in its own.
        cluster_path: the provider's own path of that cluster, where ``cluster`` is a name.
    """

    provider: str
    pool_label: str
    this_cluster: str
    machines: Machines
    group: str
    versions: tuple[str, ...]
    kind: str
    resource: str
    namespaced: bool
    scale: bool
    when: Query | None
    capacity: Capacity
    pool_name: Query | None
    instance_type: Query | None
    requirements: Query | None
    accelerators: Accelerators
    desired: Query | None
    autoscaling: Query | None
    maximum: Query | None
    limits: Query | None
    least: Least
    unlimited: bool
    sizer: Sizer | None
    taints: Query | None
    taint_texts: bool
    taint_effects: Mapping[str, str]
    labels: Query | None
    known_labels: Mapping[str, Query]
    zones: Query | None
    grace: Grace
    cluster: Query | None
    cluster_namespace: Query | None
    cluster_path: Query | None
    unusable: tuple[Unusable, ...]

    @property
    def is_cluster(self) -> bool:
        """Is the object the cluster itself, with a pool in it? All pools of the cluster go with it."""
        return self.cluster is not None and self.cluster.text == "metadata.name"

    def read(self, value: Mapping[str, Any]) -> Pool:
        """The pool that a resource of this kind declares. Never raises for what is in it."""
        return Reading(self, value).pool()

    def on_demand_manifest(
        self, *, name: str, namespace: str, instance_type: str, maximum: int
    ) -> dict[str, Any] | None:
        """An on-demand pool of this kind, as a manifest: the autoscaler fills it from zero, where it has one.

        None where the provider's document does not say plainly enough how such a pool is written, or ``instance_type``
        is that of a pool with several.
        """
        sized: list[tuple[Query | None, object]] = [(self.desired, maximum)]
        if self.autoscaling is not None and self.maximum is not None:
            sized = [(self.autoscaling, True), (self.maximum, maximum), (self.desired, 0)]
        on_demand = _BOOLEANS.get(self.capacity.on_demand.casefold(), self.capacity.on_demand)
        fields = [(self.capacity.query, on_demand), (self.instance_type, instance_type), *sized]
        metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
        manifest: dict[str, Any] = {
            "apiVersion": f"{self.group}/{self.versions[0]}",
            "kind": self.kind,
            "metadata": metadata,
        }
        for query, value in fields:
            if query is None:
                continue
            if value == "" or not query.plain or self.capacity.label or ", " in instance_type:
                return None
            *parents, last = query.text.split(".")
            place = manifest
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
        return manifest

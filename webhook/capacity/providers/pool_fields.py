"""Where a kind of node pool says what: the fields of a ``CapacityProvider`` document's reader, compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.grace import Grace
    from webhook.capacity.providers.limits import Least
    from webhook.capacity.providers.machines import Machines
    from webhook.capacity.providers.pool import CapacityType
    from webhook.capacity.providers.query import Query
    from webhook.capacity.providers.sizes import Sizer


class CapacityField(msgspec.Struct, frozen=True, kw_only=True):
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


class AcceleratorFields(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pool says that its nodes have GPUs, apart from their instance type; each may be missing.

    Attributes:
        type: of the accelerator.
        count: of accelerators in each node.
        when: holds where they have.
    """

    type: Query | None = None
    count: Query | None = None
    when: Query | None = None


class UnusableCondition(msgspec.Struct, frozen=True):
    """Something that a pool's status may say.

    Attributes:
        when: holds where it gets no nodes.
        because: what a person is told.
        passing: it passes by itself: Pods can wait for it.
    """

    when: Query
    because: str
    passing: bool


class PoolFields(msgspec.Struct, frozen=True, kw_only=True):
    """Name one kind of node-pool resource, and the field of each fact in it.

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
    capacity: CapacityField
    pool_name: Query | None
    instance_type: Query | None
    requirements: Query | None
    accelerators: AcceleratorFields
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
    unusable: tuple[UnusableCondition, ...]

    @property
    def is_cluster(self) -> bool:
        """Is the object the cluster itself, with a pool in it? All pools of the cluster go with it."""
        return self.cluster is not None and self.cluster.text == "metadata.name"

"""Where a kind of node pool says what: the fields of a ``CapacityProvider`` document's reader, compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.grace import Grace
    from webhook.capacity.providers.joins import Sizer
    from webhook.capacity.providers.limits import Least
    from webhook.capacity.providers.machines import Machines
    from webhook.capacity.providers.pool import CapacityType
    from webhook.capacity.providers.query import Query, QueryPath


class CapacityField(msgspec.Struct, frozen=True, kw_only=True):
    """Name the field by which a pool says whether it is spot.

    Attributes:
        label: the label that counts, if the field is the list of requirements; empty if the field is the value.
        values: casefolded value -> its meaning.
        default: the meaning of an absent or empty value.
        words: the values as the provider spells them.
        on_demand: the value that means on-demand; empty if there is none.
        flag: the field is a boolean, so an empty text is a wrong value and not an absent one.
    """

    query: Query
    label: str
    values: Mapping[str, CapacityType]
    default: CapacityType
    words: tuple[str, ...]
    on_demand: str
    flag: bool


class AcceleratorFields(msgspec.Struct, frozen=True, kw_only=True):
    """Name the fields by which a pool says that its nodes have GPUs, apart from their instance type."""

    type: Query | None = None
    count: Query | None = None
    when: Query | None = None


class UnusableCondition(msgspec.Struct, frozen=True):
    """Describe a status of a pool in which it gets no nodes.

    Attributes:
        when: true if the pool gets no nodes.
        passing: it passes by itself: Pods can wait for the pool's nodes.
    """

    when: Query
    because: str
    passing: bool


class PoolList(msgspec.Struct, frozen=True):
    """Name the list of pools in a file of another kind, which is no object of an API server."""

    kind: str
    field: str


class PoolFields(msgspec.Struct, frozen=True, kw_only=True):
    """Name one kind of node-pool resource, and the field of each fact in it.

    Attributes:
        when: true for the objects of this reader, if another provider reads the same resource.
        this_cluster: the cluster that the policies are for, as ``cluster`` names it; empty if no pool names it.
        pool_name: the value of the label that names a node's pool; None for the name of the resource.
        requirements: the list of requirements on the labels of its nodes.
        limits: the most that its nodes have together, by resource.
        least: the least that a machine has of the limited resources.
        unlimited: a pool without a maximum is autoscaled without a limit.
        sizer: another resource that says ``desired``.
        taint_texts: taints are written ``key=value:Effect``.
        taint_effects: effect as the provider writes it -> as Kubernetes writes it.
        listed_in: the list whose items are the pools; None if each pool is an object.
        template: the reference to the object that says which machines its nodes are; None if the pool itself does.
        template_kinds: the kinds that it may be of; another has no spot machines, or as ``capacity.default`` says.
        marks_spot: its spot nodes have the provider's spot labels.
        is_template: the objects of this reader are such templates, and no pools.
        label_domains: the domains of the labels that nodes are given; empty for all.
        known_labels: the labels that its nodes get without being listed.
        cluster: the cluster it belongs to, in ``cluster_namespace`` or else in the pool's own namespace.
        cluster_path: the provider's own path of that cluster, if ``cluster`` is a name.
        chosen_by: the key of the label by which Pods choose a pool of this kind by name; empty if they need not.
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
    chosen_by: str
    listed_in: PoolList | None
    template: Query | None
    template_kinds: frozenset[str]
    marks_spot: bool
    is_template: bool
    label_domains: tuple[str, ...]
    unusable: tuple[UnusableCondition, ...]
    controller_fields: tuple[QueryPath, ...]

    def written_path(self, query: Query) -> str:
        """Return the path of a plain field as the user writes it."""
        return query.text.removeprefix("spec.") if self.listed_in is not None else query.text

    @property
    def is_cluster(self) -> bool:
        """Return whether the object is the cluster itself. All pools of the cluster are deleted with it."""
        return self.cluster is not None and self.cluster.text == "metadata.name"

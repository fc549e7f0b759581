"""Define the part of a ``CapacityProvider`` document that describes how to read node pools."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from webhook.capacity.providers.pool import CapacityType
from webhook.capacity.providers.query import Query, QueryResults
from webhook.policy.common import Flag, Model, NonEmpty, Seconds, Whole
from webhook.policy.errors import expect_at_most
from webhook.policy.fields import ApiGroup, KindName, LabelKey, ResourceName
from webhook.policy.schema_annotations import AnyValue, Check, EnumDescriptions, Field, Parsed

_SPEC_FIELD: Final = re.compile(r"spec(\.[A-Za-z]\w*)+", re.ASCII)


def _check_spec_field(path: str) -> str:
    if not _SPEC_FIELD.fullmatch(path):
        raise ValueError(f"{path!r} isn't a field of `spec`; write its path, such as spec.providerIDList")
    return path


JMESPath = Annotated[Query, Parsed(str, Query.compiled)]
SpecField = Annotated[str, Check(_check_spec_field)]
CapacityName = Annotated[
    Literal["spot", "on-demand", "both", "limited", "unknown"],
    EnumDescriptions(
        **{
            "spot": "nodes that can be reclaimed",
            "on-demand": "nodes that aren't reclaimed, including reserved nodes",
            "both": "spot or on-demand nodes, depending on availability",
            "limited": "nodes that aren't reclaimed, but end at a known time",
            "unknown": "the capacity of the pools in `usesPools`",
        }
    ),
]
EffectName = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class CapacityReaderSpec(Model, dict=True):
    """The field or the requirements that determine a pool's capacity type."""

    from_: JMESPath | None = msgspec.field(name="from", default=None)
    """JMESPath of the field."""
    label: LabelKey | None = None
    """Instead of `from`: the label that the requirements restrict."""
    values: dict[str, CapacityName]
    """The capacity type of each value. Case-insensitive."""
    default: CapacityName
    """The capacity type if the field is empty or missing."""
    limited: JMESPath | None = None
    """JMESPath that is true if the nodes that aren't spot are `limited`."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if (self.from_ is None) is not bool(self.label):
            raise ValueError("write either `from` or `label`")

    @cached_property
    def meanings(self) -> Mapping[str, CapacityType]:
        """Return the capacity type of each casefolded value."""
        return {value.casefold(): CapacityType(meant) for value, meant in self.values.items()}

    @property
    def on_demand(self) -> str:
        """Return the value that means on-demand. Return an empty string if there is none."""
        return next((value for value, meant in self.values.items() if meant == "on-demand"), "")


class AcceleratorsReaderSpec(Model):
    """The fields that describe the GPUs of a pool's nodes, in addition to the instance type."""

    type: JMESPath | None = None
    """JMESPath of the accelerator."""
    count: JMESPath | None = None
    """JMESPath of the number of accelerators per node."""
    when: JMESPath | None = None
    """JMESPath that is true if the nodes have GPUs."""


class SizedBySpec(Model):
    """Another resource, in the pool's namespace, that sets the number of nodes."""

    group: Annotated[ApiGroup, Field(examples=["example.com"])]
    """API group; '' is the core group."""
    versions: Annotated[tuple[NonEmpty, ...], Field(min_length=1)]
    """API versions."""
    kind: Annotated[KindName, Field(examples=["NodeScaler"])]
    """Kind."""
    resource: ResourceName
    """Plural resource name."""
    scale: Flag = False
    """The resource has the scale subresource."""
    pool: JMESPath
    """JMESPath of the pool's name. No result: the object sizes no pool of this kind."""
    desired: JMESPath
    """JMESPath of the number of nodes."""
    autoscaling: JMESPath | None = None
    """JMESPath of a boolean: an autoscaler sizes the pool."""
    cluster: JMESPath | None = None
    """JMESPath of the pool's cluster, if the pool lacks it."""
    controller_fields: tuple[SpecField, ...] = ()
    """Fields of `spec` that only controllers write. Changes are evaluated only if an entry reads them."""


class SizeReaderSpec(Model):
    """The fields for the current and the maximum size of a pool."""

    desired: JMESPath | None = None
    """JMESPath of the number of nodes."""
    sized_by: SizedBySpec | None = None
    """Another resource that sets the size."""
    autoscaling: JMESPath | None = None
    """JMESPath of a boolean: an autoscaler sizes the pool."""
    maximum: JMESPath | None = None
    """JMESPath of the autoscaler's maximum."""
    unlimited: Flag = False
    """A missing maximum means no limit."""
    limits: JMESPath | None = None
    """JMESPath of the total limits: resource -> quantity."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if self.desired is None and self.sized_by is None:
            raise ValueError("write `desired`, or `sizedBy`")


class UnusableSpec(Model):
    """A condition under which a pool provides no nodes."""

    when: JMESPath
    """JMESPath of the condition. True unless the result is empty, false, or null."""
    because: NonEmpty
    """The message to users."""
    passing: Flag = False
    """The condition is temporary: spot Pods can wait."""


class GraceWindowSpec(Model):
    """The time that a pool's Pods have to stop, if it differs from the provider's."""

    when: JMESPath | None = None
    """JMESPath that is true if the time applies."""
    budget_seconds: Seconds | None = None
    """The time that Pods have to stop."""
    from_: JMESPath | None = msgspec.field(name="from", default=None)
    """JMESPath of the time: 90 or 1m30s."""
    reserved: JMESPath | None = None
    """JMESPath of the time reserved for critical Pods."""
    safety_margin_seconds: Seconds
    """Seconds to subtract."""
    note: str = ""
    """A note on versions."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if (self.from_ is None) is (self.budget_seconds is None):
            raise ValueError("write either `from` or `budgetSeconds`")
        if self.budget_seconds is not None:
            expect_at_most("safetyMarginSeconds", self.safety_margin_seconds, "budgetSeconds", self.budget_seconds)

    def read(self, results: QueryResults) -> tuple[int, int] | None:
        """Return the seconds that a pool's Pods have to stop, and the margin, or None if the window doesn't apply."""
        if self.when is not None and not results.ask(self.when):
            return None
        if self.budget_seconds is not None:
            return self.budget_seconds, self.safety_margin_seconds
        total, reserved = results.seconds(self.from_), results.seconds(self.reserved) or 0
        if self.from_ is None or total is None:
            return None
        if total <= reserved:
            of = f", of which {self.reserved.field} takes {reserved} s" if self.reserved is not None else ""
            results.note(f"{self.from_.field} is {total} s{of}: no time to stop is left")
            return None
        return total - reserved, self.safety_margin_seconds


class PoolGraceSpec(Model):
    """The fields of a pool that determine how long its Pods have to stop."""

    windows: tuple[GraceWindowSpec, ...] = ()
    """The first that applies replaces `gracePeriod`."""
    limit: JMESPath | None = None
    """JMESPath of a Pod's maximum: seconds or a duration."""

    def read(self, results: QueryResults, usual: tuple[int, int]) -> tuple[int, int] | None:
        """Return the seconds that a pool's Pods have to stop, and the safety margin to subtract.

        Return None if the pool doesn't set them. ``usual`` are the provider's values. The limit has no margin.
        """
        own = next(filter(None, (window.read(results) for window in self.windows)), None)
        seconds, margin = own or usual
        limit = results.seconds(self.limit)
        return (limit, 0) if limit is not None and limit < seconds - margin else own


class MachinesSpec(Model):
    """The fields of a resource that describe the machines of its nodes. Expressions are JMESPath."""

    group: Annotated[ApiGroup, Field(examples=["example.com"])]
    """API group."""
    versions: Annotated[tuple[NonEmpty, ...], Field(min_length=1, examples=[["v1"]])]
    """API versions."""
    kind: Annotated[KindName, Field(examples=["NodePool"])]
    """Kind."""
    resource: Annotated[ResourceName, Field(examples=["nodepools"])]
    """Plural resource name."""
    capacity: Annotated[
        CapacityReaderSpec | None,
        Field(examples=[{"from": "spec.capacityType", "values": {"spot": "spot"}, "default": "on-demand"}]),
    ] = None
    """How to determine the capacity type of the nodes."""
    instance_type: JMESPath | None = None
    """One or more instance types. '*' means unknown."""
    several_types: Flag = False
    """Warn if a spot pool has only one `instanceType`."""
    accelerators: AcceleratorsReaderSpec = AcceleratorsReaderSpec()
    """Other fields that describe GPUs."""
    known_labels: dict[LabelKey, JMESPath] = {}
    """Implicit labels: key -> value."""
    zones: JMESPath | None = None
    """One or more zones, as in `topology.kubernetes.io/zone`."""
    labels_spot_nodes: Flag = True
    """The spot nodes have `spotNodeLabels`."""
    own_spot_labels: JMESPath | None = None
    """If `labelsSpotNodes` is false: a map of the spot nodes' labels."""


class MachineTemplateSpec(MachinesSpec):
    """A template from which other objects create machines. An unused template isn't a pool."""

    capacity: CapacityReaderSpec
    """How to determine the capacity type of the nodes."""


class TemplateSpec(Model):
    """An object, in the pool's namespace, that describes the machines of the pool's nodes."""

    from_: JMESPath = msgspec.field(name="from")
    """JMESPath of the reference to the object, with `kind` and `name`."""
    kinds: Annotated[tuple[MachineTemplateSpec, ...], Field(min_length=1)]
    """The possible kinds."""
    default: CapacityName = "on-demand"
    """The capacity type for references to other kinds."""


class ListedInSpec(Model):
    """A kind of file that lists pools, with the same group and versions. No API server serves it."""

    kind: KindName
    """Kind. The object's name is the cluster's name."""
    field: NonEmpty
    """The field with the list of pools."""


class NodePoolReaderSpec(MachinesSpec):
    """A reader of one kind of node-pool resource. Expressions are JMESPath."""

    listed_in: ListedInSpec | None = None
    """The kind of file that lists this pool."""
    files_only: Flag = False
    """No API server serves it: spotgate reads it only from files."""
    replaces: Annotated[dict[KindName, Whole], Field(examples=[{"NodeSet": 2023}])] = {}
    """Earlier kinds in its API group, which `check` skips -> the year they were replaced."""
    namespaced: Flag = False
    """The resource is namespaced."""
    scale: Flag = False
    """The resource has the scale subresource."""
    when: JMESPath | None = None
    """True for the objects of this entry, if several entries read one kind."""
    requirements: JMESPath | None = None
    """A list of {key, operator, values} for labels."""
    template: TemplateSpec | None = None
    """Instead of `capacity`: the object that defines it."""
    size: Annotated[SizeReaderSpec, Field(examples=[{"desired": "spec.nodes"}])]
    """The size of the pool."""
    pool_name: JMESPath | None = None
    """The pool's name on its nodes; `` `null` `` if nodes don't name their pool. Default: the object's."""
    cluster: JMESPath | None = None
    """The cluster of its nodes, if it can be another one."""
    cluster_namespace: JMESPath | None = None
    """Cluster namespace. Default: the pool's."""
    cluster_path: JMESPath | None = None
    """The provider's path of the cluster."""
    chosen_by: LabelKey | None = None
    """Only Pods that select it by this label run there."""
    uses_pools: JMESPath | None = None
    """Names of other pools whose nodes it uses."""
    built_in: dict[NonEmpty, dict[str, Annotated[Any, AnyValue()]]] = {}
    """Pools that exist without an object: name -> `spec`."""
    taints: JMESPath | None = None
    """A list of {key, value, effect}."""
    taint_texts: Flag = False
    """Taints are strings: key=value:Effect."""
    taint_effects: dict[NonEmpty, EffectName] = msgspec.field(
        default_factory=lambda: {name: name for name in get_args(EffectName)}
    )
    """Effect in the pool -> effect in Kubernetes."""
    without_platform_taints: JMESPath | None = None
    """True if nodes lack `platformTaints`."""
    labels: JMESPath | None = None
    """A map of its nodes' labels."""
    labels_complete: Flag = False
    """Its nodes have only the declared labels."""
    label_domains: tuple[NonEmpty, ...] = ()
    """Domains of labels for nodes. Default: all."""
    grace_period: PoolGraceSpec = PoolGraceSpec()
    """The time that the pool gives its Pods to stop."""
    unusable: tuple[UnusableSpec, ...] = ()
    """Conditions under which it provides no nodes."""
    controller_fields: tuple[SpecField, ...] = ()
    """Fields of `spec` that only controllers write. Changes are evaluated only if an entry reads them."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if (self.capacity is None) is (self.template is None):
            raise ValueError("write either `capacity` or `template`")
        if self.capacity is not None and self.capacity.label and self.requirements is None:
            raise ValueError("`capacity.label` needs `requirements`")

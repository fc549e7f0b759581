"""Define the part of a ``CapacityProvider`` document that says how node pools are read."""

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import Field, StrictInt, model_validator

from webhook.capacity.providers.pool import CapacityType
from webhook.capacity.providers.query import Query, QueryPath, QueryResults
from webhook.policy.common import Flag, Model, NonEmpty, Seconds, optional
from webhook.policy.fields import ApiGroup, KindName, LabelKey, ResourceName
from webhook.policy.schema_annotations import EnumDescriptions, Parsed

_SPEC_FIELD: Final = re.compile(r"spec(\.[A-Za-z]\w*)+", re.ASCII)


def _spec_field(path: str) -> QueryPath:
    if not _SPEC_FIELD.fullmatch(path):
        raise ValueError(f"{path!r} is no field of `spec`; write its path, as spec.providerIDList")
    return tuple(path.split("."))


JMESPath = Annotated[Query, Parsed(str, lru_cache(512)(Query))]  # providers repeat each other
SpecField = Annotated[QueryPath, Parsed(str, _spec_field)]
_CONTROLLER_FIELDS: Final = "Fields of `spec` that only controllers write; not judged, unless a reader reads them."
CapacityName = Annotated[
    Literal["spot", "on-demand", "both", "unknown"],
    EnumDescriptions(
        **{
            "spot": "nodes that can be taken back",
            "on-demand": "nodes that stay, reserved ones too",
            "both": "the one or the other, as there is capacity",
            "unknown": "what the pools have that `usesPools` names",
        }
    ),
]
EffectName = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class CapacityReaderSpec(Model):
    """The field, or the requirements, by which a pool is spot or on demand."""

    from_: JMESPath | None = Field(default=None, alias="from", description="JMESPath of the field.")
    label: LabelKey | None = Field(default=None, description="Instead: the label that its requirements restrict.")
    values: dict[str, CapacityName] = Field(description="The meaning of each value, in any case.")
    default: CapacityName = Field(description="The meaning of an empty or missing field.")

    @model_validator(mode="after")
    def _says_where(self) -> Self:
        if (self.from_ is None) is not bool(self.label):
            raise ValueError("write either `from` or `label`")
        return self

    @cached_property
    def meanings(self) -> Mapping[str, CapacityType]:
        """Return what each value means, by the casefolded value."""
        return {value.casefold(): CapacityType(meant) for value, meant in self.values.items()}

    @property
    def on_demand(self) -> str:
        """Return the value that means on-demand. Return an empty string if there is none."""
        return next((value for value, meant in self.values.items() if meant == "on-demand"), "")


class AcceleratorsReaderSpec(Model):
    """The fields by which a pool says that its nodes have GPUs, apart from their instance type."""

    type: JMESPath | None = Field(default=None, description="JMESPath of the accelerator.")
    count: JMESPath | None = Field(default=None, description="JMESPath of the number per node.")
    when: JMESPath | None = Field(default=None, description="JMESPath that is true if the nodes have GPUs.")


class SizedBySpec(Model):
    """Another resource that says how many nodes a pool should have; it is in the pool's namespace."""

    group: ApiGroup = Field(examples=["example.com"], description="API group; '' is the core group.")
    versions: tuple[NonEmpty, ...] = Field(min_length=1, description="API versions.")
    kind: KindName = Field(examples=["NodeScaler"], description="Kind.")
    resource: ResourceName = Field(description="Plural resource name.")
    scale: Flag = Field(default=False, description="It has the scale subresource.")
    pool: JMESPath = Field(description="JMESPath of the pool's name; without a result it sizes none of this kind.")
    desired: JMESPath = Field(description="JMESPath of the number of nodes.")
    autoscaling: JMESPath | None = Field(default=None, description="JMESPath of a boolean: an autoscaler sizes it.")
    cluster: JMESPath | None = Field(default=None, description="JMESPath of their cluster, if the pool lacks it.")
    controller_fields: tuple[SpecField, ...] = Field(default=(), description=_CONTROLLER_FIELDS)


class SizeReaderSpec(Model):
    """The fields for the size of a pool, and for how large it may become."""

    desired: JMESPath | None = Field(default=None, description="JMESPath of the number of nodes.")
    sized_by: SizedBySpec | None = Field(default=None, description="Another resource with the size.")
    autoscaling: JMESPath | None = Field(default=None, description="JMESPath of a boolean: an autoscaler sizes it.")
    maximum: JMESPath | None = Field(default=None, description="JMESPath of the autoscaler's maximum.")
    unlimited: Flag = Field(default=False, description="A missing maximum means no limit.")
    limits: JMESPath | None = Field(default=None, description="JMESPath of its nodes' maximum: resource -> quantity.")

    @model_validator(mode="after")
    def _says_the_size(self) -> Self:
        if self.desired is None and self.sized_by is None:
            raise ValueError("write `desired`, or `sizedBy`")
        return self


class UnusableSpec(Model):
    """A condition under which a pool gives no nodes."""

    when: JMESPath = Field(description="JMESPath; true unless empty, false, or null.")
    because: NonEmpty = Field(description="The message to users.")
    passing: Flag = Field(default=False, description="A temporary condition: spot Pods can wait.")


class GraceWindowSpec(Model):
    """The time that a pool's Pods have to stop, where it is not the provider's."""

    when: JMESPath | None = Field(default=None, description="JMESPath of the condition.")
    budget_seconds: Seconds | None = Field(default=None, description="The time.")
    from_: JMESPath | None = Field(default=None, alias="from", description="JMESPath of the time: 90, or 1m30s.")
    reserved: JMESPath | None = Field(default=None, description="JMESPath of the part for critical Pods.")
    safety_margin_seconds: Seconds = Field(description="Seconds to subtract.")
    note: str = Field(default="", description="A note on versions.")

    @model_validator(mode="after")
    def _says_the_time(self) -> Self:
        if (self.from_ is None) is (self.budget_seconds is None):
            raise ValueError("write either `from` or `budgetSeconds`")
        return self

    def read(self, results: QueryResults) -> tuple[int, int] | None:
        """Return the seconds that a pool gives a Pod to stop, and the margin. Return None if it is not such a pool."""
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
    """The fields by which a pool itself says how long its Pods have to stop."""

    windows: tuple[GraceWindowSpec, ...] = Field(default=(), description="The first that holds replaces gracePeriod.")
    limit: JMESPath | None = Field(default=None, description="JMESPath of a Pod's maximum: seconds, or a duration.")

    def read(self, results: QueryResults, usual: tuple[int, int]) -> tuple[int, int] | None:
        """Return the seconds that a pool gives a Pod to stop, and the safety margin to keep free of them.

        Return None if the pool does not say. ``usual`` are those of the provider. No margin is kept of the limit.
        """
        own = next(filter(None, (window.read(results) for window in self.windows)), None)
        seconds, margin = own or usual
        limit = results.seconds(self.limit)
        return (limit, 0) if limit is not None and limit < seconds - margin else own


class MachinesSpec(Model):
    """The fields by which a resource says which machines its nodes are. Expressions are JMESPath."""

    group: ApiGroup = Field(examples=["example.com"], description="API group.")
    versions: tuple[NonEmpty, ...] = Field(examples=[["v1"]], min_length=1, description="API versions.")
    kind: KindName = Field(examples=["NodePool"], description="Kind.")
    resource: ResourceName = Field(examples=["nodepools"], description="Plural resource name.")
    capacity: CapacityReaderSpec | None = Field(
        default=None,
        examples=[{"from": "spec.capacityType", "values": {"spot": "spot"}, "default": "on-demand"}],
        description="How to find out whether the nodes are spot.",
    )
    instance_type: JMESPath | None = Field(default=None, description="One or more instance types; '*': unknown.")
    several_types: Flag = Field(default=False, description="Warn about a spot pool with one `instanceType`.")
    accelerators: AcceleratorsReaderSpec = optional(AcceleratorsReaderSpec, "Other fields about GPUs.")
    known_labels: dict[LabelKey, JMESPath] = Field(default={}, description="Implicit labels: key -> its value.")
    zones: JMESPath | None = Field(default=None, description="A zone, or a list of them.")
    labels_spot_nodes: Flag = Field(default=True, description="The spot nodes have `spotNodeLabels`.")
    own_spot_labels: JMESPath | None = Field(default=None, description="If not, a map of the labels that they have.")


class MachineTemplateSpec(MachinesSpec):
    """A resource of which other objects make machines. One that none of them uses is no pool."""

    capacity: CapacityReaderSpec = Field(description="How to find out whether the nodes are spot.")


class TemplateSpec(Model):
    """The object that says which machines a pool's nodes are; it is in the pool's namespace."""

    from_: JMESPath = Field(alias="from", description="JMESPath of the reference, with `kind` and `name`.")
    kinds: tuple[MachineTemplateSpec, ...] = Field(min_length=1, description="The possible kinds.")
    default: CapacityName = Field(default="on-demand", description="What a reference to another kind means.")


class ListedInSpec(Model):
    """The kind of a file that lists pools, of the same group and versions, which no API server has."""

    kind: KindName = Field(description="Kind. Its name is the cluster's name.")
    field: NonEmpty = Field(description="The list.")


class NodePoolReaderSpec(MachinesSpec):
    """How one kind of node-pool resource is read into the normalised pool. Expressions are JMESPath."""

    listed_in: ListedInSpec | None = Field(default=None, description="The file whose list has it as an item.")
    replaces: dict[KindName, StrictInt] = Field(
        default={},
        examples=[{"NodeSet": 2023}],
        description="Earlier kinds in its API group, which `check` doesn't judge -> year of their replacement.",
    )
    namespaced: Flag = Field(default=False, description="Its objects are in namespaces.")
    scale: Flag = Field(default=False, description="It has the scale subresource.")
    when: JMESPath | None = Field(default=None, description="Holds for its objects, if other readers read some too.")
    requirements: JMESPath | None = Field(default=None, description="A list of {key, operator, values} of labels.")
    template: TemplateSpec | None = Field(default=None, description="Instead of `capacity`: an object that says it.")
    size: SizeReaderSpec = Field(examples=[{"desired": "spec.nodes"}], description="The size of the pool.")
    pool_name: JMESPath | None = Field(
        default=None, description="The pool's name on its nodes, `` `null` `` if they lack it; default: the object's."
    )
    cluster: JMESPath | None = Field(default=None, description="The cluster of its nodes, if it may be another one.")
    cluster_namespace: JMESPath | None = Field(default=None, description="That cluster's namespace; default: its own.")
    cluster_path: JMESPath | None = Field(default=None, description="The provider's path of that cluster, if any.")
    chosen_by: LabelKey | None = Field(default=None, description="Only Pods that select it by this label run there.")
    uses_pools: JMESPath | None = Field(default=None, description="Names of other pools whose nodes it uses.")
    taints: JMESPath | None = Field(default=None, description="A list of {key, value, effect}.")
    taint_texts: Flag = Field(default=False, description="Taints are written key=value:Effect.")
    taint_effects: dict[NonEmpty, EffectName] = Field(
        default={name: name for name in get_args(EffectName)}, description="Effect in the pool -> Kubernetes' effect."
    )
    without_platform_taints: JMESPath | None = Field(default=None, description="True if nodes lack `platformTaints`.")
    labels: JMESPath | None = Field(default=None, description="A map of its nodes' labels.")
    labels_complete: Flag = Field(default=False, description="Its nodes have no labels beyond the ones named.")
    label_domains: tuple[NonEmpty, ...] = Field(default=(), description="Domains of labels for nodes; default: all.")
    grace_period: PoolGraceSpec = optional(PoolGraceSpec, "What it says of the time that its Pods have to stop.")
    unusable: tuple[UnusableSpec, ...] = Field(default=(), description="Conditions, any of which leaves it no nodes.")
    controller_fields: tuple[SpecField, ...] = Field(default=(), description=_CONTROLLER_FIELDS)

    @model_validator(mode="after")
    def _says_the_capacity(self) -> Self:
        if (self.capacity is None) is (self.template is None):
            raise ValueError("write either `capacity` or `template`")
        if self.capacity is not None and self.capacity.label and self.requirements is None:
            raise ValueError("`capacity.label` needs `requirements`")
        return self

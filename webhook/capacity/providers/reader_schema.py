"""Define the part of a ``CapacityProvider`` document that says how node pools are read."""

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import Field, StrictInt, model_validator

from webhook.capacity.providers.pool import CapacityType
from webhook.capacity.providers.query import Query, QueryPath, QueryResults
from webhook.kube.quantity import amount_of
from webhook.policy.common import Flag, Model, NonEmpty, Seconds
from webhook.policy.fields import ApiGroup, KindName, LabelKey, ResourceName
from webhook.policy.schema_annotations import EnumDescriptions, Parsed

_SPEC_FIELD: Final = re.compile(r"spec(\.[A-Za-z]\w*)+", re.ASCII)


def _quantity(written: int | str) -> Decimal:
    if (amount := amount_of(written)) is None:
        raise ValueError(f"{written!r} is not a quantity; write a number, or one with a unit, as 512Mi")
    return amount


def _spec_field(path: str) -> QueryPath:
    if not _SPEC_FIELD.fullmatch(path):
        raise ValueError(f"{path!r} is no field of `spec`; write its path, as spec.providerIDList")
    return tuple(path.split("."))


Quantity = Annotated[Decimal, Parsed(StrictInt | str, _quantity)]
JMESPath = Annotated[Query, Parsed(str, lru_cache(512)(Query))]  # providers repeat each other
SpecField = Annotated[QueryPath, Parsed(str, _spec_field)]
_CONTROLLER_FIELDS: Final = (
    "Fields of `spec` that only the provider's controllers write and no policy judges: the API server does not ask "
    "about them, so that controllers go on while spotgate is down. Fields that a reader reads are asked about all the "
    "same."
)
CapacityName = Annotated[
    Literal["spot", "on-demand", "both", "unknown"],
    EnumDescriptions(
        {
            "spot": "nodes that can be taken back",
            "on-demand": "nodes that stay, reserved ones too",
            "both": "the one or the other, as there is capacity",
            "unknown": "what the pools have that `usesPools` names",
        }
    ),
]
EffectName = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class CapacityReaderSpec(Model):
    """Say by which field, or by which requirements, a pool is spot or on demand."""

    from_: JMESPath | None = Field(default=None, alias="from", description="JMESPath of the field.")
    label: LabelKey | None = Field(
        default=None, description="Instead: the node label on which the pool has requirements."
    )
    values: dict[str, CapacityName] = Field(description="What its values mean; letter case does not matter.")
    default: CapacityName = Field(description="What an absent or empty field means.")

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

    @property
    def is_flag(self) -> bool:
        """Return whether the field is a boolean, so that an empty text is a wrong value and not an absent one."""
        return {"true", "false"}.issuperset(self.meanings)


class AcceleratorsReaderSpec(Model):
    """Name the fields by which a pool says that its nodes have GPUs, apart from their instance type."""

    type: JMESPath | None = Field(default=None, description="JMESPath of the accelerator's name.")
    count: JMESPath | None = Field(default=None, description="JMESPath of how many each node has.")
    when: JMESPath | None = Field(default=None, description="JMESPath; holds where the nodes have GPUs.")


class SizedBySpec(Model):
    """Another resource that says how many nodes a pool should have; it is in the pool's namespace."""

    group: ApiGroup = Field(examples=["example.com"], description="API group; '' is the core group.")
    versions: tuple[NonEmpty, ...] = Field(min_length=1, description="API versions.")
    kind: KindName = Field(examples=["NodeScaler"], description="Kind.")
    resource: ResourceName = Field(description="Plural resource name.")
    scale: Flag = Field(default=False, description="It has the scale subresource.")
    pool: JMESPath = Field(description="JMESPath of the name of the pool; no result: it sizes none of this kind.")
    desired: JMESPath = Field(description="JMESPath of the number of nodes.")
    autoscaling: JMESPath | None = Field(default=None, description="JMESPath; holds where an autoscaler sets that.")
    cluster: JMESPath | None = Field(
        default=None, description="JMESPath of the cluster that both belong to, where the pool itself may not say it."
    )
    controller_fields: tuple[SpecField, ...] = Field(default=(), description=_CONTROLLER_FIELDS)


class LeastSpec(Model):
    """Say how much every machine has at least: limits below that leave no nodes."""

    machine: dict[NonEmpty, Quantity] = Field(default={}, description="Any machine: resource -> how much.")
    gpu_machine: dict[NonEmpty, Quantity] = Field(default={}, description="A machine with GPUs, the same.")
    counted: dict[NonEmpty, NonEmpty] = Field(
        default={}, description="Labels that count a machine's resource, for pools with requirements: key -> resource."
    )


class SizeReaderSpec(Model):
    """Name the fields for the size of a pool, and for how large it may become."""

    desired: JMESPath | None = Field(default=None, description="JMESPath of the number of nodes it should have now.")
    sized_by: SizedBySpec | None = Field(default=None, description="Another resource that says `desired`.")
    autoscaling: JMESPath | None = Field(
        default=None,
        description="JMESPath of a boolean: an autoscaler sizes it. Where a map says so by being there: "
        "spec.autoscaling != `null`.",
    )
    maximum: JMESPath | None = Field(default=None, description="JMESPath of the most nodes the autoscaler may give it.")
    unlimited: Flag = Field(default=False, description="Without a maximum there is none.")
    limits: JMESPath | None = Field(
        default=None,
        description="JMESPath of a map: resource -> the most that all its nodes have together. Zero leaves no nodes; "
        "zero of a GPU resource leaves no GPUs.",
    )
    least: LeastSpec = Field(
        default=LeastSpec.model_construct(), description="What a machine has at least of what `limits` names."
    )

    @model_validator(mode="after")
    def _says_the_size(self) -> Self:
        if self.desired is None and self.sized_by is None:
            raise ValueError("write `desired`, or `sizedBy`")
        return self


class UnusableSpec(Model):
    """Describe a condition under which a pool gives no nodes."""

    when: JMESPath = Field(description="JMESPath; holds when its result is neither empty, false nor null.")
    because: NonEmpty = Field(description="The message to users.")
    passing: Flag = Field(default=False, description="It passes by itself: spot Pods can wait for the pool's nodes.")


class GraceWindowSpec(Model):
    """Hold the time that a pool's Pods have to stop, where it is not the provider's."""

    when: JMESPath | None = Field(default=None, description="JMESPath; where it holds.")
    budget_seconds: Seconds | None = Field(default=None, description="The time.")
    from_: JMESPath | None = Field(
        default=None, alias="from", description="JMESPath of the time instead: seconds, or a duration (90s, 1h30m)."
    )
    reserved: JMESPath | None = Field(default=None, description="JMESPath of what of it is not an ordinary Pod's.")
    safety_margin_seconds: Seconds = Field(description="Seconds to keep free of it.")
    note: str = Field(default="", description="For people: since which version.")

    @model_validator(mode="after")
    def _says_the_time(self) -> Self:
        if (self.from_ is None) is (self.budget_seconds is None):
            raise ValueError("write either `from` or `budgetSeconds`")
        return self

    def read(self, found: QueryResults) -> tuple[int, int] | None:
        """Return the seconds that a pool gives a Pod to stop, and the margin. Return None if it is not such a pool."""
        if self.when is not None and not found.ask(self.when):
            return None
        if self.budget_seconds is not None:
            return self.budget_seconds, self.safety_margin_seconds
        total, reserved = found.seconds(self.from_), found.seconds(self.reserved) or 0
        if self.from_ is None or total is None:
            return None
        if total <= reserved:
            of = f", of which {self.reserved.field} takes {reserved} s" if self.reserved is not None else ""
            found.note(f"{self.from_.field} is {total} s{of}: no time to stop is left")
            return None
        return total - reserved, self.safety_margin_seconds


class PoolGraceSpec(Model):
    """Name the fields by which a pool itself says how long its Pods have to stop."""

    windows: tuple[GraceWindowSpec, ...] = Field(
        default=(), description="Instead of the provider's gracePeriod; the first that holds."
    )
    limit: JMESPath | None = Field(
        default=None, description="JMESPath of the most that a Pod gets in any case: seconds, or a duration."
    )

    def read(self, found: QueryResults, usual: tuple[int, int]) -> tuple[int, int] | None:
        """Return the seconds that a pool gives a Pod to stop, and the safety margin to keep free of them.

        Return None if the pool does not say. ``usual`` are those of the provider. No margin is kept of the limit.
        """
        own = next(filter(None, (each.read(found) for each in self.windows)), None)
        seconds, margin = own or usual
        limit = found.seconds(self.limit)
        return (limit, 0) if limit is not None and limit < seconds - margin else own


class MachinesSpec(Model):
    """Name the fields by which a resource says which machines its nodes are. Expressions are JMESPath."""

    group: ApiGroup = Field(examples=["example.com"], description="API group.")
    versions: tuple[NonEmpty, ...] = Field(examples=[["v1"]], min_length=1, description="API versions.")
    kind: KindName = Field(examples=["NodePool"], description="Kind.")
    resource: ResourceName = Field(examples=["nodepools"], description="Plural resource name.")
    capacity: CapacityReaderSpec | None = Field(
        default=None,
        examples=[{"from": "spec.capacityType", "values": {"spot": "spot"}, "default": "on-demand"}],
        description="Where it says whether its nodes are spot.",
    )
    instance_type: JMESPath | None = Field(
        default=None,
        description="An instance type, or a list of them, of which the provider takes which it likes; '*' where "
        "something says it that can't be read, as a launch template.",
    )
    several_types: Flag = Field(
        default=False, description="`instanceType` may list several: a spot pool of one type is then a warning."
    )
    accelerators: AcceleratorsReaderSpec = Field(
        default=AcceleratorsReaderSpec.model_construct(),
        description="Field paths that say that its nodes have GPUs, in addition to the instance type.",
    )
    known_labels: dict[LabelKey, JMESPath] = Field(
        default={},
        description="Labels that its nodes get without being listed: key -> expression of the value.",
    )
    zones: JMESPath | None = Field(default=None, description="A zone, or a list of them.")
    labels_spot_nodes: Flag = Field(default=True, description="Its spot nodes have the provider's `spotNodeLabels`.")
    own_spot_labels: JMESPath | None = Field(
        default=None,
        description="With `labelsSpotNodes: false`: a map of the labels that only its spot nodes have instead.",
    )


class MachineTemplateSpec(MachinesSpec):
    """Describe a resource of which other objects make machines. One that none of them uses is no pool."""

    capacity: CapacityReaderSpec = Field(description="Where it says whether its nodes are spot.")


class TemplateSpec(Model):
    """Hold the object that says which machines a pool's nodes are; it is in the pool's namespace."""

    from_: JMESPath = Field(alias="from", description="JMESPath of the reference to it: a map with `kind` and `name`.")
    kinds: tuple[MachineTemplateSpec, ...] = Field(min_length=1, description="The kinds that it may be of.")
    default: CapacityName = Field(
        default="on-demand",
        description="What a reference to another kind means: most infrastructure has no spot machines.",
    )


class ListedInSpec(Model):
    """Hold the kind of a file that lists pools, of the same group and versions, which no API server has."""

    kind: KindName = Field(description="Kind. The name of the object is that of the pools' cluster.")
    field: NonEmpty = Field(description="The list.")


class NodePoolReaderSpec(MachinesSpec):
    """Say how one kind of node-pool resource is read into the normalised pool. Expressions are JMESPath."""

    listed_in: ListedInSpec | None = Field(
        default=None,
        description="It is an item of a list in a file of another kind, and is read as an object of which the item is "
        "the `spec`, and the name of that file's object the namespace.",
    )
    replaces: dict[KindName, StrictInt] = Field(
        default={},
        examples=[{"NodeSet": 2023}],
        description="Earlier kinds in its API group, each with the year in which it was replaced: `check` warns that "
        "their objects are not judged.",
    )
    namespaced: Flag = Field(default=False, description="Its objects are in namespaces.")
    scale: Flag = Field(default=False, description="It has the scale subresource.")
    when: JMESPath | None = Field(
        default=None, description="Holds for the objects it reads, where another provider reads the same resource."
    )
    requirements: JMESPath | None = Field(
        default=None,
        description="A list of {key, operator, values} that the labels of its nodes meet: instance type, zone and GPUs "
        "are taken from it where nothing else says them.",
    )
    template: TemplateSpec | None = Field(
        default=None, description="Instead of `capacity`: another object says it, and which machines its nodes are."
    )
    size: SizeReaderSpec = Field(examples=[{"desired": "spec.nodes"}], description="How large it is, and may become.")
    pool_name: JMESPath | None = Field(
        default=None, description="The value of the label that names a node's pool; default: the name of the resource."
    )
    cluster: JMESPath | None = Field(
        default=None, description="The cluster that the pool belongs to, where it may be another than it is stored in."
    )
    cluster_namespace: JMESPath | None = Field(
        default=None, description="The namespace of that name; default: the pool's own."
    )
    cluster_path: JMESPath | None = Field(
        default=None, description="The provider's own path of the cluster, by which others may name it too."
    )
    chosen_by: LabelKey | None = Field(
        default=None,
        description="Pods choose it by this node label, whose value is its name (GKE's ComputeClasses): no others are "
        "placed there, it is no fallback for other pools, and they are none for it.",
    )
    uses_pools: JMESPath | None = Field(
        default=None, description="The names of other pools whose nodes it uses: it has their capacity too."
    )
    taints: JMESPath | None = Field(default=None, description="A list of {key, value, effect}.")
    taint_texts: Flag = Field(default=False, description="Taints are written key=value:Effect.")
    taint_effects: dict[NonEmpty, EffectName] = Field(
        default={each: each for each in get_args(EffectName)}, description="Effect as it is written -> Kubernetes' own."
    )
    without_platform_taints: JMESPath | None = Field(
        default=None, description="Holds where its nodes go without the provider's `platformTaints`."
    )
    labels: JMESPath | None = Field(default=None, description="A map of the labels it gives its nodes.")
    labels_complete: Flag = Field(
        default=False,
        description="Its labels and requirements are all that its nodes get, but for labels that the provider document "
        "knows: Pods that select another label get no node of it.",
    )
    label_domains: tuple[NonEmpty, ...] = Field(
        default=(), description="Only labels of these domains and their subdomains are given to nodes; default: all."
    )
    grace_period: PoolGraceSpec = Field(
        default=PoolGraceSpec.model_construct(),
        description="What it says itself of the time that its Pods have to stop.",
    )
    unusable: tuple[UnusableSpec, ...] = Field(
        default=(), description="Conditions under which it gives no nodes; any of them."
    )
    controller_fields: tuple[SpecField, ...] = Field(default=(), description=_CONTROLLER_FIELDS)

    @model_validator(mode="after")
    def _says_the_capacity(self) -> Self:
        if (self.capacity is None) is (self.template is None):
            raise ValueError("write either `capacity` or `template`")
        if self.capacity is not None and self.capacity.label and self.requirements is None:
            raise ValueError("`capacity.label` needs `requirements`")
        return self

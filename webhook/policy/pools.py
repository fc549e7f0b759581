"""The part of a ``CapacityProvider`` document that says how node pools are read."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from webhook.capacity.query import problem_with
from webhook.policy.common import Flag, Model, NonEmpty, Seconds


def _check_query(text: str) -> str:
    if said := problem_with(text):
        raise ValueError(f"not a JMESPath expression: {said}")
    return text


Query = Annotated[str, AfterValidator(_check_query)]
CapacityName = Literal["spot", "on-demand", "both"]
EffectName = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class CapacityReaderSpec(Model):
    """Which capacity a pool's field names, or its requirements admit."""

    from_: Query | None = Field(default=None, alias="from", description="JMESPath of the field.")
    label: str = Field(default="", description="Instead: the node label on which the pool has requirements.")
    values: dict[str, CapacityName] = Field(description="What its values mean; letter case does not matter.")
    default: CapacityName = Field(description="What an absent or empty field means.")

    @model_validator(mode="after")
    def _says_where(self) -> Self:
        if (self.from_ is None) is not bool(self.label):
            raise ValueError("write either `from` or `label`")
        return self


class AcceleratorsReaderSpec(Model):
    """Where a pool says that its nodes have GPUs, apart from their instance type."""

    type: Query | None = Field(default=None, description="JMESPath of the accelerator's name.")
    count: Query | None = Field(default=None, description="JMESPath of how many each node has.")
    when: Query | None = Field(default=None, description="JMESPath; holds where the nodes have GPUs.")


class SizedBySpec(Model):
    """Another resource that says how many nodes a pool should have; it is in the pool's namespace."""

    group: str
    versions: tuple[NonEmpty, ...] = Field(min_length=1)
    kind: NonEmpty
    resource: NonEmpty = Field(description="Plural resource name.")
    scale: Flag = Field(default=False, description="It has the scale subresource.")
    pool: Query = Field(description="JMESPath of the name of the pool; no result: it sizes none of this kind.")
    desired: Query = Field(description="JMESPath of the number of nodes.")
    autoscaling: Query | None = Field(default=None, description="JMESPath; holds where an autoscaler sets that.")


class SizeReaderSpec(Model):
    """How large a pool is, and may become."""

    desired: Query | None = Field(default=None, description="JMESPath of the number of nodes it should have now.")
    sized_by: SizedBySpec | None = Field(default=None, description="Another resource that says `desired`.")
    autoscaling: Query | None = Field(default=None, description="JMESPath of a flag: the autoscaler sizes it.")
    maximum: Query | None = Field(default=None, description="JMESPath of the most nodes the autoscaler may give it.")
    unlimited: Flag = Field(default=False, description="Without a maximum there is none.")
    limits: Query | None = Field(
        default=None,
        description="JMESPath of a map: resource -> the most that all its nodes have together. Zero leaves no nodes; "
        "zero of a GPU resource leaves no GPUs.",
    )

    @model_validator(mode="after")
    def _says_the_size(self) -> Self:
        if self.desired is None and self.sized_by is None:
            raise ValueError("write `desired`, or `sizedBy`")
        return self


class UnusableSpec(Model):
    """A condition under which a pool gives no nodes."""

    when: Query = Field(description="JMESPath; holds when its result is neither empty, false nor null.")
    because: NonEmpty = Field(description="What a person is told.")


class GraceWindowSpec(Model):
    """The time that a pool's Pods have to stop, where it is not the provider's."""

    when: Query | None = Field(default=None, description="JMESPath; where it holds.")
    budget_seconds: Seconds | None = Field(default=None, description="The time.")
    from_: Query | None = Field(
        default=None, alias="from", description="JMESPath of the time instead: seconds, or a duration (90s, 1h30m)."
    )
    reserved: Query | None = Field(default=None, description="JMESPath of what of it is not an ordinary Pod's.")
    safety_margin_seconds: Seconds = Field(description="Seconds to keep free of it.")

    @model_validator(mode="after")
    def _says_the_time(self) -> Self:
        if (self.from_ is None) is (self.budget_seconds is None):
            raise ValueError("write either `from` or `budgetSeconds`")
        return self


class PoolGraceSpec(Model):
    """What a pool itself says of the time that its Pods have to stop."""

    windows: tuple[GraceWindowSpec, ...] = Field(
        default=(), description="Instead of the provider's gracePeriod; the first that holds."
    )
    limit: Query | None = Field(
        default=None, description="JMESPath of the most that a Pod gets in any case: seconds, or a duration."
    )


class NodePoolReaderSpec(Model):
    """How one kind of node-pool resource is read into the one normalised pool. Expressions are JMESPath."""

    group: str
    versions: tuple[NonEmpty, ...] = Field(min_length=1)
    kind: NonEmpty
    resource: NonEmpty = Field(description="Plural resource name.")
    namespaced: Flag = False
    scale: Flag = Field(default=False, description="It has the scale subresource.")
    when: Query | None = Field(
        default=None, description="Holds for the objects it reads, where another provider reads the same resource."
    )
    requirements: Query | None = Field(
        default=None,
        description="A list of {key, operator, values} that the labels of its nodes meet: instance type, zone and GPUs "
        "are taken from it where nothing else says them.",
    )
    capacity: CapacityReaderSpec
    instance_type: Query | None = Field(default=None, description="An instance type, or a list of them.")
    accelerators: AcceleratorsReaderSpec = Field(default_factory=AcceleratorsReaderSpec)
    size: SizeReaderSpec
    pool_name: Query | None = Field(
        default=None, description="The value of the label that names a node's pool; default: the name of the resource."
    )
    cluster: Query | None = Field(
        default=None, description="The cluster that the pool belongs to, where it may be another than it is stored in."
    )
    cluster_namespace: Query | None = Field(
        default=None, description="The namespace of that name; default: the pool's own."
    )
    taints: Query | None = Field(default=None, description="A list of {key, value, effect}.")
    taint_texts: Flag = Field(default=False, description="Taints are written key=value:Effect.")
    taint_effects: dict[NonEmpty, EffectName] = Field(
        default={each: each for each in get_args(EffectName)}, description="Effect as it is written -> Kubernetes' own."
    )
    labels: Query | None = Field(default=None, description="A map of the labels it gives its nodes.")
    known_labels: dict[str, Query] = Field(
        default={},
        description="Labels that its nodes get without being listed: key -> expression of the value.",
    )
    zones: Query | None = Field(default=None, description="A zone, or a list of them.")
    grace_period: PoolGraceSpec = Field(default_factory=PoolGraceSpec)
    unusable: tuple[UnusableSpec, ...] = ()

    @model_validator(mode="after")
    def _has_requirements(self) -> Self:
        if self.capacity.label and self.requirements is None:
            raise ValueError("`capacity.label` needs `requirements`")
        return self

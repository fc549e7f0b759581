"""Define ``CapacityProvider`` documents, which contain facts instead of rules.

Users correct or add a provider or a node-pool kind in YAML. No Python code depends on the name of one.
"""

from typing import Annotated, Literal

from pydantic import Field

from webhook.base.globs import Globs
from webhook.capacity.providers.pool import Taint
from webhook.capacity.providers.reader_schema import EffectName, NodePoolReaderSpec
from webhook.policy.common import Flag, Glob, Model, NonEmpty, Seconds, optional
from webhook.policy.fields import LabelKey, LabelValue
from webhook.policy.schema_annotations import EnumDescriptions, Parsed

RequireName = Annotated[
    Literal["any", "standard", "gpu", "same-type"],
    EnumDescriptions(
        **{
            "any": "any on-demand pool; most clusters have one, so this rarely denies",
            "standard": "an on-demand pool without GPUs",
            "gpu": "an on-demand pool with GPUs",
            "same-type": "an on-demand pool of the same instance type",
        }
    ),
]


GlobList = Annotated[Globs, Parsed(tuple[Glob, ...], Globs)]
FoldedGlobs = Annotated[Globs, Parsed(tuple[Glob, ...], lambda globs: Globs(map(str.casefold, globs)))]
"""Case-insensitive globs."""


class LabelSpec(Model):
    """A label."""

    key: LabelKey = Field(description="Label key.")
    value: LabelValue = Field(description="Label value.")


class SpotLabelSpec(LabelSpec):
    """A label of every spot node."""

    note: str = Field(default="", description="A note for readers: the first version, exceptions.")
    spot_only: Flag = Field(default=False, description="Only spot nodes have this label key.")
    instead: Flag = Field(default=False, description="On pools with this label, replaces the other spot labels.")


class TaintPatternSpec(Model):
    """A pattern for taints: a key, and optionally a value and an effect."""

    key: LabelKey = Field(description="Taint key.")
    value: LabelValue = Field(default="", description="Taint value; default: any.")
    effect: EffectName | Literal[""] = Field(default="", description="Taint effect; default: any.")

    def matches(self, taint: Taint) -> bool:
        """Return whether the taint matches this pattern."""
        return taint.key == self.key and self.value in {"", taint.value} and self.effect in {"", taint.effect}

    @property
    def taint(self) -> Taint:
        """Return the pattern as a node's taint. The pattern must have an effect."""
        return Taint(self.key, self.value, self.effect)


class TaintSpec(TaintPatternSpec):
    """A taint."""

    value: LabelValue = Field(default="", description="Taint value.")
    effect: EffectName = Field(description="The effect on Pods that don't tolerate it.")
    note: str = Field(default="", description="A note for readers: the first version, exceptions.")


class SpotTaintSpec(TaintSpec):
    """A taint that the provider adds to spot nodes."""

    value: LabelValue = Field(default="", description="Taint value. Without one, Pods get `operator: Exists`.")
    declared_pools: Flag = Field(default=True, description="The provider also adds it to user-declared pools.")


class ForbiddenTaintSpec(TaintPatternSpec):
    """A pattern for taints that must never be tolerated."""

    passing: Flag = Field(default=False, description="The taint is temporary and doesn't exclude the pool.")


class GpuTaintSpec(TaintPatternSpec):
    """A taint that repels other Pods from GPU nodes."""

    automatic: Flag = Field(default=False, description="The provider adds it to nodes with GPUs. Set `effect` too.")
    instance_types: FoldedGlobs = Field(default_factory=Globs, description="Only on these types (globs). Default: all.")


class GpuSpec(Model):
    """Requests of Pods for GPUs, and the taints of GPU nodes."""

    resources: GlobList = Field(default_factory=Globs, description="GPU resources (globs).")
    taints: tuple[GpuTaintSpec, ...] = Field(default=(), description="Taints of GPU nodes, for GPU Pods only.")
    labels: GlobList = Field(default_factory=Globs, description="Keys of labels that only GPU nodes have (globs).")


class GpuListsSpec(Model):
    """Names of machines by their hardware. Case-insensitive."""

    gpu: FoldedGlobs = Field(default_factory=Globs, description="Names of machines with GPUs (globs).")
    cpu: FoldedGlobs = Field(default_factory=Globs, description="Names of machines without GPUs (globs).")
    arm: FoldedGlobs = Field(default_factory=Globs, description="Names of arm64 machines (globs).")


class InstanceTypesSpec(GpuListsSpec):
    """Instance types by their hardware. The fallback rule assumes that an unlisted type has GPUs.

    If ``arm`` is set, other types are amd64.
    """

    never_spot: FoldedGlobs = Field(default_factory=Globs, description="Instance types that can't be spot (globs).")
    allocatable: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="Allocatable resources of a node by instance type, for rehearsals without Nodes.",
        examples=[{"t2-micro": {"cpu": "2", "memory": "1Gi"}}],
    )


class MachineLabelSpec(GpuListsSpec):
    """A node label for the type, family, or category of a machine, for pools with requirements."""

    key: LabelKey = Field(description="Label key.")


class TimelineSpec(Model):
    """The timeline of a reclaim, in seconds after the notice."""

    cordon_seconds: Seconds = Field(description="When the node is cordoned.")
    drain_seconds: Seconds = Field(examples=[60], description="When its Pods are evicted.")
    removal_seconds: Seconds = Field(examples=[180], description="When the node is removed.")
    provisioning_seconds: Seconds = Field(default=120, description="When a replacement node is ready (assumed).")
    drained_by: Annotated[
        Literal["eviction", "kubelet", "nobody"],
        EnumDescriptions(
            eviction="a drainer uses the Eviction API, which respects PodDisruptionBudgets",
            kubelet="the kubelet shuts the node down gracefully and ignores PodDisruptionBudgets",
            nobody="nothing cordons or drains the node; Pods run until the node is removed",
        ),
    ] = Field(default="eviction", description="The component that stops the Pods.")
    unevicted_annotation: str = Field(default="", description="Annotation that exempts Pods: `true`, or a duration.")
    cordon_taint: TaintSpec | None = Field(
        default=None, description="Taint of cordoned nodes. Pods that tolerate it stay."
    )
    drain_tiers: Flag = Field(default=False, description="Also evict DaemonSet Pods, in tiers, critical Pods last.")
    assumes: str = Field(default="", description="The assumptions of the drain, without a full stop, for rehearsals.")


class GracePeriodSpec(Model):
    """The time that an ordinary Pod has to stop."""

    budget_seconds: Seconds = Field(examples=[120], description="Maximum seconds from SIGTERM (or preStop) to removal.")
    safety_margin_seconds: Seconds = Field(examples=[15], description="Seconds to subtract.")


class SystemNamespacesSpec(Model):
    """Namespaces of the provider. spotgate never changes the objects in them."""

    names: GlobList = Field(default_factory=Globs, description="Namespaces by name (globs).")
    labels: tuple[LabelSpec, ...] = Field(default=(), description="Namespaces with any of these labels.")


class FallbackSpec(Model):
    """The fallback that a GPU spot pool needs."""

    require: RequireName = Field(description="The required fallback.")
    outcome: Literal["deny", "warn"] = Field(description="The outcome for a pool that lacks it.")
    because: NonEmpty = Field(description="The consequence of a missing fallback, as a sentence.")


class CapacityProviderSpec(Model):
    """The facts about one provider of spot capacity."""

    title: NonEmpty = Field(examples=["Example Cloud"], description="A display name.")
    spot_node_labels: tuple[SpotLabelSpec, ...] = Field(default=(), description="Labels of every spot node.")
    spot_node_taints: tuple[SpotTaintSpec, ...] = Field(default=(), description="Taints of every spot node.")
    pool_name_label: LabelKey = Field(
        examples=["example.com/node-pool"],
        description="Label that names a node's pool. The provider or users set it.",
    )
    other_pool_name_labels: tuple[LabelKey, ...] = Field(
        default=(), description="Other labels that name a node's pool."
    )
    platform_taints: tuple[TaintSpec, ...] = Field(default=(), description="Taints of Arm or Windows nodes.")
    never_tolerate: tuple[ForbiddenTaintSpec, ...] = Field(default=(), description="Taints that are never tolerated.")
    gpu: GpuSpec = optional(GpuSpec, "Requests of Pods for GPUs, and the taints of GPU nodes.")
    instance_types: InstanceTypesSpec = optional(InstanceTypesSpec, "Instance types by hardware. Globs ignore case.")
    machine_labels: tuple[MachineLabelSpec, ...] = Field(
        default=(), description="Labels for machine types and families. Default lists: `instanceTypes`."
    )
    other_machine_labels: tuple[LabelKey, ...] = Field(
        default=(), description="Other labels in the domains of `machineLabels`."
    )
    labels_of_one_node: GlobList = Field(default_factory=Globs, description="Labels that differ within a pool (globs).")
    hands_off_schedulers: GlobList = Field(
        default_factory=Globs, description="Schedulers whose Pods spotgate doesn't change (globs)."
    )
    hands_off_selectors: tuple[LabelKey, ...] = Field(
        default=(), description="Node labels. spotgate doesn't change Pods that select nodes by them."
    )
    system_namespaces: SystemNamespacesSpec = optional(SystemNamespacesSpec, "The provider's namespaces.")
    interruption: TimelineSpec = Field(description="The timeline of a reclaim, in seconds after the notice.")
    grace_period: GracePeriodSpec = Field(description="The time that a Pod on a reclaimed node has to stop.")
    fallback: tuple[FallbackSpec, ...] = Field(default=(), description="The default fallback that GPU spot pools need.")
    this_cluster: str = Field(default="", description="This cluster's name in node pools. Other pools don't count.")
    node_pools: tuple[NodePoolReaderSpec, ...] = Field(
        default=(), description="How to read each kind of node pool. Without it, spotgate reads only Nodes."
    )

"""Define ``CapacityProvider`` documents, which hold facts instead of rules.

A team corrects or adds a provider or a node-pool kind by editing YAML; no Python knows one by name.
"""

from typing import Annotated, Literal

from pydantic import Field

from webhook.base.globs import Globs
from webhook.capacity.providers.pool import Taint
from webhook.capacity.providers.reader_schema import EffectName, NodePoolReaderSpec
from webhook.policy.common import Flag, Glob, Model, NonEmpty, Seconds
from webhook.policy.fields import LabelKey, LabelValue
from webhook.policy.schema_annotations import EnumDescriptions, Parsed

RequireName = Annotated[
    Literal["any", "standard", "gpu", "same-type"],
    EnumDescriptions(
        {
            "any": "any on-demand pool; most clusters have one, so this rarely denies",
            "standard": "an on-demand pool without GPUs",
            "gpu": "an on-demand pool with GPUs",
            "same-type": "an on-demand pool of the same instance type",
        }
    ),
]


def _folded(globs: tuple[str, ...]) -> Globs:
    return Globs(each.casefold() for each in globs)


GlobList = Annotated[Globs, Parsed(tuple[Glob, ...], Globs)]
FoldedGlobs = Annotated[Globs, Parsed(tuple[Glob, ...], _folded)]
"""Globs for which letter case does not matter."""


class LabelSpec(Model):
    """Describe a label."""

    key: LabelKey = Field(description="Label key.")
    value: LabelValue = Field(description="Label value.")


class SpotLabelSpec(LabelSpec):
    """Describe a label that every spot node has."""

    note: str = Field(default="", description="For people: since which version, and where it does not hold.")
    spot_only: Flag = Field(
        default=False, description="Nodes that are not spot have no label of this key, whatever its value."
    )
    instead: Flag = Field(
        default=False,
        description="Nodes of some pools have it instead of the others: of those to which `knownLabels` gives it.",
    )


class TaintSpec(Model):
    """Describe a taint."""

    key: LabelKey = Field(description="Taint key.")
    value: LabelValue = Field(default="", description="Taint value.")
    effect: EffectName = Field(description="What it does to Pods that do not tolerate it.")
    note: str = Field(default="", description="For people: since which version, and where it does not hold.")

    @property
    def taint(self) -> Taint:
        """Return the taint as nodes have it."""
        return Taint(self.key, self.value, self.effect)


class SpotTaintSpec(TaintSpec):
    """Describe a taint that spot nodes get from the provider."""

    declared_pools: Flag = Field(
        default=True,
        description="Pools that somebody declares get it, too, not only those that the provider makes itself.",
    )


class TaintPatternSpec(Model):
    """Describe a pattern for taints: the key, and value and effect where they are given."""

    key: LabelKey = Field(description="Taint key.")
    value: LabelValue = Field(default="", description="Taint value; default: any.")
    effect: EffectName | Literal[""] = Field(default="", description="Taint effect; default: any.")

    def matches(self, taint: Taint) -> bool:
        """Return whether the taint matches this pattern."""
        return taint.key == self.key and self.value in {"", taint.value} and self.effect in {"", taint.effect}


class ForbiddenTaintSpec(TaintPatternSpec):
    """Describe a pattern for taints that must never be tolerated."""

    passing: Flag = Field(
        default=False,
        description="The taint is temporary, while a node starts or stops. It doesn't exclude the pool.",
    )


class GpuTaintSpec(TaintPatternSpec):
    """Describe a taint that keeps other Pods off GPU nodes."""

    automatic: Flag = Field(
        default=False,
        description="The provider adds it to every node with GPUs. With an effect, it is a taint of every GPU pool.",
    )
    instance_types: FoldedGlobs = Field(
        default_factory=Globs,
        description="With `automatic`: only on these instance types (globs). Default: all with GPUs.",
    )

    @property
    def taint(self) -> Taint:
        """Return the taint as nodes have it, if its effect is known."""
        return Taint(self.key, self.value, self.effect)


class GpuSpec(Model):
    """Say how GPUs are requested, and guarded."""

    resources: GlobList = Field(default_factory=Globs, description="Extended resources that are GPUs (globs).")
    taints: tuple[GpuTaintSpec, ...] = Field(
        default=(),
        description="Taints that keep other Pods off GPU nodes; tolerated only for Pods that request GPUs.",
    )
    labels: GlobList = Field(
        default_factory=Globs,
        description="Keys of labels that only nodes with GPUs have (globs); for pools with requirements.",
    )


class InstanceTypesSpec(Model):
    """List instance types by what they have. One in no list is unknown, and taken for GPU by the fallback rule.

    Letter case does not matter.
    """

    gpu: FoldedGlobs = Field(default_factory=Globs, description="Instance types with GPUs (globs).")
    cpu: FoldedGlobs = Field(default_factory=Globs, description="Instance types without (globs).")
    never_spot: FoldedGlobs = Field(default_factory=Globs, description="Instance types that can't be spot (globs).")
    arm: FoldedGlobs = Field(
        default_factory=Globs,
        description="Instance types of architecture arm64 (globs); the others in `gpu` and `cpu` are "
        "amd64. Default: unknown.",
    )
    allocatable: dict[str, dict[str, str]] = Field(
        default_factory=dict,
        description="What a node of an instance type offers, by resource: for rehearsals of clusters without Nodes.",
        examples=[{"t2-micro": {"cpu": "2", "memory": "1Gi"}}],
    )


class MachineLabelSpec(Model):
    """Describe a node label that names the type, family or category of a machine; for pools with requirements."""

    key: LabelKey = Field(description="Label key.")
    gpu: FoldedGlobs = Field(default_factory=Globs, description="Values of machines with GPUs (globs).")
    cpu: FoldedGlobs = Field(
        default_factory=Globs, description="Values of machines without (globs). Neither list: instanceTypes."
    )
    arm: FoldedGlobs = Field(default_factory=Globs, description="Values of machines of architecture arm64 (globs).")


class TimelineSpec(Model):
    """Say when what happens to a reclaimed node, in seconds after the notice."""

    cordon_seconds: Seconds = Field(description="No new Pods come to the node.")
    drain_seconds: Seconds = Field(examples=[60], description="Its Pods are evicted: preStop, then SIGTERM.")
    removal_seconds: Seconds = Field(examples=[180], description="The node is gone.")
    provisioning_seconds: Seconds = Field(
        default=120,
        description="A node that was asked for at the notice is ready. The default is an assumption.",
    )
    drained_by: Annotated[
        Literal["eviction", "kubelet", "nobody"],
        EnumDescriptions(
            {
                "eviction": "a drainer asks the Eviction API, which respects PodDisruptionBudgets",
                "kubelet": "the kubelet shuts the node down gracefully, whatever PodDisruptionBudgets say",
                "nobody": "nothing cordons or drains the node; Pods run until it is gone",
            }
        ),
    ] = Field(default="eviction", description="What stops its Pods.")
    unevicted_annotation: str = Field(
        default="",
        description="An annotation of Pods that the drainer doesn't evict: `true`, or for how long from their start.",
    )
    cordon_taint: TaintSpec | None = Field(
        default=None,
        description="The taint that keeps new Pods off the node. The drainer doesn't evict Pods that tolerate it. "
        "Default: the node becomes unschedulable.",
    )
    drain_tiers: Flag = Field(
        default=False,
        description="The drainer evicts also the Pods of DaemonSets, and in this order, each tier when the one before "
        "is gone: ordinary Pods, Pods of DaemonSets, critical Pods, critical Pods of DaemonSets.",
    )
    assumes: str = Field(
        default="",
        description="What has to be true for this drain, as a sentence without its full stop; rehearsals show it.",
    )


class NodeWindowSpec(LabelSpec):
    """Say how long an ordinary Pod has to stop on nodes with a label."""

    budget_seconds: Seconds = Field(description="Seconds between SIGTERM (or preStop) and removal, at most.")
    safety_margin_seconds: Seconds = Field(description="Seconds to keep free of that.")


class GracePeriodSpec(Model):
    """Say how long an ordinary Pod has to stop."""

    budget_seconds: Seconds = Field(
        examples=[120], description="Seconds between SIGTERM (or preStop) and removal, at most."
    )
    safety_margin_seconds: Seconds = Field(examples=[15], description="Seconds to keep free of that.")
    by_node_label: tuple[NodeWindowSpec, ...] = Field(
        default=(),
        description="The same on nodes with a label, where the pool itself does not say it; the first that the nodes "
        "have.",
    )


class SystemNamespacesSpec(Model):
    """Hold namespaces of the provider's own; spotgate never touches what is in them."""

    names: GlobList = Field(default_factory=Globs, description="By name (globs).")
    labels: tuple[LabelSpec, ...] = Field(default=(), description="By label; any of these.")


class FallbackSpec(Model):
    """Say which fallback a GPU spot pool needs."""

    require: RequireName = Field(description="The required fallback.")
    outcome: Literal["deny", "warn"] = Field(description="What comes of a pool that lacks it.")
    because: NonEmpty = Field(description="What happens without, as a sentence.")


class CapacityProviderSpec(Model):
    """The facts about one provider of capacity that can vanish."""

    title: NonEmpty = Field(examples=["Example Cloud"], description="Its name for people.")
    spot_node_labels: tuple[SpotLabelSpec, ...] = Field(
        default=(),
        description="Labels that every spot node gets from the provider, the preferred one first; see `instead`.",
    )
    spot_node_taints: tuple[SpotTaintSpec, ...] = Field(
        default=(), description="Taints that every spot node gets from the provider."
    )
    pool_name_label: LabelKey = Field(
        examples=["example.com/node-pool"], description="Key of the label that names a node's pool."
    )
    other_pool_name_labels: tuple[LabelKey, ...] = Field(
        default=(),
        description="Keys of other labels that name it, by which Pods may select it: of the tool that made the pool.",
    )
    platform_taints: tuple[TaintSpec, ...] = Field(
        default=(),
        description="Taints that the provider itself puts on nodes of the architecture or operating system that they "
        "name; tolerated for Pods that say so.",
    )
    never_tolerate: tuple[ForbiddenTaintSpec, ...] = Field(
        default=(), description="Taints for which no toleration is ever injected."
    )
    gpu: GpuSpec = Field(default=GpuSpec.model_construct(), description="How GPUs are requested, and guarded.")
    instance_types: InstanceTypesSpec = Field(
        default=InstanceTypesSpec.model_construct(),
        description="Which instance types have GPUs, and which can't be spot.",
    )
    machine_labels: tuple[MachineLabelSpec, ...] = Field(
        default=(),
        description="Node labels for the type, family, or category of a machine, in addition to "
        "node.kubernetes.io/instance-type.",
    )
    other_machine_labels: tuple[LabelKey, ...] = Field(
        default=(),
        description="Other node labels that describe machines, in the domains of machineLabels. "
        "Labels that are in neither list, nor in gpu.labels, are misspelled or newer. "
        "Default: unknown.",
    )
    labels_of_one_node: GlobList = Field(
        default_factory=Globs,
        description="Keys of labels that tell nodes of one pool apart, or say what state a node is in (globs).",
    )
    hands_off_schedulers: GlobList = Field(
        default_factory=Globs, description="schedulerName of Pods that are left alone (globs)."
    )
    hands_off_selectors: tuple[LabelKey, ...] = Field(
        default=(), description="Keys of node labels; Pods that select by them are left alone."
    )
    system_namespaces: SystemNamespacesSpec = Field(
        default=SystemNamespacesSpec.model_construct(),
        description="The provider's own namespaces; nothing in them is ever touched.",
    )
    interruption: TimelineSpec = Field(description="What happens to a reclaimed node, in seconds after the notice.")
    grace_period: GracePeriodSpec = Field(description="What an ordinary Pod on a reclaimed node gets to stop.")
    fallback: tuple[FallbackSpec, ...] = Field(
        default=(),
        description="The fallback that GPU spot pools need, if an OnDemandFallback doesn't say it "
        "for this provider. Default: that policy's requirement for all.",
    )
    this_cluster: str = Field(
        default="",
        description="Name of the cluster that the policies are for, as node pools name theirs (`cluster`); with its "
        "namespace where several have that name. Pools of other clusters place no Pods here.",
    )
    node_pools: tuple[NodePoolReaderSpec, ...] = Field(default=(), description="Readers, one for each kind.")

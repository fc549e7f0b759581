"""Define ``CapacityProvider`` documents, which contain facts instead of rules.

Users correct or add a provider or a node-pool kind in YAML. No Python code depends on the name of one.
"""

from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec

from webhook.base.globs import Globs
from webhook.capacity.providers.pool import Taint
from webhook.capacity.providers.reader_schema import EffectName, NodePoolReaderSpec
from webhook.policy.common import Flag, Glob, Model, NameGlob, NonEmpty, Patterns, Seconds
from webhook.policy.errors import expect_at_most
from webhook.policy.fields import LabelKey, LabelValue
from webhook.policy.schema_annotations import EnumDescriptions, Field, Parsed

RequireName = Annotated[
    Literal["any", "standard", "gpu", "same-type"],
    EnumDescriptions(
        **{
            "any": "any on-demand pool; most clusters have one, so this rarely denies",
            "standard": "an on-demand pool without GPUs",
            "gpu": "an on-demand pool with GPUs",
            "same-type": "an on-demand pool of the same GPU or instance type",
        }
    ),
]


class Folded(Globs):
    """Case-insensitive globs, for texts in lower case."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        super().__init__(map(str.casefold, patterns))


FoldedGlobs = Annotated[Folded, Parsed(tuple[Glob, ...], Folded)]


class LabelSpec(Model):
    """A label."""

    key: LabelKey
    """Label key."""
    value: LabelValue
    """Label value."""


class SpotLabelSpec(LabelSpec):
    """A label of every spot node."""

    note: str = ""
    """A note for readers: the first version, exceptions."""
    spot_only: Flag = False
    """Only spot nodes have this label key."""
    instead: Flag = False
    """On pools with this label, replaces the other spot labels."""


class LimitedSpec(Model):
    """Time-limited capacity, which is neither spot nor a fallback for spot."""

    ends: NonEmpty = "it ends at a time that its provider knows"
    """What ends it, and when, as a phrase."""
    node_labels: tuple[LabelSpec, ...] = ()
    """Labels of its nodes. A node has at least one of them."""


class TaintPatternSpec(Model):
    """A pattern for taints: a key, and optionally a value and an effect."""

    key: LabelKey
    """Taint key."""
    value: LabelValue = ""
    """Taint value; default: any."""
    effect: EffectName | Literal[""] = ""
    """Taint effect; default: any."""

    def matches(self, taint: Taint) -> bool:
        """Return whether the taint matches this pattern."""
        return taint.key == self.key and self.value in {"", taint.value} and self.effect in {"", taint.effect}

    @property
    def taint(self) -> Taint:
        """Return the pattern as a node's taint. The pattern must have an effect."""
        return Taint(self.key, self.value, self.effect)


class TaintSpec(TaintPatternSpec):
    """A taint."""

    value: LabelValue = ""
    """Taint value."""
    effect: EffectName
    """The effect on Pods that don't tolerate it."""
    note: str = ""
    """A note for readers: the first version, exceptions."""


class SpotTaintSpec(TaintSpec):
    """A taint that the provider adds to spot nodes."""

    value: LabelValue = ""
    """Taint value. Without one, Pods get `operator: Exists`."""
    declared_pools: Flag = True
    """The provider also adds it to user-declared pools."""


class ForbiddenTaintSpec(TaintPatternSpec):
    """A pattern for taints that must never be tolerated."""

    passing: Flag = False
    """The taint is temporary and doesn't exclude the pool."""


class GpuTaintSpec(TaintPatternSpec):
    """A taint that repels other Pods from GPU nodes."""

    automatic: Flag = False
    """The provider adds it to nodes with GPUs. Set `effect` too."""
    instance_types: FoldedGlobs = Folded()
    """Only on these types (globs). Default: all."""


_GPUS: Final = Globs(
    (
        *("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*", "amd.com/gpu", "gpu.intel.com/*"),
        *("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"),  # HAMi
    )
)
_GPU_CLASSES: Final = Globs(("*gpu*", "mig.nvidia.com", "vfio.gpu.nvidia.com"))
_SHARES: Final = {"gpu-fraction": "nvidia.com/gpu", "gpu-memory": "nvidia.com/gpu"}  # KAI Scheduler
_GPU_TAINTS: Final = tuple(GpuTaintSpec(key=key) for key in ("nvidia.com/gpu", "amd.com/gpu"))


class GpuSpec(Model):
    """Requests of Pods for GPUs, and the taints of GPU nodes. The defaults are those of NVIDIA and AMD."""

    resources: Patterns = _GPUS
    """GPU resources (globs)."""
    device_classes: Patterns = _GPU_CLASSES
    """Device classes of GPUs, in resource claims (globs)."""
    annotations: dict[str, str] = msgspec.field(default_factory=lambda: _SHARES)
    """Annotations of Pods that share a GPU, and the resource of which they request a part."""
    taints: tuple[GpuTaintSpec, ...] = _GPU_TAINTS
    """Taints of GPU nodes, for GPU Pods only."""
    labels: Patterns = Globs()
    """Keys of labels that only GPU nodes have (globs)."""


class GpuListsSpec(Model):
    """Names of machines by their hardware. Case-insensitive."""

    gpu: FoldedGlobs = Folded()
    """Names of machines with GPUs (globs)."""
    cpu: FoldedGlobs = Folded()
    """Names of machines without GPUs (globs)."""
    arm: FoldedGlobs = Folded()
    """Names of arm64 machines (globs)."""


class InstanceTypesSpec(GpuListsSpec):
    """Instance types by their hardware. On spot, an unlisted type counts as one with GPUs.

    If ``arm`` is set, other types are amd64.
    """

    never_spot: FoldedGlobs = Folded()
    """Instance types that can't be spot (globs)."""
    allocatable: Annotated[
        dict[str, dict[str, str]], Field(examples=[{"t2-micro": {"cpu": "2", "memory": "1Gi"}}])
    ] = {}
    """Allocatable resources of a node by instance type, for rehearsals without Nodes."""


class MachineLabelSpec(GpuListsSpec):
    """A node label for the type, family, or category of a machine, for pools with requirements."""

    key: LabelKey
    """Label key."""


class TimelineSpec(Model):
    """The timeline of a reclaim, in seconds after the notice."""

    cordon_seconds: Seconds
    """When the node is cordoned."""
    drain_seconds: Annotated[Seconds, Field(examples=[60])]
    """When its Pods are evicted."""
    removal_seconds: Annotated[Seconds, Field(examples=[180])]
    """When the node is removed."""
    provisioning_seconds: Seconds = 120
    """When a replacement node is ready (assumed)."""
    drained_by: Annotated[
        Literal["eviction", "kubelet", "nobody"],
        EnumDescriptions(
            eviction="a drainer uses the Eviction API, which respects PodDisruptionBudgets",
            kubelet="the kubelet shuts the node down gracefully and ignores PodDisruptionBudgets",
            nobody="nothing cordons or drains the node; Pods run until the node is removed",
        ),
    ] = "eviction"
    """The component that stops the Pods."""
    unevicted_annotation: str = ""
    """Annotation that exempts Pods: `true`, or a duration."""
    cordon_taint: TaintSpec | None = None
    """Taint of cordoned nodes. Pods that tolerate it stay."""
    drain_tiers: Flag = False
    """Also evict DaemonSet Pods, in tiers, critical Pods last."""
    assumes: str = ""
    """The assumptions of the drain, without a full stop, for rehearsals."""

    def check(self) -> None:
        """Raise SpecError if the drain begins after the removal."""
        expect_at_most("drainSeconds", self.drain_seconds, "removalSeconds", self.removal_seconds)


class SignalSpec(Model):
    """A signal on a Node that its machine is being reclaimed."""

    type: Annotated[
        Literal["label", "taint", "annotation", "condition"],
        EnumDescriptions(
            label="a label",
            taint="a taint with any effect",
            annotation="an annotation",
            condition="a condition with the status `True`",
        ),
    ]
    """The part of the Node that is the signal."""
    key: LabelKey
    """Its key, or the type of the condition."""
    values: Annotated[Globs, Parsed(tuple[NameGlob, ...], Globs)] = Globs()
    """Its values, or the messages of the condition (globs). Default: any."""
    time: Flag = False
    """The value contains the time of the removal, in RFC 3339 or RFC 1123."""
    drain_seconds: Seconds | None = None
    """Seconds from the signal to the drain. Default: `interruption.drainSeconds`."""
    removal_seconds: Seconds | None = None
    """Seconds from the signal to the removal. Default: `interruption.removalSeconds`."""

    def check(self) -> None:
        """Raise SpecError if the drain begins after the removal."""
        if self.drain_seconds is not None and self.removal_seconds is not None:
            expect_at_most("drainSeconds", self.drain_seconds, "removalSeconds", self.removal_seconds)


class GracePeriodSpec(Model):
    """The time that an ordinary Pod has to stop."""

    budget_seconds: Annotated[Seconds, Field(examples=[120])]
    """Maximum seconds from SIGTERM (or preStop) to removal."""
    safety_margin_seconds: Annotated[Seconds, Field(examples=[15])]
    """Seconds to subtract."""

    def check(self) -> None:
        """Raise SpecError if the margin exceeds the budget."""
        expect_at_most("safetyMarginSeconds", self.safety_margin_seconds, "budgetSeconds", self.budget_seconds)


class SystemNamespacesSpec(Model):
    """Namespaces of the provider. spotgate never changes the objects in them."""

    names: Patterns = Globs()
    """Namespaces by name (globs)."""
    labels: tuple[LabelSpec, ...] = ()
    """Namespaces with any of these labels."""


class FallbackSpec(Model):
    """The fallback that a GPU spot pool needs."""

    require: RequireName
    """The required fallback."""
    outcome: Literal["deny", "warn"]
    """The outcome for a pool that lacks it."""
    because: NonEmpty
    """The consequence of a missing fallback, as a sentence."""


class CapacityProviderSpec(Model):
    """The facts about one provider of spot capacity."""

    title: Annotated[NonEmpty, Field(examples=["Example Cloud"])]
    """A display name."""
    spot_node_labels: tuple[SpotLabelSpec, ...] = ()
    """Labels of every spot node."""
    spot_node_taints: tuple[SpotTaintSpec, ...] = ()
    """Taints of every spot node."""
    limited: LimitedSpec = LimitedSpec()
    """Time-limited capacity."""
    runs_on_clouds: Flag = False
    """It adds nodes to clusters of other providers, whose labels the nodes also have."""
    pool_name_label: Annotated[LabelKey, Field(examples=["example.com/node-pool"])] = ""
    """Label that names a node's pool, if nodes have one. The provider or users set it."""
    other_pool_name_labels: tuple[LabelKey, ...] = ()
    """Other labels that name a node's pool."""
    platform_taints: tuple[TaintSpec, ...] = ()
    """Taints of Arm or Windows nodes."""
    never_tolerate: tuple[ForbiddenTaintSpec, ...] = ()
    """Taints that are never tolerated."""
    gpu: GpuSpec = GpuSpec()
    """Requests of Pods for GPUs, and the taints of GPU nodes."""
    instance_types: InstanceTypesSpec = InstanceTypesSpec()
    """Instance types by hardware. Globs ignore case."""
    machine_labels: tuple[MachineLabelSpec, ...] = ()
    """Labels for machine types and families. Default lists: `instanceTypes`."""
    other_machine_labels: tuple[LabelKey, ...] = ()
    """Other labels in the domains of `machineLabels`."""
    labels_of_one_node: Patterns = Globs()
    """Labels that differ within a pool (globs)."""
    hands_off_schedulers: Patterns = Globs()
    """Schedulers whose Pods spotgate doesn't change (globs)."""
    hands_off_selectors: tuple[LabelKey, ...] = ()
    """Node labels. spotgate doesn't change Pods that select nodes by them."""
    system_namespaces: SystemNamespacesSpec = SystemNamespacesSpec()
    """The provider's namespaces."""
    interruption: TimelineSpec
    """The timeline of a reclaim, in seconds after the notice."""
    grace_period: GracePeriodSpec
    """The time that a Pod on a reclaimed node has to stop."""
    reclaim_notice: tuple[SignalSpec, ...] = ()
    """Signals on a Node that it is being reclaimed, in addition to the annotation `spotgate.dev/reclaim-at`."""
    fallback: tuple[FallbackSpec, ...] = ()
    """The default fallback that GPU spot pools need."""
    this_cluster: str = ""
    """This cluster's name in node pools. Other pools don't count."""
    node_pools: tuple[NodePoolReaderSpec, ...] = ()
    """How to read each kind of node pool. Without it, spotgate reads only Nodes."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if not self.pool_name_label and (self.node_pools or not self.spot_node_labels):
            raise ValueError(
                "write `poolNameLabel`; only a provider with `spotNodeLabels` and no `nodePools` can omit it"
            )
        window = self.interruption.removal_seconds - self.interruption.drain_seconds
        if self.grace_period.budget_seconds > window:
            raise ValueError(
                f"`gracePeriod.budgetSeconds` is {self.grace_period.budget_seconds}, and only {window} s pass from "
                "`interruption.drainSeconds` to `removalSeconds`; correct one of them"
            )

"""The documents that hold facts instead of rules: ``CapacityProvider`` and ``WorkloadTemplates``.

A team corrects or adds a provider, a node-pool kind or a workload kind by editing YAML; no Python knows one by name.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from webhook.kube.templates import TemplatePath
from webhook.policy.common import Glob, Model, NonEmpty, Seconds
from webhook.policy.pools import EffectName, NodePoolReaderSpec  # noqa: TC001 - pydantic reads the annotations


def _check_template_path(text: str) -> str:
    TemplatePath(text)
    return text


TemplatePathText = Annotated[str, AfterValidator(_check_template_path)]
RequireName = Literal["any", "standard", "gpu", "same-type"]


def _lower(globs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each.casefold() for each in globs)


FoldedGlobs = Annotated[tuple[Glob, ...], AfterValidator(_lower)]
"""Globs for which letter case does not matter."""


class LabelSpec(Model):
    """A node label."""

    key: NonEmpty
    value: str


class SpotLabelSpec(LabelSpec):
    """A label that every spot node has."""

    note: str = Field(default="", description="For people: since which version, and where it does not hold.")


class TaintSpec(Model):
    """A taint."""

    key: NonEmpty
    value: str = ""
    effect: EffectName
    note: str = Field(default="", description="For people: since which version, and where it does not hold.")


class TaintPatternSpec(Model):
    """A pattern for taints: the key, and value and effect where they are given."""

    key: NonEmpty
    value: str = ""
    effect: EffectName | Literal[""] = ""


class GpuSpec(Model):
    """How GPUs are requested, and guarded."""

    resources: tuple[Glob, ...] = Field(default=(), description="Extended resources that are GPUs (globs).")
    taints: tuple[TaintPatternSpec, ...] = Field(
        default=(),
        description="Taints that keep other Pods off GPU nodes; tolerated only for Pods that request GPUs.",
    )
    labels: tuple[Glob, ...] = Field(
        default=(), description="Keys of labels that only nodes with GPUs have (globs); for pools with requirements."
    )


class InstanceTypesSpec(Model):
    """What an instance type says. One that is in no list is unknown, and for the fallback rule treated as GPU.

    Letter case does not matter.
    """

    gpu: FoldedGlobs = Field(default=(), description="Instance types with GPUs (globs).")
    cpu: FoldedGlobs = Field(default=(), description="Instance types without (globs).")
    never_spot: FoldedGlobs = Field(default=(), description="Instance types that can't be spot (globs).")


class MachineLabelSpec(Model):
    """A node label that names the type, family or category of a machine; for pools with requirements."""

    key: NonEmpty
    gpu: FoldedGlobs = Field(default=(), description="Values of machines with GPUs (globs).")
    cpu: FoldedGlobs = Field(default=(), description="Values of machines without (globs). Neither list: instanceTypes.")


class TimelineSpec(Model):
    """What happens to a reclaimed node, in seconds after the notice."""

    cordon_seconds: Seconds
    drain_seconds: Seconds
    removal_seconds: Seconds


class GracePeriodSpec(Model):
    """What an ordinary Pod gets to stop."""

    budget_seconds: Seconds = Field(description="Seconds between SIGTERM (or preStop) and removal, at most.")
    safety_margin_seconds: Seconds = Field(description="Seconds to keep free of that.")


class SystemNamespacesSpec(Model):
    """Namespaces of the provider's own; spotgate never touches what is in them."""

    names: tuple[Glob, ...] = Field(default=(), description="By name (globs).")
    labels: tuple[LabelSpec, ...] = Field(default=(), description="By label; any of these.")


class FallbackSpec(Model):
    """What a GPU spot pool needs beside it."""

    require: RequireName = Field(
        description="any on-demand pool; one without GPUs (standard); one with GPUs; one of the same type."
    )
    outcome: Literal["deny", "warn"]
    because: NonEmpty = Field(description="What happens without, as a sentence.")


class CapacityProviderSpec(Model):
    """The facts about one provider of capacity that can vanish."""

    title: NonEmpty = Field(description="Its name for people.")
    spot_node_labels: tuple[SpotLabelSpec, ...] = Field(
        default=(), description="Labels that every spot node gets from the provider, the preferred one first."
    )
    spot_node_taints: tuple[TaintSpec, ...] = Field(
        default=(), description="Taints that every spot node gets from the provider."
    )
    pool_name_label: NonEmpty = Field(description="Key of the label that names a node's pool.")
    never_tolerate: tuple[TaintPatternSpec, ...] = Field(
        default=(), description="Taints for which no toleration is ever injected."
    )
    gpu: GpuSpec = GpuSpec()
    instance_types: InstanceTypesSpec = InstanceTypesSpec()
    machine_labels: tuple[MachineLabelSpec, ...] = Field(
        default=(),
        description="Node labels that name the type, family or category of a machine, beside "
        "node.kubernetes.io/instance-type.",
    )
    hands_off_schedulers: tuple[Glob, ...] = Field(
        default=(), description="schedulerName of Pods that are left alone (globs)."
    )
    hands_off_selectors: tuple[NonEmpty, ...] = Field(
        default=(), description="Keys of node labels; Pods that select by them are left alone."
    )
    system_namespaces: SystemNamespacesSpec = SystemNamespacesSpec()
    interruption: TimelineSpec
    grace_period: GracePeriodSpec
    fallback: tuple[FallbackSpec, ...] = Field(
        default=(),
        description="What its GPU spot pools need beside them, where an OnDemandFallback does not say it for this "
        "provider; default: what that policy requires of all.",
    )
    this_cluster: str = Field(
        default="",
        description="Name of the cluster that the policies are for, as node pools name theirs (`cluster`); with its "
        "namespace where several have that name. Pools of other clusters place no Pods here.",
    )
    node_pools: tuple[NodePoolReaderSpec, ...] = Field(default=(), description="Readers, one for each kind.")


class PodOwnerSpec(Model):
    """The controller that a workload's Pods name as their owner."""

    api_version: NonEmpty
    kind: NonEmpty


class CarriedLabelsSpec(Model):
    """Labels in a workload that end up on what its controller makes, beside those of its pod templates."""

    path: TemplatePathText = Field(description="Field path of the map of labels, as in `templates`.")
    of: NonEmpty = Field(default="pods", description="Plural resource name of what gets them.")


class WorkloadSpec(Model):
    """Where the pod templates of one kind of workload are."""

    group: str
    kind: NonEmpty
    resource: NonEmpty = Field(description="Plural resource name.")
    templates: tuple[TemplatePathText, ...] = Field(
        min_length=1, description="Field paths; '[*]' is every item of a list, '.*' every member of a map."
    )
    labels: tuple[CarriedLabelsSpec, ...] = Field(
        default=(), description="Further labels that it gives to Pods, or to the Jobs that it makes."
    )
    pod_owner: PodOwnerSpec | None = Field(default=None, description="Who owns the Pods; default: the workload itself.")


class WorkloadTemplatesSpec(Model):
    """Where pod templates sit inside which resources."""

    workloads: tuple[WorkloadSpec, ...] = Field(min_length=1)

"""The documents that hold facts instead of rules: ``CapacityProvider`` and ``WorkloadTemplates``.

A team corrects or adds a provider, a node-pool kind or a workload kind by editing YAML; no Python knows one by name.
"""

from __future__ import annotations

from typing import Annotated, Literal

import jmespath
from jmespath.exceptions import JMESPathError
from pydantic import AfterValidator, Field

from webhook.kube.templates import TemplatePath
from webhook.policy.common import Flag, Glob, Model, NonEmpty, Seconds


def _check_query(text: str) -> str:
    try:
        jmespath.compile(text)
    except JMESPathError as error:
        said = " ".join(str(error).split())
        raise ValueError(f"not a JMESPath expression: {said}") from None
    return text


def _check_template_path(text: str) -> str:
    TemplatePath(text)
    return text


Query = Annotated[str, AfterValidator(_check_query)]
TemplatePathText = Annotated[str, AfterValidator(_check_template_path)]
CapacityName = Literal["spot", "on-demand", "both"]


class LabelSpec(Model):
    """A node label."""

    key: NonEmpty
    value: str


class TaintSpec(Model):
    """A taint."""

    key: NonEmpty
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class TaintPatternSpec(Model):
    """A pattern for taints: the key, and value and effect where they are given."""

    key: NonEmpty
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class GpuSpec(Model):
    """How GPUs are requested, and guarded."""

    resources: tuple[Glob, ...] = Field(default=(), description="Extended resources that are GPUs (globs).")
    taints: tuple[TaintPatternSpec, ...] = Field(
        default=(),
        description="Taints that keep other Pods off GPU nodes; tolerated only for Pods that request GPUs.",
    )


class InstanceTypesSpec(Model):
    """What an instance type says. One that is in no list is unknown, and for the fallback rule treated as GPU."""

    gpu: tuple[Glob, ...] = Field(default=(), description="Instance types with GPUs (globs).")
    cpu: tuple[Glob, ...] = Field(default=(), description="Instance types without (globs).")
    never_spot: tuple[Glob, ...] = Field(default=(), description="Instance types that can't be spot (globs).")


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


class CapacityReaderSpec(Model):
    """Which capacity a pool's field names."""

    from_: Query = Field(alias="from", description="JMESPath of the field.")
    values: dict[str, CapacityName] = Field(description="What its values mean; letter case does not matter.")
    default: CapacityName = Field(description="What an absent or empty field means.")


class SizeReaderSpec(Model):
    """How large a pool is, and may become."""

    desired: Query = Field(description="JMESPath of the number of nodes it should have now.")
    autoscaling: Query | None = Field(default=None, description="JMESPath of a flag: the autoscaler sizes it.")
    maximum: Query | None = Field(default=None, description="JMESPath of the most nodes the autoscaler may give it.")


class UnusableSpec(Model):
    """A condition under which a pool gives no nodes."""

    when: Query = Field(description="JMESPath; holds when its result is neither empty, false nor null.")
    because: NonEmpty = Field(description="What a person is told.")


class NodePoolReaderSpec(Model):
    """How one kind of node-pool resource is read into the one normalised pool. Expressions are JMESPath."""

    group: str
    versions: tuple[NonEmpty, ...] = Field(min_length=1)
    kind: NonEmpty
    resource: NonEmpty = Field(description="Plural resource name.")
    namespaced: Flag = False
    scale: Flag = Field(default=False, description="It has the scale subresource.")
    capacity: CapacityReaderSpec
    instance_type: Query | None = None
    size: SizeReaderSpec
    taints: Query | None = Field(default=None, description="A list of {key, value, effect}.")
    labels: Query | None = Field(default=None, description="A map of the labels it gives its nodes.")
    known_labels: dict[str, Query] = Field(
        default={},
        description="Labels that its nodes get without being listed: key -> expression of the value.",
    )
    zones: Query | None = Field(default=None, description="A zone, or a list of them.")
    unusable: tuple[UnusableSpec, ...] = ()


class CapacityProviderSpec(Model):
    """The facts about one provider of capacity that can vanish."""

    title: NonEmpty = Field(description="Its name for people.")
    spot_node_labels: tuple[LabelSpec, ...] = Field(
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
    hands_off_schedulers: tuple[Glob, ...] = Field(
        default=(), description="schedulerName of Pods that are left alone (globs)."
    )
    system_namespaces: SystemNamespacesSpec = SystemNamespacesSpec()
    interruption: TimelineSpec
    grace_period: GracePeriodSpec
    node_pools: tuple[NodePoolReaderSpec, ...] = Field(default=(), description="Readers, one for each kind.")


class PodOwnerSpec(Model):
    """The controller that a workload's Pods name as their owner."""

    api_version: NonEmpty
    kind: NonEmpty


class WorkloadSpec(Model):
    """Where the pod templates of one kind of workload are."""

    group: str
    kind: NonEmpty
    resource: NonEmpty = Field(description="Plural resource name.")
    templates: tuple[TemplatePathText, ...] = Field(
        min_length=1, description="Field paths; '[*]' is every item of a list, '.*' every member of a map."
    )
    pod_owner: PodOwnerSpec | None = Field(default=None, description="Who owns the Pods; default: the workload itself.")


class WorkloadTemplatesSpec(Model):
    """Where pod templates sit inside which resources."""

    workloads: tuple[WorkloadSpec, ...] = Field(min_length=1)

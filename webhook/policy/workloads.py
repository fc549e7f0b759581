"""Define ``WorkloadTemplates`` documents, which say where the pod templates of a kind of workload are.

A team corrects or adds a workload kind by editing YAML; no Python knows one by name.
"""

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import Field, model_validator

from webhook.kube.layouts import Layout, Source, Steps, steps_of
from webhook.kube.pod import OwnerReference
from webhook.kube.templates import CarriedLabels, TemplatePath, Workload
from webhook.policy.common import Flag, Model, NonEmpty
from webhook.policy.fields import ApiGroup, KindName, ResourceName
from webhook.policy.schema_annotations import Parsed


def _optional_steps(path: str) -> Steps | None:
    return steps_of(path) if path else None


WrittenPath = Annotated[TemplatePath, Parsed(str, TemplatePath)]
RelativePath = Annotated[Steps, Parsed(str, steps_of)]
"""Field names joined by dots; ``.`` is the place itself."""
OptionalPath = Annotated[Steps | None, Parsed(str, _optional_steps)]
"""The same, or nothing."""


class PodOwnerSpec(Model):
    """The controller that a workload's Pods name as their owner."""

    api_version: NonEmpty = Field(examples=["apps/v1"])
    """Its apiVersion."""
    kind: KindName = Field(examples=["ReplicaSet"])
    """Its kind."""


class CarriedLabelsSpec(Model):
    """Labels in a workload that its controller puts on other objects, in addition to those of its pod templates."""

    path: WrittenPath
    """The field path, as in `templates`."""
    of: ResourceName = "pods"
    """Plural resource name of the objects that get them."""


class InheritedSpec(Model):
    """The fields that a workload gives to all its Pods, unless these say otherwise."""

    metadata: OptionalPath = Field(default="", validate_default=True)
    """Field path of the parent of labels and annotations."""
    spec: OptionalPath = Field(default="", validate_default=True)
    """Field path of the parent of nodeSelector, tolerations, ..."""
    template: OptionalPath = Field(default="", validate_default=True)
    """Instead of both: field path of a pod template."""

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.template is not None and (self.metadata, self.spec) != (None, None):
            raise ValueError("write `template` alone, or `metadata` and `spec`")
        return self


class PodPlaceSpec(Model):
    """The places of a Pod's fields, if they aren't in a pod template."""

    path: WrittenPath
    """The field path, as in `templates`."""
    metadata: OptionalPath = Field(default="metadata", validate_default=True)
    """Parent of labels; '.' is the place, '' nowhere."""
    spec: RelativePath = Field(default="spec", validate_default=True)
    """Parent of the spec's fields; '.' is the place."""
    containers: tuple[RelativePath, ...] = ()
    """Other fields of the spec with containers."""
    gpus: RelativePath = Field(default="", validate_default=True)
    """The NVIDIA GPUs, or another `name` with its `quantity`."""
    inherits: tuple[InheritedSpec, ...] = ()
    """Fields of all its Pods; specific ones first."""
    written: tuple[NonEmpty, ...] | None = None
    """Fields that `fix` may write; default: all."""


class WorkloadSpec(Model):
    """Say where the pod templates of one kind of workload are."""

    group: ApiGroup = Field(examples=["example.com"])
    """API group; '' is the core group."""
    kind: KindName = Field(examples=["Training"])
    """Kind."""
    resource: ResourceName = Field(examples=["trainings"])
    """Plural resource name."""
    namespaced: Flag = True
    """Its objects are in namespaces."""
    templates: tuple[WrittenPath, ...] = Field(default=(), examples=[["spec.template"]])
    """Field paths; '[*]' is all of a list, '.*' all of a map."""
    pods: tuple[PodPlaceSpec, ...] = ()
    """Places of Pods that have no pod template."""
    labels: tuple[CarriedLabelsSpec, ...] = ()
    """Further labels of its Pods or Jobs."""
    pod_owner: PodOwnerSpec | None = None
    """Owner of the Pods; default: the workload."""

    @model_validator(mode="after")
    def _has_pods(self) -> Self:
        if not (self.templates or self.pods):
            raise ValueError("say where the Pods are: `templates`, or `pods` where they are no pod templates")
        return self


class WorkloadTemplatesSpec(Model):
    """Say where pod templates sit inside which resources."""

    workloads: tuple[WorkloadSpec, ...] = Field(min_length=1)
    """Kinds of workload."""


def workloads_in(specs: Iterable[WorkloadTemplatesSpec]) -> tuple[Workload, ...]:
    """Return the kinds of workload in all documents. A kind in several documents gets the templates of all."""
    workloads: dict[tuple[str, str], Workload] = {}
    for item in (item for spec in specs for item in spec.workloads):
        workload = _workload(item)
        known = workloads.get((item.group, item.kind))
        workloads[item.group, item.kind] = workload if known is None else known.merged_with(workload)
    return tuple(workloads.values())


def _workload(item: WorkloadSpec) -> Workload:
    owner = item.pod_owner
    return Workload(
        group=item.group,
        kind=item.kind,
        resource=item.resource,
        paths=(*item.templates, *map(_laid_out, item.pods)),
        pod_owner=OwnerReference(kind=owner.kind, apiVersion=owner.api_version) if owner is not None else None,
        labels=tuple(CarriedLabels(carried.path, carried.of) for carried in item.labels),
        namespaced=item.namespaced,
    )


def _laid_out(item: PodPlaceSpec) -> TemplatePath:
    layout = Layout(
        metadata=item.metadata,
        spec=item.spec,
        containers=item.containers,
        gpus=item.gpus,
        inherits=tuple(map(_source, item.inherits)),
        written=None if item.written is None else frozenset(item.written),
    )
    return TemplatePath(item.path.text, layout)


def _source(item: InheritedSpec) -> Source:
    template = item.template
    return Source(metadata=item.metadata, spec=item.spec) if template is None else Source.template(template)

"""Define ``WorkloadTemplates`` documents, which say where the pod templates of a kind of workload are.

A team corrects or adds a workload kind by editing YAML; no Python knows one by name.
"""

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from webhook.kube.layouts import Layout, Source, Steps, steps_of
from webhook.kube.pod import OwnerReference
from webhook.kube.templates import CarriedLabels, TemplatePath, Workload
from webhook.policy.common import Flag, Model, NonEmpty
from webhook.policy.fields import ApiGroup, KindName, ResourceName


def _check_template_path(text: str) -> str:
    TemplatePath(text)
    return text


TemplatePathText = Annotated[str, AfterValidator(_check_template_path)]


class PodOwnerSpec(Model):
    """Hold the controller that a workload's Pods name as their owner."""

    api_version: NonEmpty = Field(examples=["apps/v1"], description="Its apiVersion.")
    kind: KindName = Field(examples=["ReplicaSet"], description="Its kind.")


class CarriedLabelsSpec(Model):
    """Hold labels in a workload that end up on what its controller makes, beside those of its pod templates."""

    path: TemplatePathText = Field(description="Field path of the map of labels, as in `templates`.")
    of: ResourceName = Field(default="pods", description="Plural resource name of what gets them.")


def _check_steps(text: str) -> str:
    steps_of(text)
    return text


RelativePath = Annotated[str, AfterValidator(_check_steps)]
"""Field names joined by dots; ``.`` is the place itself."""


class InheritedSpec(Model):
    """Name the fields that a workload gives to all its Pods, where these do not say otherwise."""

    metadata: RelativePath = Field(default="", description="Field path of what holds labels and annotations.")
    spec: RelativePath = Field(
        default="", description="Field path of what holds nodeSelector, tolerations, affinity and schedulerName."
    )
    template: RelativePath = Field(
        default="", description="Instead of both, field path of a pod template, of which all fields count."
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.template and (self.metadata or self.spec):
            raise ValueError("write `template` alone, or `metadata` and `spec`")
        return self


class PodPlaceSpec(Model):
    """Say where the fields of a Pod stand, if not in a pod template."""

    path: TemplatePathText = Field(description="Field path of the place, as in `templates`.")
    metadata: RelativePath = Field(
        default="metadata",
        description="What holds labels and annotations, seen from there; '.' is the place itself, '' nothing.",
    )
    spec: RelativePath = Field(
        default="spec", description="What holds the fields of the Pod's spec, seen from there; '.' is the place itself."
    )
    containers: tuple[RelativePath, ...] = Field(
        default=(),
        description="Fields of the spec with a container or a list of containers, in addition to "
        "`containers`. A path without containers creates no Pods.",
    )
    gpus: RelativePath = Field(
        default="",
        description="Field with the number of NVIDIA GPUs, seen from there, where no container requests them; or with "
        "the `name` and `quantity` of another resource.",
    )
    inherits: tuple[InheritedSpec, ...] = Field(
        default=(), description="What the object gives to all its Pods, the more particular first."
    )
    written: tuple[NonEmpty, ...] | None = Field(
        default=None,
        description="Fields of the Pod's spec that `fix` may write there; default: all. The webhook injects into Pods.",
    )


class WorkloadSpec(Model):
    """Say where the pod templates of one kind of workload are."""

    group: ApiGroup = Field(examples=["example.com"], description="API group; '' is the core group.")
    kind: KindName = Field(examples=["Training"], description="Kind.")
    resource: ResourceName = Field(examples=["trainings"], description="Plural resource name.")
    namespaced: Flag = Field(default=True, description="Its objects are in namespaces.")
    templates: tuple[TemplatePathText, ...] = Field(
        default=(),
        examples=[["spec.template"]],
        description="Field paths; '[*]' is every item of a list, '.*' every member of a map.",
    )
    pods: tuple[PodPlaceSpec, ...] = Field(
        default=(), description="Places of Pods whose fields stand otherwise than in a pod template."
    )
    labels: tuple[CarriedLabelsSpec, ...] = Field(
        default=(), description="Further labels that it gives to Pods, or to the Jobs that it makes."
    )
    pod_owner: PodOwnerSpec | None = Field(default=None, description="Who owns the Pods; default: the workload itself.")

    @model_validator(mode="after")
    def _has_pods(self) -> Self:
        if not (self.templates or self.pods):
            raise ValueError("say where the Pods are: `templates`, or `pods` where they are no pod templates")
        return self


class WorkloadTemplatesSpec(Model):
    """Say where pod templates sit inside which resources."""

    workloads: tuple[WorkloadSpec, ...] = Field(min_length=1, description="Kinds of workload.")


def workloads_in(specs: Iterable[WorkloadTemplatesSpec]) -> tuple[Workload, ...]:
    """Return the kinds of workload in all documents. A kind in several documents gets the templates of all."""
    found: dict[tuple[str, str], Workload] = {}
    for item in (item for spec in specs for item in spec.workloads):
        workload = _workload(item)
        known = found.get((item.group, item.kind))
        found[item.group, item.kind] = workload if known is None else known.and_also(workload)
    return tuple(found.values())


def _workload(item: WorkloadSpec) -> Workload:
    owner = item.pod_owner
    return Workload(
        group=item.group,
        kind=item.kind,
        resource=item.resource,
        paths=(*map(TemplatePath, item.templates), *map(_laid_out, item.pods)),
        pod_owner=OwnerReference(kind=owner.kind, apiVersion=owner.api_version) if owner is not None else None,
        labels=tuple(CarriedLabels(TemplatePath(each.path), each.of) for each in item.labels),
        namespaced=item.namespaced,
    )


def _laid_out(item: PodPlaceSpec) -> TemplatePath:
    layout = Layout(
        metadata=_given(item.metadata),
        spec=steps_of(item.spec),
        containers=tuple(map(steps_of, item.containers)),
        gpus=steps_of(item.gpus),
        inherits=tuple(map(_source, item.inherits)),
        written=None if item.written is None else frozenset(item.written),
    )
    return TemplatePath(item.path, layout)


def _source(item: InheritedSpec) -> Source:
    if item.template:
        return Source.template(steps_of(item.template))
    return Source(metadata=_given(item.metadata), spec=_given(item.spec))


def _given(path: str) -> Steps | None:
    return steps_of(path) if path else None

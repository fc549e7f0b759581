"""Define ``WorkloadTemplates`` documents, which say where the pod templates of a kind of workload are.

A team corrects or adds a workload kind by editing YAML; no Python knows one by name.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from webhook.kube.layouts import Layout, Source, Steps, steps_of
from webhook.kube.pod import OwnerReference
from webhook.kube.templates import CarriedLabels, TemplatePath, Workload
from webhook.policy.common import Flag, Model, NonEmpty
from webhook.policy.fields import ApiGroup, KindName, ResourceName


def _checked_by(parse: Callable[[str], object]) -> AfterValidator:
    """Return the validator of texts that can be parsed, and stay texts."""

    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


TemplatePathText = Annotated[str, _checked_by(TemplatePath)]
RelativePath = Annotated[str, _checked_by(steps_of)]
"""Field names joined by dots; ``.`` is the place itself."""


class PodOwnerSpec(Model):
    """The controller that a workload's Pods name as their owner."""

    api_version: NonEmpty = Field(examples=["apps/v1"], description="Its apiVersion.")
    kind: KindName = Field(examples=["ReplicaSet"], description="Its kind.")


class CarriedLabelsSpec(Model):
    """Labels in a workload that its controller puts on other objects, in addition to those of its pod templates."""

    path: TemplatePathText = Field(description="The field path, as in `templates`.")
    of: ResourceName = Field(default="pods", description="Plural resource name of the objects that get them.")


class InheritedSpec(Model):
    """The fields that a workload gives to all its Pods, unless these say otherwise."""

    metadata: RelativePath = Field(default="", description="Field path of the parent of labels and annotations.")
    spec: RelativePath = Field(default="", description="Field path of the parent of nodeSelector, tolerations, ...")
    template: RelativePath = Field(default="", description="Instead of both: field path of a pod template.")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.template and (self.metadata or self.spec):
            raise ValueError("write `template` alone, or `metadata` and `spec`")
        return self


class PodPlaceSpec(Model):
    """The places of a Pod's fields, if they aren't in a pod template."""

    path: TemplatePathText = Field(description="The field path, as in `templates`.")
    metadata: RelativePath = Field(default="metadata", description="Parent of labels; '.' is the place, '' nowhere.")
    spec: RelativePath = Field(default="spec", description="Parent of the spec's fields; '.' is the place.")
    containers: tuple[RelativePath, ...] = Field(default=(), description="Other fields of the spec with containers.")
    gpus: RelativePath = Field(default="", description="The NVIDIA GPUs, or another `name` with its `quantity`.")
    inherits: tuple[InheritedSpec, ...] = Field(default=(), description="Fields of all its Pods; specific ones first.")
    written: tuple[NonEmpty, ...] | None = Field(default=None, description="Fields that `fix` may write; default: all.")


class WorkloadSpec(Model):
    """Say where the pod templates of one kind of workload are."""

    group: ApiGroup = Field(examples=["example.com"], description="API group; '' is the core group.")
    kind: KindName = Field(examples=["Training"], description="Kind.")
    resource: ResourceName = Field(examples=["trainings"], description="Plural resource name.")
    namespaced: Flag = Field(default=True, description="Its objects are in namespaces.")
    templates: tuple[TemplatePathText, ...] = Field(
        default=(), examples=[["spec.template"]], description="Field paths; '[*]' is all of a list, '.*' all of a map."
    )
    pods: tuple[PodPlaceSpec, ...] = Field(default=(), description="Places of Pods that have no pod template.")
    labels: tuple[CarriedLabelsSpec, ...] = Field(default=(), description="Further labels of its Pods or Jobs.")
    pod_owner: PodOwnerSpec | None = Field(default=None, description="Owner of the Pods; default: the workload.")

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

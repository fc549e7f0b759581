"""The models of ``WorkloadTemplates`` documents, which list the places of pod templates in each workload kind.

Users add or correct a workload kind by editing YAML. The code names no kind.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

from webhook.kube.layouts import Layout, Source, Steps, steps_of
from webhook.kube.pod import OwnerReference
from webhook.kube.templates import CarriedLabels, TemplatePath, Workload
from webhook.policy.common import Flag, Model, NonEmpty
from webhook.policy.fields import ApiGroup, KindName, ResourceName
from webhook.policy.schema_annotations import Check, Field, Parsed


def _check_steps(path: str) -> str:
    steps_of(path)
    return path


def _optional_steps(path: str) -> Steps | None:
    return steps_of(path) if path else None


WrittenPath = Annotated[TemplatePath, Parsed(str, TemplatePath)]
RelativePath = Annotated[str, Check(_check_steps)]
"""Field names joined by dots. ``.`` is the place itself. `steps_of` splits it."""
OptionalPath = RelativePath
"""A relative path, or an empty string for none."""


class PodOwnerSpec(Model):
    """The controller in the owner reference of a workload's Pods."""

    api_version: Annotated[NonEmpty, Field(examples=["apps/v1"])]
    """The owner's apiVersion."""
    kind: Annotated[KindName, Field(examples=["ReplicaSet"])]
    """The owner's kind."""


class CarriedLabelsSpec(Model):
    """Labels in a workload that its controller copies to other objects, in addition to the pod template's labels."""

    path: WrittenPath
    """The field path, as in `templates`."""
    of: ResourceName = "pods"
    """Plural resource name of the objects that get the labels."""


class InheritedSpec(Model):
    """Fields that a workload sets for all its Pods. A Pod's own fields take precedence."""

    metadata: OptionalPath = ""
    """Field path of the parent of labels and annotations."""
    spec: OptionalPath = ""
    """Field path of the parent of nodeSelector, tolerations, ..."""
    template: OptionalPath = ""
    """Field path of a pod template, instead of `metadata` and `spec`."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if self.template and (self.metadata or self.spec):
            raise ValueError("write `template` alone, or `metadata` and `spec`")


class PodPlaceSpec(Model):
    """The places of a Pod's fields that aren't in a pod template."""

    path: WrittenPath
    """The field path, as in `templates`."""
    metadata: OptionalPath = "metadata"
    """Parent of the labels. '.' is the path itself; '' means none."""
    spec: RelativePath = "spec"
    """Parent of the spec's fields. '.' is the path itself."""
    containers: tuple[RelativePath, ...] = ()
    """Other fields of the spec that contain containers."""
    gpus: RelativePath = ""
    """Number of NVIDIA GPUs, or a map of `name` and `quantity`."""
    grace: Annotated[dict[NonEmpty, int], Field(max_length=1)] = {}
    """The spec's field for the grace period and its default, if it isn't `terminationGracePeriodSeconds`."""
    patch: str = ""
    """The spec's field with a patch of the Pod's spec as text. Of that, only the grace period counts."""
    elsewhere: Flag = False
    """Whether the Pods run in another namespace. If so, the labels of the object's namespace don't count."""
    inherits: tuple[InheritedSpec, ...] = ()
    """Fields that all its Pods inherit, the most specific first."""
    written: tuple[NonEmpty, ...] | None = None
    """Fields that `fix` can write. Default: all."""


class WorkloadSpec(Model):
    """One workload kind, and the places of its pod templates."""

    group: Annotated[ApiGroup, Field(examples=["example.com"])]
    """API group. '' is the core group."""
    kind: Annotated[KindName, Field(examples=["Training"])]
    """Kind."""
    resource: Annotated[ResourceName, Field(examples=["trainings"])]
    """Plural resource name."""
    namespaced: Flag = True
    """Whether the resource is namespaced."""
    templates: Annotated[tuple[WrittenPath, ...], Field(examples=[["spec.template"]])] = ()
    """Field paths. '[*]' is each item of a list, '.*' each value of a map."""
    pods: tuple[PodPlaceSpec, ...] = ()
    """Paths of Pod definitions that aren't pod templates."""
    labels: tuple[CarriedLabelsSpec, ...] = ()
    """Additional labels of its Pods or Jobs."""
    pod_owner: PodOwnerSpec | None = None
    """Owner of the Pods. Default: the workload."""
    restart_policy: Literal["Never", "OnFailure"] | None = None
    """The restartPolicy of Pods whose template has none or `Always`."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if not (self.templates or self.pods):
            raise ValueError("set `templates`, or `pods` for Pods that have no pod template")


class WorkloadTemplatesSpec(Model):
    """Workload kinds, and the places of their pod templates."""

    workloads: Annotated[tuple[WorkloadSpec, ...], Field(min_length=1)]
    """Workload kinds."""


def workloads_in(specs: Iterable[WorkloadTemplatesSpec]) -> tuple[Workload, ...]:
    """Return the workload kinds in all documents. If several documents have a kind, merge their templates."""
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
        restart_policy=item.restart_policy,
    )


def _laid_out(item: PodPlaceSpec) -> TemplatePath:
    layout = Layout(
        metadata=_optional_steps(item.metadata),
        spec=steps_of(item.spec),
        containers=tuple(map(steps_of, item.containers)),
        gpus=steps_of(item.gpus),
        grace=tuple(item.grace.items()),
        patch=item.patch,
        elsewhere=item.elsewhere,
        inherits=tuple(map(_source, item.inherits)),
        written=None if item.written is None else frozenset(item.written),
    )
    return TemplatePath(item.path.text, layout)


def _source(item: InheritedSpec) -> Source:
    if item.template:
        path = steps_of(item.template)
        return Source(metadata=(*path, "metadata"), spec=(*path, "spec"), whole=True)
    return Source(metadata=_optional_steps(item.metadata), spec=_optional_steps(item.spec))

"""Merge the WorkloadTemplates documents into the kinds of workload they describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.kube.layouts import Layout, Source, steps_of
from webhook.kube.pod import OwnerReference
from webhook.kube.templates import CarriedLabels, TemplatePath, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.kube.layouts import Steps
    from webhook.policy.document import PolicyDocument
    from webhook.policy.workload_schema import InheritedSpec, PodPlaceSpec, WorkloadSpec

WORKLOAD_TEMPLATES: Final = "WorkloadTemplates"


def workloads_in(documents: Iterable[PolicyDocument]) -> tuple[Workload, ...]:
    """Return the kinds of workload in all documents. A kind in several documents gets the templates of all."""
    found: dict[tuple[str, str], Workload] = {}
    for document in documents:
        if document.kind != WORKLOAD_TEMPLATES:
            continue
        for item in document.spec.workloads:
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

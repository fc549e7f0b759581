"""Define ``WorkloadTemplates`` documents: where the pod templates of a kind of workload are.

A team corrects or adds a workload kind by editing YAML; no Python knows one by name.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from webhook.kube.resources import resource_of
from webhook.kube.templates import TemplatePath
from webhook.policy.common import Model, NonEmpty
from webhook.policy.fields import ApiGroup, KindName, ResourceName, check_kind


def _check_template_path(text: str) -> str:
    TemplatePath(text)
    return text


TemplatePathText = Annotated[str, AfterValidator(_check_template_path)]


class PodOwnerSpec(Model):
    """The controller that a workload's Pods name as their owner."""

    api_version: NonEmpty = Field(examples=["apps/v1"], description="Its apiVersion.")
    kind: KindName = Field(examples=["ReplicaSet"], description="Its kind.")


class CarriedLabelsSpec(Model):
    """Labels in a workload that end up on what its controller makes, beside those of its pod templates."""

    path: TemplatePathText = Field(description="Field path of the map of labels, as in `templates`.")
    of: ResourceName = Field(default="pods", description="Plural resource name of what gets them.")


class WorkloadSpec(Model):
    """Where the pod templates of one kind of workload are."""

    group: ApiGroup = Field(examples=["example.com"], description="API group; '' is the core group.")
    kind: KindName = Field(examples=["Training"], description="Kind.")
    resource: ResourceName = Field(examples=["trainings"], description="Plural resource name.")
    templates: tuple[TemplatePathText, ...] = Field(
        examples=[["spec.template"]],
        min_length=1,
        description="Field paths; '[*]' is every item of a list, '.*' every member of a map.",
    )
    labels: tuple[CarriedLabelsSpec, ...] = Field(
        default=(), description="Further labels that it gives to Pods, or to the Jobs that it makes."
    )
    pod_owner: PodOwnerSpec | None = Field(default=None, description="Who owns the Pods; default: the workload itself.")

    @field_validator("kind")
    @classmethod
    def _is_there(cls, kind: str, info: ValidationInfo) -> str:
        group: str | None = info.data.get("group")
        if group is not None:
            check_kind(f"{kind}.{group}".rstrip("."))
        return kind

    @field_validator("resource")
    @classmethod
    def _is_of_kind(cls, resource: str, info: ValidationInfo) -> str:
        known = resource_of(info.data.get("group", "*"), info.data.get("kind", ""))
        if known is not None and resource != known.plural:
            raise ValueError(f"the resource of kind {known.kind} is `{known.plural}`, got {resource!r}")
        return resource


class WorkloadTemplatesSpec(Model):
    """Where pod templates sit inside which resources."""

    workloads: tuple[WorkloadSpec, ...] = Field(min_length=1, description="Kinds of workload.")

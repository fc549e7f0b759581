"""Define ``kind: PolicyTest``: requests, and the outcomes that policies should give them."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from webhook.model.decision import Verdict  # noqa: TC001 - pydantic reads the annotations
from webhook.policy.common import Date, Flag, KubernetesVersion, Model, NonEmpty
from webhook.policy.schema_annotations import EnumDescriptions

KIND: Final = "PolicyTest"


class KubernetesObject(BaseModel):
    """A Kubernetes object as it is written in a manifest, or a part of one. Only common fields are checked."""

    model_config = ConfigDict(extra="allow", frozen=True, alias_generator=to_camel)

    api_version: NonEmpty | None = Field(default=None, description="As in a manifest.")
    kind: NonEmpty | None = Field(default=None, description="As in a manifest.")
    metadata: dict[str, Any] | None = Field(default=None, description="As in a manifest.")

    def written(self) -> dict[str, Any]:
        """Return the object as it is written."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class StateObject(KubernetesObject):
    """Describe an object that is in the cluster already."""

    api_version: NonEmpty = Field(description="As in a manifest.")
    kind: NonEmpty = Field(description="As in a manifest.")


class StateSpec(Model):
    """The objects in the cluster already. Where it is given, there is nothing else."""

    files: tuple[NonEmpty, ...] = ()
    """Manifests and folders, relative to the test's file."""
    objects: tuple[StateObject, ...] = ()
    """Objects."""


class NamespaceSpec(Model):
    """The namespace of the request."""

    name: NonEmpty
    """Its name, also for namespaced objects that name none."""
    labels: dict[str, str] | None = None
    """Its labels. Default: those in `state`."""


class ExpectSpec(Model):
    """Say what the policies are to answer."""

    outcome: Annotated[
        Verdict,
        EnumDescriptions(
            allowed="nothing is found",
            audited="what is found is only noted in the audit log",
            indeterminate="something must be known that the state does not say",
            warned="warnings, and nothing that denies",
            denied="the request is denied",
        ),
    ]
    """The strongest outcome."""
    policies: tuple[NonEmpty, ...] | None = None
    """Exactly the policies with findings."""
    ids: tuple[NonEmpty, ...] | None = Field(default=None, examples=[["reserved-labels/reserved"]])
    """Exactly the ids of the findings."""
    messages: tuple[NonEmpty, ...] = ()
    """Texts in findings. White space is ignored."""
    changed: Flag | None = None
    """Whether the object is changed."""
    object: dict[str, Any] | None = None
    """A part of the changed object; null is absent."""
    golden: NonEmpty | None = None
    """File of the changed object; `test --update` writes it."""


class SharedCaseSpec(Model):
    """Define the fields that a case may set, and the document for all its cases."""

    policies: tuple[NonEmpty, ...] | None = Field(default=None, min_length=1, examples=[["reserved-labels"]])
    """The policies, by name; default: all."""
    object: KubernetesObject | None = None
    """The object. A case's is a merge patch of it."""
    operation: Literal["CREATE", "UPDATE", "DELETE"] | None = None
    """Default: by the objects."""
    user: str = ""
    """The requester; default: unknown, and no exemption by user holds."""
    groups: tuple[NonEmpty, ...] = ()
    """Groups of the user."""
    namespace: NamespaceSpec | None = None
    """The namespace of the request."""
    state: StateSpec | None = None
    """The cluster's objects before; default: unknown."""
    date: Date | None = None
    """The day (UTC), for exemptions that expire; default: today."""
    kubernetes_version: KubernetesVersion | None = None
    """Of the cluster, in quotes."""


class CaseSpec(SharedCaseSpec):
    """Describe one request, and what is to come of it."""

    name: NonEmpty
    """A unique sentence."""
    old_object: KubernetesObject | None = None
    """The old object, or its patch."""
    expect: ExpectSpec
    """The expected result."""


class PolicyTestSpec(SharedCaseSpec):
    """Tests of policies, for `spotgate test`: requests, and what the policies are to answer."""

    cases: tuple[CaseSpec, ...] = Field(min_length=1)
    """The requests."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        for name, count in Counter(case.name for case in self.cases).items():
            if count > 1:
                raise ValueError(f"{count} cases are named {name!r}; give each a name of its own")
        return self

    def filled(self, case: CaseSpec) -> CaseSpec:
        """Return the case with the document's fields where it sets none itself. Objects are not merged."""
        shared = (self.model_fields_set & SharedCaseSpec.model_fields.keys()) - case.model_fields_set - {"object"}
        return case.model_copy(update={name: getattr(self, name) for name in shared})

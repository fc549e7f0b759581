"""The model of ``kind: PolicyTest``: requests, and their expected results."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from webhook.model.decision import Verdict  # noqa: TC001 - pydantic reads the annotations
from webhook.policy.checking import CheckedModel
from webhook.policy.common import Date, Flag, KubernetesVersion, NonEmpty  # noqa: TC001 - as above
from webhook.policy.schema_annotations import EnumDescriptions

KIND: Final = "PolicyTest"


class KubernetesObject(BaseModel):
    """A Kubernetes object as in a manifest, or a part of one. Only common fields are validated."""

    model_config = ConfigDict(extra="allow", frozen=True, alias_generator=to_camel)

    api_version: NonEmpty | None = Field(default=None, description="As in a manifest.")
    kind: NonEmpty | None = Field(default=None, description="As in a manifest.")
    metadata: dict[str, Any] | None = Field(default=None, description="As in a manifest.")

    def written(self) -> dict[str, Any]:
        """Return the object as in the file."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class StateObject(KubernetesObject):
    """An object that exists in the cluster."""

    api_version: NonEmpty = Field(description="As in a manifest.")
    kind: NonEmpty = Field(description="As in a manifest.")


class StateSpec(CheckedModel):
    """The objects in the cluster before the request. If set, the cluster contains no other objects."""

    files: tuple[NonEmpty, ...] = ()
    """Manifests and folders, relative to the test file."""
    objects: tuple[StateObject, ...] = ()
    """Objects."""


class NamespaceSpec(CheckedModel):
    """The namespace of the request."""

    name: NonEmpty
    """Its name. Replaces the namespace of a namespaced object."""
    labels: dict[str, str] | None = None
    """Its labels. Default: those in `state`."""


class ExpectSpec(CheckedModel):
    """The expected result."""

    outcome: Annotated[
        Verdict,
        EnumDescriptions(
            allowed="no findings",
            audited="findings are only recorded in the audit log",
            indeterminate="the state lacks a fact that a policy needs",
            warned="warnings, but no denial",
            denied="the request is denied",
        ),
    ]
    """The strongest outcome."""
    policies: tuple[NonEmpty, ...] | None = None
    """All policies with findings."""
    ids: tuple[NonEmpty, ...] | None = Field(default=None, examples=[["reserved-labels/reserved"]])
    """The ids of all findings."""
    messages: tuple[NonEmpty, ...] = ()
    """Texts that findings must contain. White space is ignored."""
    changed: Flag | None = None
    """Whether policies change the object."""
    object: dict[str, Any] | None = None
    """A part of the changed object. null means absent."""
    golden: NonEmpty | None = None
    """The file of the changed object. `test --update` writes it."""


class SharedCaseSpec(CheckedModel):
    """The fields that a case can set, or that the document sets for all cases."""

    policies: tuple[NonEmpty, ...] | None = Field(default=None, min_length=1, examples=[["reserved-labels"]])
    """The policies, by name. Default: those in `DIR`, or all that are loaded."""
    object: KubernetesObject | None = None
    """The object. A case's `object` is a merge patch for it."""
    operation: Literal["CREATE", "UPDATE", "DELETE"] | None = None
    """The operation. Default: inferred from the objects."""
    user: str = ""
    """The requester. Default: unknown, so no exemption by user applies."""
    groups: tuple[NonEmpty, ...] = ()
    """Groups of the user."""
    namespace: NamespaceSpec | None = None
    """The namespace of the request."""
    state: StateSpec | None = None
    """The cluster's objects before the request. Default: unknown."""
    date: Date | None = None
    """The day in UTC, for exemptions that expire. Default: today."""
    kubernetes_version: KubernetesVersion | None = None
    """The cluster's version, in quotes."""


class CaseSpec(SharedCaseSpec):
    """One request, and its expected result."""

    name: NonEmpty
    """A unique description."""
    old_object: KubernetesObject | None = None
    """The old object, or a merge patch of the document's object."""
    expect: ExpectSpec
    """The expected result."""


class PolicyTestSpec(SharedCaseSpec):
    """Tests of policies for `spotgate test`: requests, and their expected results."""

    cases: tuple[CaseSpec, ...] = Field(min_length=1)
    """The requests."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        for name, count in Counter(case.name for case in self.cases).items():
            if count > 1:
                raise ValueError(f"{count} cases are named {name!r}; give each case a unique name")
        return self

    def filled(self, case: CaseSpec) -> CaseSpec:
        """Return the case with the document's value for each field that it doesn't set, except the object."""
        shared = (self.model_fields_set & SharedCaseSpec.model_fields.keys()) - case.model_fields_set - {"object"}
        return case.model_copy(update={name: getattr(self, name) for name in shared})

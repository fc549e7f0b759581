"""What every policy document has: apiVersion, kind, metadata, and the part of ``spec`` that all policy kinds share.

The descriptions are the documentation: ``spotgate schema`` prints them for editors.
"""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    model_validator,
)
from pydantic.alias_generators import to_camel

from webhook.globs import problem_with

API_VERSION: Final = "spotgate.dev/v1"

OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")


class SpecError(ValueError):
    """A spec that is well-formed but can't be compiled.

    Attributes:
        path: where below ``spec``.
        problem: what is wrong, and what would be right.
    """

    def __init__(self, path: tuple[str | int, ...], problem: str) -> None:
        super().__init__(problem)
        self.path = path
        self.problem = problem


def _check_glob(pattern: str) -> str:
    if problem := problem_with(pattern):
        raise ValueError(problem)
    return pattern


def _date_text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("a date is written as 2027-01-31")  # noqa: TRY004 - pydantic takes ValueError
    return value


Glob = Annotated[str, AfterValidator(_check_glob)]
Date = Annotated[date, BeforeValidator(_date_text)]
Seconds = Annotated[StrictInt, Field(ge=0, le=86400)]
Flag = StrictBool
NonEmpty = Annotated[str, Field(min_length=1)]


class Model(BaseModel):
    """Strict and frozen; field names are camelCase in files."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


class Enforcement(StrEnum):
    """What comes of a finding: deny the request, warn the user, only audit, or nothing (policy switched off)."""

    DENY = "deny"
    WARN = "warn"
    AUDIT = "audit"
    OFF = "off"


def _off(value: object) -> object:
    """YAML 1.1, which Kubernetes reads, takes a bare ``off`` for false."""
    return Enforcement.OFF.value if value is False else value


EnforcementWord = Annotated[Enforcement, BeforeValidator(_off)]
Level = Annotated[Literal["deny", "warn", "off"], BeforeValidator(_off)]
"""The most that a single finding of a policy may become."""


class Metadata(Model):
    """Name and notes of a document."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")] = Field(
        description="Unique among all documents; lower case letters, digits, '-' and '.'."
    )
    annotations: dict[str, str] = Field(default={}, description="Free notes.")
    labels: dict[str, str] = Field(default={}, description="Free labels.")


class ResourceRuleSpec(Model):
    """Resources and operations, as in a ValidatingAdmissionPolicy; '*' stands for all."""

    api_groups: tuple[str, ...] = Field(min_length=1, description="API groups; '' is the core group.")
    api_versions: tuple[NonEmpty, ...] = Field(default=("*",), min_length=1, description="API versions.")
    resources: tuple[NonEmpty, ...] = Field(
        min_length=1, description="Plural resource names; subresources as 'nodepools/scale'."
    )
    operations: tuple[Literal["CREATE", "UPDATE", "DELETE", "CONNECT", "*"], ...] = Field(
        min_length=1, description="Operations."
    )


class NamespaceGlobs(Model):
    """Namespaces by name."""

    include: tuple[Glob, ...] = Field(default=(), description="Only these (globs); empty: all.")
    exclude: tuple[Glob, ...] = Field(default=(), description="Not these (globs).")


class LabelRequirement(Model):
    """One requirement of a label selector."""

    key: NonEmpty
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _values_fit(self) -> Self:
        if self.operator in {"In", "NotIn"} and not self.values:
            raise ValueError(f"operator {self.operator} needs `values`")
        if self.operator in {"Exists", "DoesNotExist"} and self.values:
            raise ValueError(f"operator {self.operator} takes no `values`")
        return self


class LabelSelectorSpec(Model):
    """A Kubernetes label selector: both parts AND."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()


class MatchSpec(Model):
    """What a policy looks at. The parts AND, the items of a list OR; a part that is left out does not restrict."""

    resource_rules: tuple[ResourceRuleSpec, ...] | None = Field(
        default=None,
        min_length=1,
        description="Resources and operations; default: what this policy kind is for.",
    )
    exclude_resource_rules: tuple[ResourceRuleSpec, ...] = Field(default=(), description="Taken out of resourceRules.")
    namespaces: NamespaceGlobs = Field(default=NamespaceGlobs(), description="Namespaces by name (globs).")
    namespace_selector: LabelSelectorSpec | None = Field(default=None, description="Namespaces by their labels.")
    object_selector: LabelSelectorSpec | None = Field(
        default=None, description="Objects by their labels (on UPDATE: before or after)."
    )


class ExemptSpec(Model):
    """Who and what is let through. The parts of one entry AND, entries OR."""

    users: tuple[Glob, ...] = Field(default=(), description="User names (globs).")
    groups: tuple[Glob, ...] = Field(default=(), description="Groups of the user (globs).")
    service_accounts: tuple[Annotated[Glob, Field(pattern=r"^[^:]+:[^:]+$")], ...] = Field(
        default=(), description="Service accounts as 'namespace:name' (globs)."
    )
    namespaces: tuple[Glob, ...] = Field(default=(), description="Namespaces of the object (globs).")
    names: tuple[Glob, ...] = Field(default=(), description="Names of the object (globs).")
    reason: NonEmpty = Field(description="Why; it is in the audit log and in `explain`.")
    expires: Date | None = Field(default=None, description="The last day on which it holds (UTC), as 2027-01-31.")

    @model_validator(mode="after")
    def _says_whom(self) -> Self:
        if not (self.users or self.groups or self.service_accounts or self.namespaces or self.names):
            raise ValueError("name at least one of users, groups, serviceAccounts, namespaces, names")
        return self


class BreakGlassSpec(Model):
    """Who may turn a denial into a warning with the annotation spotgate.dev/break-glass."""

    groups: tuple[Glob, ...] = Field(min_length=1, description="Groups of the requesting user (globs).")


class PolicySpec(Model):
    """The part of ``spec`` that all policy kinds share."""

    enforcement: EnforcementWord = Field(
        default=Enforcement.DENY,
        description="deny | warn | audit (nothing is changed or refused, only recorded) | off.",
    )
    match: MatchSpec = Field(default=MatchSpec(), description="What the policy looks at.")
    exempt: tuple[ExemptSpec, ...] = Field(default=(), description="Who and what is let through, and until when.")
    break_glass: BreakGlassSpec | None = Field(default=None, description="Who may override a denial in an emergency.")
    controller_created: Literal["warn", "deny"] = Field(
        default="warn",
        description="What a denial becomes when a built-in controller asks (it replaces the Pod of a workload that is "
        "older than the policy).",
    )

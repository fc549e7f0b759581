"""The parts of every policy document: apiVersion, kind, metadata, and the shared fields of ``spec``.

Docstrings of models and fields are published: ``spotgate schema`` prints them for editors.
"""

import re
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, dataclass_transform

import msgspec

from webhook.base.globs import Globs, problem_with
from webhook.kube.quantity import parse_version
from webhook.policy.errors import quoted_value
from webhook.policy.fields import (
    ApiGroups,
    ApiVersions,
    LabelKey,
    LabelValue,
    Operations,
    ResourceNames,
    check_kind,
)
from webhook.policy.schema_annotations import Before, Check, EnumDescriptions, Field, JSONSchema, Parsed, TextPattern
from webhook.policy.terms import Enforcement

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

T = TypeVar("T")


def _date_text(value: object) -> object:
    """Reject values that don't match the schema's format: pydantic also accepts times, and seconds since 1970."""
    if not isinstance(value, str) or not re.fullmatch(_DATE, value):
        raise ValueError(f"expected a date such as 2027-01-31, got {quoted_value(value)}")
    return value


def _parsed_version(value: object) -> tuple[int, int]:
    if not isinstance(value, str):
        raise ValueError(f'quote the version, such as "1.34"; got {quoted_value(value)}')  # noqa: TRY004 - pydantic
    return parse_version(value)


def _check_glob(pattern: str) -> str:
    if problem := problem_with(pattern):
        raise ValueError(problem)
    return pattern


def _check_name(pattern: str) -> str:
    joined = pattern.replace(" ", "?") if pattern == pattern.strip() else pattern
    if problem := problem_with(joined):
        raise ValueError(problem.replace(repr(joined), repr(pattern)))
    return pattern


class KindGlobs(Globs):
    """Compiled globs for object kinds."""


Glob = Annotated[str, Check(_check_glob)]
NameGlob = Annotated[str, Check(_check_name)]
"""A glob for user and group names. Names from a directory service can contain spaces: ``Domain Admins``."""
KindGlob = Annotated[Glob, Check(check_kind)]
"""A glob for object kinds, in the form ``Kind.group``."""
Patterns = Annotated[Globs, Parsed(tuple[Glob, ...], Globs)]
KindPatterns = Annotated[KindGlobs, Parsed(tuple[KindGlob, ...], KindGlobs)]
_DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
Date = Annotated[date, Before(_date_text)]
KubernetesVersion = Annotated[tuple[int, int], Before(_parsed_version), JSONSchema({"type": "string"})]
"""A Kubernetes version: (major, minor)."""
ClassName = Annotated[
    str, TextPattern("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "up to 63 lowercase letters, digits, and '-'")
]
"""A workload class: the value of the label ``spotgate.dev/workload-class``."""
Seconds = Annotated[int, Field(strict=True, ge=0, le=86400)]
Flag = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True)]
NonEmpty = Annotated[str, Field(min_length=1)]
NOT_BLANK: Final = r"\s*\S[\s\S]*"
"""A pattern for text with at least one character that isn't white space."""


class _ModelMeta(msgspec.StructMeta):
    """The type of all models. Structs don't inherit ``kw_only``."""

    def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any], **options: Any) -> "_ModelMeta":
        return super().__new__(cls, name, bases, members, kw_only=True, **options)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Model(msgspec.Struct, metaclass=_ModelMeta, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The base of all models: frozen, without unknown fields, and with camelCase field names in files.

    msgspec builds them from shipped documents. pydantic also checks the others: their annotations, and `check`. The
    modules of models omit `from __future__ import annotations`, because pydantic would evaluate the strings.
    """

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other, or SpecError to name the field below the model."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        from webhook.policy.checking import checked_schema

        return checked_schema(cls, handler)


def built(value: object, kind: type[T]) -> T:
    """Return a shipped value as this type. Raise ValidationError if types are wrong, and check nothing else."""
    return msgspec.convert(value, kind, dec_hook=lambda special, written: special(written))


def defaults_next_to(file: str) -> "Callable[[str, type[T]], T]":
    """Return a function of a field's name in files and its type, which returns the default of the field.

    The defaults are in ``defaults.yaml`` in the folder of the model.
    """
    values = msgspec.yaml.decode(Path(file).with_name("defaults.yaml").read_bytes(), type=dict[str, Any])
    return lambda name, kind: built(values[name], kind)


def _off_for_false(value: object) -> object:
    """Return ``off`` for false, because YAML 1.1, which Kubernetes uses, parses a bare ``off`` as false."""
    return Enforcement.OFF.value if value is False else value


EnforcementWord = Annotated[
    Enforcement,
    Before(_off_for_false),
    EnumDescriptions(
        deny="the request is denied",
        warn="the request is allowed with a warning",
        audit="findings are only recorded in the audit log; nothing is changed or denied",
        off="the policy is off",
    ),
]
Level = Annotated[
    Literal["deny", "warn", "off"],
    Before(_off_for_false),
    EnumDescriptions(
        deny="up to the policy's `enforcement`",
        warn="at most a warning",
        off="not checked",
    ),
]
"""The strongest outcome of one kind of finding."""


class Metadata(Model):
    """The name, annotations, and labels of a document."""

    name: Annotated[
        str,
        TextPattern(
            r"(?=.{1,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*",
            "up to 63 lowercase letters, digits, '-', and single '.', such as team-labels",
        ),
    ]
    """A unique name: lowercase letters, digits, '-', and '.'."""
    annotations: dict[str, str] = {}
    """Arbitrary annotations."""
    labels: dict[str, str] = {}
    """Arbitrary labels."""


class ResourceRuleSpec(Model):
    """Resources and operations, as in a ValidatingAdmissionPolicy. '*' means all."""

    api_groups: ApiGroups
    """API groups. '' is the core group; '*' is all."""
    api_versions: ApiVersions = ("*",)
    """API versions."""
    resources: ResourceNames
    """Plural names, with subresources as in `nodepools/scale`. `*` excludes subresources; `*/*` is everything."""
    operations: Operations
    """Operations. '*' is all. CONNECT applies to subresources such as `pods/exec`."""
    resource_names: tuple[NonEmpty, ...] = ()
    """Object names. Generated names don't match."""
    scope: Annotated[
        Literal["*", "Cluster", "Namespaced"],
        EnumDescriptions(
            **{"*": "all", "Cluster": "only cluster-scoped objects", "Namespaced": "only objects in namespaces"}
        ),
    ] = "*"
    """Cluster-scoped or namespaced objects."""


class NamespaceGlobs(Model):
    """Namespaces by name."""

    include: tuple[Glob, ...] = ()
    """Only these (globs). Default: all."""
    exclude: tuple[Glob, ...] = ()
    """Not these (globs)."""


class LabelRequirement(Model):
    """One requirement of a label selector."""

    key: LabelKey
    """Label key."""
    operator: Annotated[
        Literal["In", "NotIn", "Exists", "DoesNotExist"],
        EnumDescriptions(
            In="the label has one of the values",
            NotIn="the label has none of the values, or doesn't exist",
            Exists="the label exists, with any value",
            DoesNotExist="the label doesn't exist",
        ),
    ]
    """The comparison."""
    values: tuple[LabelValue, ...] = ()
    """Values, for In and NotIn."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if self.operator in {"In", "NotIn"} and not self.values:
            raise ValueError(f"operator {self.operator} needs `values`")
        if self.operator in {"Exists", "DoesNotExist"} and self.values:
            raise ValueError(f"operator {self.operator} takes no `values`")


class LabelSelectorSpec(Model):
    """A Kubernetes label selector. Labels must satisfy both fields."""

    match_labels: dict[LabelKey, LabelValue] = {}
    """Required labels: key -> value."""
    match_expressions: tuple[LabelRequirement, ...] = ()
    """Requirements, which must all be true."""


class MatchSpec(Model):
    """The requests that a policy evaluates. Fields are ANDed, list items are ORed. An omitted field matches all."""

    resource_rules: Annotated[tuple[ResourceRuleSpec, ...] | None, Field(min_length=1)] = None
    """Resources and operations. Default: those of the policy kind."""
    exclude_resource_rules: tuple[ResourceRuleSpec, ...] = ()
    """Exceptions to resourceRules."""
    namespaces: NamespaceGlobs = NamespaceGlobs()
    """Namespaces by name (globs)."""
    namespace_selector: LabelSelectorSpec | None = None
    """Namespaces by their labels."""
    object_selector: LabelSelectorSpec | None = None
    """Objects by their labels, before or after the request."""


def _restricting(selector: LabelSelectorSpec | None) -> LabelSelectorSpec | None:
    """Return the selector, or None for one that selects everything."""
    return selector if selector != LabelSelectorSpec() else None


class ExemptSpec(Model):
    """An exemption. A request must satisfy all fields of one entry."""

    users: tuple[NameGlob, ...] = ()
    """User names (globs)."""
    groups: tuple[NameGlob, ...] = ()
    """Groups of the user (globs)."""
    service_accounts: tuple[Annotated[Glob, TextPattern(r"[^:]+:[^:]+", "namespace:name, without a prefix")], ...] = ()
    """Service accounts as 'namespace:name' (globs)."""
    namespaces: tuple[Glob, ...] = ()
    """Namespaces of the object (globs)."""
    names: tuple[Glob, ...] = ()
    """Names of the object (globs)."""
    object_selector: Annotated[LabelSelectorSpec | None, Check(_restricting)] = None
    """The object's new labels, or its old labels on DELETE."""
    reason: Annotated[str, TextPattern(NOT_BLANK, "a reason, for readers of the audit log")]
    """The reason, for the audit log and `explain`."""
    expires: Date | None = None
    """The last day, in UTC, such as 2027-01-31."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        parts = (self.users, self.groups, self.service_accounts, self.namespaces, self.names)
        if not any(parts) and self.object_selector is None:
            raise ValueError("set users, groups, serviceAccounts, namespaces, names, or a non-empty objectSelector")


class ExemptionSpec(ExemptSpec):
    """Exempts requests from policies, in a separate file. A request must satisfy all fields, as in `exempt`."""

    policies: Annotated[tuple[Glob, ...], Field(min_length=1)]
    """Names of policies (globs)."""


class ModeSpec(Model):
    """The strongest outcome of all policies in a cluster, and the effect of an outage."""

    enforcement: Annotated[
        Literal["audit", "warn", "deny"],
        EnumDescriptions(
            audit="findings are only recorded in the audit log, the log, and the metrics; nothing is changed or denied",
            warn="Pods are changed; nothing is denied",
            deny="each policy's enforcement applies",
        ),
    ] = "deny"
    """The strongest outcome of all policies."""
    workload_failure_policy: Annotated[
        Literal["Ignore", "Fail"],
        EnumDescriptions(
            Ignore="they are admitted without a verdict",
            Fail="those to which a policy may apply are rejected",
        ),
    ] = "Ignore"
    """What happens to workloads and Namespaces while spotgate doesn't answer."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if self.workload_failure_policy == "Fail" and self.enforcement != "deny":
            raise ValueError("workloadFailurePolicy: Fail needs enforcement: deny, or only outages reject workloads")


class BreakGlassSpec(Model):
    """The groups that can turn a denial into a warning with the annotation spotgate.dev/break-glass."""

    groups: Annotated[tuple[NameGlob, ...], Field(min_length=1)]
    """Groups of the requesting user (globs)."""


class PolicySpec(Model):
    """The fields of ``spec`` that all policy kinds share."""

    enforcement: EnforcementWord = Enforcement.DENY
    """The strongest outcome of this policy."""
    match: Annotated[MatchSpec, Field(examples=[{"namespaces": {"include": ["team-*"]}}])] = MatchSpec()
    """The objects that the policy evaluates."""
    exempt: Annotated[
        tuple[ExemptSpec, ...],
        Field(examples=[[{"groups": ["sre"], "reason": "they repair nodes by hand", "expires": "2027-12-31"}]]),
    ] = ()
    """Requests that are exempt, and until when."""
    break_glass: Annotated[BreakGlassSpec | None, Field(examples=[{"groups": ["sre"]}])] = None
    """Who can override a denial in an emergency."""
    controller_created: Annotated[
        Literal["warn", "deny"],
        EnumDescriptions(
            warn="the Pod is allowed with a warning, and recorded in the audit log",
            deny="the Pod is denied; a workload that is older than the policy may fail to recreate its Pods",
        ),
    ] = "warn"
    """What a denial becomes if a built-in controller creates the Pod."""


def _as_list(value: object) -> object:
    return ((value,) if value else ()) if isinstance(value, str) else value


class TargetingSpec(PolicySpec):
    """The shared fields of policy kinds that detect whether a Pod targets spot."""

    provider: Annotated[
        tuple[NonEmpty, ...],
        Before(_as_list),
        JSONSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
    ] = ()
    """The policy's CapacityProviders, assumed present if the cluster has no pools or Nodes of any."""
    tolerating_is_targeting: Flag = False
    """Whether a Pod that tolerates a spot taint by name targets spot."""


class DecidingSpec(TargetingSpec):
    """The shared fields of policy kinds where exactly one policy decides for each Pod."""

    overrides: Annotated[tuple[NonEmpty, ...], Field(examples=[["spot-placement"]])] = ()
    """Policies of this kind that this one overrides where both match. Their exemptions still apply."""

"""Define the ``spec`` of NodePoolRules."""

from functools import partial
from typing import Annotated, Any, Final, Literal

from webhook.capacity.providers.query import Query
from webhook.capacity.providers.reader_schema import JMESPath
from webhook.policy.common import EnforcementWord, Flag, Model, NonEmpty, PolicySpec, Whole
from webhook.policy.schema_annotations import Field, JSONSchema, Parsed, TextPattern
from webhook.policy.terms import Enforcement
from webhook.rules.node_pool_rules.message import MessageTemplate

AtLeast = Annotated[int, Field(strict=True, ge=1, le=100)]


_FIELD_PATH: Final = TextPattern(
    r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*", "a field path, such as spec.targetNodes"
)
FieldQuery = Annotated[Query, Parsed(Annotated[str, _FIELD_PATH], Query.compiled)]
_message: Final = partial(MessageTemplate, query=Query.compiled)
MessageText = Annotated[MessageTemplate, Parsed(str, _message)]


class FieldSpec(Model):
    """One field, as in the schema of its resource."""

    path: FieldQuery
    """Field path, such as spec.targetNodes."""
    type: Literal["string", "integer", "boolean", "object", "array", "duration"] | None = None
    """The JSON type. A duration is a string such as 90s or 1h30m."""
    required: Flag = False
    """The field must not be missing or empty."""
    immutable: Flag = False
    """The value can't change."""
    default: Annotated[Any, JSONSchema({"not": {"type": "null"}})] = None
    """The value of a missing or empty field."""
    minimum: Whole | None = None
    """The minimum of an integer."""
    values: tuple[NonEmpty, ...] = ()
    """The allowed values of a string. Of a duration: other allowed values."""
    any_case: Flag = False
    """Ignore case."""
    detail: str = ""
    """An explanation for the finding."""
    example: Annotated[Any, JSONSchema({"not": {"type": "null"}})] = None
    """A valid value for the fix."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if self.values and self.type not in {"string", "duration"}:
            raise ValueError("`values` needs `type: string` or `type: duration`")
        if self.minimum is not None and self.type != "integer":
            raise ValueError("`minimum` needs `type: integer`")


class CheckSpec(Model):
    """A forbidden combination of fields. Texts may contain ``${JMESPath}`` expressions on the object."""

    when: JMESPath
    """JMESPath; the object is wrong unless the result is empty, false, or null."""
    fields: Annotated[tuple[FieldQuery, ...], Field(min_length=1)]
    """Field paths. An update that changes none of them isn't evaluated."""
    message: Annotated[MessageTemplate, Parsed(NonEmpty, _message)]
    """The problem, in one sentence."""
    detail: MessageText = MessageTemplate("")
    """Why it matters."""
    fix: MessageText = MessageTemplate("")
    """What to change. YAML in it keeps its indentation."""
    enforcement: EnforcementWord = Enforcement.DENY
    """The outcome, at most the policy's `enforcement`."""


class PoolResourceSpec(Model):
    """Rules for the objects of one resource; anything else is accepted."""

    group: str
    """API group; '' is the core group."""
    resource: NonEmpty
    """Plural resource name."""
    fields: tuple[FieldSpec, ...] = ()
    """Its fields."""
    checks: tuple[CheckSpec, ...] = ()
    """Checks across fields."""


class DiversificationSpec(Model):
    """The minimum diversity of the machines of a Karpenter pool that is only spot."""

    enforcement: EnforcementWord = Enforcement.WARN
    """The outcome, at most the policy's `enforcement`."""
    instance_types: AtLeast = 6
    """Instance types."""
    generations: AtLeast = 2
    """Generations of instance types (AWS)."""
    zones: AtLeast = 3
    """Zones."""


class KarpenterSpec(Model):
    """Checks of Karpenter's requirements and disruption budgets."""

    diversification: DiversificationSpec = DiversificationSpec()
    """The minimum diversity of a spot pool."""
    requirements: EnforcementWord = Enforcement.DENY
    """Contradictory requirements."""
    budgets: EnforcementWord = Enforcement.WARN
    """Budgets that always block, or have no effect."""
    malformed_budgets: EnforcementWord = Enforcement.DENY
    """Budgets with invalid values."""


class NodePoolRulesSpec(PolicySpec):
    """Checks node pools against their schema and best practices for spot."""

    superchip_on_spot: EnforcementWord = Enforcement.DENY
    """A spot pool of an instance type that is never spot."""
    spot_without_taint: EnforcementWord = Enforcement.WARN
    """A spot-only pool without a taint."""
    unknown_instance_type: EnforcementWord = Enforcement.WARN
    """An unlisted instance type, or machine family, category, or label."""
    unreadable: EnforcementWord = Enforcement.WARN
    """A field that spotgate can't read."""
    karpenter: KarpenterSpec = KarpenterSpec()
    """Checks of Karpenter's requirements and budgets."""
    resources: tuple[PoolResourceSpec, ...] = ()
    """Rules for resources."""

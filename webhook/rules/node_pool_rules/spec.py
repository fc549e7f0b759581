"""Define the ``spec`` of NodePoolRules."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, StrictInt, WithJsonSchema, model_validator

from webhook.capacity.providers.reader_schema import JMESPath
from webhook.policy.common import EnforcementWord, Flag, Model, NonEmpty, PolicySpec
from webhook.policy.schema_annotations import TextPattern
from webhook.policy.terms import Enforcement
from webhook.rules.node_pool_rules.checks import MessageTemplate

AtLeast = Annotated[StrictInt, Field(ge=1, le=100)]


def _check_text(text: str) -> str:
    MessageTemplate(text)
    return text


FieldPathText = Annotated[
    str, TextPattern(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*", "a field path, as spec.targetNodes")
]
MessageText = Annotated[str, AfterValidator(_check_text)]


class FieldSpec(Model):
    """Describe one field, as the schema of its resource has it."""

    path: FieldPathText
    """Field path, as spec.targetNodes."""
    type: Literal["string", "integer", "boolean", "object", "array"] | None = None
    """The JSON type of its value."""
    required: Flag = False
    """It must be there, and not be empty."""
    immutable: Flag = False
    """Once set it can't be changed."""
    minimum: StrictInt | None = None
    """The least value, of an integer."""
    values: tuple[NonEmpty, ...] = ()
    """All values that it may have, of a string."""
    any_case: Flag = False
    """Letter case of these values does not matter."""
    detail: str = ""
    """What a person should know of it when it is wrong."""
    example: Annotated[JsonValue, WithJsonSchema({"not": {"type": "null"}})] = None
    """A right value, to show."""

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        if self.values and self.type != "string":
            raise ValueError("`values` are those of a string: write type: string")
        if self.minimum is not None and self.type != "integer":
            raise ValueError("`minimum` is that of an integer: write type: integer")
        return self


class CheckSpec(Model):
    """Forbid a combination of fields. Texts may hold ``${JMESPath}`` of the object."""

    when: JMESPath
    """JMESPath; the check is violated if the result is not empty, false or null."""
    fields: tuple[FieldPathText, ...] = Field(min_length=1)
    """Field paths to check. An update that changes none of them isn't judged. The finding points at the first field
    that the request changes."""
    message: Annotated[MessageText, Field(min_length=1)]
    """What is wrong: one short sentence."""
    detail: MessageText = ""
    """Why it matters."""
    fix: MessageText = ""
    """What to change; YAML to copy keeps its shape."""
    enforcement: EnforcementWord = Enforcement.DENY
    """The most it may become; the policy's enforcement can only lower it."""


class PoolResourceSpec(Model):
    """Say what is right for the objects of one resource; what is not said here is accepted."""

    group: str
    """API group; '' is the core group."""
    resource: NonEmpty
    """Plural resource name."""
    fields: tuple[FieldSpec, ...] = ()
    """Its fields."""
    checks: tuple[CheckSpec, ...] = ()
    """Checks across fields."""


class DiversificationSpec(Model):
    """Say how many kinds of machines a Karpenter pool that is only spot admits at least."""

    enforcement: EnforcementWord = Enforcement.WARN
    """The most that its finding may become; the policy's enforcement can only lower it."""
    instance_types: AtLeast = 6
    """Instance types."""
    generations: AtLeast = 2
    """Generations of them (AWS)."""
    zones: AtLeast = 3
    """Zones."""


class KarpenterSpec(Model):
    """Say what Karpenter's requirements and disruption budgets add up to."""

    diversification: DiversificationSpec = Field(default={}, validate_default=True)
    """A spot pool that is too narrow is reclaimed all at once."""
    requirements: EnforcementWord = Enforcement.DENY
    """Requirements that contradict each other: no node can meet them."""
    budgets: EnforcementWord = Enforcement.WARN
    """Budgets that block voluntary disruption always, or never have effect."""
    malformed_budgets: EnforcementWord = Enforcement.DENY
    """Budgets with a value that Karpenter's schema refuses."""


class NodePoolRulesSpec(PolicySpec):
    """The schema of node pools, and what a spot pool should be."""

    superchip_on_spot: EnforcementWord = Enforcement.DENY
    """A spot pool of an instance type that its provider never has as spot."""
    spot_without_taint: EnforcementWord = Enforcement.WARN
    """A pool has only spot nodes and no taint, so other Pods land there."""
    unknown_instance_type: EnforcementWord = Enforcement.WARN
    """An instance type, or a machine's family, category or label, that is in no list."""
    unreadable: EnforcementWord = Enforcement.WARN
    """A pool that its reader can't read in full, unless a `fields` entry reports it."""
    karpenter: KarpenterSpec = Field(default={}, validate_default=True)
    """What Karpenter's requirements and budgets add up to."""
    resources: tuple[PoolResourceSpec, ...] = ()
    """What is right, resource by resource."""

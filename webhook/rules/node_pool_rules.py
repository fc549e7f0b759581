"""NodePoolRules: a node pool is what its provider accepts, and what a spot pool should be.

Intent
    A provider accepts pools that can never work (an instance type that nobody has, a minimum above the target) and says
    so later, in a condition that nobody reads; a pipeline has no provider to ask at all. And spot pools that are valid
    can still be built to fail: without a taint, of one instance type, on superchips that are never spot.
Reads
    The reviewed object alone: node pools, and what else a policy names under ``resources`` (Karpenter's Deployment). On
    UPDATE a rule is judged where the request changes one of the fields that it is about; a field that no rule names is
    accepted as it is. Objects that are being deleted are judged like any other.
Writes
    Nothing.
Values
    What a provider's schema says is data, per resource: fields (required, type, values, minimum, immutable) and checks
    (a JMESPath expression that holds where something is wrong). What is the same for every provider is said of the pool
    that its reader makes of the object: superchips on spot, spot nodes without a taint, instance types that nobody
    knows, what can't be read. What Karpenter's requirements and budgets add up to is code.
Source
    CoreWeave, "Node Pool API schema" and "Spot Node Pools"; Google, "Spot VMs"; Karpenter, "NodePools", "Disruption".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

import msgspec
from jmespath.exceptions import JMESPathError
from pydantic import AfterValidator, Field, JsonValue, StrictInt, model_validator

from webhook.capacity.provider import readers_by_resource
from webhook.capacity.query import Query
from webhook.decision import Outcome
from webhook.policy.common import Enforcement, Flag, Model, NonEmpty, PolicySpec, SpecError
from webhook.policy.loader import did_you_mean
from webhook.policy.match import resource_matches
from webhook.policy.pools import Query as QueryText  # noqa: TC001 - pydantic reads it
from webhook.rules.node_pool_rules_checks import Check, FieldRule, ResourceChecks, Text
from webhook.rules.node_pool_rules_karpenter import GROUP, RESOURCE, Diversity, Karpenter
from webhook.rules.node_pool_rules_pools import PoolChecks
from webhook.rules.protocol import PolicyKind, ResourceRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.capacity.provider import ResourceReader
    from webhook.context import Context
    from webhook.decision import Violation
    from webhook.rules.protocol import Facts, Subject

_OPERATIONS: Final = ("CREATE", "UPDATE")
_KARPENTER: Final = (GROUP, RESOURCE)
_FIELD: Final = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*")

AtLeast = Annotated[StrictInt, Field(ge=1, le=100)]


def _check_field(text: str) -> str:
    if not _FIELD.fullmatch(text):
        raise ValueError(f"{text!r} is no field path: write it as spec.targetNodes")
    return text


def _check_text(text: str) -> str:
    try:
        Text(text)
    except JMESPathError as error:
        raise ValueError(f"not a JMESPath expression: {' '.join(str(error).split())}") from None
    return text


FieldPath = Annotated[str, AfterValidator(_check_field)]
MessageText = Annotated[str, AfterValidator(_check_text)]


class FieldSpec(Model):
    """One field, as the schema of its resource has it."""

    path: FieldPath = Field(description="Field path, as spec.targetNodes.")
    type: Literal["string", "integer", "boolean", "object", "array"] | None = Field(
        default=None, description="The JSON type of its value."
    )
    required: Flag = Field(default=False, description="It must be there, and not be empty.")
    immutable: Flag = Field(default=False, description="Once set it can't be changed.")
    minimum: StrictInt | None = Field(default=None, description="The least value, of an integer.")
    values: tuple[NonEmpty, ...] = Field(default=(), description="All values that it may have, of a string.")
    any_case: Flag = Field(default=False, description="Letter case of these values does not matter.")
    detail: str = Field(default="", description="What a person should know of it when it is wrong.")
    example: JsonValue = Field(default=None, description="A right value, to show.")

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        if self.values and self.type != "string":
            raise ValueError("`values` are those of a string: write type: string")
        if self.minimum is not None and self.type != "integer":
            raise ValueError("`minimum` is that of an integer: write type: integer")
        return self


class CheckSpec(Model):
    """Something that may not be, across fields. Texts may hold ``${JMESPath}`` of the object."""

    when: QueryText = Field(description="JMESPath; what is wrong holds when it is neither empty, false nor null.")
    fields: tuple[FieldPath, ...] = Field(
        min_length=1,
        description="Field paths that it is about. An update that changes none of them is not judged; the finding is "
        "at the first that the request changes.",
    )
    message: Annotated[MessageText, Field(min_length=1)] = Field(description="What is wrong: one short sentence.")
    detail: MessageText = Field(default="", description="Why it matters.")
    fix: MessageText = Field(default="", description="What to change; YAML to copy keeps its shape.")
    enforcement: Enforcement = Field(
        default=Enforcement.DENY, description="The most it may become; the policy's enforcement can only lower it."
    )


class PoolResourceSpec(Model):
    """What is right for the objects of one resource; what is not said here is accepted."""

    group: str = Field(description="API group; '' is the core group.")
    resource: NonEmpty = Field(description="Plural resource name.")
    fields: tuple[FieldSpec, ...] = Field(default=(), description="Its fields.")
    checks: tuple[CheckSpec, ...] = Field(default=(), description="Checks across fields.")


class DiversificationSpec(Model):
    """How many kinds of machines a Karpenter pool that is only spot admits at least."""

    enforcement: Enforcement = Field(default=Enforcement.WARN, description="deny | warn | audit | off.")
    instance_types: AtLeast = Field(default=6, description="Instance types.")
    generations: AtLeast = Field(default=2, description="Generations of them (AWS).")
    zones: AtLeast = Field(default=3, description="Zones.")


class KarpenterSpec(Model):
    """What Karpenter's requirements and disruption budgets add up to."""

    diversification: DiversificationSpec = Field(
        default={}, validate_default=True, description="A spot pool that is too narrow is reclaimed all at once."
    )
    requirements: Enforcement = Field(
        default=Enforcement.DENY, description="Requirements that contradict each other: no node can meet them."
    )
    budgets: Enforcement = Field(
        default=Enforcement.WARN, description="Budgets that block voluntary disruption always, or never have effect."
    )


class NodePoolRulesSpec(PolicySpec):
    """The schema of node pools, and what a spot pool should be."""

    superchip_on_spot: Enforcement = Field(
        default=Enforcement.DENY, description="A spot pool of an instance type that its provider never has as spot."
    )
    spot_without_taint: Enforcement = Field(
        default=Enforcement.WARN,
        description="A pool that is only spot, with no taint of its own or of its provider's: other Pods land there.",
    )
    spares_declared_pools: tuple[NonEmpty, ...] = Field(
        default=(),
        description="CapacityProviders whose own spot taint is not on the pools that somebody declares, but only on "
        "those that the provider makes itself.",
    )
    gpu_tainters: tuple[NonEmpty, ...] = Field(
        default=(),
        description="CapacityProviders that taint nodes with GPUs themselves, whoever declares the pool: it needs no "
        "taint of its own.",
    )
    unknown_instance_type: Enforcement = Field(
        default=Enforcement.WARN, description="An instance type that is in no list of its CapacityProvider."
    )
    unreadable: Enforcement = Field(
        default=Enforcement.WARN, description="A pool that its reader can't read in full, where `fields` say nothing."
    )
    karpenter: KarpenterSpec = Field(
        default={}, validate_default=True, description="What Karpenter's requirements and budgets add up to."
    )
    resources: tuple[PoolResourceSpec, ...] = Field(default=(), description="What is right, resource by resource.")


class NodePoolRules(msgspec.Struct, frozen=True):
    """The rule, compiled; checks and readers are by API group and plural resource name.

    Attributes:
        declared: the fields of which the checks of a resource say what is right.
    """

    checks: Mapping[tuple[str, str], ResourceChecks]
    declared: Mapping[tuple[str, str], frozenset[str]]
    readers: Mapping[tuple[str, str], ResourceReader]
    pools: PoolChecks
    karpenter: Karpenter

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:  # noqa: ARG002 - the object says it
        """What is wrong with the object, as far as the request changed it."""
        value, old = subject.object, subject.old_object
        if value is None or subject.request.sub_resource:
            subject.trace.say("nothing of a pool is written by this request")
            return
        key = (subject.request.resource.group, subject.request.resource.resource)
        checks, readers = self.checks.get(key), self.readers.get(key)
        found = list(checks.judge(value, old, subject.trace)) if checks is not None else []
        yield from found
        if readers is None:
            return
        reader = readers.of(value)
        pool = reader.read(value)
        before = readers.read(old) if old is not None else None
        reported = self.declared.get(key, frozenset()) & {each.field for each in found}
        yield from self.pools.judge(reader, pool, before, reported)
        if key == _KARPENTER:
            yield from self.karpenter.judge(value, old, pool)


def _outcome(enforcement: Enforcement) -> Outcome | None:
    return None if enforcement is Enforcement.OFF else Outcome[enforcement.name]


def _field(spec: FieldSpec) -> FieldRule:
    return FieldRule(
        query=Query(spec.path),
        type=spec.type or "",
        required=spec.required,
        immutable=spec.immutable,
        minimum=spec.minimum,
        values=spec.values,
        any_case=spec.any_case,
        detail=spec.detail,
        example=spec.example,
    )


def _checks(specs: tuple[CheckSpec, ...]) -> Iterator[Check]:
    for spec in specs:
        if (outcome := _outcome(spec.enforcement)) is not None:
            yield Check(
                when=Query(spec.when),
                fields=tuple(map(Query, spec.fields)),
                message=Text(spec.message),
                detail=Text(spec.detail),
                fix=Text(spec.fix),
                outcome=outcome,
            )


def _compile(spec: NodePoolRulesSpec, facts: Facts) -> NodePoolRules:
    rules = _rules(facts)
    if spec.match.resource_rules is not None:
        rules = tuple(
            ResourceRule(api_groups=each.api_groups, resources=each.resources, operations=each.operations)
            for each in spec.match.resource_rules
        )
    for field, names in (("sparesDeclaredPools", spec.spares_declared_pools), ("gpuTainters", spec.gpu_tainters)):
        for number, name in enumerate(names):
            if name not in facts.providers:
                problem = f"there is no CapacityProvider {name!r}{did_you_mean(name, facts.providers)}"
                raise SpecError((field, number), problem)
    checks: dict[tuple[str, str], ResourceChecks] = {}
    for number, item in enumerate(spec.resources):
        key = (item.group, item.resource)
        if not any(_covers(rule, *key) for rule in rules):
            known = [f"{each} of {group}" for rule in rules for group in rule.api_groups for each in rule.resources]
            hint = did_you_mean(f"{item.resource} of {item.group}", known)
            problem = f"the policy never looks at {item.resource} of {item.group or 'the core group'}{hint}"
            raise SpecError(("resources", number, "resource"), problem)
        if key in checks:
            problem = f"{item.resource} of {item.group or 'the core group'} is there already: put both into one"
            raise SpecError(("resources", number, "resource"), problem)
        checks[key] = ResourceChecks(tuple(map(_field, item.fields)), tuple(_checks(item.checks)))
    karpenter, wanted = spec.karpenter, spec.karpenter.diversification
    return NodePoolRules(
        checks=checks,
        declared={key: frozenset(field.query.text for field in each.fields) for key, each in checks.items()},
        readers=readers_by_resource(facts.providers.values()),
        pools=PoolChecks(
            providers=facts.providers,
            spares_declared=frozenset(spec.spares_declared_pools),
            taints_gpus=frozenset(spec.gpu_tainters),
            superchip=_outcome(spec.superchip_on_spot),
            taint=_outcome(spec.spot_without_taint),
            unknown_type=_outcome(spec.unknown_instance_type),
            unreadable=_outcome(spec.unreadable),
        ),
        karpenter=Karpenter(
            wanted=Diversity(wanted.instance_types, wanted.generations, wanted.zones),
            diversification=_outcome(wanted.enforcement),
            requirements=_outcome(karpenter.requirements),
            budgets=_outcome(karpenter.budgets),
        ),
    )


def _covers(rule: ResourceRule, group: str, resource: str) -> bool:
    return bool({group, "*"} & set(rule.api_groups)) and any(
        resource_matches(each, resource) for each in rule.resources
    )


def _rules(facts: Facts) -> tuple[ResourceRule, ...]:
    kinds = sorted({*readers_by_resource(facts.providers.values()), _KARPENTER})
    return tuple(
        ResourceRule(api_groups=(group,), resources=(resource,), operations=_OPERATIONS) for group, resource in kinds
    )


KIND: Final = PolicyKind(name="NodePoolRules", spec=NodePoolRulesSpec, compile=_compile, rules=_rules)

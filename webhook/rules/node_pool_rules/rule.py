"""NodePoolRules: a node pool follows its provider's schema and the best practices for spot pools.

Intent
    A provider accepts pools that can never work (an unknown instance type, a minimum above the target), and reports the
    problem later, in a condition that users overlook. A pipeline can't ask the provider. A valid spot pool can still be
    fragile: without a taint, with one instance type, or on superchips that are never spot.
Reads
    Only the reviewed object: node pools, and other resources that a policy lists under ``resources`` (Karpenter's
    Deployment). On UPDATE, a rule applies if the request changes one of its fields. Fields without a rule are accepted.
    Objects that are being deleted are evaluated like any other.
    A provider's schema is data, per resource: fields (required, type, values, minimum, immutable) and checks (a
    JMESPath expression that is true if the object is wrong). Rules for every provider evaluate the pool that its reader
    normalizes: superchips on spot, spot nodes without a taint, unknown instance types, unreadable fields. Karpenter's
    requirements and budgets have rules in code.
Writes
    Nothing.
Finds
    required, type, values, minimum, immutable, check, check-failed, superchip-on-spot, spot-without-taint,
    unknown-instance-type, unreadable, diversification, contradicting-requirements, malformed-budget, budget-blocks,
    budget-no-effect
Source
    CoreWeave, "Node Pool API schema" and "Spot Node Pools"; Google, "Spot VMs"; Karpenter, "NodePools", "Disruption".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.providers.provider import Provider, ResourceReader, readers_by_resource
from webhook.policy.errors import SpecError, did_you_mean
from webhook.policy.match import ResourceRule, expect_judged, is_named, rules_for
from webhook.policy.terms import Enforcement
from webhook.rules.node_pool_rules.checks import Check, FieldRule, ResourceChecks
from webhook.rules.node_pool_rules.karpenter import NODE_POOLS, judge_karpenter
from webhook.rules.node_pool_rules.pools import judge_pool
from webhook.rules.node_pool_rules.spec import DiversificationSpec, NodePoolRulesSpec
from webhook.rules.protocol import Facts, Levels, PolicyKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from webhook.model.decision import Violation
    from webhook.policy.common import ResourceRuleSpec
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject

_OPERATIONS: Final = ("CREATE", "UPDATE")


class NodePoolRules(msgspec.Struct, frozen=True):
    """The compiled rule, with checks and readers by API group and plural resource name.

    Attributes:
        wanted: the minimum diversity of Karpenter's spot pools.
    """

    checks: Mapping[tuple[str, str], ResourceChecks]
    readers: Mapping[tuple[str, str], ResourceReader]
    providers: Mapping[str, Provider]
    wanted: DiversificationSpec
    levels: Levels

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the fields and checks of all resources."""
        return tuple(part for resource_checks in self.checks.values() for part in resource_checks.parts)

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:  # noqa: ARG002 - reads the object
        """Yield the violations of the object in the fields that the request changes."""
        value, old = subject.object, subject.old_object
        if value is None or subject.request.sub_resource:
            subject.trace.say("the request changes no pool")
            return
        key = (subject.request.resource.group, subject.request.resource.resource)
        checks, readers = self.checks.get(key), self.readers.get(key)
        violations = list(checks.judge(value, old, subject.trace)) if checks is not None else []
        yield from violations
        if readers is None:
            return
        reader = readers.of(value)
        pool = reader.read(value)
        before = readers.read(old) if old is not None else None
        declared = {field.spec.path.text for field in checks.fields} if checks is not None else set()
        reported = declared & {violation.field for violation in violations}
        yield from self.levels.lowered(judge_pool(reader, self.providers[pool.provider], pool, before, value, reported))
        if key == NODE_POOLS:
            yield from self.levels.lowered(judge_karpenter(value, old, pool, self.wanted))


def _compile(spec: NodePoolRulesSpec, facts: Facts) -> NodePoolRules:
    rules: Sequence[ResourceRule | ResourceRuleSpec] = spec.match.resource_rules or _rules(facts)
    checks: dict[tuple[str, str], ResourceChecks] = {}
    for number, item in enumerate(spec.resources):
        key = (item.group, item.resource)
        problem = ""
        if not any(is_named(rule, *key) for rule in rules):
            known = [f"{name} of {group}" for rule in rules for group in rule.api_groups for name in rule.resources]
            hint = did_you_mean(f"{item.resource} of {item.group}", known)
            problem = f"the policy never matches {item.resource} of {item.group or 'the core group'}{hint}"
        elif key in checks:
            problem = f"{item.resource} of {item.group or 'the core group'} is already listed: merge both entries"
        if problem:
            raise SpecError(("resources", number, "resource"), problem)
        where = f"resources[{number}]"
        checks[key] = ResourceChecks(
            tuple(FieldRule(f"{where}.fields[{n}] {field.path.text}", field) for n, field in enumerate(item.fields)),
            tuple(
                Check(f"{where}.checks[{index}] {check.fields[0].text}", check)
                for index, check in enumerate(item.checks)
                if check.enforcement is not Enforcement.OFF
            ),
        )
    what = "node pools that a CapacityProvider reads, and the resources in its own `resources`"
    expect_judged(spec.match, (*_rules(facts), *rules_for(checks, *_OPERATIONS)), what)
    karpenter, diversity = spec.karpenter, spec.karpenter.diversification
    return NodePoolRules(
        checks=checks,
        readers=readers_by_resource(facts.providers.values()),
        providers=facts.providers,
        wanted=diversity,
        levels=Levels.of(
            {
                "superchip-on-spot": spec.superchip_on_spot,
                "spot-without-taint": spec.spot_without_taint,
                "unknown-instance-type": spec.unknown_instance_type,
                "unreadable": spec.unreadable,
                "diversification": diversity.enforcement,
                "contradicting-requirements": karpenter.requirements,
                "malformed-budget": karpenter.malformed_budgets,
                "budget": karpenter.budgets,
            }
        ),
    )


def _rules(facts: Facts) -> tuple[ResourceRule, ...]:
    return rules_for(sorted({*readers_by_resource(facts.providers.values()), NODE_POOLS}), *_OPERATIONS)


KIND: Final = PolicyKind(
    name="NodePoolRules",
    spec=NodePoolRulesSpec,
    not_exported="while the webhook is down, the API server rejects node pools anyway",
    compile=_compile,
    rules=_rules,
)

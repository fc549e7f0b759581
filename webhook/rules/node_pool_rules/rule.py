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

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.placeholders import filling_in, placeholder_in
from webhook.base.text import listed
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, superchip_on_spot
from webhook.capacity.providers.provider import Provider, ResourceReader, readers_by_resource
from webhook.model.decision import Violation
from webhook.policy.errors import SpecError, did_you_mean
from webhook.policy.match import ResourceRule, expect_judged, is_named, rules_for
from webhook.policy.terms import Enforcement
from webhook.rules.node_pool_rules.checks import Check, FieldRule, ResourceChecks, as_yaml
from webhook.rules.node_pool_rules.karpenter import NODE_POOLS, judge_karpenter
from webhook.rules.node_pool_rules.message import on_one_line
from webhook.rules.node_pool_rules.spec import DiversificationSpec, NodePoolRulesSpec
from webhook.rules.protocol import Facts, Levels, PolicyKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from webhook.capacity.providers.query import Query
    from webhook.capacity.providers.reader import PoolReader
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
        yield from self.levels.lowered(
            _judge_pool(reader, self.providers[pool.provider], pool, before, value, reported)
        )
        if key == NODE_POOLS:
            yield from self.levels.lowered(judge_karpenter(value, old, pool, self.wanted))


_NAMED: Final = 4
"""Names that a finding lists. It counts the rest."""
_KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})
_WILD: Final = frozenset("*?[")


def _judge_pool(
    reader: PoolReader,
    provider: Provider,
    pool: Pool,
    before: Pool | None,
    value: Mapping[str, Any],
    reported: Collection[str],
) -> Iterator[Violation]:
    """Yield the violations of a pool, read from this object, that it didn't have before the request.

    ``reported`` contains the fields with mistakes that the policy's checks have reported.
    """
    if superchip_on_spot(pool) and not superchip_on_spot(before):
        where, on_demand = reader.capacity_query, reader.capacity.on_demand
        example = f":\n{as_yaml(reader.written_path(where), on_demand)}" if where.plain and on_demand else ""
        yield Violation(
            id="superchip-on-spot",
            reason=f"{pool} can't be spot: {pool.instance_type} is available only on demand",
            field=where.field,
            detail=f"{provider.title} has no spot capacity of this type: the pool would stay empty.",
            fix=f"choose another instance type, or make the pool on-demand{example}",
        )
    # If no field of the object can declare taints, the nodes may still have one.
    if reader.taints is not None and _is_untainted(provider, pool) and not _is_untainted(provider, before):
        yield _without_taint(reader.taints, reader, provider, pool)
    if pool.spot or not pool.is_template:  # an on-demand template may belong to the control plane
        yield from _unknown_machines(reader, pool, before)
    was = before.problems if before is not None else ()
    problems = (pool.own or pool).problems  # without that of an unknown template
    if reader.several_types and _of_one_type(pool) and not _of_one_type(before):
        yield Violation(
            id="diversification",
            reason=f"the spot pool has one instance type, so one reclaim can take all its nodes: {pool.instance_type}",
            field=reader.instance_type.place(value) if reader.instance_type is not None else "",
            detail="Providers reclaim spot capacity by instance type and zone, so nodes of other types stay.",
            fix="list several instance types of the same size, as many as the Pods can use",
        )
    new = [problem for problem in problems if problem not in was and problem.partition(" ")[0] not in reported]
    if pool.is_template and pool.capacity is CapacityType.ON_DEMAND:
        new = [problem for problem in new if not placeholder_in(problem)]
    if new:
        yield Violation(
            id="unreadable",
            reason=f"spotgate can't read all fields of {pool}",
            field=new[0].partition(" ")[0],
            detail=f"{'; '.join(new)}. Facts that depend on these fields are unknown.",
            fix=filling_in(new) or f"write these fields with the types and values in the schema of {pool.kind}",
            unknown=bool(placeholder_in(new)),
        )


def _of_one_type(pool: Pool | None) -> bool:
    return pool is not None and pool.spot and bool(pool.instance_type) and ", " not in pool.instance_type


def _is_untainted(provider: Provider, pool: Pool | None) -> bool:
    """Return whether no taint repels Pods that don't target spot from the pool's nodes."""
    if pool is None or not pool.spot or pool.is_template or pool.superchip:
        return False
    if any(taint.effect in _KEEPS_OFF for taint in pool.taints):
        return False
    if any(taint.declared_pools for taint in provider.spot_node_taints):
        return False
    return not (pool.gpu is Gpu.YES and any(taint.automatic for taint in provider.gpu.taints))


def _without_taint(where: Query, reader: PoolReader, provider: Provider, pool: Pool) -> Violation:
    fix = "add a taint to its nodes; SpotPlacement adds the toleration to Pods that ask for spot"
    if where.plain:
        effect = next((name for name, meant in reader.taint_effects.items() if meant == "NoSchedule"), "NoSchedule")
        taint = {"key": "example.com/spot", "value": "true", "effect": effect}
        fix = f"{fix}:\n{as_yaml(reader.written_path(where), [taint])}"
    partly = any(not spec.declared_pools for spec in provider.spot_node_taints)
    adds = "adds a taint only to some spot nodes" if partly else "adds no taint"
    return Violation(
        id="spot-without-taint",
        reason=f"{pool} has no taint to repel Pods that don't ask for spot",
        field=where.field,
        detail=f"{provider.title} {adds}. Critical Pods can run on nodes without a taint, and a reclaim kills "
        "these Pods.",
        fix=fix,
    )


def _unknown_machines(reader: PoolReader, pool: Pool, before: Pool | None) -> Iterator[Violation]:
    """Yield a violation for unlisted instance types, families, and categories, unless the pool had them before."""
    machines = reader.machines
    types = [name for name in machines.unlisted(pool) if before is None or name not in machines.unlisted(before)]
    if types:
        patterns = (*reader.facts.instance_types.gpu.patterns, *reader.facts.instance_types.cpu.patterns)
        known = [pattern for pattern in patterns if not _WILD & set(pattern)]
        what = "instance type" if len(types) == 1 else "instance types"
        yield _unknown(reader, pool, what, types, meant=did_you_mean(types[0], known))
    old_labels = machines.unlisted_labels(before) if before is not None else ()
    labels = [label for label in machines.unlisted_labels(pool) if label not in old_labels]
    for key in dict.fromkeys(key for key, _ in labels):
        values = [value for other, value in labels if other == key]
        yield _unknown(reader, pool, key, values, where="machineLabels")
    if pool.requirements is not None:
        old = before.requirements if before is not None else None
        old_keys = machines.unknown_labels(old) if old is not None else ()
        for key in machines.unknown_labels(pool.requirements):
            if key not in old_keys:
                yield _unknown(reader, pool, "label", [key], where="otherMachineLabels")


def _unknown(
    reader: PoolReader, pool: Pool, what: str, names: list[str], *, where: str = "instanceTypes", meant: str = ""
) -> Violation:
    several = len(names) > 1
    unknown = listed(map(on_one_line, names), _NAMED) or "(none)"
    field = reader.instance_type or reader.requirements
    right = "the names are correct, add them" if several else "the name is correct, add it"
    add = filling_in(names) or f"{'If' if meant else 'if'} {right} to `{where}` of CapacityProvider {pool.provider}"
    return Violation(
        id="unknown-instance-type",
        reason=f"unknown {what} {unknown}: not listed in CapacityProvider {pool.provider}",
        field=field.field if field is not None else "",
        detail="spotgate assumes that an unlisted type has GPUs if the pool is spot, and none if the pool is "
        "on-demand.",
        fix=" ".join(filter(None, (meant.removeprefix(", "), add))),
    )


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

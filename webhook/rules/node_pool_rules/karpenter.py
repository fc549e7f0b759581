"""Check Karpenter's NodePools: their requirements together, and their disruption budgets, each one and all together.

Source: "Spot in production" (6 instance types over 2 generations and 3 zones);
https://karpenter.sh/docs/concepts/disruption/#nodepool-disruption-budgets (the most restrictive active budget wins; a
budget without a schedule is always active), and the schema of ``karpenter.sh/v1``. Karpenter parses schedules with
https://pkg.go.dev/github.com/robfig/cron/v3#ParseStandard; if it can't parse one, it disrupts nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.bounds import POOL_ITEMS
from webhook.base.placeholders import filling_in
from webhook.capacity.providers.machines import TYPE_LABEL, ZONE_LABEL
from webhook.capacity.providers.query import Query
from webhook.capacity.providers.requirements import Requirements, read_requirements
from webhook.model.decision import Violation
from webhook.rules.node_pool_rules.checks import as_yaml, same
from webhook.rules.node_pool_rules.message import on_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from webhook.capacity.providers.pool import Pool
    from webhook.rules.node_pool_rules.spec import DiversificationSpec

NODE_POOLS: Final = ("karpenter.sh", "nodepools")
"""The API group and the resource of Karpenter's pools."""

_ZONE_ID_LABEL: Final = "topology.k8s.aws/zone-id"
_REQUIREMENTS: Final = Query("spec.template.spec.requirements")
_LABELS: Final = Query("spec.template.metadata.labels")
_CLASS_GROUP: Final = Query("spec.template.spec.nodeClassRef.group")

_AWS_DOMAINS: Final = ("karpenter.k8s.aws", "eks.amazonaws.com")
"""API groups of the AWS node classes, which are also the domains of the labels that describe AWS machines."""

_AWS_TYPE: Final = re.compile(
    r"(?P<family>(?P<category>[a-z]+)(?P<generation>[0-9]+)[a-z0-9-]*)(\.(?P<size>[a-z0-9-]+))?"
)
"""``m6i.xlarge``, or only the family: ``m6i``."""


class Diversity(msgspec.Struct, frozen=True):
    """The maximum number of instance types, generations, and zones of a pool; None if unknown."""

    types: int | None
    generations: int | None
    zones: int | None


def judge_karpenter(
    value: Mapping[str, Any], old: Mapping[str, Any] | None, pool: Pool, wanted: DiversificationSpec
) -> Iterator[Violation]:
    """Yield the violations of a NodePool, read as ``pool``, in the fields that the request changes.

    ``wanted`` is the minimum diversity of a spot pool.
    """
    if old is None or not (same(_REQUIREMENTS(value), _REQUIREMENTS(old)) and same(_LABELS(value), _LABELS(old))):
        yield from _judge_requirements(value, pool, wanted)
    budgets = BUDGETS(value)
    if old is None or not same(budgets, BUDGETS(old)):
        yield from _judge_budgets(budgets)


def _judge_requirements(value: Mapping[str, Any], pool: Pool, wanted: DiversificationSpec) -> Iterator[Violation]:
    labels = _LABELS(value)
    readable = labels if isinstance(labels, dict) and len(labels) <= POOL_ITEMS else {}
    given = {key: text for key, text in readable.items() if isinstance(text, str)}
    requirements = read_requirements(_REQUIREMENTS(value), _REQUIREMENTS.text, given)
    if key := on_one_line(requirements.impossible) if requirements.impossible else "":
        yield Violation(
            id="contradicting-requirements",
            reason=f"no node can meet the requirements on {key}",
            field=_REQUIREMENTS.text,
            detail="A node must meet all requirements on a label. No machine can, so Karpenter never launches a node.",
            fix="keep only one requirement on the label, for example:\n"
            + as_yaml(_REQUIREMENTS.text, [{"key": key, "operator": "In", "values": ["<the intended value>"]}]),
        )
    elif pool.spot:
        group = _CLASS_GROUP(value) or _AWS_DOMAINS[0]
        yield from _judge_diversity(requirements, group if group in _AWS_DOMAINS else "", wanted)


def _judge_diversity(requirements: Requirements, domain: str, wanted: DiversificationSpec) -> Iterator[Violation]:
    has = diversity_of(requirements, domain)
    short = {
        noun: f"{have} of at least {want} {noun}s"
        for noun, have, want in (
            ("instance type", has.types, wanted.instance_types),
            ("generation", has.generations, wanted.generations),
            ("zone", has.zones, wanted.zones),
        )
        if have is not None and have < want
    }
    if not short:
        return
    fix = f"admit more {'s and '.join(short)}s: list more values, or remove the requirement"
    if domain and list(short) != ["zone"]:
        listed = requirements.of(TYPE_LABEL).values or requirements.of(f"{domain}/instance-family").values or ()
        categories = {match["category"] for name in listed if (match := _AWS_TYPE.fullmatch(name)) is not None}
        lines = [
            {"key": f"{domain}/instance-category", "operator": "In", "values": sorted(categories) or ["c", "m", "r"]},
            {"key": f"{domain}/instance-generation", "operator": "Gt", "values": ["4"]},
        ]
        fix += f". For example, by category and generation:\n{as_yaml(_REQUIREMENTS.text, lines)}"
    yield Violation(
        id="diversification",
        reason=f"the spot pool is too narrow, so one reclaim can take all its nodes: {', '.join(short.values())}",
        field=_REQUIREMENTS.text,
        detail="Providers reclaim spot capacity by instance type and zone.",
        fix=fix,
    )


def diversity_of(requirements: Requirements, domain: str) -> Diversity:
    """Return the maximum number of instance types, generations, and zones that the requirements admit.

    ``domain`` is the domain of the AWS machine labels; empty for other providers, whose type names have no generation.
    """
    listed = requirements.of(TYPE_LABEL).values
    types = generations = None
    if listed is not None:
        parsed = [(name, _AWS_TYPE.fullmatch(name) if domain else None) for name in listed]
        admitted = [(name, match) for name, match in parsed if match is None or _admits(requirements, domain, match)]
        types = len(admitted)
        if all(match is not None for _, match in admitted):
            generations = len({match["generation"] for _, match in admitted if match is not None})
    elif domain:
        types, generations = _of_families(requirements, domain)
    zones = [
        listed_zones
        for key in (ZONE_LABEL, _ZONE_ID_LABEL)
        if (listed_zones := requirements.of(key).values) is not None
    ]
    return Diversity(types, generations, min(map(len, zones), default=None))


def _of_families(requirements: Requirements, domain: str) -> tuple[int | None, int | None]:
    listed = requirements.of(f"{domain}/instance-family").values
    sizes = requirements.of(f"{domain}/instance-size").values
    generations = requirements.of(f"{domain}/instance-generation").values
    if listed is None:
        return None, len(generations) if generations is not None else None
    families = [match for name in listed if (match := _AWS_TYPE.fullmatch(name)) is not None]
    if len(families) < len(listed):
        return None, None
    admitted = [match for match in families if _admits(requirements, domain, match)]
    types = len(admitted) * len(sizes) if sizes is not None else None
    return types, len({match["generation"] for match in admitted})


def _admits(requirements: Requirements, domain: str, machine: re.Match[str]) -> bool:
    return all(
        requirements.of(f"{domain}/instance-{part}").admits(text) for part, text in machine.groupdict().items() if text
    )


BUDGETS: Final = Query("spec.disruption.budgets")

_NODES: Final = re.compile(r"([0-9]{1,9})|(?:100|[0-9]{1,2})%", re.ASCII)
_DEFAULT_NODES: Final = "10%"
"""The default of ``nodes`` in a budget."""

_DURATION: Final = re.compile(r"([0-9]{1,9}h|[0-9]{1,9}m|[0-9]{1,9}h[0-9]{1,9}m)(0s)?", re.ASCII)
"""Go allows no more digits: its durations end at 292 years."""
_REASONS: Final = ("Underutilized", "Empty", "Drifted")

_SCHEDULE: Final = re.compile(
    r"@(annually|yearly|monthly|weekly|daily|midnight|hourly)|\s*([\w*?/,-]+\s+){4}[\w*?/,-]+\s*", re.ASCII
)
"""Five fields with any content: Karpenter's CRD doesn't check further."""

_LONGEST: Final = 400
"""Characters of a schedule. A schedule that lists every value of every field has 356."""

BUDGETS_AT_MOST: Final = 50
"""Budgets of one pool: Karpenter's CRD accepts no more."""


def _judge_budgets(written: object) -> Iterator[Violation]:
    """Yield a violation for each budget that Karpenter's schema rejects, then for useless budgets.

    Skip mistakes that other rules report. Useless budgets always block voluntary disruption, or never take effect.
    """
    items = written if isinstance(written, list) else []
    if len(items) > BUDGETS_AT_MOST:
        problem = f"has {len(items):,} items, more than {BUDGETS_AT_MOST}"
        yield _malformed(BUDGETS.text, problem, {"nodes": _DEFAULT_NODES})
        return
    budgets: list[_Budget] = []
    for index, item in enumerate(items):
        where = f"{BUDGETS.text}[{index}]"
        if not isinstance(item, dict):
            yield _malformed(where, f"is {_quoted(item)}, not a map", {"nodes": _DEFAULT_NODES}, filling_in(item))
            continue
        given = {field: value for field in _RIGHT if (value := item.get(field)) is not None}
        valid = {field: value for field, value in given.items() if _RIGHT[field][0](value)}
        if valid == given:
            budgets.append(_Budget.of(index, valid))
        for field in (field for field in given if field not in valid):
            _, wanted, example = _RIGHT[field]
            problem = f"is {_quoted(given[field])}, not {wanted}"
            yield _malformed(f"{where}.{field}", problem, {**valid, field: example}, filling_in(given[field]))
    yield from _useless(budgets)


def _malformed(where: str, problem: str, example: Mapping[str, Any], filling: str = "") -> Violation:
    return Violation(
        id="malformed-budget",
        reason=f"{where.removeprefix('spec.')} {problem}",
        field=where,
        detail="Karpenter's CRD rejects the value, or Karpenter never disrupts a node.",
        fix=filling or f"write the budget as in this example:\n{as_yaml(BUDGETS.text, [dict(example)])}",
        unknown=bool(filling),
    )


def _quoted(value: object) -> str:
    return f"'{on_one_line(value)}'" if isinstance(value, str) else on_one_line(value)


def _are_nodes(value: object) -> bool:
    """Return whether the value is a number or a percentage of nodes. Another rule rejects bare numbers."""
    return type(value) in {str, int} and _NODES.fullmatch(str(value)) is not None


def _matches(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    """Return a predicate for texts that match the pattern."""
    return lambda value: isinstance(value, str) and len(value) <= _LONGEST and pattern.fullmatch(value) is not None


def _are_reasons(value: object) -> bool:
    return isinstance(value, list) and len(value) <= BUDGETS_AT_MOST and all(reason in _REASONS for reason in value)


_RIGHT: Final[Mapping[str, tuple[Callable[[object], bool], str, Any]]] = {
    "nodes": (_are_nodes, "a number or a percentage (at most 100%)", _DEFAULT_NODES),
    "schedule": (_matches(_SCHEDULE), "a cron schedule: minute, hour, day, month, weekday (0-6)", "0 9 * * 1-5"),
    "duration": (_matches(_DURATION), "a duration of hours and minutes", "8h"),
    "reasons": (_are_reasons, f"a list of {', '.join(_REASONS)}", ["Drifted"]),
}
"""For each field of a budget: a predicate for valid values, their description, and an example."""


class _Budget(msgspec.Struct, frozen=True):
    """A valid disruption budget. Without a schedule, it is always active. Without reasons, it applies to all."""

    index: int
    nodes: int
    unit: str
    schedule: str
    reasons: frozenset[str]

    @classmethod
    def of(cls, index: int, valid: Mapping[str, Any]) -> _Budget:
        """Return the budget with these fields."""
        number, unit, _ = str(valid.get("nodes", _DEFAULT_NODES)).partition("%")
        reasons = frozenset(valid.get("reasons", ()))
        some_reasons = reasons if reasons < frozenset(_REASONS) else frozenset()
        return cls(index, int(number), unit, on_one_line(valid.get("schedule", "")), some_reasons)

    def __str__(self) -> str:
        return f"{self.nodes}{self.unit} (schedule {self.schedule})" if self.schedule else f"{self.nodes}{self.unit}"

    def always_below(self, other: _Budget) -> bool:
        """Return whether this budget is always active, and at least as strict as the other for all of its reasons."""
        if self.schedule or (self.reasons and not (other.reasons and other.reasons <= self.reasons)):
            return False
        return self.nodes == 0 or (self.unit == other.unit and self.nodes <= other.nodes)


def _useless(budgets: list[_Budget]) -> Iterator[Violation]:
    for zero in (budget for budget in budgets if not (budget.schedule or budget.nodes or budget.reasons)):
        yield _always_blocked(zero, next((f"{budget.nodes}{budget.unit}" for budget in budgets if budget.nodes), "10%"))
        return
    for budget in (budget for budget in budgets if budget.schedule):
        stricter = next((other for other in budgets if other.always_below(budget)), None)
        if stricter is not None:
            yield Violation(
                id="budget-no-effect",
                reason=f"the budget of {budget} never takes effect",
                field=f"{BUDGETS.text}[{budget.index}]",
                detail=f"The strictest active budget wins, and {stricter} is always active: it has no schedule.",
                fix=f"give the budget of {stricter} a schedule for the hours that need it, or remove this budget",
            )


def _always_blocked(zero: _Budget, allowed: str) -> Violation:
    budgets = [{"nodes": allowed}, {"nodes": "0", "schedule": "0 8 * * 1-5", "duration": "10h"}]
    return Violation(
        id="budget-blocks",
        reason="a budget of 0 nodes without a schedule always blocks voluntary disruption",
        field=f"{BUDGETS.text}[{zero.index}]",
        detail="The strictest active budget wins, and this one is always active. Karpenter neither consolidates "
        "nodes nor replaces drifted ones. The budget doesn't affect a reclaim.",
        fix=f"give the budget of 0 nodes a schedule, for example working hours in UTC:\n{as_yaml('budgets', budgets)}",
    )

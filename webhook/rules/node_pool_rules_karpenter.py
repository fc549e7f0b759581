"""What `NodePoolRules` says of Karpenter's NodePools alone: what its lists of requirements and budgets add up to.

Source: "Spot in production" (6 instance types over 2 generations and 3 zones); Karpenter, "Disruption" (of several
active budgets the most restrictive wins; one without a schedule is always active).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from webhook.capacity.machines import TYPE_LABEL, ZONE_LABEL
from webhook.capacity.query import Query
from webhook.capacity.requirements import Requirements, read_requirements
from webhook.decision import Outcome, Violation
from webhook.rules.node_pool_rules_checks import as_yaml, same, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.capacity.pool import Pool

GROUP: Final = "karpenter.sh"
RESOURCE: Final = "nodepools"

_ZONE_ID_LABEL: Final = "topology.k8s.aws/zone-id"
_REQUIREMENTS: Final = Query("spec.template.spec.requirements")
_LABELS: Final = Query("spec.template.metadata.labels")
_CLASS_GROUP: Final = Query("spec.template.spec.nodeClassRef.group")
_BUDGETS: Final = Query("spec.disruption.budgets")

_AWS_DOMAINS: Final = ("karpenter.k8s.aws", "eks.amazonaws.com")
"""Groups of AWS's node classes: they are also the domains of the labels that describe its machines."""

_AWS_TYPE: Final = re.compile(
    r"(?P<family>(?P<category>[a-z]+)(?P<generation>[0-9]+)[a-z0-9-]*)(\.(?P<size>[a-z0-9-]+))?"
)
"""``m6i.xlarge``, or the family alone: ``m6i``."""

_NODES: Final = re.compile(r"([0-9]{1,9})(%?)")
_NAMED: Final = 4
"""Names in a finding before the rest is only counted."""


class Diversity(msgspec.Struct, frozen=True):
    """How many of each: of a pool at most (None: more than can be listed, or not known), of a policy at least."""

    types: int | None
    generations: int | None
    zones: int | None


class Karpenter(msgspec.Struct, frozen=True, kw_only=True):
    """The checks; the outcome is the most that each may become, None switches it off.

    Attributes:
        wanted: of a spot pool.
    """

    wanted: Diversity
    diversification: Outcome | None
    requirements: Outcome | None
    budgets: Outcome | None

    def judge(self, value: Mapping[str, Any], old: Mapping[str, Any] | None, pool: Pool) -> Iterator[Violation]:
        """What is wrong with a NodePool, read as ``pool``, as far as the request changed it."""
        if old is None or not (same(_REQUIREMENTS(value), _REQUIREMENTS(old)) and same(_LABELS(value), _LABELS(old))):
            yield from self._judge_requirements(value, pool)
        if self.budgets is not None and (old is None or not same(_BUDGETS(value), _BUDGETS(old))):
            yield from judge_budgets(_BUDGETS(value), self.budgets)

    def _judge_requirements(self, value: Mapping[str, Any], pool: Pool) -> Iterator[Violation]:
        labels = _LABELS(value)
        given = {key: text for key, text in labels.items() if isinstance(text, str)} if isinstance(labels, dict) else {}
        found = read_requirements(_REQUIREMENTS(value), _REQUIREMENTS.text, given)
        if self.requirements is not None and found.impossible:
            yield _impossible(found.impossible, self.requirements)
            return
        if self.diversification is not None and pool.spot:
            group = _CLASS_GROUP(value) or _AWS_DOMAINS[0]
            yield from self._judge_diversity(found, group if group in _AWS_DOMAINS else "", self.diversification)

    def _judge_diversity(self, requirements: Requirements, domain: str, outcome: Outcome) -> Iterator[Violation]:
        has = diversity_of(requirements, domain)
        wanted = self.wanted
        short = [
            f"{have} {_plural(noun, have)} (of at least {want})"
            for noun, have, want in (
                ("instance type", has.types, wanted.types),
                ("generation", has.generations, wanted.generations),
                ("zone", has.zones, wanted.zones),
            )
            if have is not None and _below(have, want)
        ]
        if short:
            yield Violation(
                reason=f"a spot pool that is too narrow can be reclaimed all at once: {', '.join(short)}",
                field=_REQUIREMENTS.text,
                detail=f"Spot capacity is reclaimed by instance type and zone. Admitted are {_admitted(requirements)}.",
                fix=_widened(requirements, has, wanted, domain),
                outcome=outcome,
            )


def diversity_of(requirements: Requirements, domain: str) -> Diversity:
    """How many instance types, generations and zones the requirements admit at most.

    Args:
        requirements: of the pool.
        domain: of the labels that describe a machine; empty: the provider is not AWS, whose names say a generation.
    """
    listed = requirements.of(TYPE_LABEL).values
    types = generations = None
    if listed is not None:
        parsed = [(each, _AWS_TYPE.fullmatch(each) if domain else None) for each in listed]
        admitted = [(each, found) for each, found in parsed if found is None or _admits(requirements, domain, found)]
        types = len(admitted)
        if all(found is not None for _, found in admitted):
            generations = len({found["generation"] for _, found in admitted if found is not None})
    elif domain:
        types, generations = _of_families(requirements, domain)
    zones = [each for key in (ZONE_LABEL, _ZONE_ID_LABEL) if (each := requirements.of(key).values) is not None]
    return Diversity(types, generations, min(map(len, zones), default=None))


def _of_families(requirements: Requirements, domain: str) -> tuple[int | None, int | None]:
    listed = requirements.of(f"{domain}/instance-family").values
    sizes = requirements.of(f"{domain}/instance-size").values
    generations = requirements.of(f"{domain}/instance-generation").values
    if listed is None:
        return None, len(generations) if generations is not None else None
    families = [found for each in listed if (found := _AWS_TYPE.fullmatch(each)) is not None]
    if len(families) < len(listed):
        return None, None
    admitted = [found for found in families if _admits(requirements, domain, found)]
    types = len(admitted) * len(sizes) if sizes is not None else None
    return types, len({found["generation"] for found in admitted})


def _admits(requirements: Requirements, domain: str, found: re.Match[str]) -> bool:
    return all(
        requirements.of(f"{domain}/instance-{part}").admits(text) for part, text in found.groupdict().items() if text
    )


def _admitted(requirements: Requirements) -> str:
    """What the requirements list, by name."""
    listed = [
        (_plural(noun, len(values)), sorted(values))
        for noun, key in (("instance type", TYPE_LABEL), ("zone", ZONE_LABEL), ("zone", _ZONE_ID_LABEL))
        if (values := requirements.of(key).values) is not None
    ]
    return "; ".join(f"{noun} {_some(names)}" for noun, names in listed) or "few machines"


def _some(names: list[str]) -> str:
    rest = len(names) - _NAMED
    said = ", ".join(shown(each) for each in names[:_NAMED]) or "(none)"
    return f"{said} and {rest} more" if rest > 0 else said


def _widened(requirements: Requirements, has: Diversity, wanted: Diversity, domain: str) -> str:
    """Requirements that admit more, to copy; in words where the provider's labels are not known."""
    if not domain:
        return "admit more instance types and zones: list more values, or leave the requirement out"
    listed = requirements.of(TYPE_LABEL).values or requirements.of(f"{domain}/instance-family").values or ()
    categories = {found["category"] for each in listed if (found := _AWS_TYPE.fullmatch(each)) is not None}
    lines = []
    if _below(has.types, wanted.types) or _below(has.generations, wanted.generations):
        lines += [
            {"key": f"{domain}/instance-category", "operator": "In", "values": sorted(categories) or ["c", "m", "r"]},
            {"key": f"{domain}/instance-generation", "operator": "Gt", "values": ["4"]},
        ]
    text = "admit more, for example by category and generation instead of by name:" if lines else ""
    example = "\n" + as_yaml(_REQUIREMENTS.text, lines) if lines else ""
    if _below(has.zones, wanted.zones):
        text = f"leave the requirement on zones out, or list {wanted.zones}; {text}".rstrip("; ")
    return f"{text}{example}"


def _below(have: int | None, want: int | None) -> bool:
    return have is not None and want is not None and have < want


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def _impossible(key: str, outcome: Outcome) -> Violation:
    return Violation(
        reason=f"no node can meet the requirements on {shown(key)}",
        field=_REQUIREMENTS.text,
        detail="All requirements on one label, and the pool's own labels, must hold together; these contradict each "
        "other, and Karpenter never launches a node.",
        fix="leave one requirement on the label, for example:\n"
        + as_yaml(_REQUIREMENTS.text, [{"key": shown(key), "operator": "In", "values": ["<a value that is meant>"]}]),
        outcome=outcome,
    )


class _Budget(msgspec.Struct, frozen=True):
    """A disruption budget that could be read; no reasons: all of them."""

    index: int
    nodes: int
    unit: str
    schedule: str
    reasons: frozenset[str]

    def __str__(self) -> str:
        return f"{self.nodes}{self.unit} (schedule {self.schedule})" if self.schedule else f"{self.nodes}{self.unit}"

    def always_below(self, other: _Budget) -> bool:
        """Is it always active, and at most what the other one allows, for all of the other one's reasons?"""
        if self.schedule or (self.reasons and not (other.reasons and other.reasons <= self.reasons)):
            return False
        return self.nodes == 0 or (self.unit == other.unit and self.nodes <= other.nodes)


def judge_budgets(found: object, outcome: Outcome) -> Iterator[Violation]:
    """Budgets that block voluntary disruption always, or never have effect; one that can't be read is left out."""
    items = found if isinstance(found, list) else []
    budgets = [each for index, item in enumerate(items) if (each := _read_budget(index, item)) is not None]
    scheduled = [each for each in budgets if each.schedule]
    for zero in (each for each in budgets if not (each.schedule or each.nodes or each.reasons)):
        yield _always_blocked(zero, [each for each in budgets if each.nodes], outcome)
        return
    for budget in scheduled:
        stricter = next((each for each in budgets if each.always_below(budget)), None)
        if stricter is not None:
            yield Violation(
                reason=f"the budget of {budget} never has effect",
                field=f"{_BUDGETS.text}[{budget.index}]",
                detail=f"The most restrictive active budget wins, and the one of {stricter} has no schedule: it is "
                "always active. A schedule can only allow less.",
                fix="give the other budget a schedule for the hours in which less may be disrupted, or remove this one",
                outcome=outcome,
            )


def _always_blocked(zero: _Budget, others: list[_Budget], outcome: Outcome) -> Violation:
    idle = f"; without effect: {_some([str(each) for each in others])}" if others else ""
    allowed = next((f"{each.nodes}{each.unit}" for each in others), "10%")
    budgets = [
        {"nodes": allowed},
        {"nodes": "0", "schedule": "0 17 * * 1-4", "duration": "16h"},
        {"nodes": "0", "schedule": "0 17 * * 5", "duration": "64h"},
    ]
    example = yaml.safe_dump({"budgets": budgets}, sort_keys=False).rstrip()
    return Violation(
        reason="a budget of 0 nodes without a schedule blocks voluntary disruption always",
        field=f"{_BUDGETS.text}[{zero.index}]",
        detail=f"The most restrictive active budget wins, and one without a schedule is always active{idle}. Nodes are "
        "neither consolidated nor replaced when they drift; a reclaim is not held up.",
        fix="give the budget of 0 the hours in which nothing may be disrupted. With this one it may be from 9 to 17 h "
        f"UTC on weekdays:\n{example}",
        outcome=outcome,
    )


def _read_budget(index: int, item: object) -> _Budget | None:
    if not isinstance(item, dict):
        return None
    nodes, schedule, reasons = item.get("nodes"), item.get("schedule"), item.get("reasons")
    read = _NODES.fullmatch(str(nodes)) if isinstance(nodes, str | int) else None
    if read is None or not isinstance(schedule, str | None) or not isinstance(reasons, list | None):
        return None
    return _Budget(
        index, int(read[1]), read[2], shown(schedule) if schedule else "", frozenset(map(str, reasons or ()))
    )

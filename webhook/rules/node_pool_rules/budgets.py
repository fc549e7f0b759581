"""Judge the disruption budgets of Karpenter's NodePools: each by itself, and all together.

Source: https://karpenter.sh/docs/concepts/disruption/#nodepool-disruption-budgets (of several active budgets the most
restrictive wins; one without a schedule is always active), and the schema of ``karpenter.sh/v1``. Schedules are read as
Karpenter reads them, https://pkg.go.dev/github.com/robfig/cron/v3#ParseStandard; where it can't, it disrupts nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.capacity.providers.query import Query
from webhook.documents.model import filling_in
from webhook.model.decision import Violation
from webhook.rules.node_pool_rules.checks import as_yaml, some
from webhook.rules.node_pool_rules.message import on_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

BUDGETS: Final = Query("spec.disruption.budgets")

_NODES: Final = re.compile(r"([0-9]{1,9})|(?:100|[0-9]{1,2})%", re.ASCII)
_DEFAULT_NODES: Final = "10%"
"""The nodes of a budget without ``nodes``."""

_DURATION: Final = re.compile(r"([0-9]{1,9}h|[0-9]{1,9}m|[0-9]{1,9}h[0-9]{1,9}m)(0s)?", re.ASCII)
"""Go takes no more digits: its durations end at 292 years."""
_REASONS: Final = ("Underutilized", "Empty", "Drifted")

_SCHEDULE: Final = re.compile(
    r"@(annually|yearly|monthly|weekly|daily|midnight|hourly)|\s*([\w*?/,-]+\s+){4}[\w*?/,-]+\s*", re.ASCII
)
"""Five fields, whatever is in them: Karpenter's CRD looks no closer."""

_LONGEST: Final = 400
"""Characters of a schedule. One that names each value of each field has 356."""

BUDGETS_AT_MOST: Final = 50
"""Budgets of one pool: Karpenter's CRD accepts no more."""


def malformed_budgets(budgets: object) -> Iterator[Violation]:
    """Yield a violation for each budget that Karpenter's schema rejects, except what other rules report."""
    if isinstance(budgets, list) and len(budgets) > BUDGETS_AT_MOST:
        said = f"has {len(budgets):,} items, more than {BUDGETS_AT_MOST}"
        yield _malformed(BUDGETS.text, said, {"nodes": _DEFAULT_NODES})
        return
    for index, item in enumerate(budgets if isinstance(budgets, list) else ()):
        where = f"{BUDGETS.text}[{index}]"
        if not isinstance(item, dict):
            yield _malformed(where, f"is {_quoted(item)}, not a map", {"nodes": _DEFAULT_NODES}, filling_in(item))
            continue
        for field, (is_right, wanted, example) in _RIGHT.items():
            value = item.get(field)
            if value is not None and not is_right(value):
                said = f"is {_quoted(value)}, not {wanted}"
                yield _malformed(f"{where}.{field}", said, {**_known(item), field: example}, filling_in(value))


def _malformed(where: str, said: str, example: Mapping[str, Any], filling: str = "") -> Violation:
    return Violation(
        id="malformed-budget",
        reason=f"{where.removeprefix('spec.')} {said}",
        field=where,
        detail="Karpenter's CRD rejects it."
        if not where.endswith(".schedule")
        else "Karpenter can't tell when the budget is active, so it never disrupts a node.",
        fix=filling or f"for example:\n{as_yaml(BUDGETS.text, [dict(example)])}",
        unknown=bool(filling),
    )


def _quoted(value: object) -> str:
    return f"'{on_one_line(value)}'" if isinstance(value, str) else on_one_line(value)


def _known(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the valid fields of a budget."""
    return {field: item[field] for field, (is_right, *_) in _RIGHT.items() if field in item and is_right(item[field])}


def _nodes(value: object) -> str | None:
    """Return the number or percentage of nodes as text, or None if it is neither; another rule rejects bare numbers."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if _NODES.fullmatch(text) else None


def _matches(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    """Return a test for texts that match the pattern."""
    return lambda value: isinstance(value, str) and len(value) <= _LONGEST and pattern.fullmatch(value) is not None


def _are_reasons(value: object) -> bool:
    return isinstance(value, list) and len(value) <= BUDGETS_AT_MOST and all(reason in _REASONS for reason in value)


_RIGHT: Final[Mapping[str, tuple[Callable[[object], bool], str, Any]]] = {
    "nodes": (lambda value: _nodes(value) is not None, "a number of nodes, or a percentage up to 100%", _DEFAULT_NODES),
    "schedule": (_matches(_SCHEDULE), "a cron schedule: minute, hour, day, month, weekday (0-6)", "0 9 * * 1-5"),
    "duration": (_matches(_DURATION), "a duration of hours and minutes", "8h"),
    "reasons": (_are_reasons, f"a list of {', '.join(_REASONS)}", ["Drifted"]),
}
"""For each field of a budget: a test for valid values, a description of them, and an example."""


class _Budget(msgspec.Struct, frozen=True):
    """A valid disruption budget; without a schedule it is always active. No reasons stand for all reasons."""

    index: int
    nodes: int
    unit: str
    schedule: str
    reasons: frozenset[str]

    def __str__(self) -> str:
        return f"{self.nodes}{self.unit} (schedule {self.schedule})" if self.schedule else f"{self.nodes}{self.unit}"

    def always_below(self, other: _Budget) -> bool:
        """Return whether this budget is always active, and at least as strict as the other one for all its reasons."""
        if self.schedule or (self.reasons and not (other.reasons and other.reasons <= self.reasons)):
            return False
        return self.nodes == 0 or (self.unit == other.unit and self.nodes <= other.nodes)


def judge_pool_budgets(written: object) -> Iterator[Violation]:
    """Yield a violation for budgets that always block voluntary disruption, or never have effect.

    A malformed budget is left out.
    """
    items = written if isinstance(written, list) and len(written) <= BUDGETS_AT_MOST else []
    budgets = [budget for index, item in enumerate(items) if (budget := _read_budget(index, item)) is not None]
    scheduled = [budget for budget in budgets if budget.schedule]
    for zero in (budget for budget in budgets if not (budget.schedule or budget.nodes or budget.reasons)):
        yield _always_blocked(zero, [budget for budget in budgets if budget.nodes])
        return
    for budget in scheduled:
        stricter = next((other for other in budgets if other.always_below(budget)), None)
        if stricter is not None:
            yield Violation(
                id="budget-no-effect",
                reason=f"the budget of {budget} never takes effect",
                field=f"{BUDGETS.text}[{budget.index}]",
                detail=f"The most restrictive active budget wins, and the one of {stricter} is always active, "
                "because it has no schedule. A schedule can only make the limit stricter.",
                fix="give the other budget a schedule for the hours with the stricter limit, or remove this one",
            )


def _always_blocked(zero: _Budget, others: list[_Budget]) -> Violation:
    idle = f"; without effect: {some([str(other) for other in others])}" if others else ""
    allowed = next((f"{other.nodes}{other.unit}" for other in others), _DEFAULT_NODES)
    budgets = [
        {"nodes": allowed},
        {"nodes": "0", "schedule": "0 17 * * 1-4", "duration": "16h"},
        {"nodes": "0", "schedule": "0 17 * * 5", "duration": "64h"},
    ]
    example = as_yaml("budgets", budgets)
    return Violation(
        id="budget-blocks",
        reason="a budget of 0 nodes without a schedule always blocks voluntary disruption",
        field=f"{BUDGETS.text}[{zero.index}]",
        detail=f"The most restrictive active budget wins, and this one is always active, because it has no "
        f"schedule{idle}. "
        "Nodes are neither consolidated nor replaced when they drift. A reclaim isn't affected.",
        fix="give the budget of 0 a schedule for the hours without disruption. This example allows disruption from "
        f"9:00 to 17:00 UTC on weekdays:\n{example}",
    )


def _read_budget(index: int, item: object) -> _Budget | None:
    """Return the budget, or None if a field of it is malformed."""
    if not isinstance(item, dict) or _known(item).keys() < {key for key in _RIGHT if item.get(key) is not None}:
        return None
    nodes = _nodes(_DEFAULT_NODES if item.get("nodes") is None else item["nodes"]) or ""
    schedule = item.get("schedule") or ""
    reasons = frozenset(item.get("reasons") or ())
    number, unit = nodes.removesuffix("%"), "%" if nodes.endswith("%") else ""
    return _Budget(
        index,
        int(number),
        unit,
        on_one_line(schedule) if schedule else "",
        reasons=reasons if reasons < frozenset(_REASONS) else frozenset(),
    )

"""Judge the disruption budgets of Karpenter's NodePools: each by itself, and all together.

Source: https://karpenter.sh/docs/concepts/disruption/#nodepool-disruption-budgets (of several active budgets the most
restrictive wins; one without a schedule is always active), and the schema of ``karpenter.sh/v1``. Schedules are read as
Karpenter reads them, https://pkg.go.dev/github.com/robfig/cron/v3#ParseStandard; where it can't, it disrupts nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.capacity.providers.query import Query
from webhook.decision import Violation
from webhook.rules.node_pool_rules.checks import as_yaml, shown, some

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from webhook.decision import Outcome

BUDGETS: Final = Query("spec.disruption.budgets")

_NODES: Final = re.compile(r"([0-9]{1,9})|(?:100|[0-9]{1,2})%", re.ASCII)
_DEFAULT_NODES: Final = "10%"
"""The nodes of a budget without ``nodes``."""

_DURATION: Final = re.compile(r"([0-9]{1,9}h|[0-9]{1,9}m|[0-9]{1,9}h[0-9]{1,9}m)(0s)?", re.ASCII)
"""Go takes no more digits: its durations end at 292 years."""
_REASONS: Final = ("Underutilized", "Empty", "Drifted")

_NICKNAMES: Final[Mapping[str, str]] = {
    "@annually": "0 0 1 1 *",
    "@yearly": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_PART: Final = re.compile(r"(?:\*|\?|(?P<first>\w{1,3})(?:-(?P<last>\w{1,3}))?)(?:/(?P<step>[0-9]{1,4}))?", re.ASCII)
_MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: Final[tuple[tuple[int, int, list[str]], ...]] = (
    (0, 59, []),
    (0, 23, []),
    (1, 31, []),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
"""The least and greatest value of minute, hour, day of the month, month and weekday, and names for them in turn."""

_MONTH: Final = 31
_YEAR: Final = 12
_WEEK: Final = 7
_DAY: Final = 24 * 60
_HOUR: Final = 60
"""A month in days, a year in months, a week in days, a day in minutes, an hour in minutes."""

_LONGEST: Final = 400
"""Characters of a schedule. One that names each value of each field has 356."""

BUDGETS_AT_MOST: Final = 50
"""Budgets of one pool: Karpenter's CRD accepts no more."""


def malformed_budgets(found: object, outcome: Outcome) -> Iterator[Violation]:
    """Yield a violation for each budget that Karpenter's schema rejects, except what other rules report."""
    if isinstance(found, list) and len(found) > BUDGETS_AT_MOST:
        said = f"has {len(found):,} items, more than {BUDGETS_AT_MOST}"
        yield _malformed(BUDGETS.text, said, {"nodes": _DEFAULT_NODES}, outcome)
        return
    for index, item in enumerate(found if isinstance(found, list) else ()):
        where = f"{BUDGETS.text}[{index}]"
        if not isinstance(item, dict):
            yield _malformed(where, f"is {_quoted(item)}, not a map", {"nodes": _DEFAULT_NODES}, outcome)
            continue
        for field, (is_right, wanted, example) in _RIGHT.items():
            value = item.get(field)
            if value is not None and not is_right(value):
                said = f"is {_quoted(value)}, not {wanted}"
                if field == "schedule" and isinstance(value, str) and len(value) > _LONGEST:
                    said = f"has {len(value):,} characters, more than the {_LONGEST} that a schedule needs"
                yield _malformed(f"{where}.{field}", said, {**_known(item), field: example}, outcome)


def _malformed(where: str, said: str, example: Mapping[str, Any], outcome: Outcome) -> Violation:
    return Violation(
        id="malformed-budget",
        reason=f"{where.removeprefix('spec.')} {said}",
        field=where,
        detail="Karpenter's CRD rejects it."
        if not where.endswith(".schedule")
        else "Karpenter can't tell when the budget is active, and then disrupts nothing at any time.",
        fix=f"for example:\n{as_yaml(BUDGETS.text, [dict(example)])}",
        outcome=outcome,
    )


def _quoted(value: object) -> str:
    return f"'{shown(value)}'" if isinstance(value, str) else shown(value)


def _known(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the valid fields of a budget."""
    return {field: item[field] for field, (is_right, *_) in _RIGHT.items() if field in item and is_right(item[field])}


def _is_nodes(value: object) -> bool:
    return _nodes(value) is not None


def _nodes(value: object) -> str | None:
    """Return the number or percentage of nodes as text, or None if it is neither; another rule rejects bare numbers."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if _NODES.fullmatch(text) else None


def _is_schedule(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST and bool(_times(value))


@lru_cache(maxsize=BUDGETS_AT_MOST)
def _times(schedule: str) -> tuple[frozenset[int], ...]:
    """Return the minutes, hours, days, months and weekdays of a schedule, or an empty tuple if it is invalid."""
    fields = _NICKNAMES.get(schedule, schedule).split()
    if len(fields) != len(_FIELDS):
        return ()
    times = tuple(_field(text, *limits) for text, limits in zip(fields, _FIELDS, strict=True))
    return times if all(times) else ()


def _field(text: str, least: int, most: int, names: list[str]) -> frozenset[int]:
    """Return the numbers that a field of a cron expression names, or an empty set if it is invalid.

    A field has parts with commas, each a value, a range or ``*``, perhaps with a step.
    """

    def number(value: str | None, default: int) -> int:
        if value is None:
            return default
        if value.casefold() in names:
            return names.index(value.casefold()) + least
        return int(value) if value.isdecimal() else -1

    found: set[int] = set()
    for part in text.split(","):
        read = _PART.fullmatch(part)
        if read is None or (read["step"] is not None and int(read["step"]) == 0):
            return frozenset()
        first = number(read["first"], least)
        # A value with a step goes on to the end: 5/10 is 5-59/10.
        last = number(read["last"], first if read["first"] and not read["step"] else most)
        if not least <= first <= last <= most:
            return frozenset()
        found.update(range(first, last + 1, int(read["step"] or 1)))
    return frozenset(found)


def _longest_pause(schedule: str) -> int | None:
    """Return the most minutes between two times of a schedule, or None if it names days of the month or months."""
    minutes, hours, days, months, weekdays = _times(schedule)
    if (len(days), len(months)) != (_MONTH, _YEAR):
        return None
    # Every hour of every day has the same minutes, so it is enough to look at where one ends and the next begins.
    in_hour = max(minutes) - min(minutes)
    in_day = (max(hours) - min(hours)) * _HOUR + in_hour
    return max(
        _most_between(minutes),
        _most_between(hours) * _HOUR - in_hour if len(hours) > 1 else 0,
        _most_between({*weekdays, min(weekdays) + _WEEK}) * _DAY - in_day,
    )


def _most_between(numbers: Collection[int]) -> int:
    return max((after - before for before, after in pairwise(sorted(numbers))), default=0)


def _minutes(duration: str) -> int:
    """Return the duration of a budget in minutes."""
    return sum(int(number) * (60 if unit == "h" else 1) for number, unit in re.findall("([0-9]+)([hm])", duration))


def _is_duration(value: object) -> bool:
    return isinstance(value, str) and _DURATION.fullmatch(value) is not None


def _are_reasons(value: object) -> bool:
    return isinstance(value, list) and len(value) <= BUDGETS_AT_MOST and all(each in _REASONS for each in value)


_RIGHT: Final[Mapping[str, tuple[Callable[[object], bool], str, Any]]] = {
    "nodes": (_is_nodes, "a number of nodes, or a percentage up to 100%", _DEFAULT_NODES),
    "schedule": (_is_schedule, "a cron schedule: minute, hour, day, month, weekday (0-6)", "0 9 * * 1-5"),
    "duration": (_is_duration, "a duration of hours and minutes", "8h"),
    "reasons": (_are_reasons, f"a list of {', '.join(_REASONS)}", ["Drifted"]),
}
"""For each field of a budget: a test for valid values, a description of them, and an example."""


class _Budget(msgspec.Struct, frozen=True):
    """A valid disruption budget. No reasons stand for all reasons; ``always`` means that it is never inactive."""

    index: int
    nodes: int
    unit: str
    schedule: str
    duration: str
    always: bool
    reasons: frozenset[str]

    def __str__(self) -> str:
        return f"{self.nodes}{self.unit} (schedule {self.schedule})" if self.schedule else f"{self.nodes}{self.unit}"

    def always_below(self, other: _Budget) -> bool:
        """Return whether this budget is always active, and at least as strict as the other one for all its reasons."""
        if not self.always or (self.reasons and not (other.reasons and other.reasons <= self.reasons)):
            return False
        return self.nodes == 0 or (self.unit == other.unit and self.nodes <= other.nodes)


def judge_budgets(found: object, outcome: Outcome) -> Iterator[Violation]:
    """Yield a violation for budgets that always block voluntary disruption, or never have effect.

    A malformed budget is left out.
    """
    items = found if isinstance(found, list) and len(found) <= BUDGETS_AT_MOST else []
    budgets = [each for index, item in enumerate(items) if (each := _read_budget(index, item)) is not None]
    scheduled = [each for each in budgets if each.schedule]
    for zero in (each for each in budgets if each.always and not (each.nodes or each.reasons)):
        yield _always_blocked(zero, [each for each in budgets if each.nodes], outcome)
        return
    for budget in scheduled:
        stricter = next((each for each in budgets if each.always_below(budget)), None)
        if stricter is not None:
            yield Violation(
                id="budget-no-effect",
                reason=f"the budget of {budget} never has effect",
                field=f"{BUDGETS.text}[{budget.index}]",
                detail=f"The most restrictive active budget wins, and the one of {stricter} is always active"
                f"{_why_always(stricter)}. A schedule can only allow less.",
                fix="give the other budget a schedule for the hours in which less may be disrupted, or remove this one",
                outcome=outcome,
            )


def _always_blocked(zero: _Budget, others: list[_Budget], outcome: Outcome) -> Violation:
    idle = f"; without effect: {some([str(each) for each in others])}" if others else ""
    allowed = next((f"{each.nodes}{each.unit}" for each in others), _DEFAULT_NODES)
    budgets = [
        {"nodes": allowed},
        {"nodes": "0", "schedule": "0 17 * * 1-4", "duration": "16h"},
        {"nodes": "0", "schedule": "0 17 * * 5", "duration": "64h"},
    ]
    example = as_yaml("budgets", budgets)
    return Violation(
        id="budget-blocks",
        reason=f"a budget of 0 nodes {_when(zero)} always blocks voluntary disruption",
        field=f"{BUDGETS.text}[{zero.index}]",
        detail=f"The most restrictive active budget wins, and this one is always active{_why_always(zero)}{idle}. "
        "Nodes are neither consolidated nor replaced when they drift; a reclaim is not held up.",
        fix="give the budget of 0 the hours in which nothing may be disrupted. With this one it may be from 9 to 17 h "
        f"UTC on weekdays:\n{example}",
        outcome=outcome,
    )


def _when(budget: _Budget) -> str:
    return f"on schedule {budget.schedule} for {budget.duration}" if budget.schedule else "without a schedule"


def _why_always(budget: _Budget) -> str:
    if not budget.schedule:
        return ", as it has no schedule"
    return f": schedule {budget.schedule} comes round before {budget.duration} are over"


def _read_budget(index: int, item: object) -> _Budget | None:
    """Return the budget, or None if a field of it is malformed."""
    if not isinstance(item, dict) or _known(item).keys() < {key for key in _RIGHT if item.get(key) is not None}:
        return None
    nodes = _nodes(_DEFAULT_NODES if item.get("nodes") is None else item["nodes"]) or ""
    schedule, duration = item.get("schedule") or "", item.get("duration") or ""
    reasons = frozenset(item.get("reasons") or ())
    number, unit = nodes.removesuffix("%"), "%" if nodes.endswith("%") else ""
    return _Budget(
        index,
        int(number),
        unit,
        shown(schedule) if schedule else "",
        duration,
        always=not schedule or ((pause := _longest_pause(schedule)) is not None and pause <= _minutes(duration)),
        reasons=reasons if reasons < frozenset(_REASONS) else frozenset(),
    )

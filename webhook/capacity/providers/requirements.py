"""Read a pool's requirements on the labels of its nodes: Karpenter's ``requirements``.

Each requirement restricts the values of one label, and a node meets all requirements. So a pool can have several
instance types, zones, and capacity types: for each label, its nodes have a set of possible values.

Source: https://karpenter.sh/docs/concepts/nodepools/#spectemplatespecrequirements
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.base.bounds import POOL_ITEMS
from webhook.base.placeholders import placeholder_before, placeholder_in
from webhook.capacity.providers.well_known import WELL_KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from webhook.kube.pod import Requirement

_SHOWN: Final = 40
"""Maximum characters of an unknown operator that a problem quotes."""

_MOST_DIGITS: Final = 18
"""Maximum digits of a bound. A 64-bit integer has up to 19."""

_VALUES: Final = 5 * POOL_ITEMS
"""Maximum values in all requirements of a pool: five lists of all existing instance types."""


class LabelValues(msgspec.Struct, frozen=True):
    """The possible values of one label on a pool's nodes.

    Attributes:
        listed: the possible values; None for all values that the other fields don't exclude.
        present: whether the nodes have the label; None if they may have it or not.
    """

    listed: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    least: int | None = None
    most: int | None = None
    present: bool | None = None

    @classmethod
    def all_of(cls, parts: Sequence[LabelValues]) -> LabelValues:
        """Return the values that satisfy all parts."""
        if len(parts) == 1:
            return parts[0]
        present = {values.present for values in parts if values.present is not None}
        contradict = len(present) > 1
        listed = [frozenset[str]()] if contradict else [values.listed for values in parts if values.listed is not None]
        return cls(
            listed=listed[0].intersection(*listed[1:]) if listed else None,
            excluded=frozenset().union(*(values.excluded for values in parts)),
            least=max((values.least for values in parts if values.least is not None), default=None),
            most=min((values.most for values in parts if values.most is not None), default=None),
            present=True if contradict else next(iter(present), None),
        )

    def admits(self, value: str) -> bool:
        """Return whether the label may have this value."""
        if self.present is False or value in self.excluded or (self.listed is not None and value not in self.listed):
            return False
        if self.least is None and self.most is None:
            return True
        if (number := _integer(value)) is None:
            return False
        return (self.least is None or number >= self.least) and (self.most is None or number <= self.most)

    @property
    def admits_none(self) -> bool:
        """Return whether the nodes may lack the label."""
        return self.present is not True

    @property
    def values(self) -> frozenset[str] | None:
        """Return all possible values of the label. Return None if they can't be listed."""
        if self.present is False:
            return frozenset()
        return None if self.listed is None else frozenset(filter(self.admits, self.listed))

    def within(self, other: LabelValues) -> bool:
        """Return whether ``other`` admits all possible values of the label. Return False if that is unknown."""
        if self.admits_none and not other.admits_none:
            return False
        if (values := self.values) is not None:
            return all(map(other.admits, values))
        return (
            other.listed is None
            and other.present is not False
            and other.excluded <= self.excluded
            and (other.least is None or (self.least is not None and self.least >= other.least))
            and (other.most is None or (self.most is not None and self.most <= other.most))
        )

    @property
    def admits_some(self) -> bool:
        """Return whether at least one value is possible."""
        if (values := self.values) is not None:
            return bool(values)
        if self.least is None or self.most is None:
            return True
        # A range with more integers than there are excluded values always contains an admitted integer.
        end = min(self.most, self.least + len(self.excluded))
        return any(self.admits(str(number)) for number in range(self.least, end + 1))

    def meets(self, other: LabelValues) -> bool:
        """Return whether one value, or the absence of the label, satisfies both."""
        if self.admits_none and other.admits_none:
            return True
        listed = self.listed if other.listed is None else other.listed
        if listed is None:
            return LabelValues.all_of((self, other)).admits_some
        return any(self.admits(value) and other.admits(value) for value in listed)

    @property
    def possible(self) -> bool:
        """Return whether a node can exist, with the label or without it."""
        return self.admits_none or self.admits_some


ANYTHING: Final = LabelValues()

_LISTING: Final = ("In", "NotIn")
_LONE: Final = ("Exists", "DoesNotExist")
_BOUNDS: Final[Mapping[str, Callable[[int], LabelValues]]] = {
    "Gt": lambda bound: LabelValues(least=bound + 1, present=True),
    "Gte": lambda bound: LabelValues(least=bound, present=True),
    "Lt": lambda bound: LabelValues(most=bound - 1, present=True),
    "Lte": lambda bound: LabelValues(most=bound, present=True),
}
OPERATORS: Final = (*_LISTING, *_LONE, *_BOUNDS)


class Requirements(msgspec.Struct, frozen=True):
    """The requirements of a pool on the labels of its nodes.

    Attributes:
        labels: the possible values of each label by key; a missing label may have any value.
        unreadable: the keys of requirements that can't be read; None if the key itself can't be read.
        problems: the problems with requirements that can't be read, each with its field.
    """

    labels: Mapping[str, LabelValues]
    unreadable: frozenset[str | None] = frozenset()
    problems: tuple[str, ...] = ()

    def of(self, key: str) -> LabelValues:
        """Return the possible values of a label."""
        return self.labels.get(key, ANYTHING)

    def admits_only(self, key: str, value: str) -> bool:
        """Return whether all nodes have this label."""
        return self.of(key).values == frozenset((value,))

    def is_unreadable(self, key: str) -> bool:
        """Return whether a requirement that can't be read is, or may be, for this label."""
        return key in self.unreadable or None in self.unreadable

    def admits(self, needs: tuple[Requirement, ...]) -> bool:
        """Return whether one node may meet both these requirements and a Pod's. Ignore unreadable requirements."""
        by_key: dict[str, list[Requirement]] = {}
        for need in needs:
            by_key.setdefault(WELL_KNOWN.deprecated_keys.get(need.key, need.key), []).append(need)
        # A node can always meet a single requirement on a label that the pool doesn't mention.
        return all(self._meets(key, same) for key, same in by_key.items() if len(same) > 1 or key in self.labels)

    def _meets(self, key: str, needs: list[Requirement]) -> bool:
        read = [meant for need in needs if isinstance(meant := _values_of(need.operator, need.values), LabelValues)]
        if not read:
            return True
        wanted = LabelValues.all_of(read)
        return wanted.possible if (own := self.labels.get(key)) is None else own.meets(wanted)

    def narrowed(self, labels: Mapping[str, LabelValues]) -> Requirements:
        """Return these requirements, combined with further requirements on some labels."""
        narrower = {key: LabelValues.all_of((self.of(key), values)) for key, values in labels.items()}
        return replace(self, labels={**self.labels, **narrower})

    @property
    def impossible(self) -> str:
        """Return the first label key whose requirements no node can meet. Return an empty string if there is none."""
        return min((key for key, values in self.labels.items() if not values.possible), default="")


NO_REQUIREMENTS: Final = Requirements({})


def read_requirements(content: object, field: str, given: Mapping[str, str]) -> Requirements:
    """Parse a list of ``{key, operator, values}``.

    The labels that the pool declares for its nodes, ``given``, are also requirements.
    """
    several: dict[str, list[LabelValues]] = {}
    for label, value in given.items():
        label_values = LabelValues(present=True) if placeholder_in(value) else _of_list((value,))
        several.setdefault(WELL_KNOWN.deprecated_keys.get(label, label), []).append(label_values)
    unreadable: set[str | None] = set()
    problems: list[str] = []
    if problem := _unbounded(content):
        unreadable.add(None)
        problems.append(f"{field} {problem}")
    items: list[Any] = content if isinstance(content, list) and not problem else []
    for index, item in enumerate(items):
        written = item.get("key") if isinstance(item, dict) else None
        key = WELL_KNOWN.deprecated_keys.get(written, written) if isinstance(written, str) else None
        values = _values_of(item.get("operator"), item.get("values")) if key else "has no key"
        if placeholder := placeholder_in(item):
            key, values = None if placeholder_in(key) else key, f"has the placeholder {placeholder}"
        if isinstance(values, LabelValues) and key is not None:
            several.setdefault(key, []).append(values)
        else:
            unreadable.add(key)
            problems.append(f"{field}[{index}] {values}")
    labels = {key: LabelValues.all_of(parts) for key, parts in several.items()}
    return Requirements(labels, frozenset(unreadable), tuple(problems))


def _unbounded(content: object) -> str:
    """Return why the content isn't a readable list of requirements. Return an empty string if it is."""
    if not isinstance(content, list):
        return "is missing" if content is None else f"is {placeholder_before(content)}not a list"
    if len(content) > POOL_ITEMS:
        return f"has {len(content):,} items, more than the {POOL_ITEMS:,} that are read"
    lists = (item.get("values") for item in content if isinstance(item, dict))
    count = sum(len(values) for values in lists if isinstance(values, list))
    return f"has {count:,} values, more than the {_VALUES:,} that are read" if count > _VALUES else ""


def _values_of(operator: object, values: object) -> LabelValues | str:
    """Return the values that an operator and its operands admit, or the problem with them."""
    if operator in _LONE:
        return LabelValues(present=operator == "Exists")
    if not isinstance(operator, str) or operator not in OPERATORS:
        named = f"operator {operator[:_SHOWN]!r}" if isinstance(operator, str) else "an operator that is not text"
        return f"has {named}, not one of {', '.join(OPERATORS)}"
    if not isinstance(values, list | tuple) or not values or not all(isinstance(value, str) for value in values):
        return f"has operator {operator}, which requires a list of strings; write numbers and booleans in quotes"
    if operator in _LISTING:
        return _of_list(values) if operator == "In" else LabelValues(excluded=frozenset(values))
    bound = _integer(values[0]) if len(values) == 1 else None
    return f"has operator {operator}, which requires one integer" if bound is None else _BOUNDS[operator](bound)


def _of_list(values: Iterable[str]) -> LabelValues:
    return LabelValues(listed=frozenset(values), present=True)


def _integer(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS else None

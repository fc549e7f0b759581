"""Compile and match label selectors (metav1.LabelSelector)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class LabelSelector:
    """ANDed label requirements: ``(key, operator, values)`` with In, NotIn, Exists, or DoesNotExist."""

    __slots__ = ("requirements",)

    def __init__(self, requirements: Iterable[tuple[str, str, Iterable[str]]]) -> None:
        self.requirements = tuple((key, operator, frozenset(values)) for key, operator, values in requirements)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSelector) and self.requirements == other.requirements

    def __hash__(self) -> int:
        return hash(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels meet all requirements. As in Kubernetes, NotIn also matches an absent label."""
        for key, operator, values in self.requirements:
            value = labels.get(key)
            match operator:
                case "In":
                    holds = value in values
                case "NotIn":
                    holds = value not in values
                case "Exists":
                    holds = value is not None
                case _:
                    holds = value is None
            if not holds:
                return False
        return True

    def could_match_with_others(self, known: Mapping[str, str]) -> bool:
        """Return whether the selector doesn't match these labels, but could match with additional labels."""
        on_known = LabelSelector(requirement for requirement in self.requirements if requirement[0] in known)
        return on_known.matches(known) and not self.matches(known)

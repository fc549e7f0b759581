"""Compile and match label selectors (metav1.LabelSelector)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

LabelSelector: TypeAlias = tuple[tuple[str, str, frozenset[str]], ...]
"""ANDed label requirements: ``(key, operator, values)`` with In, NotIn, Exists, or DoesNotExist."""


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether the labels meet all requirements. As in Kubernetes, NotIn also matches an absent label."""
    for key, operator, values in selector:
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


def could_match_with_others(selector: LabelSelector, known: Mapping[str, str]) -> bool:
    """Return whether the selector doesn't match these labels, but could match with additional labels."""
    on_known = tuple(requirement for requirement in selector if requirement[0] in known)
    return matches(on_known, known) and not matches(selector, known)

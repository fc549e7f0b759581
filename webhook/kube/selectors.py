"""Compile and match label selectors (metav1.LabelSelector)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

LabelSelector: TypeAlias = tuple[tuple[str, str, frozenset[str]], ...]
"""ANDed label requirements: ``(key, operator, values)`` with In, NotIn, Exists, or DoesNotExist."""


def label_selector(labels: Mapping[str, str], expressions: Iterable[tuple[str, str, Iterable[str]]]) -> LabelSelector:
    """Return the requirements of ``matchLabels`` and ``matchExpressions``."""
    equal = ((key, "In", (value,)) for key, value in labels.items())
    return tuple((key, operator, frozenset(values)) for key, operator, values in (*equal, *expressions))


def holds(operator: str, value: str | None, values: Container[str]) -> bool:
    """Return whether a label with this value, or without one, meets a requirement with one of the four operators.

    As in Kubernetes, NotIn also accepts an absent label.
    """
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether the labels meet all requirements."""
    for key, operator, values in selector:  # noqa: SIM110 - `all` takes twice as long, for each policy and request
        if not holds(operator, labels.get(key), values):
            return False
    return True


def could_match_with_others(selector: LabelSelector, known: Mapping[str, str]) -> bool:
    """Return whether the selector doesn't match these labels, but could match with additional labels."""
    on_known = tuple(requirement for requirement in selector if requirement[0] in known)
    return matches(on_known, known) and not matches(selector, known)

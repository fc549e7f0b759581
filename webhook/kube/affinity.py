"""Match labels: label selectors (metav1.LabelSelector), and a Pod's nodeSelector and node affinity.

A node pool declares only some of its nodes' labels. An undeclared label is unknown, not absent, and a result that
depends on an unknown label is unknown too.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#affinity-and-anti-affinity
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from webhook.kube.pod import NodeSelector, PodSpec, Requirement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping

REQUIRED: Final = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"

LabelSelector: TypeAlias = tuple[tuple[str, str, frozenset[str]], ...]
"""ANDed label requirements: ``(key, operator, values)`` with In, NotIn, Exists, or DoesNotExist."""

_POSITIVE: Final = frozenset({"In", "Exists", "Gt", "Lt"})
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
"""A 64-bit integer, as the scheduler parses it."""


class Tristate(IntEnum):
    """A truth value with three states. AND is the minimum, and OR is the maximum."""

    NO = 0
    UNKNOWN = 1
    YES = 2


class Term(msgspec.Struct, frozen=True):
    """The ANDed requirements of the nodeSelector and one affinity term.

    Attributes:
        fields: the term's ``matchFields``, which select individual nodes by name.
    """

    requirements: tuple[Requirement, ...]
    fields: tuple[Requirement, ...] = ()

    def admits(self, labels: Mapping[str, str], absent: Collection[str] = ()) -> Tristate:
        """Return whether the term admits nodes that have these labels, and no label with one of the ``absent`` keys."""
        answer = Tristate.UNKNOWN if self.fields else Tristate.YES
        for requirement in self.requirements:
            answer = min(answer, _holds(requirement, labels, absent))
            if answer is Tristate.NO:
                break
        return Tristate.NO if answer is Tristate.UNKNOWN and _conflict(self.requirements) else answer

    def demands(self, keys: Collection[str]) -> bool:
        """Return whether the term requires nodes to have a label with one of these keys."""
        return any(requirement.key in keys and requirement.operator in _POSITIVE for requirement in self.requirements)

    def lists(self, keys: Collection[str]) -> bool:
        """Return whether the term lists values of a label with one of these keys."""
        return any(requirement.key in keys and requirement.operator == "In" for requirement in self.requirements)


ANYWHERE: Final = (Term(()),)
"""The terms of a Pod without a nodeSelector and a required node affinity."""


def terms_of(spec: PodSpec) -> tuple[Term, ...]:
    """Return the ORed terms of a Pod's nodeSelector and required node affinity.

    A Pod without constraints has the terms `ANYWHERE`. A Pod that can't match any node has no terms.
    """
    required = required_of(spec)
    if required is None and not spec.nodeSelector:
        return ANYWHERE
    selector = tuple(Requirement(key, "In", (value,)) for key, value in (spec.nodeSelector or {}).items())
    if required is None:
        return (Term(selector),)
    return tuple(
        Term((*selector, *(term.matchExpressions or ())), tuple(term.matchFields or ()))
        for term in required.nodeSelectorTerms
        if term.matchExpressions or term.matchFields
    )


def preferences_of(spec: PodSpec) -> tuple[Term, ...]:
    """Return the terms of a Pod's preferred node affinity."""
    if spec.affinity is None or spec.affinity.nodeAffinity is None:
        return ()
    preferred = spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution or ()
    return tuple(Term(tuple(weighted.preference.matchExpressions or ())) for weighted in preferred)


def admits(terms: tuple[Term, ...], labels: Mapping[str, str], absent: Collection[str] = ()) -> Tristate:
    """Return whether at least one term admits nodes with these labels. See `Term.admits`."""
    return max((term.admits(labels, absent) for term in terms), default=Tristate.NO)


class Unmet(NamedTuple):
    """A constraint of a Pod that excludes nodes.

    Attributes:
        field: its path.
        demand: what it requires, as a phrase.
        requirement: its requirement, if there is one.
    """

    field: str
    demand: str
    requirement: Requirement | None = None


def unmet_constraint(spec: PodSpec, suits: Callable[[Term], bool]) -> Unmet | None:
    """Return the constraint that excludes the nodes, or None if the Pod's constraints may admit them.

    ``suits`` returns whether a term may admit them.
    """
    if conflict := contradiction(spec):
        demand = ", contradicting ".join(map(describe, conflict))
        return Unmet(f"{REQUIRED}.nodeSelectorTerms", demand, conflict[-1])
    for key, value in (spec.nodeSelector or {}).items():
        requirement = Requirement(key, "In", (value,))
        if not suits(Term((requirement,))):
            return Unmet(f'spec.nodeSelector["{key}"]', f"{key}: {value}", requirement)
    if any(map(suits, terms_of(spec))):
        return None
    required = required_of(spec)
    for number, term in enumerate(required.nodeSelectorTerms if required is not None else ()):
        for index, requirement in enumerate(term.matchExpressions or ()):
            if not suits(Term((requirement,))):
                field = f"{REQUIRED}.nodeSelectorTerms[{number}].matchExpressions[{index}]"
                return Unmet(field, describe(requirement), requirement)
    return Unmet(f"{REQUIRED}.nodeSelectorTerms", "terms that match no node")


def contradiction(spec: PodSpec) -> list[Requirement]:
    """Return the contradicting requirements of a Pod that matches no node, or an empty list."""
    conflicts = [_conflict(term.requirements) for term in terms_of(spec)]
    return conflicts[0] if all(conflicts) and conflicts else []


def _conflict(requirements: tuple[Requirement, ...]) -> list[Requirement]:
    """Return the requirements on one key that contradict each other, or an empty list. Gt and Lt aren't compared."""
    if len({need.key for need in requirements}) == len(requirements):
        return []
    left: dict[str, set[str | None]] = {}
    for need in sorted(requirements, key=lambda need: need.operator not in {"In", "DoesNotExist"}):
        values: set[str | None] = {None} if need.operator == "DoesNotExist" else set(need.values or ())
        if need.operator in {"In", "DoesNotExist"}:
            left[need.key] = values & left.get(need.key, values)
        elif need.key in left and (need.operator == "NotIn" or need.operator in _POSITIVE):
            left[need.key] -= values if need.operator == "NotIn" else {None}
    return [need for need in requirements if not left.get(need.key, need)]


def describe(requirement: Requirement) -> str:
    """Format a requirement: ``a/b NotIn [x, y]``."""
    values = f" [{', '.join(requirement.values)}]" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def required_of(spec: PodSpec) -> NodeSelector | None:
    """Return the required node affinity, or None if there is none."""
    if spec.affinity is None or spec.affinity.nodeAffinity is None:
        return None
    return spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution


def _holds(requirement: Requirement, labels: Mapping[str, str], absent: Collection[str]) -> Tristate:
    value = labels.get(requirement.key)
    if value is None and requirement.key not in absent:
        return Tristate.UNKNOWN
    values = requirement.values or ()
    match requirement.operator:
        case "In" | "NotIn" | "Exists" | "DoesNotExist":
            admitted = holds(requirement.operator, value, values)
        case "Gt" | "Lt":
            admitted = _compares(value, requirement.operator, values)
        case _:  # the API server rejects other operators
            return Tristate.UNKNOWN
    return Tristate.YES if admitted else Tristate.NO


def _compares(value: str | None, operator: str, values: tuple[str, ...]) -> bool:
    texts = (value or "", *values)
    if len(values) != 1 or not all(map(_INTEGER.fullmatch, texts)):
        return False
    left, right = map(int, texts)
    return left > right if operator == "Gt" else left < right


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

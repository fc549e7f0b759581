"""Precedence among policies of one kind that match the same Pod, for the kinds where exactly one policy decides.

Users set precedence in ``overrides``. Names and files don't affect it. Two policies without precedence must match
different Pods, or have different providers. Otherwise, loading the policies fails.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations, product
from typing import TYPE_CHECKING

import msgspec

from webhook.base.globs import may_share_a_name
from webhook.policy.common import DecidingSpec, LabelSelectorSpec
from webhook.policy.errors import Problem, did_you_mean
from webhook.policy.match import compile_selector
from webhook.policy.terms import Enforcement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from webhook.policy.document import PolicyDocument


class Standing(msgspec.Struct, frozen=True):
    """The precedence of one policy among the policies of its kind, by name.

    Attributes:
        overrides: the policies that it replaces for Pods that both match, directly or through other policies.
        overridden_by: the policies that replace it for Pods that both match.
        rivals: the policies for other providers that can match the same Pod. The provider of the Pod's nodes decides.
    """

    overrides: frozenset[str] = frozenset()
    overridden_by: frozenset[str] = frozenset()
    rivals: frozenset[str] = frozenset()


ALONE = Standing()


def standings(
    documents: Iterable[PolicyDocument], is_shipped: Callable[[PolicyDocument], bool], problems: list[Problem]
) -> Mapping[str, Standing]:
    """Return the standing of each policy in force, unless it is `ALONE`. Add mistakes to ``problems``."""
    kinds: dict[str, dict[str, PolicyDocument]] = defaultdict(dict)
    all_kinds: dict[str, str] = {}
    for document in documents:
        all_kinds[document.name] = document.kind
        if isinstance(document.spec, DecidingSpec):
            kinds[document.kind][document.name] = document
    by_name: dict[str, Standing] = {}
    for policies in kinds.values():
        mistakes = [mistake for policy in policies.values() for mistake in _mistakes(policy, policies, all_kinds)]
        problems += mistakes
        if mistakes:  # a wrong name would cause a second error, because it leaves two policies without precedence
            continue
        lower = {name: _overridden(name, policies) for name in policies}
        for name, names in lower.items():
            if name in names and name not in policies[name].spec.overrides:
                via = ", ".join(policies[name].spec.overrides)
                text = f"it overrides itself through {via}; remove one `overrides`"
                problems.append(policies[name].problem(("spec", "overrides"), text))
        by_name |= _of_kind(policies, lower, is_shipped, problems)
    return by_name


def _of_kind(
    policies: Mapping[str, PolicyDocument],
    lower: Mapping[str, frozenset[str]],
    is_shipped: Callable[[PolicyDocument], bool],
    problems: list[Problem],
) -> dict[str, Standing]:
    in_force = {name: policy for name, policy in policies.items() if policy.in_force}
    rivals: dict[str, set[str]] = defaultdict(set)
    for one, other in combinations(in_force.values(), 2):
        if one.name in lower[other.name] or other.name in lower[one.name] or _are_disjoint(one.spec, other.spec):
            continue
        if one.spec.provider and other.spec.provider and not set(one.spec.provider) & set(other.spec.provider):
            rivals[one.name].add(other.name)
            rivals[other.name].add(one.name)
            continue
        first, second = sorted((one, other), key=lambda side: (is_shipped(side), not side.spec.overrides, side.name))
        place = "shipped" if is_shipped(second) else f"{second.document.file}:{second.document.line}"
        text = (
            f"{first.name} and {second.name} ({place}) can match the same Pod, and only one {first.kind} decides: "
            f"write `overrides: [{second.name}]` here, or make them match different Pods"
        )
        problems.append(first.problem(("spec",), text))
    by_name = {
        name: Standing(
            overrides=lower[name] & in_force.keys(),
            overridden_by=frozenset(other for other in in_force if name in lower[other]),
            rivals=frozenset(rivals[name]),
        )
        for name in in_force
    }
    return {name: standing for name, standing in by_name.items() if standing != ALONE}


def _mistakes(
    policy: PolicyDocument, policies: Mapping[str, PolicyDocument], kinds: Mapping[str, str]
) -> Iterable[Problem]:
    for number, name in enumerate(policy.spec.overrides):
        if name == policy.name:
            text = "a policy can't override itself"
        elif name in policies:
            continue
        elif name in kinds:
            text = f"{name} is of kind {kinds[name]}; a policy can only override policies of the same kind"
        else:
            hint = did_you_mean(name, sorted(policies.keys() - {policy.name}))
            text = f"there is no {policy.kind} {name}{hint or '; to load the shipped ones: `--policies shipped`'}"
        yield policy.problem(("spec", "overrides", number), text)
    if policy.spec.overrides and policy.spec.enforcement is Enforcement.OFF:
        names = ", ".join(policy.spec.overrides)
        text = f"a policy that is off overrides nothing, and {names} would decide; to leave Pods alone, write `exempt`"
        yield policy.problem(("spec", "overrides"), text)


def _overridden(name: str, policies: Mapping[str, PolicyDocument]) -> frozenset[str]:
    """Return the policies that a policy overrides, directly or through other policies."""
    overridden: set[str] = set()
    todo = {name}
    while todo:
        todo = {below for above in todo for below in policies[above].spec.overrides if below in policies} - overridden
        overridden |= todo
    return frozenset(overridden)


def _are_disjoint(one: DecidingSpec, other: DecidingSpec) -> bool:
    """Return whether no Pod can match both, because their namespace names differ, or their values for a label."""
    includes = one.match.namespaces.include, other.match.namespaces.include
    if all(includes) and not any(may_share_a_name(*pair) for pair in product(*includes)):
        return True
    return any(
        not values & theirs.get(key, values)
        for selector in ("namespace_selector", "object_selector")
        for mine, theirs in [(_demanded(getattr(one.match, selector)), _demanded(getattr(other.match, selector)))]
        for key, values in mine.items()
    )


def _demanded(selector: LabelSelectorSpec | None) -> dict[str, frozenset[str]]:
    """Return the values that the selector's ``In`` requirements accept, by label key."""
    demanded: dict[str, frozenset[str]] = {}
    for key, operator, values in compile_selector(selector) or ():
        if operator == "In":
            demanded[key] = values & demanded.get(key, values)
    return demanded


def claim(providers: Sequence[str], of_pod: Iterable[str]) -> tuple[bool, str]:
    """Return a sort key for rival policies: among the policies that match a Pod, the smallest key decides.

    A policy that names a provider of the Pod's nodes precedes the others. Rivals share no provider, so keys differ.
    """
    known = frozenset(of_pod)
    return min((name not in known, name) for name in providers)

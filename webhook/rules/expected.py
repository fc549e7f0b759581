"""Check that a policy's ``match`` names only what its kind evaluates."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from webhook.model.review import OPERATIONS
from webhook.policy.errors import SpecError, SpecErrors, did_you_mean
from webhook.policy.match import ResourceRule, is_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.policy.common import MatchSpec


def expect_judged(match: MatchSpec, rules: Sequence[ResourceRule], what: str) -> None:
    """Raise SpecErrors if ``match`` names a resource or an operation that the policy kind doesn't evaluate.

    ``rules`` lists all resources that the kind evaluates, without wildcards; ``what`` is a phrase for them.
    """
    known = [(of, rule.operations) for rule in rules for of in product(rule.api_groups, rule.resources)]
    mistakes: list[SpecError] = []
    for number, rule in enumerate(match.resource_rules or ()):
        for place, path in enumerate(rule.resources):
            written = ResourceRule(api_groups=rule.api_groups, resources=(path,), operations=())
            named = " or ".join(f"{path} of {group or 'the core group'}" for group in rule.api_groups)
            possible = {word for of, operations in known if is_named(written, *of) for word in operations}
            if not possible:
                hint = did_you_mean(named, [f"{resource} of {group}" for (group, resource), _ in known])
                text = f"this kind doesn't evaluate {named}{hint}; it evaluates {what}"
            elif possible.isdisjoint(rule.operations) and "*" not in rule.operations:
                allowed = ", ".join(word for word in OPERATIONS if word in possible)
                text = f"this kind evaluates {named} only on {allowed}"
            else:
                continue
            mistakes.append(SpecError(("match", "resourceRules", number, "resources", place), text))
    if mistakes:
        raise SpecErrors(mistakes)

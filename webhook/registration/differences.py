"""Compare the webhook configurations of a cluster with the ones that its policies require."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.registration.cel import JSON

RULES: Final = "rules"
CONDITIONS: Final = "matchConditions"
_DEFAULTS: Final[JSON] = {"namespaceSelector": {}, "objectSelector": {}}
"""Fields that the API server defaults."""


class Deviation(NamedTuple):
    """One difference of a webhook.

    Attributes:
        webhook: the name of the webhook.
        field: the field that differs; empty if the whole webhook does.
        what: the difference, in words.
    """

    webhook: str
    field: str
    what: str


def differences(wanted: Iterable[JSON], stored: Iterable[JSON]) -> Iterator[Deviation]:
    """Yield the differences of the stored webhooks from the wanted ones, except in `clientConfig`."""
    expected = {webhook["name"]: _DEFAULTS | webhook for webhook in wanted}
    present = {webhook["name"]: _DEFAULTS | webhook for webhook in stored}
    for name in sorted(expected.keys() | present.keys()):
        if name not in present:
            yield Deviation(name, "", "is missing")
        elif name not in expected:
            yield Deviation(name, "", "belongs to none of these policies")
        else:
            ours, theirs = expected[name], present[name]
            for field in sorted((ours.keys() | theirs.keys()) - {"clientConfig"}):
                if what := _in_words(field, ours.get(field), theirs.get(field)):
                    yield Deviation(name, field, what)


def _in_words(field: str, wanted: Any, stored: Any) -> str:
    """Return the difference of a field in words, or an empty string if both values mean the same."""
    if field not in {RULES, CONDITIONS}:
        return "" if wanted == stored else "is not as rendered"
    parts = _asked if field == RULES else _conditions
    ours, theirs = parts(wanted or ()), parts(stored or ())
    deviations = (
        ("lacks", ours.keys() - theirs.keys()),
        ("also has", theirs.keys() - ours.keys()),
        ("differs in", {key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key]}),
    )
    return "; ".join(f"{verb} {', '.join(sorted(keys))}" for verb, keys in deviations if keys)


def _asked(rules: Iterable[JSON]) -> Mapping[str, object]:
    """Return the requests that rules select, by resource, independent of how they are divided into rules."""
    asked: dict[str, set[tuple[str, ...]]] = {}
    for rule in rules:
        calls = set(product(rule["operations"], rule["apiVersions"], [rule.get("scope", "*")]))
        for group, resource in product(rule["apiGroups"], rule["resources"]):
            asked.setdefault(f"{resource}.{group}".rstrip("."), set()).update(calls)
    return asked


def _conditions(conditions: Iterable[JSON]) -> Mapping[str, object]:
    return {condition["name"]: condition["expression"] for condition in conditions}

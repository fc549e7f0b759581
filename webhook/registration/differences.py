"""Compare the webhook configurations of a cluster with those that its policies need."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.registration.cel import JSON

RULES: Final = "rules"
CONDITIONS: Final = "matchConditions"
_DEFAULTS: Final[JSON] = {"namespaceSelector": {}, "objectSelector": {}}
"""What the API server fills in."""


class Deviation(NamedTuple):
    """One difference of a webhook.

    Attributes:
        webhook: its name.
        field: what differs; empty: the whole webhook is missing, or is none of these policies.
        what: what differs, in words.
    """

    webhook: str
    field: str
    what: str


def differences(wanted: Iterable[JSON], stored: Iterable[JSON]) -> Iterator[Deviation]:
    """Yield how the webhooks of a stored configuration differ from the wanted ones. `clientConfig` is not compared."""
    expected = {webhook["name"]: _DEFAULTS | webhook for webhook in wanted}
    there = {webhook["name"]: _DEFAULTS | webhook for webhook in stored}
    for name in sorted(expected.keys() | there.keys()):
        if name not in there:
            yield Deviation(name, "", "is missing")
        elif name not in expected:
            yield Deviation(name, "", "is none of these policies")
        else:
            yield from _of_fields(name, expected[name], there[name])


def _of_fields(name: str, wanted: JSON, stored: JSON) -> Iterator[Deviation]:
    for field in sorted((wanted.keys() | stored.keys()) - {"clientConfig"}):
        before, after = wanted.get(field), stored.get(field)
        if before != after and (what := _in_words(field, before, after)):
            yield Deviation(name, field, what)


def _in_words(field: str, wanted: Any, stored: Any) -> str:  # noqa: ANN401 - JSON
    if field not in {RULES, CONDITIONS}:
        return "is not as rendered"
    parts = _asked if field == RULES else _conditions
    ours, theirs = parts(wanted or ()), parts(stored or ())
    said = (
        ("lacks", ours.keys() - theirs.keys()),
        ("has besides", theirs.keys() - ours.keys()),
        ("differs in", (key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key])),
    )
    return "; ".join(f"{verb} {', '.join(names)}" for verb, keys in said if (names := sorted(keys)))


def _asked(rules: Iterable[JSON]) -> Mapping[str, object]:
    """Return what rules ask about, by resource; how it is divided into rules makes no difference."""
    asked: dict[str, set[tuple[str, ...]]] = {}
    for rule in rules:
        calls = set(product(rule["operations"], rule["apiVersions"], [rule.get("scope", "*")]))
        for group, resource in product(rule["apiGroups"], rule["resources"]):
            asked.setdefault(f"{resource}.{group}".rstrip("."), set()).update(calls)
    return asked


def _conditions(conditions: Iterable[JSON]) -> Mapping[str, object]:
    return {condition["name"]: condition["expression"] for condition in conditions}

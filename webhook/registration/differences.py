"""Compare the webhook configurations of a cluster with those that its policies need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.registration.cel import JSON

RULES: Final = "rules"
CONDITIONS: Final = "matchConditions"
_DEFAULTS: Final[JSON] = {"namespaceSelector": {}, "objectSelector": {}}
"""Fields that the API server fills in."""


class Deviation(NamedTuple):
    """One difference of a webhook.

    Attributes:
        webhook: its name.
        field: the field that differs; empty if the whole webhook does.
        what: the difference, in words.
    """

    webhook: str
    field: str
    what: str


def differences(wanted: Iterable[JSON], stored: Iterable[JSON]) -> Iterator[Deviation]:
    """Yield how the webhooks of a stored configuration differ from the wanted ones. `clientConfig` is not compared."""
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
                if ours.get(field) != theirs.get(field):
                    yield Deviation(name, field, "is not as rendered")

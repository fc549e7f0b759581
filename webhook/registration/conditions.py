"""Write the parts of ``matchConditions`` that are the same for all webhooks.

The API server skips a webhook with failurePolicy Ignore where a condition fails or costs too much, so none may. Members
are read with ``.?``. Large maps and long keys make a condition true before they are searched: the cost of `contains` is
the length.

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions;
    k8s.io/apiserver, pkg/apis/cel/config.go (1,000,000 for an expression, 2,500,000 for all of a webhook)
"""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Final

from webhook.registration.cel import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.rules.concern import Keys

MEMBERS_AT_MOST: Final = 64
"""Members of a map that are tested one by one. People write a dozen; a key costs some 120, so a map 8,000."""
KEY_LENGTH_AT_MOST: Final = 128
"""Characters of a key that is tested. Kubernetes takes 317, and people write some 40."""

RESOURCE: Final = "request.resource.group + '/' + request.resource.resource"
SUBRESOURCE: Final = "request.?subResource.orValue('')"
REFERENCE: Final = f"{RESOURCE} + '/' + {SUBRESOURCE}"
"""The `reference` of the resource of the request."""


def reference(group: str, path: str) -> str:
    """Return a text for a resource, such as ``apps/deployments/``, or a subresource."""
    resource, _, subresource = path.partition("/")
    return f"{group}/{resource}/{subresource}"


def any_of(lines: Iterable[str]) -> str:
    """Join expressions by ``||``, a line for each."""
    return " ||\n".join(lines)


def block(before: str, lines: Iterable[str]) -> str:
    """Join expressions by ``||`` and close a bracket that ``before`` has opened."""
    return f"{before}\n{indent(any_of(lines), '  ')}\n)"


def has_keys(map_: str, keys: Keys) -> Iterator[str]:
    """Yield expressions that are true if a map of strings has one of the keys, or too many members to search."""
    yield from (f"{quoted(key)} in {map_}" for key in sorted(keys.exact))
    if keys.containing:
        yield f"{map_}.size() > {MEMBERS_AT_MOST}"
        yield f"{map_}.exists(key, {_contains(keys)})"


def changes_annotations(keys: Keys, *, at_most: int = MEMBERS_AT_MOST) -> Iterator[str]:
    """Yield expressions that are true if an UPDATE changes an annotation with one of the keys.

    An annotation that the UPDATE removes counts if its key is among ``exact``.
    """
    new = "object.?metadata.?annotations"
    differs = f"{new}[?key] != oldObject.?metadata.?annotations[?key]"
    if keys.exact:
        yield f"{literal(sorted(keys.exact))}.exists(key, {differs})"
    if keys.containing:
        yield f"{new}.orValue({{}}).size() > {at_most}"
        yield f"{new}.orValue({{}}).exists(key, ({_contains(keys)}) && {differs})"


def _contains(keys: Keys) -> str:
    texts = (f"key.contains({quoted(text)})" for text in sorted(keys.containing))
    return " || ".join([f"key.size() > {KEY_LENGTH_AT_MOST}", *texts])

"""Write the parts of ``matchConditions`` that all webhooks share.

The API server skips a webhook with failurePolicy Ignore if a condition fails or exceeds the cost limit, so no condition
may. Read members with ``.?``. Large maps and long keys make a condition true without a search, because the cost of
`contains` grows with the length.

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions;
    k8s.io/apiserver, pkg/apis/cel/config.go (1,000,000 for an expression, 2,500,000 for all of a webhook)
"""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Final

from webhook.engine.enforcement import BUILT_IN_CONTROLLERS
from webhook.registration.cel import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.rules.protocol import Keys

MEMBERS_AT_MOST: Final = 64
"""Members of a map that are tested one by one. Users write about a dozen. A key costs about 120, so a map 8,000."""
KEY_LENGTH_AT_MOST: Final = 128
"""Characters of a key that is tested. Kubernetes allows 317, and users write about 40."""

RESOURCE: Final = "request.resource.group + '/' + request.resource.resource"
SUBRESOURCE: Final = "request.?subResource.orValue('')"
REFERENCE: Final = f"{RESOURCE} + '/' + {SUBRESOURCE}"
"""The expression for the `reference` of the request's resource."""

CONTROLLERS_POD: Final = (
    f"{REFERENCE} == '/pods/' && request.operation == 'CREATE' && "
    f"request.userInfo.?username.orValue('') in {literal(sorted(BUILT_IN_CONTROLLERS))}"
)
"""The expression for `webhook.engine.enforcement.is_controllers_pod`."""


def reference(group: str, path: str) -> str:
    """Return the text that identifies a resource, such as ``apps/deployments/``, or a subresource."""
    resource, _, subresource = path.partition("/")
    return f"{group}/{resource}/{subresource}"


def any_of(lines: Iterable[str]) -> str:
    """Join expressions with ``||``, one on each line."""
    return " ||\n".join(lines)


def block(before: str, lines: Iterable[str]) -> str:
    """Join expressions with ``||``, and close the parenthesis that ``before`` opens."""
    return f"{before}\n{indent(any_of(lines), '  ')}\n)"


def has_keys(map_: str, keys: Keys) -> Iterator[str]:
    """Yield expressions that are true if a map of strings has one of the keys or too many members to search."""
    yield from (f"{quoted(key)} in {map_}" for key in sorted(keys.exact))
    if keys.containing:
        yield f"{map_}.size() > {MEMBERS_AT_MOST}"
        yield f"{map_}.exists(key, {_contains(keys)})"


def changes_annotations(keys: Keys, *, at_most: int = MEMBERS_AT_MOST) -> Iterator[str]:
    """Yield expressions that are true if an UPDATE changes an annotation with one of the keys.

    Removing an annotation counts only if its key is in ``exact``.
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

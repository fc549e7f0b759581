"""Convert a subject to the values that expressions read, which docs/policies/validation.md lists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.base.caching import identity_cache
from webhook.cel.errors import HAS_NUL, NOT_KNOWN
from webhook.cel.names import NAMES
from webhook.policy.match import RequestAttributes

if TYPE_CHECKING:
    from webhook.capacity.providers.pool import Pool
    from webhook.cel.library import Language, Values
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject

_WITH_POOLS: Final = "cel with pools"
_WITHOUT_POOLS: Final = "cel"
_NUL: Final = b"\\u0000"
_REMEMBERED: Final = 4
"""States of the node pools in the cache: the newest, and those of requests in progress."""


def values_of(subject: Subject, context: Context, language: Language, *, pools: bool) -> Values:
    """Return the values for the expressions on this subject, which all policies share.

    Policies that read the pools share a second result, because a cluster can have many pools.
    """
    memo, other = (_WITH_POOLS, _WITHOUT_POOLS) if pools else (_WITHOUT_POOLS, _WITH_POOLS)
    values: Values | None = subject.memo.get(memo)
    if values is None:
        shown = _shown(subject, context)
        if pools and context.view.pools is not None:
            shown["pools"] = _plain_pools(context.view.pools)
        part_of = len(subject.request.object) if subject.template else 0
        values = subject.memo[memo] = language.values(shown, subject.memo.get(other), part_of)
    return values


def _shown(subject: Subject, context: Context) -> dict[str, Any]:
    request, view = subject.request, context.view
    shown = subject.shown
    # Search only the template, not the whole object again for each template.
    written = (msgspec.json.encode(shown),) if subject.template else map(bytes, (request.object, request.old_object))
    nul = any(_NUL in text for text in written)
    old = None if subject.template else subject.old_object
    user = request.user_info
    about = _about(subject)
    values: dict[str, Any] = {
        "object": HAS_NUL if nul and _has_nul(shown) else shown,
        "oldObject": HAS_NUL if nul and _has_nul(old) else old,
        "request": about,
        "request.userInfo": NOT_KNOWN,
        "namespaceObject": None,
        "pools": NOT_KNOWN,
    }
    if context.offline and old is None and subject.operation == "UPDATE":
        values["oldObject"] = NOT_KNOWN
    if user.username:
        values["request.userInfo"] = about["userInfo"] = {"username": user.username, "groups": list(user.groups or ())}
    if RequestAttributes.of(request).in_namespace:
        labels = view.namespaces.get(request.namespace)
        known = {"metadata": {"name": request.namespace, "labels": dict(labels or ())}}
        values["namespaceObject"] = NOT_KNOWN if labels is None else known
        values["namespaceObject.metadata.name"] = request.namespace
    return values


def _about(subject: Subject) -> dict[str, Any]:
    """Return the request as in the API server, without empty fields; for a template, the request of its future Pod."""
    request = subject.request
    about = {
        "operation": subject.operation,
        "kind": _POD if subject.template else msgspec.to_builtins(request.kind),
        "resource": _PODS if subject.template else msgspec.to_builtins(request.resource),
        "subResource": request.sub_resource,
        "name": "" if subject.template else request.name,
        "namespace": request.namespace,
        "dryRun": bool(request.dry_run),
    }
    return {key: value for key, value in about.items() if value not in ("", None)}


_POD: Final = {"group": "", "version": "v1", "kind": "Pod"}
_PODS: Final = {"group": "", "version": "v1", "resource": "pods"}


def _has_nul(value: object) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any("\0" in key or _has_nul(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_has_nul, value))


@identity_cache(maxsize=_REMEMBERED)
def _plain_pools(pools: tuple[Pool, ...]) -> list[dict[str, Any]]:
    return [_plain(pool) for pool in pools]


_CAPITAL: Final = re.compile("(?=[A-Z])")


def _plain(pool: Pool) -> dict[str, Any]:
    """Return the fields of a node pool for expressions. docs/policies/validation.md describes each field."""
    fields = NAMES.fields["pools[]"]
    values = {name: value for name in fields if (value := getattr(pool, _CAPITAL.sub("_", name).lower())) is not None}
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(values, order="deterministic"))
    return plain

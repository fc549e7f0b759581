"""Reject expressions that compile but can't work as written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.cel.errors import ExpressionError
from webhook.cel.reads import Reads, shown_path

if TYPE_CHECKING:
    from collections.abc import Mapping


KNOWN_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "request": ("operation", "kind", "resource", "subResource", "name", "namespace", "userInfo", "dryRun"),
    "request.kind": ("group", "version", "kind"),
    "request.resource": ("group", "version", "resource"),
    "request.userInfo": ("username", "groups"),
    "namespaceObject": ("metadata",),
    "namespaceObject.metadata": ("name", "labels"),
    "pools[]": (
        *("provider", "kind", "name", "namespace", "poolName", "capacity", "gpu", "gpuType", "gpuCount"),
        *("instanceType", "superchip", "autoscaling", "desired", "maximum", "taints", "labels", "zones", "cluster"),
        *("deleting", "unusable"),
    ),
    "pools[].taints[]": ("key", "value", "effect"),
}
"""The known fields of the request, its namespace, and node pools: fewer than in a ValidatingAdmissionPolicy."""

_VARIABLES: Final = frozenset({"object", "oldObject", "request", "namespaceObject", "pools", "params"})


def check(reads: Reads) -> None:
    """Check the names of items and the fields in an expression.

    Raise ExpressionError if a field doesn't exist, or if an item has the name of a variable: the library would read the
    variable instead.
    """
    if taken := reads.items & _VARIABLES:
        raise ExpressionError(f"`{min(taken)}` is the name of a variable: use another name here")
    for path, as_written in reads.paths.items():
        known = KNOWN_FIELDS.get(shown_path(path[:-1]), ())
        if known and path[-1] is not None and path[-1] not in known:
            hint = f", only {', '.join(known)}"
            raise ExpressionError(f"there is no `{as_written}`", path[-1], known=known, hint=hint)

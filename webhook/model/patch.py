"""JSON Patch (RFC 6902), and JSON Merge Patch (RFC 7386).

The webhook emits only ``add``, which replaces a member that exists. The same operation therefore applies before and
after the API server's defaulting. The webhook never replaces whole arrays: ``/-`` appends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from webhook.base.field_paths import parse_pointer
from webhook.model.review import decode_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Operation(msgspec.Struct, frozen=True):
    """An ``add`` operation, and the policy that it comes from.

    Attributes:
        path: a JSON pointer into the object of the request.
        value: JSON; finite numbers only.
        policy: the name of the policy; empty until the engine sets it.
    """

    path: str
    value: Any
    policy: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the operation in the format of RFC 6902."""
        return {"op": "add", "path": self.path, "value": self.value}


def pointer(segments: Iterable[str | int]) -> str:
    """Return the segments as a JSON pointer, with ``~`` and ``/`` escaped (RFC 6901)."""
    return "".join(f"/{str(segment).replace('~', '~0').replace('/', '~1')}" for segment in segments)


def apply_all(operations: Iterable[Operation], value: dict[str, Any]) -> dict[str, Any]:
    """Return the value with the operations applied, as `apply_json` does."""
    patched: dict[str, Any] = apply_json([operation.as_json() for operation in operations], value)
    return patched


def patched_object(raw: msgspec.Raw, operations: Sequence[Operation]) -> msgspec.Raw:
    """Return the object of a request with the operations applied."""
    return msgspec.Raw(msgspec.json.encode(apply_all(operations, decode_object(raw)))) if operations else raw


def apply_json(patch: Iterable[dict[str, Any]], value: Any) -> Any:
    """Return the value with ``add`` operations applied. Modify the containers on their paths in place."""
    for operation in patch:
        *steps, last = parse_pointer(operation["path"])
        added = msgspec.to_builtins(operation["value"])  # a copy, which later operations may change
        holder = value
        for step in steps:
            holder = holder[int(step)] if isinstance(holder, list) else holder[str(step)]
        if isinstance(holder, list):
            holder.insert(len(holder) if last == "-" else int(last), added)
        else:
            holder[str(last)] = added
    return value


def merge_patch(value: object, patch: object) -> Any:
    """Return the value with a JSON merge patch (RFC 7386) applied to it."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), change)
    return merged

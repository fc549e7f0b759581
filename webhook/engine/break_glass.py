"""Read the break-glass annotation, with which members of a policy's ``breakGlass`` groups override its denials."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.kube.pod import OwnerReference  # noqa: TC001 - msgspec reads the annotations
from webhook.model.review import Request, is_null
from webhook.policy.terms import BREAK_GLASS

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from webhook.base.globs import Globs
    from webhook.rules.subject import SubjectMetadata

FIELD: Final = f'metadata.annotations["{BREAK_GLASS}"]'

_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE)


def reason_of(metadata: SubjectMetadata) -> str | None:
    """Return the value of the break-glass annotation, or None if the object has none."""
    return (metadata.annotations or {}).get(BREAK_GLASS)


def why_void(value: str, now: datetime) -> str:
    """Return why the annotation is void for all users, as a clause, or an empty string if it is valid.

    Its value may end in ``until`` and a time. An invalid time makes the annotation void.
    """
    *reason, before, time = ("", "", *value.split())
    if time.lower() == "until":
        return "a time must follow `until`, such as 2026-11-22T18:00:00Z"
    if before.lower() != "until":
        return "" if time else "it gives no reason"
    if not any(reason):
        return "it gives no reason"
    try:
        end = datetime.fromisoformat(time.upper()) if _RFC_3339.fullmatch(time) else None
    except ValueError:  # such as 30 February
        end = None
    if end is None:
        return f"{time} isn't an RFC 3339 time, such as 2026-11-22T18:00:00Z"
    return f"it ended at {time}" if now > end else ""


def may_break(request: Request, groups: Iterable[Globs]) -> bool:
    """Return whether the requester is a member of one of these groups."""
    return any(globs.match(group) for globs in groups for group in request.user_info.groups or ())


class _Owned(msgspec.Struct):
    ownerReferences: list[OwnerReference] | None = None


class _Object(msgspec.Struct):
    metadata: _Owned = msgspec.field(default_factory=_Owned)


_decoder: Final = msgspec.json.Decoder(_Object)


def is_copy(request: Request, workloads: Container[tuple[str, str]]) -> bool:
    """Return whether a controller may have copied the annotation from another object.

    Controllers copy annotations to the Pods that they create, and between workloads. Node pools can also have owners,
    but their controllers copy no annotations.
    """
    group = request.resource.group
    if (group, request.path) not in workloads and (group, request.resource.resource) != ("", "pods"):
        return False
    try:
        metadata = _decoder.decode(request.old_object if is_null(request.object) else request.object).metadata
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
    return any(owner.controller for owner in metadata.ownerReferences or ())

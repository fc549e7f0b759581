"""Read the notice of a reclaim on a Node, from the signals in ``CapacityProvider`` documents.

A notice never promises more time than there is: the earliest signal counts, and without the time of a signal, the drain
is assumed to begin now.

Source for the times of managed fields: https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.capacity.providers.nodes import provider_of
from webhook.capacity.providers.pool import Taint
from webhook.capacity.providers.schema import SignalSpec
from webhook.kube.layouts import member
from webhook.kube.notice import RECLAIM_AT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.capacity.providers.provider import Provider

_ANY_HANDLER: Final = SignalSpec(type="annotation", key=RECLAIM_AT, time=True)
"""The signal that any program can set, with every provider and without one."""
_MARGIN_SECONDS: Final = 30
"""The margin of Nodes without a provider: the longest of the shipped ones."""
_AHEAD: Final = timedelta(days=1)
"""A removal that is further ahead isn't a notice yet: it would allow grace periods of any length."""
_OVERDUE: Final = timedelta(hours=1)
"""A Node that exists so long after its removal wasn't removed."""

_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)
_RFC_1123: Final = re.compile(r"[A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d (?:GMT|UTC)", re.ASCII)


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """The notice of a reclaim.

    Attributes:
        provider: the name of the provider; empty if the Node has none.
        signal: the type and the key of the signal.
        since: when the signal began, or was read if the Node doesn't show that. A Pod created later isn't evicted: its
            replacement could return to the Node again and again.
        drain: when others may begin to stop the Pods.
        removal: when the machine is removed, in whole seconds.
        margin: the seconds before the removal by which a Pod must have stopped.
        estimated: whether ``drain`` and ``removal`` depend on when the signal was read.
    """

    provider: str
    signal: str
    since: datetime
    drain: datetime
    removal: datetime
    margin: int
    estimated: bool = False


class _ManagedFields(msgspec.Struct):
    time: datetime | None = None
    fieldsV1: dict[str, Any] | None = None


class _Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    managedFields: list[_ManagedFields] | None = None


class _Taint(Taint, frozen=True):
    timeAdded: datetime | None = None


class _Spec(msgspec.Struct):
    taints: list[_Taint] | None = None


class _Condition(msgspec.Struct):
    type: str
    status: str = ""
    message: str = ""
    lastTransitionTime: datetime | None = None


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class SignalNode(msgspec.Struct):
    """The parts of a Node that can contain a signal."""

    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def notice_of(node: SignalNode, providers: Collection[Provider], now: datetime) -> Notice | None:
    """Return the notice with the earliest removal on a Node, or None. ``now`` has a timezone."""
    notices = [*_of_any_handler(node, providers, now), *(n for p in providers for n in _of_provider(node, p, now))]
    current = (notice for notice in notices if -_OVERDUE < notice.removal - now < _AHEAD)
    return min(current, key=lambda notice: notice.removal, default=None)


def parse_time(text: str) -> datetime | None:
    """Return the first time in a text, in RFC 3339 or RFC 1123, or None. RFC 1123 is only read in UTC."""
    with suppress(ValueError, OverflowError):  # such as the 31st of February
        if match := _RFC_3339.search(text):
            return datetime.fromisoformat(match[0].upper()).astimezone(UTC)
        if match := _RFC_1123.search(text):
            return parsedate_to_datetime(match[0].replace("UTC", "GMT"))
    return None


def _of_any_handler(node: SignalNode, providers: Collection[Provider], now: datetime) -> Iterator[Notice]:
    provider = provider_of(node.metadata.labels or {}, providers)
    for value, began in _found(node, _ANY_HANDLER):
        if (removal := parse_time(value)) is not None:
            yield _notice(provider, _ANY_HANDLER, began or now, removal, removal, estimated=False)


def _of_provider(node: SignalNode, provider: Provider, now: datetime) -> Iterator[Notice]:
    times = provider.interruption
    for spec in provider.reclaim_notice:
        drain = timedelta(seconds=times.drain_seconds if spec.drain_seconds is None else spec.drain_seconds)
        seconds = times.removal_seconds if spec.removal_seconds is None else spec.removal_seconds
        left = max(timedelta(0), timedelta(seconds=seconds) - drain)  # after the drain
        for value, began in _found(node, spec):
            removal = parse_time(value) if spec.time else None
            estimated = removal is None and began is None
            if removal is None:
                removal = left + (now if began is None else min(began, now) + drain)  # clocks differ
            yield _notice(provider, spec, began or now, removal - left, removal, estimated=estimated)


def _notice(
    provider: Provider | None, spec: SignalSpec, since: datetime, drain: datetime, removal: datetime, *, estimated: bool
) -> Notice:
    return Notice(
        provider=provider.name if provider is not None else "",
        signal=f"{spec.type} {spec.key}",
        since=since,
        drain=drain,
        removal=removal.astimezone(UTC).replace(microsecond=0),
        margin=provider.grace_period.safety_margin_seconds if provider is not None else _MARGIN_SECONDS,
        estimated=estimated,
    )


def _found(node: SignalNode, spec: SignalSpec) -> Iterator[tuple[str, datetime | None]]:
    """Yield the value of each occurrence of a signal, and when it began, if the Node shows that."""
    metadata = node.metadata
    if spec.type == "condition":
        conditions = (item for item in node.status.conditions or () if item.type == spec.key and item.status == "True")
        signs = [(item.message, item.lastTransitionTime) for item in conditions]
    elif spec.type == "taint":
        since = _owned_since(metadata, "f:spec", "f:taints")
        taints = (item for item in node.spec.taints or () if item.key == spec.key)
        signs = [(item.value, item.timeAdded or since) for item in taints]
    else:
        values = (metadata.labels if spec.type == "label" else metadata.annotations) or {}
        since = _owned_since(metadata, "f:metadata", f"f:{spec.type}s", f"f:{spec.key}")
        signs = [(values[spec.key], since)] if spec.key in values else []
    return (sign for sign in signs if not spec.values or spec.values.match(sign[0]))


def _owned_since(metadata: _Metadata, *path: str) -> datetime | None:
    """Return the earliest time of the managers that own a field: no manager has changed it since."""
    owners = (entry for entry in metadata.managedFields or () if member(entry.fieldsV1, path) is not None)
    return min((entry.time for entry in owners if entry.time is not None), default=None)

"""Compare tolerations with each other and with taints.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from webhook.kube.pod import Toleration

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_EXECUTE: Final = "NoExecute"
HARD_EFFECTS: Final = frozenset({"NoSchedule", NO_EXECUTE})
"""The effects that keep a Pod off a node. ``PreferNoSchedule`` only makes a node less preferred."""
EFFECTS: Final = HARD_EFFECTS | {"PreferNoSchedule"}

_EQUAL: Final = frozenset({"", "Equal"})
_EXISTS: Final = "Exists"

_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = r"(?=[^/]{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/"
_KEY: Final = re.compile(f"(?:{_DOMAIN})?{_NAME}")
_VALUE: Final = re.compile(f"(?:{_NAME})?")


class NodeTaint(Protocol):
    """A taint of any type."""

    @property
    def key(self) -> str:
        """Return the taint's key."""

    @property
    def value(self) -> str:
        """Return the taint's value, or an empty string."""

    @property
    def effect(self) -> str:
        """Return the taint's effect: NoSchedule, PreferNoSchedule, or NoExecute."""


def is_label(key: str, value: str) -> bool:
    """Return whether the API server accepts this key and value in a node selector or a toleration.

    Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
    """
    return _KEY.fullmatch(key) is not None and _VALUE.fullmatch(value) is not None


def toleration_for(taint: NodeTaint) -> Toleration | None:
    """Return the narrowest toleration of a taint. Return None for a taint that no node can have.

    A node pool's taints may be malformed. A toleration without a key or an effect would match too many taints, and the
    API server rejects a Pod with a malformed toleration.
    """
    if taint.effect not in EFFECTS or not is_label(taint.key, taint.value):
        return None
    if not taint.value:
        return Toleration(taint.key, _EXISTS, "", taint.effect)
    return Toleration(taint.key, "Equal", taint.value, taint.effect)


def tolerates(toleration: Toleration, taint: NodeTaint) -> bool:
    """Return whether the toleration matches the taint, regardless of ``tolerationSeconds``."""
    if toleration.effect not in {"", taint.effect}:
        return False
    if toleration.operator == _EXISTS:
        return toleration.key in {"", taint.key}
    return toleration.operator in _EQUAL and toleration.key == taint.key and toleration.value == taint.value


def covers(existing: Toleration, wanted: Toleration) -> bool:
    """Return whether ``existing`` tolerates every taint that ``wanted`` does, for at least as long."""
    if existing.effect not in {"", wanted.effect}:
        return False
    if existing.tolerationSeconds is not None and (
        wanted.tolerationSeconds is None or wanted.tolerationSeconds > existing.tolerationSeconds
    ):
        return False
    if existing.operator == _EXISTS:
        return existing.key in {"", wanted.key}
    if existing.key != wanted.key or existing.value != wanted.value:
        return False
    return existing.operator == wanted.operator or (existing.operator in _EQUAL and wanted.operator in _EQUAL)


def any_covers(existing: Iterable[Toleration] | None, wanted: Toleration) -> bool:
    """Return whether an existing toleration covers the wanted one."""
    for toleration in existing or ():  # noqa: SIM110 - `any` takes twice as long, for each toleration and request
        if covers(toleration, wanted):
            return True
    return False

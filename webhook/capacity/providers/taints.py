"""Read the taints of a pool in its provider's notation, and recognize temporary taints and platform taints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from webhook.base.placeholders import placeholder_before, placeholder_in
from webhook.capacity.providers.pool import Taint
from webhook.capacity.providers.well_known import WELL_KNOWN
from webhook.kube.containers import OS_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping

_TAINT: Final = re.compile(r"([^=:]+)(?:=([^:]*))?:([^:]+)")
"""A taint in the notation of kubectl: ``key=value:Effect`` or ``key:Effect``."""

_SHOWN: Final = 60
"""Maximum characters of an unknown effect that a problem quotes."""


_SYSTEMS: Final = frozenset({"linux", "windows"})


def is_passing(taint: Taint) -> bool:
    """Return whether a taint is temporary with every provider: the node is starting, stopping, or unhealthy."""
    domain, _, name = taint.key.rpartition("/")
    return (domain in WELL_KNOWN.passing_domains or name in WELL_KNOWN.passing_names) and platform_of(taint) is None


def platform_of(taint: Taint) -> tuple[str, str] | None:
    """Return the key and value of the platform label that a taint repeats, or None."""
    key, value = WELL_KNOWN.platform_taints.get(taint.key, ""), taint.value.casefold()
    named = value in _SYSTEMS if key == OS_LABEL else bool(key and value)
    return (key, value) if named else None


def read_taints(
    content: object, field: str, effects: Mapping[str, str], *, texts: bool
) -> tuple[tuple[Taint, ...], tuple[str, ...]]:
    """Return the taints in a list, and the problems with unreadable taints.

    If ``texts`` is true, a taint can be a string, ``key=value:Effect``, and the list can be a map from key to
    ``value:Effect``. ``effects`` maps the provider's effect names to those of Kubernetes.
    """
    if texts and isinstance(content, dict):
        content = [f"{key}={written}" for key, written in content.items()]
    if not isinstance(content, list):
        return (), (f"{field} is {placeholder_before(content)}not a list",)
    read = [(_taint(item, effects, texts=texts), index) for index, item in enumerate(content)]
    taints = tuple(taint for taint, _ in read if isinstance(taint, Taint))
    return taints, tuple(f"{field}[{index}] {problem}" for problem, index in read if isinstance(problem, str))


def _taint(item: Any, effects: Mapping[str, str], *, texts: bool) -> Taint | str:
    """Return a taint, or the problem with it."""
    key = value = effect = None
    if isinstance(item, dict):
        key, value, effect = item.get("key"), item.get("value"), item.get("effect")
    elif texts and isinstance(item, str) and (written := _TAINT.fullmatch(item)):
        key, value, effect = written[1], written[2], written[3]
    if not (isinstance(effect, str) and effect in effects) and (placeholder := placeholder_in(item)):
        return f"has the placeholder {placeholder}"
    if not isinstance(key, str) or not isinstance(effect, str):
        return "lacks a key or an effect"
    if (meant := effects.get(effect)) is None:
        return f"has effect {effect[:_SHOWN]!r}, not one of {', '.join(effects)}"
    if not isinstance(value, str | None):
        return "has a value that is not text"
    return Taint(key, value or "", meant)

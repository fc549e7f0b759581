"""Decide what a taint of spot nodes means: spot, an accelerator, a platform, a state that passes, or dedication.

A taint dedicates its nodes to somebody unless it means one of the others. Only what dedicates keeps a Pod out.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from webhook.kube.containers import ARCH_LABEL, OS_LABEL

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from webhook.capacity.providers.pool import Pool, Taint
    from webhook.capacity.providers.provider import Provider

_SPOT_WORDS: Final = frozenset({"spot", "preemptible", "interruptible", "evictable"})
_WORD: Final = re.compile(r"[A-Z]*[a-z]+|[A-Z]+")

_PLATFORM_KEYS: Final[Mapping[str, str]] = {
    ARCH_LABEL: ARCH_LABEL,
    "beta.kubernetes.io/arch": ARCH_LABEL,
    OS_LABEL: OS_LABEL,
    "beta.kubernetes.io/os": OS_LABEL,
    "node.kubernetes.io/os": OS_LABEL,
}
"""Keys of taints that restate a label of the node by which Pods say their platform.

Source: https://cloud.google.com/kubernetes-engine/docs/how-to/prepare-arm-workloads-for-deployment. Pods tolerate
others, such as ``os=windows``, by their own doing: https://kubernetes.io/docs/concepts/windows/user-guide/
"""


_SYSTEMS: Final = frozenset({"linux", "windows"})


class TaintMeaning(Enum):
    """What a taint of a spot node means."""

    FORBIDDEN = "must never be tolerated"
    PASSING = "is there for a while"
    SPOT = "marks spot nodes"
    PLATFORM = "names the architecture or the operating system"
    ACCELERATOR = "is for Pods that request an accelerator"
    DEDICATED = "is for somebody"


def meaning_of(taint: Taint, provider: Provider, common: Collection[Taint]) -> TaintMeaning:
    """Return what a taint of a spot node means.

    Args:
        taint: the taint.
        provider: the provider of the node.
        common: the result of `common_spot_taints` for the cluster.
    """
    if any(each.matches(taint) for each in provider.forbidden_taints):
        return TaintMeaning.FORBIDDEN
    if any(each.matches(taint) for each in provider.spot_taint_patterns):
        return TaintMeaning.SPOT
    if taint.key in provider.hands_off_selectors:  # Whatever the value says, it is a name: ``spot-first``.
        return TaintMeaning.DEDICATED
    for holds, meaning in (
        (platform_of(taint) is not None, TaintMeaning.PLATFORM),
        (provider.is_passing(taint), TaintMeaning.PASSING),
        (provider.guards_accelerator(taint), TaintMeaning.ACCELERATOR),
        (_says_spot(taint) or taint in common, TaintMeaning.SPOT),
    ):
        if holds:
            return meaning
    return TaintMeaning.DEDICATED


def platform_of(taint: Taint) -> tuple[str, str] | None:
    """Return the key and value of the platform label that a taint restates, or None."""
    key, value = _PLATFORM_KEYS.get(taint.key, ""), taint.value.casefold()
    named = value in _SYSTEMS if key == OS_LABEL else bool(key and value)
    return (key, value) if named else None


def _says_spot(taint: Taint) -> bool:
    """Return whether the name or the value of a taint has a word for spot; the domain of its key does not count."""
    text = f"{taint.key.rpartition('/')[2]} {taint.value}"
    return any(word.casefold() in _SPOT_WORDS for word in _WORD.findall(text))


def common_spot_taints(pools: Collection[Pool]) -> frozenset[Taint]:
    """Return the taints that all spot pools of a cluster have and no other pool has; none if there is one spot pool."""
    spot = [set(pool.taints) for pool in pools if pool.spot]
    others = (set(pool.taints) for pool in pools if not pool.spot)
    return frozenset(set.intersection(*spot).difference(*others)) if len(spot) > 1 else frozenset()

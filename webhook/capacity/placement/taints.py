"""Classify the taints of spot nodes: forbidden, temporary, spot, platform, accelerator, or dedicated.

A taint dedicates its nodes to certain workloads unless it has one of the other meanings.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from webhook.capacity.providers.taints import platform_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from webhook.capacity.providers.pool import Pool, Taint
    from webhook.capacity.providers.provider import Provider

_SPOT_WORDS: Final = frozenset({"spot", "preemptible", "interruptible", "interruptable", "evictable"})
_NEGATIONS: Final = frozenset({"no", "non", "not", "never"})
_WORD: Final = re.compile(r"[A-Z]*[a-z]+|[A-Z]+")


class TaintMeaning(Enum):
    """The meaning of a taint of a spot node."""

    FORBIDDEN = "must never be tolerated"
    PASSING = "is temporary"
    SPOT = "marks spot nodes"
    PLATFORM = "names the architecture or the operating system"
    ACCELERATOR = "is for Pods that request an accelerator"
    DEDICATED = "reserves nodes for certain workloads"


def meaning_of(taint: Taint, provider: Provider, common: Collection[Taint]) -> TaintMeaning:
    """Return the meaning of a taint of a spot node.

    ``common`` is the result of `common_spot_taints` for the cluster.
    """
    if provider.is_forbidden(taint):
        return TaintMeaning.FORBIDDEN
    if provider.means_spot(taint):
        return TaintMeaning.SPOT
    if taint.key in provider.hands_off_selectors:  # The value is the name of a pool, even if it contains "spot".
        return TaintMeaning.DEDICATED
    if platform_of(taint) is not None:
        return TaintMeaning.PLATFORM
    if provider.is_passing(taint):
        return TaintMeaning.PASSING
    other = TaintMeaning.SPOT if says_spot(taint) or taint in common else TaintMeaning.DEDICATED
    return TaintMeaning.ACCELERATOR if provider.guards_accelerator(taint) else other


def says_spot(taint: Taint) -> bool:
    """Return whether the name or the value of a taint contains a word for spot. Ignore the domain of the key.

    A word next to a negation doesn't count: ``team=not-interruptible``.
    """
    text = f"{taint.key.rpartition('/')[2]} {taint.value}"
    words = ["", *(word.casefold() for word in _WORD.findall(text)), ""]
    neighbors = zip(words, words[1:], words[2:], strict=False)
    return any(word in _SPOT_WORDS and _NEGATIONS.isdisjoint((left, right)) for left, word, right in neighbors)


def common_spot_taints(pools: Collection[Pool]) -> frozenset[Taint]:
    """Return the taints that all spot pools have and no other pool has. Return none for fewer than two spot pools."""
    spot = [set(pool.taints) for pool in pools if pool.spot]
    others = (set(pool.taints) for pool in pools if not pool.spot)
    return frozenset(set.intersection(*spot).difference(*others)) if len(spot) > 1 else frozenset()

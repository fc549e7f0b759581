"""How long a Pod on spot capacity has to stop: what the strictest pool or provider leaves it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.placement.target import Target
    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider


class GraceBudget(msgspec.Struct, frozen=True):
    """Time to stop, in seconds.

    Attributes:
        limit: when the node is gone, counted from the beginning of the grace period.
        margin: what to keep free of that.
        because: where the limit comes from, as a sentence without its full stop.
    """

    limit: int
    margin: int
    because: str

    @property
    def seconds(self) -> int:
        """The longest grace period that fits; at least 1, since 0 would kill without SIGTERM."""
        return max(self.limit - self.margin, 1)

    def __str__(self) -> str:
        return f"{self.because}, less a safety margin of {self.margin} s" if self.margin else self.because


class GraceBudgets:
    """The budgets of all providers, ready to be asked."""

    __slots__ = ("_by_provider",)

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._by_provider = {name: _of_provider(provider) for name, provider in providers.items()}

    def of(self, target: Target) -> GraceBudget | None:
        """The strictest budget that may apply to a Pod; None where no provider is in play."""
        pools = target.pools or ()
        seen = {pool.provider for pool in pools}
        unseen = (self._by_provider[each.name] for each in target.providers if each.name not in seen)
        return min(chain(map(self._of_pool, pools), unseen), key=_seconds, default=None)

    def _of_pool(self, pool: Pool) -> GraceBudget:
        budget = self._by_provider[pool.provider]
        if pool.grace_seconds is None:
            return budget
        margin = budget.margin if pool.safety_margin_seconds is None else pool.safety_margin_seconds
        return GraceBudget(pool.grace_seconds, margin, f"{pool} gives a Pod {pool.grace_seconds} s to stop")


def _seconds(budget: GraceBudget) -> int:
    return budget.seconds


def _of_provider(provider: Provider) -> GraceBudget:
    timeline = provider.timeline
    because = (
        f"On {provider.title} a node is drained {timeline.drain} s after the notice and removed after "
        f"{timeline.removal} s: a Pod has {provider.grace_budget} s"
    )
    return GraceBudget(provider.grace_budget, provider.safety_margin, because)

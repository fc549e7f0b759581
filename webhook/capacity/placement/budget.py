"""Compute how long a Pod on spot capacity has to stop."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from webhook.base.text import go_duration
from webhook.capacity.placement.target import NotTargeting, Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.kube.pod import Pod


class GraceBudget(msgspec.Struct, frozen=True):
    """The time that a Pod has to stop, in seconds.

    Attributes:
        limit: the time from the start of the grace period until the node is gone.
        margin: the safety margin to subtract from the limit.
        because: the source of the limit, as a sentence without a full stop.
    """

    limit: int
    margin: int
    because: str

    @property
    def seconds(self) -> int:
        """Return the longest grace period that fits. It is at least 1, because 0 deletes a running Pod."""
        return max(self.limit - self.margin, 1)

    def __str__(self) -> str:
        return f"{self.because}, less a safety margin of {self.margin} s" if self.margin else self.because


def unevicted_annotation(provider: Provider, pool: Pool | None) -> str:
    """Return the annotation that exempts Pods from a drain. Return an empty string if the drain has no exemptions.

    A pool's own limit without a safety margin ends each drain in time: Karpenter then deletes the Pods.
    """
    limited = pool is not None and pool.grace_seconds is not None and pool.safety_margin_seconds == 0
    return "" if limited else provider.interruption.unevicted_annotation


def unevicted_seconds(pod: Pod, annotation: str) -> float:
    """Return for how many seconds after its start the annotation exempts a Pod. A malformed value counts as 0."""
    value = pod.annotations.get(annotation, "") if annotation else ""
    return math.inf if value == "true" else go_duration(value) or 0.0


class GraceBudgets:
    """The grace budgets of all providers."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers
        self._by_provider = {name: _of_provider(provider) for name, provider in providers.items()}

    def of(self, target: Target | NotTargeting) -> GraceBudget | None:
        """Return the strictest budget that may apply to a Pod. Return None if no provider is in play."""
        if isinstance(target, NotTargeting):
            return min(map(self.of_pool, target.chosen), key=attrgetter("seconds"), default=None)
        strictest = self.strictest(target)
        return strictest[0] if strictest is not None else None

    def strictest(self, target: Target) -> tuple[GraceBudget, Provider, Pool | None] | None:
        """Return the result of `of`, with its provider, and with its pool if that is known."""
        options: list[tuple[GraceBudget, Provider, Pool | None]] = []
        options += [(self.of_pool(pool), self._providers[pool.provider], pool) for pool in target.pools or ()]
        seen = {provider.name for _, provider, _ in options}
        unseen = [provider for provider in target.providers if provider.name not in seen]
        options += [(self._by_provider[provider.name], provider, None) for provider in unseen]
        return min(options, key=lambda option: option[0].seconds, default=None)

    def of_node(self, provider: Provider, pool: Pool | None) -> GraceBudget:
        """Return the budget of a Pod on a node of this provider, and of this pool if it is known."""
        return self.of_pool(pool) if pool is not None else self._by_provider[provider.name]

    def of_pool(self, pool: Pool) -> GraceBudget:
        """Return the budget of a pool."""
        budget = self._by_provider[pool.provider]
        if pool.grace_seconds is None:
            return budget
        margin = budget.margin if pool.safety_margin_seconds is None else pool.safety_margin_seconds
        return GraceBudget(pool.grace_seconds, margin, f"{pool} gives a Pod {pool.grace_seconds} s to stop")


def _of_provider(provider: Provider) -> GraceBudget:
    timeline = provider.interruption
    because = (
        f"{provider.title} drains a node {timeline.drain_seconds} s after the notice and removes it at "
        f"{timeline.removal_seconds} s: a Pod has {provider.grace_period.budget_seconds} s to stop"
    )
    return GraceBudget(provider.grace_period.budget_seconds, provider.grace_period.safety_margin_seconds, because)

"""Which pool is an on-demand fallback for a spot pool, and why another is not."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Literal

import msgspec

from webhook.capacity.pool import CapacityType, Gpu

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from webhook.capacity.pool import Pool
    from webhook.capacity.provider import Provider

Require = Literal["any", "gpu", "same-type"]
"""What counts: any on-demand pool, one with GPUs, or one of the same instance type."""


class Cover(IntEnum):
    """How well a spot pool is covered by fallbacks; more is worse. ``ELSEWHERE``: only in other zones."""

    HERE = 0
    ELSEWHERE = 1
    NONE = 2


class Demand(msgspec.Struct, frozen=True):
    """What a spot pool needs a fallback for; the same fallbacks meet equal demands."""

    identity: tuple[str, str, str, str]
    cluster: str
    gpu: Gpu
    instance_type: str


class Supply(msgspec.Struct, frozen=True):
    """What a pool gives as a fallback; it is one for whatever an equal supply is one for."""

    cluster: str
    gpu: Gpu
    instance_type: str
    zones: frozenset[str]


def demand_of(pool: Pool | None) -> Demand | None:
    """The need of a pool; None: it needs no fallback. A pool that is both spot and on-demand is its own."""
    if pool is None or pool.deleting or not pool.spot or pool.gpu not in {Gpu.YES, Gpu.UNKNOWN}:
        return None
    return Demand(pool.identity, pool.cluster, pool.gpu, pool.instance_type)


class Fallbacks(msgspec.Struct, frozen=True):
    """What counts as a fallback.

    Attributes:
        require: for every spot pool but those of a provider in ``by_provider``.
        providers: by name, for the taints that nobody may tolerate.
    """

    require: Require
    by_provider: Mapping[str, Require]
    providers: Mapping[str, Provider]

    def required(self, spot: Pool) -> Require:
        """What this spot pool requires."""
        return self.by_provider.get(spot.provider, self.require)

    def title(self, pool: Pool) -> str:
        """Who provides a pool, for people."""
        provider = self.providers.get(pool.provider)
        return provider.title if provider is not None else pool.provider

    def supply_of(self, pool: Pool | None) -> Supply | None:
        """What a pool gives; None: it is nobody's fallback."""
        if pool is None or self._why_nobodys(pool):
            return None
        return Supply(pool.cluster, pool.gpu, pool.instance_type, pool.zones)

    def why_not(self, spot: Pool, pool: Pool) -> str:
        """Why a pool is no fallback for this spot pool; empty when it is one."""
        if pool.cluster != spot.cluster:
            return f"it belongs to {f'cluster {pool.cluster}' if pool.cluster else 'this cluster'}"
        require = self.required(spot)
        if (why := self._why_nobodys(pool)) or require == "any" or pool.gpu is Gpu.ANY:
            return why
        if pool.gpu is Gpu.NO:
            return "it has no GPUs"
        if require == "same-type":
            if pool.instance_type == spot.instance_type != "":
                return ""
            return (
                f"its instance type is {pool.instance_type or 'not known'}, not {spot.instance_type or 'a known one'}"
            )
        return "" if pool.gpu is Gpu.YES else f"nobody knows whether {pool.instance_type or 'it'} has GPUs"

    def cover(self, spot: Pool, pools: Sequence[Pool]) -> Cover:
        """How well these pools cover the spot pool. A zone that is not said is no other zone."""
        fallbacks = [pool for pool in pools if not self.why_not(spot, pool)]
        if not fallbacks:
            return Cover.NONE
        elsewhere = spot.zones and all(pool.zones and not pool.zones & spot.zones for pool in fallbacks)
        return Cover.ELSEWHERE if elsewhere else Cover.HERE

    def worse_off(self, before: Sequence[Pool], after: Sequence[Pool]) -> list[tuple[Pool, Cover]]:
        """The spot pools that are covered worse by the pools after a request than by those before it, by name.

        A demand that was not there before counts as covered before.
        """
        was = {demand: self.cover(pool, before) for pool in before if (demand := demand_of(pool)) is not None}
        return [
            (pool, cover)
            for pool in sorted(after, key=str)
            if (demand := demand_of(pool)) is not None
            and (cover := self.cover(pool, after)) > was.get(demand, Cover.HERE)
        ]

    def _why_nobodys(self, pool: Pool) -> str:
        if pool.spot:
            return "it is spot"
        if pool.capacity is CapacityType.UNKNOWN:
            return "nobody knows whether it is on-demand"
        if pool.unusable:
            return pool.unusable
        provider = self.providers.get(pool.provider)
        forbidden = provider.forbidden_taints if provider is not None else ()
        for taint in pool.taints:
            if taint.effect != "PreferNoSchedule" and any(pattern.matches(taint) for pattern in forbidden):
                return f"no Pod may tolerate its taint {taint}"
        return ""

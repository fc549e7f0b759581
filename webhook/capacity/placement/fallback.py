"""Which pool is an on-demand fallback for a spot pool, and why another is not."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.clusters import same_cluster
from webhook.capacity.providers.pool import CapacityType, Gpu
from webhook.capacity.providers.provider import FallbackNeed
from webhook.capacity.providers.requirements import ANYTHING, NO_REQUIREMENTS
from webhook.decision import Outcome
from webhook.kube.tolerations import HARD_EFFECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import FallbackKind, Provider
    from webhook.capacity.providers.requirements import LabelValues


class Coverage(IntEnum):
    """How well a spot pool is covered by fallbacks; more is worse. ``ELSEWHERE``: only in other zones."""

    HERE = 0
    ELSEWHERE = 1
    NONE = 2


class Demand(msgspec.Struct, frozen=True):
    """What a spot pool needs a fallback for; the same fallbacks meet equal demands.

    ``gpu`` is ``any`` where its nodes may have none, and the pool names machines that do.
    """

    identity: tuple[str, str, str, str]
    cluster: str
    gpu: Gpu
    gpu_type: str
    instance_type: str
    machines: tuple[tuple[str, LabelValues], ...]


class Offer(msgspec.Struct, frozen=True):
    """What a pool gives as a fallback; it is one for whatever an equal supply is one for."""

    cluster: str
    gpu: Gpu
    gpu_type: str
    instance_type: str
    machines: tuple[tuple[str, LabelValues], ...]
    zones: frozenset[str]


class LostCoverage(msgspec.Struct, frozen=True):
    """A spot pool that a request leaves with less of what it needs."""

    spot: Pool
    need: FallbackNeed
    coverage: Coverage


_MAY_BE_SPOT: Final = frozenset({CapacityType.SPOT, CapacityType.UNKNOWN})


class Fallbacks(msgspec.Struct, frozen=True):
    """What counts as a fallback.

    Attributes:
        require: for every spot pool of which nothing else says more.
        by_provider: the same for the pools of one provider; it overrides what its document says.
        providers: by name, for what their pools need, and for the taints that nobody may tolerate.
    """

    require: FallbackKind
    by_provider: Mapping[str, FallbackKind]
    providers: Mapping[str, Provider]

    def demand_of(self, pool: Pool | None) -> Demand | None:
        """The need of a pool; None: it needs no fallback. A pool that is both spot and on-demand is its own.

        What can't be read is judged on the safe side: a pool of which nobody can tell may well be spot.
        """
        if pool is None or pool.deleting or pool.capacity not in _MAY_BE_SPOT:
            return None
        gpu = Gpu.YES if self._why_for_gpus(pool) else pool.gpu
        if gpu is Gpu.NO or (gpu is Gpu.ANY and not self._named_gpus(pool)):
            return None
        return Demand(pool.identity, pool.cluster_id, gpu, pool.gpu_type, pool.instance_type, pool.machines)

    def needs(self, spot: Pool) -> tuple[FallbackNeed, ...]:
        """What this spot pool needs."""
        required = self.by_provider.get(spot.provider)
        provider = self.providers.get(spot.provider)
        needs = (FallbackNeed(required),) if required is not None else provider.fallback if provider is not None else ()
        needs = needs or (FallbackNeed(self.require),)
        if spot.gpu is not Gpu.ANY:
            return needs
        # Whether a Pod asks for its GPUs is not certain, unless no other gets in.
        because, most = self._why_for_gpus(spot), Outcome.DENY
        if not because:
            named = ", ".join(self._named_gpus(spot))
            because, most = f"It names machines with GPUs ({named}) beside others.", Outcome.WARN
        wait = (
            f"When {self.title(spot)} reclaims them, Pods that request GPUs stay pending unless another pool has some."
        )
        return tuple(
            replace(need, outcome=min(need.outcome, most), because=f"{because} {need.because or wait}")
            for need in needs
        )

    def _why_for_gpus(self, pool: Pool) -> str:
        """Why a pool that gives GPUs to those who ask has no other Pods, as a sentence; empty where it may have."""
        provider = self.providers.get(pool.provider)
        if pool.gpu is not Gpu.ANY or provider is None:
            return ""
        for taint in pool.taints:
            if taint.effect in HARD_EFFECTS and any(each.matches(taint) for each in provider.gpu_taints):
                return f"Its taint {taint} lets in only Pods that request GPUs."
        return ""

    def _named_gpus(self, pool: Pool) -> tuple[str, ...]:
        """The machines with GPUs, or their families or categories, that a pool lists."""
        provider = self.providers.get(pool.provider)
        readers = provider.readers if provider is not None else ()
        machines = next((reader.machines for reader in readers if reader.kind == pool.kind), None)
        return machines.named_gpus(pool.requirements or NO_REQUIREMENTS) if machines is not None else ()

    def title(self, pool: Pool) -> str:
        """Who provides a pool, for people."""
        provider = self.providers.get(pool.provider)
        return provider.title if provider is not None else pool.provider

    def offer_of(self, pool: Pool | None) -> Offer | None:
        """What a pool gives; None: it is nobody's fallback."""
        if pool is None or self._why_nobodys(pool):
            return None
        return Offer(pool.cluster_id, pool.gpu, pool.gpu_type, pool.instance_type, pool.machines, pool.zones)

    def why_not(self, spot: Pool, pool: Pool, require: FallbackKind) -> str:
        """Why a pool is not what this spot pool needs; empty when it is."""
        if not same_cluster(pool, spot) or (pool.cluster and pool.provider != spot.provider):
            return self._whose(spot, pool)
        if (why := self._why_nobodys(pool)) or require == "any" or pool.gpu is Gpu.ANY:
            return why
        if pool.gpu is (Gpu.YES if require == "standard" else Gpu.NO):
            return "it has GPUs" if require == "standard" else "it has no GPUs"
        if require == "same-type":
            return _why_other_type(spot, pool)
        return "" if pool.gpu is not Gpu.UNKNOWN else _why_unknown(pool)

    def _whose(self, spot: Pool, pool: Pool) -> str:
        """Of which cluster a pool is that is not the spot pool's."""
        if not pool.cluster:
            return f"it belongs to this cluster, not to {spot.cluster_id}"
        title = "" if pool.provider == spot.provider else f" ({self.title(pool)})"
        return f"it belongs to cluster {pool.cluster_id}{title}"

    def coverage(self, spot: Pool, pools: Sequence[Pool], require: FallbackKind) -> Coverage:
        """How well these pools cover what the spot pool needs. A zone that is not said is no other zone."""
        fallbacks = [pool for pool in pools if not self.why_not(spot, pool, require)]
        if not fallbacks:
            return Coverage.NONE
        if require == "standard":  # It is not the spot pool's Pods that go there.
            return Coverage.HERE
        elsewhere = spot.zones and all(pool.zones and not pool.zones & spot.zones for pool in fallbacks)
        return Coverage.ELSEWHERE if elsewhere else Coverage.HERE

    def lost_coverage(self, before: Sequence[Pool], after: Sequence[Pool]) -> list[LostCoverage]:
        """The spot pools that are covered worse by the pools after a request than by those before it, by name.

        A demand that was not there before counts as covered before.
        """
        earlier = {demand: pool for pool in before if (demand := self.demand_of(pool)) is not None}
        covered_before, covered_after = self._covers(before), self._covers(after)
        found: list[LostCoverage] = []
        for pool in sorted(after, key=str):
            if (demand := self.demand_of(pool)) is None:
                continue
            for need in self.needs(pool):
                same = earlier.get(demand)
                was = Coverage.HERE if same is None else covered_before(same, need.require)
                if (cover := covered_after(pool, need.require)) > was:
                    found.append(LostCoverage(pool, need, cover))
        return found

    def _covers(self, pools: Sequence[Pool]) -> Callable[[Pool, FallbackKind], Coverage]:
        """`cover` by these pools, worked out once for all spot pools that are alike in what `why_not` compares."""
        usable = [pool for pool in pools if not self._why_nobodys(pool)]
        known: dict[tuple[object, ...], Coverage] = {}

        def cover(spot: Pool, require: FallbackKind) -> Coverage:
            same_type = (spot.gpu_type, spot.instance_type, spot.machines)
            key = (spot.cluster, spot.cluster_path, spot.provider, same_type, spot.zones, require)
            if key not in known:
                known[key] = self.coverage(spot, usable, require)
            return known[key]

        return cover

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


def _why_unknown(pool: Pool) -> str:
    """Why nobody knows whether a pool has GPUs."""
    if ", " in pool.instance_type:
        return f"not all of its instance types are known to have GPUs: {pool.instance_type}"
    return f"nobody knows whether {pool.instance_type or 'it'} has GPUs"


def _why_other_type(spot: Pool, pool: Pool) -> str:
    """Why a pool with GPUs is not of the spot pool's type: of accelerator where both name one, else of machine.

    Of several types that a spot pool may have, the other may have all, and more. Where types are not named, that goes
    for the labels that describe machines: whatever the other pool requires of one, the spot pool requires too.
    """
    if pool.gpu_type and spot.gpu_type:
        return "" if pool.gpu_type == spot.gpu_type else f"its GPUs are {pool.gpu_type}, not {spot.gpu_type}"
    if spot.instance_type and _types(spot) <= _types(pool):
        return ""
    if spot.machines and pool.machines and not (spot.instance_type and pool.instance_type):
        required = dict(spot.machines)
        for key, values in pool.machines:
            if not (its := required.get(key, ANYTHING)).within(values):
                return f"it requires {key} {values}, {spot} {its if key in required else 'does not'}"
        return ""
    return f"its instance type is {pool.instance_type or 'not known'}, not {spot.instance_type or 'a known one'}"


def _types(pool: Pool) -> set[str]:
    return set(pool.instance_type.split(", "))

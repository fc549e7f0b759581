"""Decide which on-demand pools are a fallback for a spot pool, and explain why others are not."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.joins import same_cluster
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool
from webhook.capacity.providers.requirements import ANYTHING, NO_REQUIREMENTS
from webhook.kube.tolerations import HARD_EFFECTS
from webhook.model.decision import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.providers.schema import RequireName


class Coverage(IntEnum):
    """The zones of a spot pool's fallbacks: the pool's zones, only other zones, or none."""

    HERE = 0
    ELSEWHERE = 1
    NONE = 2


class FallbackNeed(msgspec.Struct, frozen=True):
    """The fallback that a GPU spot pool needs.

    Attributes:
        require: the pools that are a fallback.
        outcome: the strictest outcome if there is no fallback.
        because: the consequence of a missing fallback, as a sentence; empty for the default consequence, pending Pods.
    """

    require: RequireName
    outcome: Outcome = Outcome.DENY
    because: str = ""


class LostCoverage(msgspec.Struct, frozen=True):
    """A spot pool whose fallback a request makes worse."""

    spot: Pool
    need: FallbackNeed
    coverage: Coverage


_MAY_BE_SPOT: Final = frozenset({CapacityType.SPOT, CapacityType.UNKNOWN})


class Fallbacks(msgspec.Struct, frozen=True):
    """The rules for fallbacks.

    Attributes:
        require: the default for all spot pools.
        by_provider: the requirement for the pools of one provider; it overrides the provider's document.
    """

    require: RequireName
    by_provider: Mapping[str, RequireName]
    providers: Mapping[str, Provider]

    def demand_of(self, pool: Pool | None) -> tuple[object, ...] | None:
        """Return a key of the pool's demand for a fallback. Return None if it needs no fallback.

        A pool of both capacity types is its own fallback. A pool with an unreadable capacity type may be spot and needs
        a fallback, unless it only uses other pools, which need their own.
        """
        if pool is None or pool.deleting or pool.capacity not in _MAY_BE_SPOT or pool.only_uses:
            return None
        gpu = Gpu.YES if self._why_for_gpus(pool) else pool.gpu
        if gpu is Gpu.NO or (gpu is Gpu.ANY and not self._named_gpus(pool)):
            return None
        return pool.identity, pool.cluster_id, gpu, pool.gpu_type, pool.instance_type, pool.machines

    def needs(self, spot: Pool) -> tuple[FallbackNeed, ...]:
        """Return the fallback requirements of this spot pool."""
        if (required := self.by_provider.get(spot.provider)) is not None:
            needs: tuple[FallbackNeed, ...] = (FallbackNeed(required),)
        else:
            fallback = self.providers[spot.provider].fallback
            needs = tuple(FallbackNeed(spec.require, Outcome[spec.outcome.upper()], spec.because) for spec in fallback)
        if spot.chosen_by:  # Pods that select the pool by name don't need the cluster's standard pools.
            needs = tuple(need for need in needs if need.require != "standard")
        needs = needs or (FallbackNeed(self.require),)
        if spot.gpu is not Gpu.ANY:
            return needs
        # Pods without GPU requests can also run on this pool, unless a taint repels them.
        because, most = self._why_for_gpus(spot), Outcome.DENY
        if not because:
            named = ", ".join(self._named_gpus(spot))
            because, most = f"It names machines with GPUs ({named}) and machines without GPUs.", Outcome.WARN
        title = self.providers[spot.provider].title
        wait = f"When {title} reclaims the nodes, Pods that request GPUs stay pending unless another pool has GPUs."
        reasons = [(need, f"{because} {need.because or wait}") for need in needs]
        return tuple(replace(need, outcome=min(need.outcome, most), because=reason) for need, reason in reasons)

    def _why_for_gpus(self, pool: Pool) -> str:
        """Return why only Pods that request GPUs run on a pool, as a sentence. Return an empty string if others do."""
        hard = (taint for taint in pool.taints if pool.gpu is Gpu.ANY and taint.effect in HARD_EFFECTS)
        guards = filter(self.providers[pool.provider].guards_accelerator, hard)
        return next((f"Its taint {taint} admits only Pods that request GPUs." for taint in guards), "")

    def _named_gpus(self, pool: Pool) -> tuple[str, ...]:
        """Return the machine types, families, or categories with GPUs that a pool lists."""
        return self.providers[pool.provider].machines.named_gpus(pool.requirements or NO_REQUIREMENTS)

    def offer_of(self, pool: Pool | None) -> tuple[object, ...] | None:
        """Return a key of the pool's offer as a fallback. Return None if it is never a fallback."""
        if pool is None or self._why_never(pool):
            return None
        return pool.cluster_id, pool.gpu, pool.gpu_type, pool.instance_type, pool.machines, pool.zones

    def why_not(self, spot: Pool, pool: Pool, require: RequireName) -> str:
        """Return why a pool isn't a fallback for this spot pool. Return an empty string if it is."""
        if not same_cluster(pool, spot) or (pool.cluster and pool.provider != spot.provider):
            return self._other_cluster(spot, pool)
        if chosen := next((either for either in (spot, pool) if either.chosen_by), None):
            return f"{chosen} runs only Pods that select it by label {chosen.chosen_by}"
        if (why := self._why_never(pool)) or require == "any" or pool.gpu is Gpu.ANY:
            return why
        if pool.gpu is (Gpu.YES if require == "standard" else Gpu.NO):
            return "it has GPUs" if require == "standard" else "it has no GPUs"
        if require == "same-type":
            return _why_other_type(spot, pool)
        unknown = f"it is unknown whether {pool.instance_type or 'it'} has GPUs"
        return unknown if pool.gpu is Gpu.UNKNOWN else ""

    def is_limited(self, spot: Pool, pools: Sequence[Pool], require: RequireName) -> bool:
        """Return whether a spot pool would have a fallback if no capacity ended by itself."""
        limited = (pool for pool in pools if pool.capacity is CapacityType.LIMITED)
        lasting = [replace(pool, capacity=CapacityType.ON_DEMAND) for pool in limited]
        return spot.partly_limited or self.coverage(spot, lasting, require) is not Coverage.NONE

    def ends(self, pool: Pool) -> str:
        """Return that the pool's limited capacity ends, and when, as a phrase."""
        return f"its capacity is time-limited: {self.providers[pool.provider].limited.ends}"

    def _other_cluster(self, spot: Pool, pool: Pool) -> str:
        """Return a phrase with the cluster of a pool outside the spot pool's cluster."""
        title = "" if pool.provider == spot.provider else f" ({self.providers[pool.provider].title})"
        where = f"to cluster {pool.cluster_id}{title}"
        return f"it belongs {where}" if pool.cluster else f"it belongs to this cluster, not to {spot.cluster_id}"

    def coverage(self, spot: Pool, pools: Sequence[Pool], require: RequireName) -> Coverage:
        """Return how well these pools cover a spot pool. A pool without zones may be in any zone."""
        fallbacks = [pool for pool in pools if not self.why_not(spot, pool, require)]
        if not fallbacks:
            return Coverage.NONE
        if require == "standard":  # The spot pool's own Pods don't run there, so zones don't matter.
            return Coverage.HERE
        elsewhere = spot.zones and all(pool.zones and not pool.zones & spot.zones for pool in fallbacks)
        return Coverage.ELSEWHERE if elsewhere else Coverage.HERE

    def lost_coverage(
        self, before: Sequence[Pool], after: Sequence[Pool], among: Sequence[Pool] | None = None
    ) -> list[LostCoverage]:
        """Return the spot pools with a worse fallback after a request than before it, sorted by name.

        A demand that the request introduces counts as covered before it.

        Args:
            before: all pools before the request.
            after: all pools after the request.
            among: the pools of ``after`` that may have lost coverage; default: all.
        """
        among = after if among is None else among
        identities = {pool.identity for pool in among}
        same_pools = (pool for pool in before if pool.identity in identities)
        earlier = {demand: pool for pool in same_pools if (demand := self.demand_of(pool)) is not None}
        covered_before, covered_after = self._covers(before), self._covers(after)
        lost: list[LostCoverage] = []
        for pool in sorted(among, key=str):
            if (demand := self.demand_of(pool)) is None:
                continue
            for need in self.needs(pool):
                same = earlier.get(demand)
                was = Coverage.HERE if same is None else covered_before(same, need.require)
                if (cover := covered_after(pool, need.require)) > was:
                    lost.append(LostCoverage(pool, need, cover))
        return lost

    def _covers(self, pools: Sequence[Pool]) -> Callable[[Pool, RequireName], Coverage]:
        """Return `coverage` for these pools, with a cache. Spot pools that `why_not` treats alike share a result."""
        usable = [pool for pool in pools if not self._why_never(pool)]
        known: dict[tuple[object, ...], Coverage] = {}

        def cover(spot: Pool, require: RequireName) -> Coverage:
            same_type = (spot.gpu_type, spot.instance_type, spot.machines)
            chosen = spot.name if spot.chosen_by else ""
            key = (spot.cluster, spot.cluster_path, spot.provider, chosen, same_type, spot.zones, require)
            if key not in known:
                known[key] = self.coverage(spot, usable, require)
            return known[key]

        return cover

    def _why_never(self, pool: Pool) -> str:
        """Return why a pool is never a fallback. Return an empty string if it can be one."""
        if pool.spot:
            return "it is spot"
        if pool.capacity is CapacityType.UNKNOWN:
            return "it is unknown whether it is on-demand"
        if pool.capacity is CapacityType.LIMITED:
            return self.ends(pool)
        if pool.unusable:
            return pool.unusable
        hard = (taint for taint in pool.taints if taint.effect in HARD_EFFECTS)
        forbidden = next(filter(self.providers[pool.provider].is_forbidden, hard), None)
        return f"no Pod may tolerate its taint {forbidden}" if forbidden is not None else ""


def _why_other_type(spot: Pool, pool: Pool) -> str:
    """Return why a pool with GPUs is not of the spot pool's type. Return an empty string if it is.

    If both pools name an accelerator, the accelerators must be equal. Otherwise the pool must list all instance types
    of the spot pool, and can list more. If neither comparison applies, the spot pool must satisfy each requirement of
    the pool on a label that describes machines.
    """
    if pool.gpu_type and spot.gpu_type:
        return "" if pool.gpu_type == spot.gpu_type else f"its GPUs are {pool.gpu_type}, not {spot.gpu_type}"
    if spot.instance_type and set(spot.instance_type.split(", ")) <= set(pool.instance_type.split(", ")):
        return ""
    if spot.machines and pool.machines and not (spot.instance_type and pool.instance_type):
        required = dict(spot.machines)
        for key, values in pool.machines:
            if not required.get(key, ANYTHING).within(values):
                return f"its requirement on {key} is stricter than that of {spot}"
        return ""
    return f"its instance type is {pool.instance_type or 'not known'}, not {spot.instance_type or 'a known one'}"

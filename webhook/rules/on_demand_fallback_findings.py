"""What `webhook.rules.on_demand_fallback` says: its findings, worded for the engineer whose request is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import yaml

from webhook.capacity.pool import Gpu, Pool
from webhook.decision import Outcome, Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from webhook.capacity.fallback import Fallbacks, Require
    from webhook.capacity.reader import PoolReader
    from webhook.cluster.protocol import ClusterView

_LISTED: Final = 8
"""Pools that a finding names before it only counts the rest: a denial is read in a terminal."""

_WANTED: Final[Mapping[Require, str]] = {
    "any": "an on-demand pool",
    "gpu": "an on-demand pool with GPUs",
    "same-type": "an on-demand pool of the same instance type",
}


class Change(msgspec.Struct, frozen=True):
    """What a request does to a pool.

    Attributes:
        before: the pool without the request; None on CREATE.
        after: the pool with it; None on DELETE.
        field: what the request changes; of a new pool what makes it spot; empty on DELETE.
    """

    reader: PoolReader
    before: Pool | None
    after: Pool | None
    field: str


class Findings(msgspec.Struct, frozen=True):
    """The findings; ``readers`` know how each kind of pool is written."""

    fallbacks: Fallbacks
    readers: Iterable[PoolReader]

    def superchip(self, change: Change, spot: Pool) -> Violation:
        """The pool can't be spot at all."""
        return Violation(
            reason=f"{spot} can't be spot: {spot.instance_type} is a superchip",
            field=change.field,
            detail=f"{self.fallbacks.title(spot)} has no spot capacity of this type: the pool would stay empty.",
            fix="make the pool on-demand, or take another instance type",
        )

    def uncovered(self, change: Change, spot: Pool, pools: Sequence[Pool]) -> Violation:
        """The request makes a spot pool that has no fallback."""
        detail = [
            f"When {self.fallbacks.title(spot)} reclaims its nodes, Pods stay pending unless another pool takes them.",
            f"The policy wants {_WANTED[self.fallbacks.required(spot)]}, and there is none that can be used.",
        ]
        if spot.gpu is Gpu.UNKNOWN and spot.instance_type:
            detail.append(f"{spot.instance_type} is in no list of CapacityProvider {spot.provider}: it counts as GPU.")
        if spot.problems:
            detail.append(f"Not readable: {'; '.join(spot.problems)}.")
        return Violation(
            reason=f"{_spot_pools([spot])} has no on-demand fallback",
            field=change.field,
            detail=" ".join([*detail, *self._useless(spot, pools)]),
            fix=f"create an on-demand pool first{self._example(spot)}",
        )

    def taken(self, change: Change, left: Sequence[Pool], pools: Sequence[Pool]) -> Violation:
        """The request takes the last fallback from the spot pools in ``left``."""
        reader, after = change.reader, change.after
        fix = ["delete the spot pools first", f"create another on-demand pool first{self._example(left[0])}"]
        if after is not None and after.desired == 0 and not after.autoscaling and reader.autoscaling and reader.maximum:
            fix.insert(
                0, f"turn on {reader.autoscaling.text}, with {reader.maximum.text} above 0, to run it at 0 nodes"
            )
        return Violation(
            reason=f"{change.before} is the last on-demand fallback of {_spot_pools(left)}",
            field=change.field,
            detail=" ".join([f"Left without: {_names(left)}.", *self._useless(left[0], pools)]),
            fix=", or ".join(fix),
        )

    def elsewhere(self, change: Change, spots: Sequence[Pool], pools: Sequence[Pool]) -> Violation:
        """The request leaves these spot pools with fallbacks in other zones only."""
        spot = spots[0]
        fallbacks = [pool for pool in pools if not self.fallbacks.why_not(spot, pool)]
        theirs = _zones(fallbacks)
        return Violation(
            reason=f"{_spot_pools(spots)} can only fall back to another zone",
            field=change.field,
            detail=f"{spot} is in {_zones([spot])}, {_names(fallbacks)} in {theirs}: volumes of one zone can't follow.",
            fix=f"create an on-demand pool in {_zones([spot])} too",
            outcome=Outcome.WARN,
        )

    def _useless(self, spot: Pool, pools: Sequence[Pool]) -> list[str]:
        """The pools that are no fallback for this spot pool although they are not spot, each with why."""
        said = [
            f"{pool}: {why}" + (f" ({', '.join(pool.problems)})" if pool.problems else "")
            for pool in sorted(pools, key=str)
            if not pool.spot and (why := self.fallbacks.why_not(spot, pool))
        ]
        return [f"What does not count: {_some(said, '; ')}."] if said else []

    def _example(self, spot: Pool) -> str:
        """A pool that would be a fallback for this spot pool: as YAML, or in words where no reader knows how."""
        for reader in self.readers:
            if (reader.provider, reader.kind) != (spot.provider, spot.kind):
                continue
            manifest = reader.on_demand_manifest(
                name=f"{spot.name}-fallback",
                namespace=spot.namespace,
                instance_type=spot.instance_type or "<an instance type with GPUs>",
                maximum=max(1, (spot.maximum if spot.autoscaling else spot.desired) or 0),
            )
            if manifest is not None:
                return ", for example:\n" + yaml.safe_dump(manifest, sort_keys=False).rstrip()
        return f": a {spot.kind} like {spot.name} that is not spot and may have at least 1 node"


def unreadable_capacity(reader: PoolReader, pool: Pool) -> Violation:
    """Nobody can tell whether the pool is spot."""
    return Violation(
        reason=f"can't tell whether {pool} is spot and needs an on-demand fallback",
        field=reader.capacity.text,
        detail=f"Not readable: {'; '.join(pool.problems)}.",
        fix=f"write one of: {', '.join(reader.capacity_values)}",
        outcome=Outcome.WARN,
    )


def unknown_pools(view: ClusterView) -> Violation:
    """The other pools are unknown, and the request may take a fallback away or need one."""
    return Violation(
        reason="can't tell whether GPU spot pools have an on-demand fallback: the node pools are unknown",
        detail=view.why_unknown,
        fix=view.remedy,
        unknown=True,
    )


def _spot_pools(pools: Sequence[Pool]) -> str:
    if len(pools) > 1:
        return f"{len(pools)} GPU spot pools"
    return f"GPU spot pool {pools[0]}" if pools[0].gpu is Gpu.YES else f"spot pool {pools[0]}"


def _names(pools: Iterable[Pool]) -> str:
    return _some(sorted(map(str, pools)), ", ")


def _zones(pools: Iterable[Pool]) -> str:
    return ", ".join(sorted({zone for pool in pools for zone in pool.zones}))


def _some(texts: Sequence[str], separator: str) -> str:
    rest = len(texts) - _LISTED
    return separator.join([*texts[:_LISTED], *([f"{rest} more"] if rest > 0 else [])])

"""Build the violations of OnDemandFallback, worded for the engineer whose request is denied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.placeholders import filling_in, placeholder_in
from webhook.base.text import listed
from webhook.capacity.providers.joins import same_cluster
from webhook.capacity.providers.manifest import on_demand_manifest
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool
from webhook.documents.yaml_writer import dump
from webhook.model.decision import Violation, warning

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from webhook.capacity.placement.fallback import FallbackNeed, Fallbacks
    from webhook.capacity.providers.reader import PoolReader
    from webhook.capacity.providers.schema import RequireName
    from webhook.capacity.view import ClusterView

_LISTED: Final = 8
"""Pools that a finding lists, for a terminal. It counts the rest."""

_WANTED: Final[Mapping[RequireName, str]] = {
    "any": "an on-demand pool",
    "standard": "an on-demand pool without GPUs",
    "gpu": "an on-demand pool with GPUs",
    "same-type": "an on-demand pool of the same instance type",
}


OWNERS: Final = "metadata.ownerReferences"


class PoolChange(msgspec.Struct, frozen=True):
    """The change of one pool by a request.

    Attributes:
        field: the field that the request changes, or the field that makes a new pool spot; empty on DELETE.
    """

    reader: PoolReader
    before: Pool | None
    after: Pool | None
    field: str


class FallbackFindings(msgspec.Struct, frozen=True):
    """The builder of the violations, with the pool readers by provider and kind."""

    fallbacks: Fallbacks
    readers: Mapping[tuple[str, str], PoolReader]

    def superchip(self, change: PoolChange, spot: Pool) -> Violation:
        """Return the violation for a spot pool of an instance type that can't be spot."""
        return Violation(
            id="superchip",
            reason=f"{spot} can't be spot: {spot.instance_type} is available only on demand",
            field=change.field,
            detail=f"{change.reader.facts.title} has no spot capacity of this type: the pool would stay empty.",
            fix="make the pool on-demand, or choose another instance type",
        )

    def uncovered(self, change: PoolChange, spot: Pool, need: FallbackNeed, pools: Sequence[Pool]) -> Violation:
        """Return the violation for a request that creates a spot pool without the fallback that it needs."""
        title = self.fallbacks.providers[spot.provider].title
        limited = self.fallbacks.is_limited(spot, pools, need.require)
        only = ", only time-limited capacity" if limited else ""
        detail = [
            need.because
            or f"When {title} reclaims the nodes of this pool, its Pods stay pending unless another pool can run them.",
            f"The policy requires {_WANTED[need.require]}, and the cluster has none.",
        ]
        machines = change.reader.facts.machines
        unlisted = machines.unlisted(spot)
        if unlisted:
            detail.append(f"CapacityProvider {spot.provider} doesn't list {', '.join(unlisted)}: counted as GPU.")
        elif spot.gpu is Gpu.UNKNOWN and machines.classify(spot.instance_type.split(", ")) is Gpu.ANY:
            detail.append(f"Some of its instance types have GPUs, and {title} can choose any of them.")
        if spot.problems:
            detail.append(f"Not readable: {'; '.join(spot.problems)}.")
        fix = f"create an on-demand pool first{self._example(spot, need)}"
        if spot.chosen_by:
            fix = f"add on-demand capacity to {spot}: Pods that choose it run on no other nodes"
        if change.reader.is_cluster:
            fix = "create the cluster with an on-demand pool without GPUs, and add this pool afterwards"
        if spot.capacity is CapacityType.UNKNOWN:
            fix = f"{_capacity_remedy(change.reader)}; if the pool is spot, {fix}"
        elif need.require == "gpu" and unlisted:
            types = f"`instanceTypes` (`gpu` or `cpu`) of CapacityProvider {spot.provider}"
            fix = f"add {', '.join(unlisted)} to {types}; if the pool has GPUs, {fix}"
        elif spot.gpu is Gpu.UNKNOWN and (remedy := _gpu_remedy(spot)):
            fix = f"{remedy}; if the pool has GPUs, {fix}"
        return Violation(
            id="limited-fallback" if limited else "missing",
            reason=f"{_spot_pools([spot])} has no {_named(need)}{only}",
            field=change.field,
            detail=" ".join([*detail, *self._useless(spot, need, pools)]),
            fix=filling_in(spot.problems) or fix,
            outcome=need.outcome,
            unknown=_is_open(spot, pools),
        )

    def taken(self, change: PoolChange, left: Sequence[Pool], need: FallbackNeed, pools: Sequence[Pool]) -> Violation:
        """Return the violation for a request that removes the last fallback of the spot pools in ``left``."""
        reader, after = change.reader, change.after
        fix = ["delete the spot pools first", f"create another on-demand pool first{self._example(left[0], need)}"]
        flag, maximum = reader.size.autoscaling, reader.size.maximum
        if after is not None and after.desired == 0 and not after.autoscaling and flag and flag.plain and maximum:
            fix.insert(0, f"to keep the pool at 0 nodes, turn on {flag.field} with {maximum.field} above 0")
        because = [need.because] if need.because else []
        if change.field == OWNERS:
            because.append("The garbage collector deletes the pool when its new owners are gone.")
            fix.insert(0, "remove the owner references")
        return Violation(
            id="last-fallback",
            reason=f"{change.before} is the last {_named(need)} of {_spot_pools(left)}",
            field=change.field,
            detail=" ".join(
                [f"These pools would have no fallback: {_names(left)}.", *because, *self._useless(left[0], need, pools)]
            ),
            fix=", or ".join(fix),
            outcome=need.outcome,
            unknown=all(_is_open(spot, pools) for spot in left),
        )

    def elsewhere(
        self, change: PoolChange, spots: Sequence[Pool], need: FallbackNeed, pools: Sequence[Pool]
    ) -> Violation:
        """Return the violation for a request that leaves only fallbacks in other zones for spot pools."""
        spot = spots[0]
        fallbacks = [pool for pool in pools if not self.fallbacks.why_not(spot, pool, need.require)]
        other_zones = _zones(fallbacks)
        return warning(
            id="other-zone",
            reason=f"{_spot_pools(spots)} can only fall back to another zone",
            field=change.field,
            detail=f"{spot} is in {_zones([spot])}, {_names(fallbacks)} in {other_zones}. Zonal volumes can't "
            "follow the Pods there.",
            fix=f"create an on-demand pool in {_zones([spot])}",
        )

    def _useless(self, spot: Pool, need: FallbackNeed, pools: Sequence[Pool]) -> list[str]:
        """Return a sentence that lists the other pools that aren't spot, and why each is no fallback for this pool."""
        reasons = [
            f"{pool}: {why}" + (f" ({', '.join(pool.problems)})" if pool.problems else "")
            for pool in sorted(pools, key=str)
            if not pool.spot
            and pool.identity != spot.identity
            and (why := self.fallbacks.why_not(spot, pool, need.require))
        ]
        if spot.partly_limited:
            reasons.insert(0, f"the rest of {spot}: {self.fallbacks.ends(spot)}")
        return [f"These pools don't count: {listed(reasons, _LISTED, '; ', '; ')}."] if reasons else []

    def _example(self, spot: Pool, need: FallbackNeed) -> str:
        """Return an example of the required fallback: as YAML, or in words if the reader can't write a manifest."""
        reader = self.readers[spot.provider, spot.kind]
        what, manifest = f"like {_stem(spot)}", None
        if need.require == "standard":
            what = "without GPUs"
        # Otherwise the GPUs are in separate fields, and no example can be generated.
        elif reader.facts.machines.classify(spot.instance_type.split(", ")) is not Gpu.NO:
            unlisted = need.require == "gpu" and reader.facts.machines.unlisted(spot)
            manifest = on_demand_manifest(
                reader,
                name=f"{_stem(spot)}-fallback".lstrip("-"),
                namespace=spot.namespace,
                instance_type=(not unlisted and spot.instance_type) or "<an instance type with GPUs>",
                maximum=max(1, (spot.maximum if spot.autoscaling else spot.desired) or 0),
            )
        if manifest is not None:
            return ", for example:\n" + dump(manifest)
        of_kind = f"of kind {spot.kind} " if reader.template or reader.capacity.on_demand else ""
        return f": a pool {of_kind}{what} that isn't spot and can have at least 1 node"


def _is_open(spot: Pool, pools: Iterable[Pool]) -> bool:
    """Return whether a placeholder may hide that the pool needs no fallback, or that another pool is one."""
    others = (pool for pool in pools if not pool.spot and pool.gpu is not Gpu.NO and same_cluster(pool, spot))
    return any(placeholder_in(pool.problems) for pool in (spot, *others))


def unreadable_capacity(reader: PoolReader, pool: Pool) -> Violation:
    """Return the violation for a pool whose capacity type is unreadable."""
    return warning(
        id="unreadable-capacity",
        reason=f"can't tell whether {pool} is spot and needs an on-demand fallback",
        field=reader.capacity_query.field,
        detail=f"{'; '.join(pool.problems)}.",
        fix=_capacity_remedy(reader),
    )


def unknown_template(reader: PoolReader, pool: Pool) -> Violation:
    """Return the violation for a pool with an unknown template. The template's request evaluates the pool again."""
    kind, _, name = pool.template or ("", "", "")
    named = f"{kind} {name}" if kind and name else "the template of its machines"
    return warning(
        id="template-unknown",
        reason=f"can't tell whether {pool} is spot: {named} is unknown",
        field=reader.capacity_query.field,
        detail="The pool gets no machines without the template. spotgate evaluates the pool when you create the "
        "template.",
        fix=f"create {named} in the same namespace, or pass it with --state",
        unknown=True,
    )


def _capacity_remedy(reader: PoolReader) -> str:
    if reader.template is not None:
        return "correct its template"
    if not reader.capacity_query.plain:
        return "correct the fields that can't be read"
    return f"write one of: {', '.join(reader.capacity.values)}"


def _gpu_remedy(spot: Pool) -> str:
    """Return how to declare whether the pool has GPUs, or an empty string if its fields allow both."""
    if spot.problems:
        return "correct the fields that can't be read"
    if spot.requirements is None and not spot.instance_type:
        return "list the instance types in the pool itself, not in a launch template or a selector"
    return ""


def _stem(pool: Pool) -> str:
    """Return the pool's name, or the prefix of its generated name."""
    return pool.name.rstrip("-")


def unknown_pools(view: ClusterView) -> Violation:
    """Return the violation for a request that may affect a fallback while the other pools are unknown."""
    return Violation(
        id="pools-unknown",
        reason="can't tell whether GPU spot pools have an on-demand fallback: the node pools are unknown",
        detail=view.why_unknown,
        fix=view.remedy,
        unknown=True,
    )


def _spot_pools(pools: Sequence[Pool]) -> str:
    if len(pools) > 1:
        return f"{len(pools)} GPU spot pools"
    if pools[0].capacity is CapacityType.UNKNOWN:
        return f"{pools[0]} (may be spot)"
    return f"GPU spot pool {pools[0]}" if pools[0].gpu is Gpu.YES else f"spot pool {pools[0]}"


def _named(need: FallbackNeed) -> str:
    """Return the required fallback, as a phrase."""
    return "on-demand pool without GPUs" if need.require == "standard" else "on-demand fallback"


def _names(pools: Iterable[Pool]) -> str:
    return listed(sorted(map(str, pools)), _LISTED, rest=", ")


def _zones(pools: Iterable[Pool]) -> str:
    zones = sorted({zone for pool in pools for zone in pool.zones})
    return f"zone{'s' * (len(zones) > 1)} {', '.join(zones)}"

"""OnDemandFallback: no GPU spot pool without on-demand capacity to fall back on.

Intent
    Nothing fails over from spot to on-demand by itself: Pods of a reclaimed pool stay pending unless another pool can
    take them. So no request may leave a GPU spot pool without a *usable* on-demand fallback: not by creating the spot
    pool, not by turning a pool into one, and not by deleting, scaling down or changing the last fallback. Superchips,
    which are never spot, are refused as spot whatever else exists.
Reads
    Node pools, through their provider's readers: the reviewed one from the request (for a scale request: from the
    cluster, with the new size), all others from the cluster, read fresh.
Writes
    Nothing.
Values
    A *spot pool* needs a fallback when its nodes have GPUs or nobody knows (``any`` does not need one); a pool that is
    both spot and on-demand is its own. A *fallback* is on-demand or both, belongs to the same cluster, can have nodes
    (autoscaled to more than zero, or a fixed size above zero), carries no taint that nobody may tolerate, and, as
    ``require`` says, has GPUs (``any`` counts, unknown does not) or the same instance type.
    Only what the request makes worse is a violation: an update that changes none of this passes, even where the
    fallback has long been gone.
Source
    CoreWeave, "Spot Node Pools" (fully preempted pools, superchips) and "Node Pool API schema" (sizes, conditions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from pydantic import Field

from webhook.capacity.fallback import Cover, Fallbacks, Require, demand_of
from webhook.capacity.pool import CapacityType, Gpu, Pool
from webhook.capacity.provider import readers_by_resource
from webhook.cluster.protocol import Needs
from webhook.decision import Outcome
from webhook.policy.common import NonEmpty, PolicySpec, SpecError
from webhook.policy.loader import did_you_mean
from webhook.rules.on_demand_fallback_findings import Change, Findings, unknown_pools, unreadable_capacity
from webhook.rules.protocol import PolicyKind, ResourceRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.capacity.reader import PoolReader
    from webhook.cluster.protocol import ClusterView
    from webhook.context import Context
    from webhook.decision import Violation
    from webhook.review import Request
    from webhook.rules.protocol import Facts, Subject


class OnDemandFallbackSpec(PolicySpec):
    """Denies GPU spot pools without on-demand fallback."""

    require: Require = Field(
        default="gpu",
        description="What counts as a fallback: any on-demand pool, one with GPUs, or one of the same instance type. "
        "Most clusters come with an on-demand CPU pool, so 'any' hardly ever denies.",
    )
    require_by_provider: dict[NonEmpty, Require] = Field(
        default={}, description="The same for one provider's spot pools: name of its CapacityProvider -> requirement."
    )


class OnDemandFallback(msgspec.Struct, frozen=True):
    """The rule, compiled; ``readers`` are by API group and plural resource name."""

    fallbacks: Fallbacks
    findings: Findings
    readers: Mapping[tuple[str, str], PoolReader]

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:
        """What the request makes worse."""
        kind = subject.request.resource
        reader = self.readers.get((kind.group, kind.resource))
        if reader is None:
            subject.trace.say("no CapacityProvider reads %s as node pools", kind.resource)
        elif subject.request.sub_resource == "scale":
            yield from self._scale(subject, reader, context.view)
        elif subject.request.sub_resource:
            subject.trace.say("%s can't change what a pool needs or gives", subject.request.path)
        elif _same_spec(subject):
            subject.trace.say("the request leaves spec as it is")
        else:
            before = self._before(subject, reader, context.view)
            after = reader.read(subject.object) if subject.object is not None else None
            field = _changed_field(reader, before, after)
            yield from self._judge(subject, Change(reader, before, after, field), context.view)

    def _before(self, subject: Subject, reader: PoolReader, view: ClusterView) -> Pool | None:
        """The pool before the request; as the cluster knows it, where the request does not say."""
        old = subject.old_object
        if old is not None and isinstance(old.get("spec"), dict):
            return reader.read(old)
        return None if subject.operation == "CREATE" else _known(reader, subject.request, view)

    def _scale(self, subject: Subject, reader: PoolReader, view: ClusterView) -> Iterator[Violation]:
        spec = (subject.object or {}).get("spec")
        # The API server leaves out `replicas` where it is 0.
        replicas = spec.get("replicas", 0) if isinstance(spec, dict) else 0
        if isinstance(replicas, int) and replicas > 0:
            subject.trace.say("scaling to %s nodes takes no fallback away", replicas)
            return
        if view.pools is None:
            yield unknown_pools(view)
            return
        request = subject.request
        before = _known(reader, request, view)
        if before is None:
            subject.trace.say("the cluster has no %s %s: nothing to say", reader.kind, request.name)
            return
        empty = msgspec.structs.replace(before, desired=0)
        yield from self._judge(subject, Change(reader, before, empty, "spec.replicas"), view)

    def _judge(self, subject: Subject, change: Change, view: ClusterView) -> Iterator[Violation]:
        before, after = change.before, change.after
        if after is not None and after.deleting:
            subject.trace.say("%s is being deleted: its updates are not judged", after)
            return
        if after is not None and _superchip_on_spot(after) and not _superchip_on_spot(before):
            yield self.findings.superchip(change, after)
            return
        if after is not None and _unreadable(after) and not _unreadable(before):
            yield unreadable_capacity(change.reader, after)
        needed, gave = demand_of(after), self.fallbacks.supply_of(before)
        needs_more = needed is not None and needed != demand_of(before)
        gives_less = gave is not None and gave != self.fallbacks.supply_of(after)
        if not needs_more and not gives_less:
            subject.trace.say("the request changes neither what the pool needs nor what it gives as a fallback")
            return
        if view.pools is None:
            yield unknown_pools(view)
            return
        reviewed = {pool.identity for pool in (before, after) if pool is not None}
        others = [pool for pool in view.pools if pool.identity not in reviewed]
        pools = [*others, after] if after is not None else others
        worse = self.fallbacks.worse_off([*others, before] if before is not None else others, pools)
        if not worse:
            subject.trace.say("no GPU spot pool is left with less to fall back on")
        if after is not None and (after, Cover.NONE) in worse:
            yield self.findings.uncovered(change, after, pools)
        if left := [pool for pool, cover in worse if cover is Cover.NONE and pool is not after]:
            yield self.findings.taken(change, left, pools)
        if elsewhere := [pool for pool, cover in worse if cover is Cover.ELSEWHERE]:
            yield self.findings.elsewhere(change, elsewhere, pools)


def _superchip_on_spot(pool: Pool | None) -> bool:
    return pool is not None and pool.spot and pool.superchip


def _unreadable(pool: Pool | None) -> bool:
    return pool is not None and pool.capacity is CapacityType.UNKNOWN and pool.gpu in {Gpu.YES, Gpu.UNKNOWN}


def _known(reader: PoolReader, request: Request, view: ClusterView) -> Pool | None:
    identity = (reader.provider, reader.kind, request.namespace, request.name)
    return next((pool for pool in view.pools or () if pool.identity == identity), None)


def _same_spec(subject: Subject) -> bool:
    """A change of status alone is the provider's own word, and none that a user could take back."""
    old, new = subject.old_object, subject.object
    return old is not None and new is not None and "spec" in old and old["spec"] == new.get("spec")


def _changed_field(reader: PoolReader, before: Pool | None, after: Pool | None) -> str:
    """The field in which the request changes the pool; of a new pool the one that makes it spot."""
    if before is None or after is None:
        return reader.capacity.text if before is None else ""
    for query, old, new in (
        (reader.capacity, before.capacity, after.capacity),
        (reader.instance_type, before.instance_type, after.instance_type),
        (reader.taints, before.taints, after.taints),
        (reader.zones, before.zones, after.zones),
        (reader.autoscaling, before.autoscaling, after.autoscaling),
        (reader.maximum, before.maximum, after.maximum),
    ):
        if query is not None and old != new:
            return query.text
    return reader.desired.text


def _compile(spec: OnDemandFallbackSpec, facts: Facts) -> OnDemandFallback:
    for name in spec.require_by_provider:
        if name not in facts.providers:
            problem = f"there is no CapacityProvider {name!r}{did_you_mean(name, facts.providers)}"
            raise SpecError(("requireByProvider", name), problem)
    fallbacks = Fallbacks(spec.require, spec.require_by_provider, facts.providers)
    readers = readers_by_resource(facts.providers.values())
    return OnDemandFallback(fallbacks, Findings(fallbacks, readers.values()), readers)


def _rules(facts: Facts) -> tuple[ResourceRule, ...]:
    rules: list[ResourceRule] = []
    for (group, resource), reader in readers_by_resource(facts.providers.values()).items():
        operations = ("CREATE", "UPDATE", "DELETE")
        rules.append(ResourceRule(api_groups=(group,), resources=(resource,), operations=operations))
        if reader.scale:
            rules.append(ResourceRule(api_groups=(group,), resources=(f"{resource}/scale",), operations=("UPDATE",)))
    return tuple(rules)


KIND: Final = PolicyKind(
    name="OnDemandFallback",
    spec=OnDemandFallbackSpec,
    compile=_compile,
    rules=_rules,
    needs=Needs(pools=True, fresh=True),
    unknown_outcome=Outcome.DENY,
)

"""OnDemandFallback: every GPU spot pool has an on-demand fallback.

Intent
    Spot pools don't fail over to on-demand: Pods of a reclaimed pool stay pending unless another pool can run them. So
    no request may leave a GPU spot pool without a *usable* on-demand fallback, whether it creates the spot pool, turns
    a pool into one, or deletes, scales down, or changes the last fallback. Superchips are never spot: they are denied
    as spot even with a fallback.
Reads
    Node pools, through their provider's readers: the reviewed pool from the request, and all others from the cluster,
    read fresh. For a scale request, and for an object that only sets a pool's size, the reviewed pool comes from the
    cluster, with the new size.
    A *spot pool* needs a fallback if its nodes have GPUs, or may have them. A pool whose nodes have GPUs if the Pods
    request them (``any``) needs one if a taint admits only these Pods; it gets a warning if it lists machines with
    GPUs. A pool that is both spot and on-demand is its own fallback. A pool of unreadable capacity may be spot.
    A *fallback* is on-demand or both, belongs to the same cluster, can have nodes (autoscaled to more than zero, or a
    fixed size above zero), has no taint that no Pod may tolerate, and is not being deleted. Depending on ``require``,
    it has GPUs (``any`` counts, unknown doesn't) or the same instance type. A provider's document can set several
    requirements: GKE's requires a pool without GPUs, and warns if there is none with GPUs.
    An update that replaces the owner references counts as a deletion: the garbage collector is never denied.
    Capacity that ends by itself at a known time (``limited``) is neither spot nor a fallback.
    A violation is a change for the worse: other updates are admitted, even if the fallback is already gone.
Writes
    Nothing.
Finds
    superchip, missing, limited-fallback, last-fallback, other-zone, unreadable-capacity, pools-unknown,
    template-unknown
Source
    CoreWeave, "Spot Node Pools" (fully preempted pools, superchips) and "Node Pool API schema" (sizes, conditions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.capacity.placement.fallback import Coverage, FallbackNeed, Fallbacks, LostCoverage
from webhook.capacity.providers.joins import Sizer, sizes_in, with_size, with_template, with_template_of
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, superchip_on_spot
from webhook.capacity.providers.provider import ResourceReader, readers_by_resource, sizers_by_resource
from webhook.kube.filling import items_of, mapping
from webhook.model.decision import Outcome, Violation
from webhook.policy.errors import SpecError, did_you_mean
from webhook.policy.match import ResourceRule, expect_judged, rules_for
from webhook.rules.on_demand_fallback import findings
from webhook.rules.on_demand_fallback.findings import FallbackFindings, PoolChange
from webhook.rules.on_demand_fallback.spec import OnDemandFallbackSpec
from webhook.rules.protocol import Facts, PolicyKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from webhook.capacity.providers.reader import PoolReader
    from webhook.capacity.view import ClusterView
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject


class OnDemandFallback(msgspec.Struct, frozen=True):
    """The compiled rule, with ``readers`` and ``sizers`` by API group and plural resource name."""

    fallbacks: Fallbacks
    findings: FallbackFindings
    readers: Mapping[tuple[str, str], ResourceReader]
    sizers: Mapping[tuple[str, str], tuple[Sizer, ...]]

    def validate(self, subject: Subject, context: Context) -> Iterator[Violation]:
        """Yield a violation for each spot pool that loses fallbacks by the request."""
        request = subject.request
        key = (request.resource.group, request.resource.resource)
        if request.sub_resource == "scale" and (replicas := _replicas(subject)) > 0:
            subject.trace.say("scaling to %s nodes removes no fallback", replicas)
        elif key in self.sizers:
            yield from self._size(subject, self.sizers[key], context.view)
        elif key in self.readers:
            yield from self._pool(subject, self.readers[key], context.view)
        else:
            subject.trace.skip("no CapacityProvider reads %s as node pools", request.resource.resource)

    def _pool(self, subject: Subject, readers: ResourceReader, view: ClusterView) -> Iterator[Violation]:
        """Evaluate a request for a node pool."""
        new = subject.object
        if subject.request.sub_resource == "scale":
            yield from self._scale(subject, readers, view)
        elif subject.request.sub_resource:
            subject.trace.say("%s can't change whether a pool needs or provides a fallback", subject.request.path)
        elif readers.any.is_template:
            yield from self._template(subject, readers, view)
        elif (same := _same_spec(subject)) and not _gets_owners(subject):
            subject.trace.say("the request doesn't change spec")
        else:
            reader = readers.of(new or subject.old_object or {})
            before = self._before(subject, readers, view)
            after = _joined(reader, reader.read(new), view) if new is not None else None
            if not same and after is not None and after.lacks_template:
                yield findings.unknown_template(reader, after)
            elif not same:
                field = _changed_field(reader, before, after, new or {})
                yield from self._judge(subject, PoolChange(reader, before, after, field), view)
            if after is not None and not after.deleting and _gets_owners(subject):
                yield from self._judge(subject, PoolChange(reader, after, None, findings.OWNERS), view)

    def _before(self, subject: Subject, readers: ResourceReader, view: ClusterView) -> Pool | None:
        """Return the pool before the request, from the cluster if the request doesn't contain it."""
        old = subject.old_object
        if old is not None and isinstance(old.get("spec"), dict):
            reader = readers.of(old)
            return _joined(reader, reader.read(old), view)
        if subject.operation == "CREATE":
            return None
        known = readers.known(view.pools, subject.request.namespace, subject.request.name)
        if subject.operation == "UPDATE" and self.fallbacks.demand_of(known) is not None:
            # The view may already have the update, so the pool's need for a fallback may be new.
            return None
        return known

    def _scale(self, subject: Subject, readers: ResourceReader, view: ClusterView) -> Iterator[Violation]:
        if view.pools is None:
            yield findings.unknown_pools(view)
            return
        request = subject.request
        before = readers.known(view.pools, request.namespace, request.name)
        if before is None:
            subject.trace.skip("not evaluated: the cluster has no %s %s", readers.any.kind, request.name)
            return
        reader = next(candidate for candidate in readers.readers if candidate.provider == before.provider)
        empty = msgspec.structs.replace(before, desired=0)
        yield from self._judge(subject, PoolChange(reader, before, empty, "spec.replicas"), view)

    def _template(self, subject: Subject, readers: ResourceReader, view: ClusterView) -> Iterator[Violation]:
        """Evaluate a request for a machine template, for each pool that uses the template."""
        old, new = (readers.read(value) if value else None for value in (subject.old_object, subject.object))
        if _same_spec(subject):
            subject.trace.say("the request doesn't change spec")
            return
        if view.pools is None:
            if self.fallbacks.demand_of(new) is not None or old is not None:
                yield findings.unknown_pools(view)
            return
        request = subject.request
        ref = (readers.any.kind, request.namespace, request.name)
        users = {pool.identity: pool for pool in view.pools if pool.template == ref}
        before = {key: with_template(pool, old) for key, pool in users.items()}
        after = {
            key: with_template(pool, new)
            if new is not None
            else msgspec.structs.replace(before[key], blocked=f"its template, {ref[0]} {ref[2]}, is deleted")
            for key, pool in users.items()
        }
        then = msgspec.structs.replace(view, pools=tuple(after.get(pool.identity, pool) for pool in view.pools))
        reader = readers.of(subject.object or subject.old_object or {})
        for key in users:
            change = PoolChange(reader, before[key], after[key], reader.capacity_query.field)
            yield from self._judge(subject, change, then)

    def _size(self, subject: Subject, sizers: tuple[Sizer, ...], view: ClusterView) -> Iterator[Violation]:
        """Evaluate a request for an object that sets the size of pools but isn't a pool."""
        request, new = subject.request, subject.object
        scaled = request.sub_resource == "scale"
        owned = _gets_owners(subject)
        # An autoscaler may set the size by annotations.
        old_notes, notes = (mapping(value, "metadata", "annotations") for value in (subject.old_object, new))
        same = not owned and _same_spec(subject) and old_notes == notes
        if subject.operation == "CREATE" or (request.sub_resource and not scaled) or same:
            subject.trace.say("the request takes no nodes from any pool")
            return
        if view.pools is None:
            yield findings.unknown_pools(view)
            return
        old = subject.old_object or {}
        complete = isinstance(old.get("spec"), dict) and not scaled
        before_by, after_by = ({size.pool: size for size in sizes_in(value or {}, sizers)} for value in (old, new))
        by = (sizers[0].kind, request.namespace, request.name)
        for known in view.pools:
            place = (known.kind, known.namespace, known.name)
            size = before_by.get(place) if complete else known.size
            if size is None or size.by != by:
                continue
            after = None
            # The view may be newer than the request, or already have its changes.
            if new is not None and not owned:
                after = with_size(known, after_by.get(place))
                after = msgspec.structs.replace(after, desired=0) if after.size is None else after
            reader = self.findings.readers[known.provider, known.kind]
            before = with_size(known, size)
            field = findings.OWNERS if owned else "spec.replicas"
            yield from self._judge(subject, PoolChange(reader, before, after, field), view)

    def _judge(self, subject: Subject, change: PoolChange, view: ClusterView) -> Iterator[Violation]:
        before, after = change.before, change.after
        if after is not None and after.deleting:
            subject.trace.skip("%s is being deleted: its updates are not evaluated", after)
            return
        if after is None and change.reader.is_cluster:
            subject.trace.say("%s is the cluster itself: its spot pools are deleted with it", before)
            return
        if after is not None and superchip_on_spot(after) and not superchip_on_spot(before):
            yield self.findings.superchip(change, after)
            return
        needed, offered = self.fallbacks.demand_of(after), self.fallbacks.offer_of(before)
        needs_more = needed is not None and needed != self.fallbacks.demand_of(before)
        gives_less = offered is not None and offered != self.fallbacks.offer_of(after)
        worse: list[LostCoverage] = []
        if not needs_more and not gives_less:
            subject.trace.say("the request doesn't change whether the pool needs or provides a fallback")
        elif view.pools is None:
            yield findings.unknown_pools(view)
        else:
            reviewed = {pool.identity for pool in (before, after) if pool is not None}
            # A recorded view may have pools of a provider that isn't in these policies.
            read = (pool for pool in view.pools if pool.provider in self.fallbacks.providers)
            others = [pool for pool in read if pool.identity not in reviewed]
            pools = [*others, after] if after is not None else others
            # A pool that offers no less affects no other pool. Check only itself: 1,000 new pools stay fast.
            among = pools if gives_less or after is None else [after]
            worse = self.fallbacks.lost_coverage([*others, before] if before is not None else others, pools, among)
            if not worse:
                subject.trace.say("no GPU spot pool loses a fallback")
            for need in dict.fromkeys(loss.need for loss in worse):
                yield from self._violations_about(change, need, [loss for loss in worse if loss.need == need], pools)
        uncovered = any(loss.spot is after and loss.coverage is Coverage.NONE for loss in worse)
        if after is not None and _unreadable(after) and not _unreadable(before) and not uncovered:
            yield findings.unreadable_capacity(change.reader, after)

    def _violations_about(
        self, change: PoolChange, need: FallbackNeed, worse: Sequence[LostCoverage], pools: Sequence[Pool]
    ) -> Iterator[Violation]:
        """Yield the violations for one need."""
        after = change.after
        without = [loss.spot for loss in worse if loss.coverage is Coverage.NONE]
        if after is not None and after in without:
            yield self.findings.uncovered(change, after, need, pools)
        if left := [pool for pool in without if pool is not after]:
            yield self.findings.taken(change, left, need, pools)
        if elsewhere := [loss.spot for loss in worse if loss.coverage is Coverage.ELSEWHERE]:
            yield self.findings.elsewhere(change, elsewhere, need, pools)


def _unreadable(pool: Pool | None) -> bool:
    if pool is None or pool.only_uses:
        return False
    return pool.capacity is CapacityType.UNKNOWN and pool.gpu in {Gpu.YES, Gpu.UNKNOWN}


def _joined(reader: PoolReader, pool: Pool, view: ClusterView) -> Pool:
    """Return the pool, completed from other objects: its template, or the object that sets its size."""
    pool = with_template_of(pool, view.templates)
    if reader.sizer is None:
        return pool
    if view.pools is None:  # unknown is not empty
        return msgspec.structs.replace(pool, desired=1)
    known = next((other for other in view.pools if other.identity == pool.identity), None)
    return pool if known is None else with_size(pool, known.size)


def _replicas(subject: Subject) -> int:
    """Return the replicas in a request for a scale subresource. The API server omits 0."""
    replicas = mapping(subject.object, "spec").get("replicas", 0)
    return replicas if isinstance(replicas, int) else 0


def _same_spec(subject: Subject) -> bool:
    """Return whether the request doesn't change ``spec``. Only the provider writes status."""
    old, new = subject.old_object, subject.object
    return old is not None and new is not None and "spec" in old and old["spec"] == new.get("spec")


def _gets_owners(subject: Subject) -> bool:
    """Return whether an UPDATE replaces all owners of the object.

    The garbage collector deletes an object when none of its owners exist.
    """
    old, new = subject.old_object, subject.object
    if old is None or new is None or subject.request.sub_resource:
        return False
    owners = (items_of(mapping(value, "metadata"), "ownerReferences") for value in (old, new))
    before, after = ({str(owner.get("uid")) for owner in of_value} for of_value in owners)
    return bool(after) and before.isdisjoint(after)


def _changed_field(reader: PoolReader, before: Pool | None, after: Pool | None, value: dict[str, Any]) -> str:
    """Return the field that the request changes, or the field that makes a new pool spot."""
    if before is None or after is None:
        return reader.capacity_query.place(value) if before is None else ""
    for query, old, new in (
        (reader.cluster, before.cluster_id, after.cluster_id),
        (reader.capacity_query, before.capacity, after.capacity),
        (reader.instance_type, before.instance_type, after.instance_type),
        (reader.accelerators.type, before.gpu_type, after.gpu_type),
        (reader.requirements, (before.gpu, before.machines), (after.gpu, after.machines)),
        (reader.taints, before.taints, after.taints),
        (reader.zones or reader.requirements, before.zones, after.zones),
        (reader.size.autoscaling, before.autoscaling, after.autoscaling),
        (reader.size.maximum, before.maximum, after.maximum),
    ):
        if query is not None and old != new:
            return query.place(value)
    if after.held_by and (before.blocked, before.unread) != (after.blocked, after.unread):
        return after.held_by
    return reader.size.desired.place(value) if reader.size.desired is not None else ""


def _compile(spec: OnDemandFallbackSpec, facts: Facts) -> OnDemandFallback:
    for name in spec.require_by_provider:
        if name not in facts.providers:
            problem = f"there is no CapacityProvider {name!r}{did_you_mean(name, facts.providers)}"
            raise SpecError(("requireByProvider", name), problem)
    what = "node pools that a CapacityProvider reads, and objects that set their size"
    expect_judged(spec.match, _rules(facts), what)
    providers = facts.providers.values()
    fallbacks = Fallbacks(spec.require, spec.require_by_provider, facts.providers)
    readers = {
        (reader.provider, reader.kind): reader for provider in providers for reader in reversed(provider.readers)
    }
    wording = FallbackFindings(fallbacks, readers)
    return OnDemandFallback(fallbacks, wording, readers_by_resource(providers), sizers_by_resource(providers))


def _rules(facts: Facts) -> tuple[ResourceRule, ...]:
    providers = facts.providers.values()
    pools, sizers = readers_by_resource(providers), sizers_by_resource(providers)
    writes = dict.fromkeys(pools, ("CREATE", "UPDATE", "DELETE")) | dict.fromkeys(sizers, ("UPDATE", "DELETE"))
    scaled = [key for key in writes if (sizers[key][0] if key in sizers else pools[key].any).scale]
    of_objects = (rule for key in writes for rule in rules_for([key], *writes[key]))
    return (*of_objects, *rules_for([(group, f"{name}/scale") for group, name in scaled], "UPDATE"))


KIND: Final = PolicyKind(
    name="OnDemandFallback",
    spec=OnDemandFallbackSpec,
    not_exported="it looks up the cluster's node pools",
    compile=_compile,
    rules=_rules,
    fresh_pools=True,
    unknown_outcome=Outcome.DENY,
)

"""Describe the spot capacity of a cluster: the spot nodes, and the labels and taints that distinguish them.

The supply is computed once for each state of the node pools. A decision only compares the Pod with it.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, product
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from webhook.base.caching import identity_cache
from webhook.base.globs import is_glob
from webhook.capacity.placement.own_nodes import with_nodes
from webhook.capacity.placement.taints import TaintMeaning, common_spot_taints, meaning_of, says_spot
from webhook.capacity.providers.nodes import HOSTNAME_LABEL, is_of_one_node
from webhook.capacity.providers.pool import NODE_GROUP, CapacityType, Gpu, Pool, Taint
from webhook.capacity.providers.requirements import NO_REQUIREMENTS, LabelValues, Requirements
from webhook.capacity.providers.taints import platform_of
from webhook.capacity.providers.well_known import WELL_KNOWN
from webhook.kube.affinity import Term, Tristate
from webhook.kube.containers import ARCH_LABEL, OS_LABEL, WINDOWS
from webhook.kube.tolerations import HARD_EFFECTS, tolerates, toleration_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.kube.pod import Requirement, Toleration

_REMEMBERED: Final = 4
"""Cached states of the node pools: the latest, and those of requests in progress."""
_IN_PLAY: Final = 8
"""Providers of a cluster. Most clusters have one or two."""

EVERY_NODE_HAS: Final = frozenset(chain(*WELL_KNOWN.deprecated_keys.items())).union(
    (HOSTNAME_LABEL, "node.kubernetes.io/windows-build")
)
"""Labels that describe a node, not whether it is spot.

Source: https://kubernetes.io/docs/reference/labels-annotations-taints/
"""

ARM: Final = "arm64"
_PLATFORMS: Final = (
    {OS_LABEL: "linux", ARCH_LABEL: "amd64"},
    {OS_LABEL: "linux", ARCH_LABEL: ARM},
    {OS_LABEL: WINDOWS, ARCH_LABEL: "amd64"},
)
"""The platforms of nodes that aren't visible."""


class Nodes(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Nodes of one kind, with their known labels.

    Attributes:
        requirements: the possible values of their other labels.
        pool: their pool; None for any pool of a provider whose pools aren't visible.
    """

    labels: Mapping[str, str]
    requirements: Requirements = NO_REQUIREMENTS
    pool: Pool | None

    def admitted(self, terms: Collection[Term], absent: frozenset[str]) -> bool:
        """Return whether one of these terms may admit the nodes.

        The nodes lack labels with the ``absent`` keys, unless their requirements mention the key.
        """
        keys = {need.key for term in terms for need in term.requirements}
        absent = absent & keys
        if self.pool is not None and self.pool.label_keys is not None:
            other = keys - self.pool.label_keys - EVERY_NODE_HAS
            if domains := self.pool.label_domains:
                absent |= {key for key in other if key.rpartition("/")[0] not in domains}
            else:  # Each node may also have labels that differ within the pool.
                absent |= {key for key in other if not is_of_one_node(key)}
        absent -= self.requirements.labels.keys()
        admitting = (term for term in terms if term.admits(self.labels, absent) is not Tristate.NO)
        return any(self.requirements.admits(term.requirements) for term in admitting)

    def may_be(self, requirement: Requirement) -> bool:
        """Return whether the nodes may meet an ``In`` requirement. An unmentioned label is absent."""
        values = requirement.values or ()
        if (value := self.labels.get(requirement.key)) is not None:
            return value in values
        known = self.requirements.labels.get(requirement.key)
        return known is not None and any(map(known.admits, values))

    def only(self, key: str) -> str:
        """Return the only value of a label on these nodes. Return an empty string if it is unknown."""
        if (value := self.labels.get(key)) is not None:
            return value
        values = self.requirements.of(key).values or ()
        return next(iter(values)) if len(values) == 1 else ""


class SpotNodes(Nodes, frozen=True, kw_only=True, eq=False):
    """The spot nodes of one pool, or all spot nodes of a provider whose pools aren't visible.

    Attributes:
        absent: the keys of labels that the nodes lack, because only other providers use them.
        closed: why the nodes accept no Pods, as a phrase; empty if they accept Pods.
        taints: the taints that repel Pods.
        guards: the taints that repel Pods without a request for the nodes' accelerator.
        dedicated: the taints that repel every Pod that neither tolerates them nor names the pool.
        marking: the taints that mark the nodes as spot.
        platform: the taints that name their platform.
        marks: the labels that distinguish them from other nodes of their pool, the preferred label first.
    """

    provider: Provider
    gpu: Gpu
    absent: frozenset[str]
    closed: str
    taints: tuple[Taint, ...]
    guards: tuple[Taint, ...]
    dedicated: tuple[Taint, ...]
    marking: tuple[Taint, ...]
    platform: tuple[Taint, ...]
    marks: tuple[tuple[str, str], ...]

    @property
    def accelerators(self) -> list[str]:
        """Return the keys of labels that all these nodes have, and that only nodes with accelerators have."""
        required = (key for key, values in self.requirements.labels.items() if values.present)
        return sorted(filter(self.provider.gpu.labels.match, {*self.labels, *required}))

    def repels(self, tolerations: Collection[Toleration], *, perhaps: bool = False) -> bool:
        """Return whether one of the taints repels a Pod with these tolerations, or ``perhaps`` a spot taint."""
        taints = (*self.taints, *self.marking) if perhaps else self.taints
        return any(not any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


class Supply(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The capacity of one cluster at one moment, without the pools of other clusters.

    Attributes:
        pools: all node pools: the declared ones, and the ones that are only inferred from Nodes.
        providers: the names of the providers with declared pools.
        assumed: the cluster that the pools name, if it is assumed to be this one as files show no other; else empty.
        arm: whether all pools of the cluster are known to be Arm, so that Pods need not select Arm.
        spot: the spot nodes of each pool to which Pods can be confined.
        facts: all providers.
        marks: the keys of labels that name a node's pool or mark spot nodes, of all providers.
        other: the non-spot nodes of all pools that aren't spot only.
        given: the keys of labels that spot pools declare for their nodes, except those that describe the machine.
        telling: the keys that distinguish spot from other capacity. A node that isn't known to have the label lacks it.
        names: the keys of the labels that name a node's pool; each node has such a label.
        taints: the taints that only spot nodes have, each with the name of its provider.
    """

    known: bool
    pools: tuple[Pool, ...]
    providers: frozenset[str]
    assumed: str
    arm: bool
    spot: tuple[SpotNodes, ...]
    facts: Mapping[str, Provider]
    marks: frozenset[str]
    other: tuple[Nodes, ...]
    given: frozenset[str]
    telling: frozenset[str]
    names: frozenset[str]
    taints: tuple[tuple[Taint, str], ...]

    def unseen(self, names: Iterable[str]) -> tuple[SpotNodes, ...]:
        """Return the spot nodes of invisible pools of these providers, by platform."""
        known = sorted(self.facts.keys() & names)
        return tuple(nodes for name in known for nodes in _unseen_nodes(self, self.facts[name]))


def supply_of(view: ClusterView, providers: Mapping[str, Provider]) -> Supply:
    """Return the capacity in a view of the cluster, according to these providers."""
    return _supply(view.pools, view.node_groups, providers)


def in_play(view: ClusterView, providers: Mapping[str, Provider]) -> frozenset[str]:
    """Return the names of the providers with pools or Nodes in the cluster."""
    return view.providers | supply_of(view, providers).providers


@identity_cache(maxsize=_REMEMBERED)
def _supply(
    all_pools: tuple[Pool, ...] | None, node_groups: tuple[Pool, ...], providers: Mapping[str, Provider]
) -> Supply:
    readable = (pool for pool in all_pools or () if pool.provider in providers)
    declared = tuple(pool for pool in readable if not pool.elsewhere and not pool.chosen_by)
    seen = {pool.provider for pool in declared}
    every_mark = frozenset[str]().union(*(provider.marks for provider in providers.values()))
    readers = (reader for provider in providers.values() for reader in provider.readers)
    described = frozenset(key for reader in readers for key in reader.known_labels)
    of_pool: dict[tuple[str, str], list[Pool]] = defaultdict(list)
    for group in node_groups:
        if group.pool_name:
            of_pool[group.provider, group.pool_name].append(group)
    parts = ((pool, of_pool[pool.provider, pool.pool_name]) for pool in declared)
    whole = (with_nodes(pool, groups, providers[pool.provider], described) for pool, groups in parts)
    pools = (*whole, *_undeclared(node_groups, declared, providers))
    common = common_spot_taints(pools)
    declared_spot = [pool for pool in declared if can_be_spot(pool, providers[pool.provider])]
    written = (key for pool in declared_spot for key in (*pool.labels, *dict(pool.own_marks)))
    given = frozenset(written) - described - EVERY_NODE_HAS - every_mark

    def spot_nodes(pool: Pool) -> SpotNodes:
        provider = providers[pool.provider]
        return _spot_nodes(provider, pool, every_mark - provider.marks, common)

    may_be_spot = [pool for pool in pools if can_be_spot(pool, providers[pool.provider])]
    spot = tuple(map(spot_nodes, sorted(may_be_spot, key=attrgetter("identity"))))
    elsewhere = {taint for pool in pools if not pool.spot for taint in pool.taints}
    shown = ((taint, nodes.provider.name) for nodes in spot for taint in nodes.marking if taint not in elsewhere)
    other = tuple(_other_nodes(pool, providers[pool.provider]) for pool in pools if not pool.spot)
    # If files contain only pools that Pods select by name, such as ComputeClasses, the other pools are unknown.
    known = all_pools is not None and not (all_pools and not node_groups and all(pool.chosen_by for pool in all_pools))
    return Supply(
        known=known,
        pools=pools,
        providers=frozenset(seen),
        assumed=next((pool.cluster_id for pool in pools if pool.assumed_here), ""),
        arm=bool(pools) and all(known.only(ARCH_LABEL) == ARM for known in (*spot, *other)),
        spot=spot,
        facts=providers,
        marks=every_mark,
        other=other,
        given=given,
        names=frozenset().union(*(provider.pool_labels for provider in providers.values())),
        telling=given | every_mark | _spot_node_keys(pools, providers, described | EVERY_NODE_HAS),
        taints=(*((taint, name) for name, provider in providers.items() for taint in provider.spot_taints), *shown),
    )


@identity_cache(maxsize=_REMEMBERED * _IN_PLAY)
def _unseen_nodes(supply: Supply, provider: Provider) -> tuple[SpotNodes, ...]:
    """Return the spot nodes of a provider's invisible pools. A provider without spot labels or with pools has none.

    If the pools are unknown, only a provider whose pools are never objects of the cluster has some: the taints of other
    pools are unknown.
    """
    known = supply.known or not provider.pools_are_here
    if not provider.spot_node_labels or provider.name in supply.providers or not known:
        return ()
    absent = supply.marks - provider.marks
    return tuple(_spot_nodes(provider, pool, absent, frozenset()) for pool in _unseen(provider, supply.pools))


def _unseen(provider: Provider, pools: Iterable[Pool]) -> Iterator[Pool]:
    """Yield a pool for each platform, and each label of accelerators, that invisible pools of a provider can have."""
    names = LabelValues(excluded=frozenset(pool.pool_name for pool in pools if pool.provider == provider.name))
    requirements = Requirements({provider.pool_name_label: names})
    unseen = Pool(provider=provider.name, kind="", name="", capacity=CapacityType.SPOT, requirements=requirements)
    for platform in _PLATFORMS:
        yield replace(unseen, labels=platform)
    guards: list[tuple[Taint, ...]] = [(spec.taint,) for spec in provider.automatic_gpu_taints] or [()]
    for key, taints in product(provider.gpu.labels.patterns, guards):
        if not is_glob(key):
            having = requirements.narrowed({key: LabelValues(present=True)})
            yield replace(unseen, labels=_PLATFORMS[0], requirements=having, gpu=Gpu.YES, taints=taints)


def _spot_node_keys(
    pools: tuple[Pool, ...], providers: Mapping[str, Provider], described: Collection[str]
) -> frozenset[str]:
    """Return the keys of labels that only spot Nodes have, in pools that are inferred from Nodes.

    Most labels of a Node aren't set by users, and describe the machine. So a key counts only if it has no domain, like
    most keys that users choose, or if the label contains a word for spot.
    """
    others = [pool for pool in pools if not pool.spot]
    machines = {key for provider in providers.values() for key in provider.machines.label_keys}.union(described)
    return frozenset(
        key
        for pool in pools
        if pool.kind == NODE_GROUP and pool.spot and others
        for key, value in pool.labels.items()
        if ("/" not in key or says_spot(Taint(key, value)))
        and not (key in machines or is_of_one_node(key))
        and not any(
            other.labels.get(key, value) == value for other in others if key in (other.label_keys or other.labels)
        )
    )


def _undeclared(
    node_groups: tuple[Pool, ...], declared: tuple[Pool, ...], providers: Mapping[str, Provider]
) -> Iterator[Pool]:
    """Yield the node groups that belong to no declared pool.

    If the name of a declared pool doesn't identify its nodes, any group may belong to it. If all pools of a provider
    are objects of the cluster, Nodes of a missing pool are being removed.
    """
    names: dict[str, set[str]] = defaultdict(set)
    for pool in declared:
        names[pool.provider].add(pool.pool_name)
    for group in node_groups:
        provider = providers.get(group.provider)
        if provider is None or not provider.spot_node_labels:  # These Nodes don't show whether they are spot.
            continue
        taken = names.get(group.provider)
        if taken is None or not (provider.pools_are_here or "" in taken or group.pool_name in {"", *taken}):
            yield group


def can_be_spot(pool: Pool, provider: Provider) -> bool:
    """Return whether Pods can be confined to spot nodes of the pool.

    In a pool of both capacity types, this requires a label on its spot nodes.
    """
    return pool.spot or (pool.capacity is CapacityType.BOTH and bool(provider.marks_of(pool)))


def _spot_nodes(provider: Provider, pool: Pool, absent: frozenset[str], common: frozenset[Taint]) -> SpotNodes:
    marks = provider.marks_of(pool)
    labels = {**pool.labels, **dict(marks)}
    own = (
        *filter(toleration_for, pool.taints),
        *(spec.taint for spec in provider.spot_node_taints if spec.declared_pools),
    )
    taints = dict.fromkeys((*own, *provider.spot_taints, *provider.automatic_taints(pool, labels)))
    meanings = {taint: meaning_of(taint, provider, common) for taint in taints}

    def meaning(*wanted: TaintMeaning) -> tuple[Taint, ...]:
        return tuple(taint for taint, meant in meanings.items() if meant in wanted)

    platform, guards = meaning(TaintMeaning.PLATFORM), meaning(TaintMeaning.ACCELERATOR)
    passing = meaning(TaintMeaning.PASSING)
    repelling = dict.fromkeys((*own, *platform, *(guards if pool.gpu is Gpu.YES else ())))
    labels = {**dict(filter(None, map(platform_of, platform))), **labels}
    return SpotNodes(
        provider=provider,
        pool=pool if pool.kind else None,
        gpu=pool.gpu,
        # Every kubelet also sets the deprecated platform labels.
        labels=labels | {f"beta.{key}": labels[key] for key in (ARCH_LABEL, OS_LABEL) if key in labels},
        requirements=pool.requirements or NO_REQUIREMENTS,
        absent=absent,
        closed=_why_closed(pool, meaning(TaintMeaning.FORBIDDEN)),
        taints=tuple(taint for taint in repelling if taint.effect in HARD_EFFECTS and taint not in passing),
        guards=guards,
        dedicated=tuple(taint for taint in meaning(TaintMeaning.DEDICATED) if taint.effect in HARD_EFFECTS),
        marking=meaning(TaintMeaning.SPOT),
        platform=platform,
        marks=marks,
    )


def _other_nodes(pool: Pool, provider: Provider) -> Nodes:
    """Return the non-spot nodes of a pool: they lack the spot label, or have another value of it."""
    values = {key: LabelValues(excluded=excluded) for key, excluded in provider.spot_values.items()}
    values |= {label.key: LabelValues(present=False) for label in provider.spot_node_labels if label.spot_only}
    requirements = (pool.requirements or NO_REQUIREMENTS).narrowed(values)
    return Nodes(labels=pool.labels, requirements=requirements, pool=pool)


def _why_closed(pool: Pool, forbidden: tuple[Taint, ...]) -> str:
    """Return why these nodes accept no Pods. Return an empty string if they accept Pods."""
    if pool.closed:
        return pool.closed
    if pool.superchip:
        return f"its instance type, {pool.instance_type}, is never spot"
    hard = next((taint for taint in forbidden if taint.effect in HARD_EFFECTS), None)
    return f"its taint {hard} must never be tolerated" if hard is not None else ""


def tolerations_for(taints: Iterable[Taint]) -> tuple[Toleration, ...]:
    """Return the narrowest toleration for each of these taints. Skip taints that no node can have."""
    return tuple(dict.fromkeys(filter(None, map(toleration_for, taints))))

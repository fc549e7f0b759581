"""Decide whether a Pod targets spot capacity, and which spot pools can run it.

A Pod targets spot if its label or its namespace's label requests spot, if its annotation names a spot pool, or if its
nodeSelector or required affinity admits only spot by a label that distinguishes spot from other capacity. Any other Pod
doesn't target spot, even if every pool is spot. A Pod with a preferred affinity for spot nodes and a toleration for a
spot taint is spot-preferred.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.constraints import NODE_POOL_ANNOTATION, Meaning, PodConstraints
from webhook.capacity.placement.feasible import Fit, PodDemands, confined_to, feasible_nodes
from webhook.capacity.placement.index import ProviderIndex, index_of
from webhook.capacity.placement.own_nodes import names_nodes
from webhook.capacity.placement.supply import Supply, supply_of
from webhook.capacity.placement.taints import says_spot
from webhook.capacity.providers.joins import with_used
from webhook.capacity.providers.pool import CapacityType, Gpu, Pool, Taint
from webhook.kube.affinity import PREFERRED, Term, Tristate
from webhook.kube.tolerations import tolerates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.kube.pod import Pod

CAPACITY_LABEL: Final = "spotgate.dev/capacity"
SPOT: Final = "spot"
SPOT_PREFERRED: Final = "spot-preferred"
ON_DEMAND: Final = "on-demand"
CAPACITIES: Final = (SPOT, SPOT_PREFERRED, ON_DEMAND)
"""The values of `CAPACITY_LABEL`, on Pods and on namespaces."""

KEEP_ANNOTATION: Final = "spotgate.dev/keep"
KEEP_RECLAIM_NOTICE: Final = "reclaim-notice"
KEEP_WORDS: Final = ("grace-period", "pre-stop", "node-selector", "tolerations", KEEP_RECLAIM_NOTICE)
"""The fields that a Pod can exclude from changes, in the comma-separated list of `KEEP_ANNOTATION`."""

_ALL_KEPT: Final = frozenset(KEEP_WORDS)
_NOTHING_KEPT: Final[frozenset[str]] = frozenset()

_LISTENER: Final = "AutoscalingListener"
"""The owner of a Pod that starts runners, so that it must not move to spot when its namespace does.

Source: https://docs.github.com/en/actions/concepts/runners/actions-runner-controller
"""

_ASKS_FOR_SPOT: Final = frozenset({SPOT, SPOT_PREFERRED})

_HAS_SPOT: Final = frozenset({CapacityType.SPOT, CapacityType.BOTH})

_STATES: Final = 4
"""Node pool states for which targets are cached: as many as `webhook.capacity.placement.supply` caches."""

_KINDS: Final = 256
"""Kinds of Pods whose target is cached for each state. The Pods of one workload are of one kind."""

_KIND_LENGTH: Final = 4096
"""Maximum bytes of a cached kind. Most kinds have a few hundred bytes; larger ones are not cached, to save memory."""


class Target(Fit, frozen=True, kw_only=True):
    """A Pod that targets spot: the reason why it does, and the spot nodes that can run it.

    Attributes:
        preferred: the Pod is ``spot-preferred``: it uses on-demand nodes if there are no spot nodes.
        by_preference: it is so by its own preferred affinity: spotgate doesn't place it, and only raises its grace
            period.
        because: how it targets spot, as a phrase for messages: "label spotgate.dev/capacity: spot".
        providers: the providers of ``nodes``, or all providers in play if there are no nodes.
        pools: the spot pools that can run the Pod. None if the pools are unknown, or if the cluster doesn't contain
            the provider's pools: the provider's labels and taints then describe them.
        gpu: whether the Pod requests GPUs; None if that is unknown, for example because of a resource claim.
        field: the field that requests spot: the Pod's label or its own selection; empty for the namespace's label.
        own: the field by which the Pod itself selects spot, even if a label also requests spot; empty if none.
        pinned: whether its nodeSelector or affinity confines it to ``nodes``. An injected selector does so, too.
    """

    preferred: bool
    because: str
    providers: tuple[Provider, ...]
    pools: tuple[Pool, ...] | None
    gpu: bool | None = False
    by_preference: bool = False
    field: str = ""
    own: str = ""
    pinned: bool = False


class NotTargeting(msgspec.Struct, frozen=True):
    """The reason why a Pod doesn't target spot, or why spotgate never changes it.

    Attributes:
        untouchable: spotgate never changes this Pod.
        unknown: the node pools are unknown, so the Pod may target spot.
        chosen: the pools with spot nodes that the Pod selects by name. Their own rules place the Pod and set its time
            to stop.
    """

    because: str
    untouchable: bool = False
    unknown: bool = False
    chosen: tuple[Pool, ...] = ()

    @property
    def gpu(self) -> bool:
        """Return whether a chosen pool has GPUs."""
        return any(pool.gpu is Gpu.YES for pool in self.chosen)

    @property
    def by_preference(self) -> bool:
        """Return whether a chosen pool may not be spot, so that the grace period is never lowered."""
        return not all(pool.spot for pool in self.chosen)


class OwnChoice(msgspec.Struct, frozen=True):
    """The way in which a Pod itself targets spot: a phrase and a field.

    Attributes:
        prefers: its affinity only prefers spot.
    """

    because: str
    field: str
    prefers: bool = False


_PREFERS: Final = OwnChoice("its own affinity prefers spot, and it tolerates a spot taint", PREFERRED, prefers=True)
_ON_DEMAND: Final = NotTargeting(f"label `{CAPACITY_LABEL}` is `{ON_DEMAND}`")
_NO_CAPACITY: Final = NotTargeting(f"label `{CAPACITY_LABEL}` has an unknown value")
_SILENT: Final = NotTargeting("the Pod doesn't ask for spot")
_NO_SPOT_POOL: Final = NotTargeting(f"annotation `{NODE_POOL_ANNOTATION}` names no spot pool")
_UNKNOWN: Final = NotTargeting("it selects a node pool, and the node pools are unknown", unknown=True)


def target_of(
    pod: Pod,
    namespace_labels: Mapping[str, str],
    view: ClusterView,
    providers: Mapping[str, Provider],
    *,
    namespace: str = "",
    provider: tuple[str, ...] = (),
    tolerating: bool = False,
) -> Target | NotTargeting:
    """Return how a Pod targets spot and where it can run, or why it doesn't target spot.

    Injection doesn't change the result. ``provider`` lists the providers that a policy names for clusters that show
    none. If ``tolerating`` is true, a Pod also targets spot by tolerating the key of a provider's spot taint.
    """
    index, own = index_of(providers), PodConstraints.of(pod)
    if never := _why_untouchable(pod, index):
        return NotTargeting(never, untouchable=True)
    if own.selects and (key := own.first_key(index.selectors)):
        because = f"it selects nodes by {key}, which has its own rules for spot"
        return NotTargeting(because, untouchable=True, chosen=_chosen(own.terms, key, view, providers))
    capacity_label = pod.labels.get(CAPACITY_LABEL)
    if capacity_label is not None and capacity_label not in _ASKS_FOR_SPOT:
        return _ON_DEMAND if capacity_label == ON_DEMAND else _NO_CAPACITY
    wanted = capacity_label or namespace_labels.get(CAPACITY_LABEL)
    if wanted not in _ASKS_FOR_SPOT or (capacity_label is None and _is_listener(pod)):
        wanted = None
    if wanted is None and own.named is None and not (tolerating or own.selects or own.preferences):
        return _SILENT
    supply, kind = supply_of(view, providers), own.kind()
    shown = view.providers | supply.providers
    meaning = own.meaning(namespace, view, providers, index.shares)
    cache_key = (kind, meaning, wanted, capacity_label, shown, view.spot_providers, provider, tolerating)
    cached = _remembered(supply)
    target = cached.get(cache_key)
    if target is None:
        in_play = tuple(providers[name] for name in sorted(providers.keys() & (shown or set(provider))))
        candidates = index.demanded(own.terms) or in_play
        target = _answer(own, wanted, meaning, supply, index, candidates, view.spot_providers, tolerating=tolerating)
        if len(kind) <= _KIND_LENGTH:
            if len(cached) == _KINDS:
                cached.clear()
            cached[cache_key] = target
    return target


@lru_cache(maxsize=_STATES)
def _remembered(supply: Supply) -> dict[tuple[object, ...], Target | NotTargeting]:  # noqa: ARG001 - the key
    """Return the cached answers for this state of the node pools.

    The Pods of a workload share one answer, in both phases. Without the cache, a decision takes 25% longer with 6 node
    pools and 50% longer with 100, because it compares the Pod with each pool.
    """
    return {}


def _answer(
    own: PodConstraints,
    wanted: str | None,
    meaning: Meaning,
    supply: Supply,
    index: ProviderIndex,
    candidates: tuple[Provider, ...],
    spot_shown: frozenset[str],
    *,
    tolerating: bool,
) -> Target | NotTargeting:
    """Compute the result of `target_of`.

    ``wanted`` is the capacity in the label of the Pod or its namespace.
    """
    terms = own.terms
    choice = own_choice(own, supply)
    by_preference = wanted is None and isinstance(choice, OwnChoice) and choice.prefers
    if by_preference:
        candidates = index.demanded(_preferred(own, supply, index)) or candidates
    if wanted is None and own.named is None and tolerating and isinstance(choice, NotTargeting):
        choice = _tolerated(own, supply, candidates) or choice
    if wanted is None and isinstance(choice, NotTargeting):
        return choice
    own_place = choice.field if isinstance(choice, OwnChoice) and (wanted is None or not choice.prefers) else ""
    because, field = choice.because, own_place
    if wanted is not None:
        because, field = f"label `{CAPACITY_LABEL}` is `{wanted}`", f'metadata.labels["{CAPACITY_LABEL}"]'
        if CAPACITY_LABEL not in own.pod.labels:
            because, field = f"label `{CAPACITY_LABEL}` of its namespace is `{wanted}`", ""

    demands = PodDemands.of(own, meaning, index)
    fit = feasible_nodes(demands, supply, candidates, spot_shown)
    pools = tuple(spot.pool for spot in fit.nodes if spot.pool is not None)
    by_node = (
        meaning.terms is not None and all(map(names_nodes, terms)) and confined_to(meaning.terms, fit.nodes, supply)
    )
    pinned = by_node or bool(index.demanded(terms)) or confined_to(terms, fit.nodes, supply)
    return Target(
        preferred=by_preference or wanted == SPOT_PREFERRED,
        by_preference=by_preference,
        because=because,
        field=field,
        own=own_place,
        # Only where the Pod can run: an injected selector would restrict the providers in the same way.
        providers=tuple({spot.provider.name: spot.provider for spot in fit.nodes}.values()) or candidates,
        pools=None if not pools and (fit.nodes or not supply.known) else pools,
        gpu=demands.gpu,
        pinned=pinned,
        **msgspec.structs.asdict(fit),
    )


def _is_listener(pod: Pod) -> bool:
    return any(owner.kind == _LISTENER for owner in pod.metadata.ownerReferences or ())


def _why_untouchable(pod: Pod, index: ProviderIndex) -> str:
    """Return why spotgate never changes a Pod, as a phrase. Return an empty string if it can change the Pod."""
    if pod.spec.nodeName:
        return "it is already bound to a node"
    owner = pod.controller
    if owner is not None and owner.kind == "DaemonSet":
        return "a DaemonSet places it"
    scheduler = pod.spec.schedulerName
    if scheduler and index.schedulers.match(scheduler):
        return f"scheduler {scheduler} has its own rules to place and stop it"
    return ""


def _chosen(
    terms: tuple[Term, ...], key: str, view: ClusterView, providers: Mapping[str, Provider]
) -> tuple[Pool, ...]:
    """Return the pools with spot nodes that a Pod selects by this label key."""
    pools = (*(view.pools or ()), *chain.from_iterable(provider.built_in_pools for provider in providers.values()))
    chosen = (with_used(pool, (*pools, *view.node_groups)) for pool in pools if pool.chosen_by == key)
    spot = (pool for pool in chosen if pool.capacity in _HAS_SPOT)
    return tuple(pool for pool in spot if any(term.admits(pool.labels, (key,)) is not Tristate.NO for term in terms))


def own_choice(own: PodConstraints, supply: Supply) -> OwnChoice | NotTargeting:
    """Return how a Pod's annotation, or else its nodeSelector or affinity, targets spot, or why it doesn't."""
    if own.named is not None:
        if supply.known and not any(nodes.pool is not None and nodes.pool.is_named(own.named) for nodes in supply.spot):
            return _NO_SPOT_POOL
        return OwnChoice(f"annotation `{NODE_POOL_ANNOTATION}` names `{own.named}`", own.field)
    index = index_of(supply.facts)
    selector = _own_selector(own.terms, supply, index) if own.selects else _SILENT
    if isinstance(selector, str):
        return OwnChoice(selector, own.field)
    return _PREFERS if selector is _SILENT and _preferred(own, supply, index) else selector


def _own_selector(terms: tuple[Term, ...], supply: Supply, index: ProviderIndex) -> str | NotTargeting:
    if index.demanded(terms):
        return "its own nodeSelector or affinity requires a spot label"
    if not supply.known:
        return _UNKNOWN if terms and all(term.demands(supply.names) for term in terms) else _SILENT
    if any(nodes.admitted(terms, supply.telling) for nodes in supply.spot) and confined_to(terms, supply.spot, supply):
        return "its own nodeSelector or affinity admits only spot"
    return _SILENT


def _preferred(own: PodConstraints, supply: Supply, index: ProviderIndex) -> tuple[Term, ...]:
    """Return the Pod's first preference for spot nodes. Return an empty tuple unless the Pod tolerates a spot taint."""
    for term in own.preferences:
        if isinstance(_own_selector((term,), supply, index), str):
            named = (toleration for toleration in own.pod.spec.tolerations or () if toleration.key)
            taints = (Taint(toleration.key, toleration.value, toleration.effect) for toleration in named)
            return (term,) if _tolerated(own, supply, ()) or any(map(says_spot, taints)) else ()
    return ()


def _tolerated(own: PodConstraints, supply: Supply, candidates: tuple[Provider, ...]) -> OwnChoice | None:
    """Return the choice of a Pod that tolerates a spot taint by key. Return None if it tolerates none."""
    names = {provider.name for provider in candidates}
    named = [toleration for toleration in own.pod.spec.tolerations or () if toleration.key]
    taints = (taint for taint, provider in supply.taints if not names or provider in names)
    tolerated = (taint for taint in taints if any(tolerates(toleration, taint) for toleration in named))
    return next((OwnChoice(f"it tolerates the spot taint {taint}", own.field) for taint in tolerated), None)


def kept_fields(pod: Pod) -> frozenset[str]:
    """Return the words in the Pod's `KEEP_ANNOTATION`, including unknown words. Return all for a listener of ARC."""
    if _is_listener(pod):
        return _ALL_KEPT
    if not (text := pod.annotations.get(KEEP_ANNOTATION)):
        return _NOTHING_KEPT
    return frozenset(word for part in text.split(",") if (word := part.strip()))

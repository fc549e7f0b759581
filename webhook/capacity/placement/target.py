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

from webhook.base.caching import identity_cache
from webhook.base.globs import Globs
from webhook.capacity.placement.feasible import PodDemands, confined_to, demands_spot, feasible_nodes
from webhook.capacity.placement.own_nodes import names_nodes, with_pools_of_nodes
from webhook.capacity.placement.supply import supply_of
from webhook.capacity.placement.taints import says_spot
from webhook.capacity.providers.joins import with_used
from webhook.capacity.providers.nodes import HOSTNAME_LABEL
from webhook.capacity.providers.pool import CapacityType, Taint
from webhook.capacity.providers.schema import GpuSpec
from webhook.kube.affinity import PREFERRED, REQUIRED, Tristate, constrained, preferences_of, required_of, terms_of
from webhook.kube.containers import device_classes_of, may_request_devices, quantities_of, requested_of
from webhook.kube.references import bound_volumes, claimed_classes
from webhook.kube.tolerations import tolerates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.placement.feasible import Rejected
    from webhook.capacity.placement.supply import SpotNodes, Supply
    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.capacity.view import ClusterView
    from webhook.kube.affinity import Term
    from webhook.kube.pod import Pod, Toleration

CAPACITY_LABEL: Final = "spotgate.dev/capacity"
SPOT: Final = "spot"
SPOT_PREFERRED: Final = "spot-preferred"
ON_DEMAND: Final = "on-demand"
CAPACITIES: Final = (SPOT, SPOT_PREFERRED, ON_DEMAND)
"""The values of `CAPACITY_LABEL`, on Pods and on namespaces."""

NODE_POOL_ANNOTATION: Final = "spotgate.dev/node-pool"
KEEP_ANNOTATION: Final = "spotgate.dev/keep"
KEEP_RECLAIM_NOTICE: Final = "reclaim-notice"
KEEP_WORDS: Final = ("grace-period", "pre-stop", "node-selector", "tolerations", KEEP_RECLAIM_NOTICE)
"""The fields that a Pod can exclude from changes, in the comma-separated list of `KEEP_ANNOTATION`."""

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


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod that targets spot: the reason why it does, and the spot nodes that can run it.

    Attributes:
        preferred: the Pod is ``spot-preferred``: it uses on-demand nodes if there are no spot nodes.
        by_preference: it is so by its own preferred affinity: spotgate doesn't place it, and only raises its grace
            period.
        because: how it targets spot, as a phrase for messages: "label spotgate.dev/capacity: spot".
        providers: the providers of ``nodes``, or all providers in play if there are no nodes.
        pools: the spot pools that can run the Pod. None if the pools are unknown, or if the cluster doesn't contain
            the provider's pools: the provider's labels and taints then describe them.
        nodes: the spot nodes of ``pools`` and of the providers whose pools aren't visible; empty if none are known.
        rejected: the other spot pools, each with the reason why it can't run the Pod.
        strays: the spot nodes that can't run it, and that neither its constraints nor their taints keep off.
        gpu: whether the Pod requests GPUs; None if that is unknown, for example because of a resource claim.
        tolerations: the tolerations for the taints of ``nodes`` that the Pod may tolerate, present or not.
        field: the field that requests spot: the Pod's label or its own selection; empty for the namespace's label.
        own: the field by which the Pod itself selects spot, even if a label also requests spot; empty if none.
        pinned: whether its nodeSelector or affinity confines it to ``nodes``. An injected selector does so, too.
    """

    preferred: bool
    because: str
    providers: tuple[Provider, ...]
    pools: tuple[Pool, ...] | None
    nodes: tuple[SpotNodes, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    strays: tuple[Rejected, ...] = ()
    requested: frozenset[str] = frozenset()
    gpu: bool | None = False
    by_preference: bool = False
    tolerations: tuple[Toleration, ...] = ()
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
    never = _why_untouchable(pod, providers)
    if never:
        return NotTargeting(never, untouchable=True)
    capacity_label = pod.labels.get(CAPACITY_LABEL)
    if key := _chooses_by(pod, providers):
        because = f"it selects nodes by {key}, which has its own rules for spot"
        return NotTargeting(because, untouchable=True, chosen=_chosen(pod, key, view, providers))
    if capacity_label is not None and capacity_label not in _ASKS_FOR_SPOT:
        return _ON_DEMAND if capacity_label == ON_DEMAND else _NO_CAPACITY
    wanted = capacity_label or namespace_labels.get(CAPACITY_LABEL)
    if wanted not in _ASKS_FOR_SPOT or (capacity_label is None and _is_listener(pod)):
        wanted = None
    named = pod.annotations.get(NODE_POOL_ANNOTATION)
    if wanted is None and named is None and not (tolerating or constrained(pod.spec) or preferences_of(pod.spec)):
        return _SILENT
    supply = supply_of(view, providers)
    kind, shown, spec, shares = _kind(pod, named), view.providers | supply.providers, pod.spec, _shares(providers)
    may_name = HOSTNAME_LABEL in (spec.nodeSelector or ()) or required_of(spec) is not None
    has_parts = not shares.keys().isdisjoint(pod.annotations)
    meant = _PLAIN
    if may_name or has_parts or spec.resourceClaims or (spec.volumes and view.references):
        meant = _Meaning(
            with_pools_of_nodes(terms_of(spec), view.nodes, providers) if may_name else None,
            claimed_classes(spec, namespace, view.references),
            frozenset(resource for key, resource in shares.items() if key in pod.annotations),
            tuple(
                (name, with_pools_of_nodes(affinity, view.nodes, providers) or affinity)
                for name, affinity in bound_volumes(spec, namespace, view.references)
            ),
        )
    cache_key = (kind, meant, wanted, capacity_label, shown, view.spot_providers, provider, tolerating)
    cached = _remembered(supply)
    target = cached.get(cache_key)
    if target is None:
        in_play = tuple(providers[name] for name in sorted(providers.keys() & (shown or set(provider))))
        candidates = _demanded_providers(terms_of(spec), providers) or in_play
        spot_shown = view.spot_providers
        target = _answer(pod, wanted, meant, supply, providers, candidates, spot_shown, tolerating=tolerating)
        if len(kind) <= _KIND_LENGTH:
            if len(cached) == _KINDS:
                cached.clear()
            cached[cache_key] = target
    return target


def _kind(pod: Pod, named: str | None) -> bytes:
    """Encode the fields of a Pod that `_answer` reads, so that equal Pods share one answer."""
    spec = pod.spec
    chosen = (spec.nodeSelector, spec.affinity, spec.tolerations, spec.os)
    return _encoder.encode((named, quantities_of(spec), *chosen))


_encoder: Final = msgspec.json.Encoder()


class _Meaning(msgspec.Struct, frozen=True):
    """The meaning of a Pod's names in this cluster.

    Attributes:
        terms: its constraints, if they name Nodes: see `with_pools_of_nodes`.
        classes: the device classes of its claims; None if unknown.
        shared: the accelerators of which it requests a part.
        volumes: its bound volumes.
    """

    terms: tuple[Term, ...] | None
    classes: frozenset[str] | None
    shared: frozenset[str]
    volumes: tuple[tuple[str, tuple[Term, ...]], ...]


_PLAIN: Final = _Meaning(None, frozenset(), frozenset(), ())


@identity_cache(maxsize=_STATES)
def _shares(providers: Mapping[str, Provider]) -> dict[str, str]:
    """Return the resource of which a Pod requests a part, by annotation."""
    return {key: resource for provider in providers.values() for key, resource in provider.gpu.annotations.items()}


@identity_cache(maxsize=_STATES)
def _gpus(providers: Mapping[str, Provider]) -> GpuSpec:
    """Return the resources and the device classes of all providers."""
    gpus = [provider.gpu for provider in providers.values()]
    return GpuSpec.model_construct(
        resources=Globs(dict.fromkeys(name for gpu in gpus for name in gpu.resources.patterns)),
        device_classes=Globs(dict.fromkeys(name for gpu in gpus for name in gpu.device_classes.patterns)),
    )


@identity_cache(maxsize=_STATES)
def _providers_by_label(providers: Mapping[str, Provider]) -> dict[str, list[Provider]]:
    """Return the providers by the keys of their spot labels."""
    by_key: dict[str, list[Provider]] = {}
    for provider in providers.values():
        for key in provider.spot_values:
            by_key.setdefault(key, []).append(provider)
    return by_key


@lru_cache(maxsize=_STATES)
def _remembered(supply: Supply) -> dict[tuple[object, ...], Target | NotTargeting]:  # noqa: ARG001 - the key
    """Return the cached answers for this state of the node pools.

    The Pods of a workload share one answer, in both phases. Without the cache, a decision takes 25% longer with 6 node
    pools and 50% longer with 100, because it compares the Pod with each pool.
    """
    return {}


def _answer(
    pod: Pod,
    wanted: str | None,
    meant: _Meaning,
    supply: Supply,
    providers: Mapping[str, Provider],
    candidates: tuple[Provider, ...],
    spot_shown: frozenset[str],
    *,
    tolerating: bool,
) -> Target | NotTargeting:
    """Compute the result of `target_of`.

    ``wanted`` is the capacity in the label of the Pod or its namespace.
    """
    terms, named = terms_of(pod.spec), pod.annotations.get(NODE_POOL_ANNOTATION)
    own = own_choice(pod, terms, supply, providers)
    by_preference = wanted is None and isinstance(own, OwnChoice) and own.prefers
    if by_preference:
        candidates = _demanded_providers(_preferred(pod, supply, providers), providers) or candidates
    if wanted is None and named is None and tolerating and isinstance(own, NotTargeting):
        own = _tolerated(pod, supply, candidates) or own
    if wanted is None and isinstance(own, NotTargeting):
        return own
    own_place = own.field if isinstance(own, OwnChoice) and (wanted is None or not own.prefers) else ""
    because, field = own.because, own_place
    if wanted is not None:
        because, field = f"label `{CAPACITY_LABEL}` is `{wanted}`", f'metadata.labels["{CAPACITY_LABEL}"]'
        if CAPACITY_LABEL not in pod.labels:
            because, field = f"label `{CAPACITY_LABEL}` of its namespace is `{wanted}`", ""

    gpus = _gpus(providers)
    classes = device_classes_of(pod.spec).union(meant.classes or ())
    requested = meant.shared.union(filter(gpus.device_classes.match, classes), requested_of(pod.spec, gpus.resources))
    vague = meant.classes is None or may_request_devices(pod.spec)
    placed = terms if meant.terms is None else meant.terms
    demands = PodDemands(pod, placed, named, requested, vague, meant.volumes)
    fit = feasible_nodes(demands, supply, candidates, spot_shown)
    pools = tuple(spot.pool for spot in fit.nodes if spot.pool is not None)
    by_node = meant.terms is not None and all(map(names_nodes, terms)) and confined_to(placed, fit.nodes, supply)
    pinned = by_node or bool(_demanded_providers(terms, providers)) or confined_to(terms, fit.nodes, supply)
    return Target(
        preferred=by_preference or wanted == SPOT_PREFERRED,
        by_preference=by_preference,
        because=because,
        field=field,
        own=own_place,
        # Only where the Pod can run: an injected selector would restrict the providers in the same way.
        providers=tuple({spot.provider.name: spot.provider for spot in fit.nodes}.values()) or candidates,
        pools=None if not pools and (fit.nodes or not supply.known) else pools,
        nodes=fit.nodes,
        rejected=fit.rejected,
        strays=fit.strays,
        requested=requested,
        gpu=demands.gpu,
        tolerations=fit.tolerations,
        pinned=pinned,
    )


def _is_listener(pod: Pod) -> bool:
    return any(owner.kind == _LISTENER for owner in pod.metadata.ownerReferences or ())


def _why_untouchable(pod: Pod, providers: Mapping[str, Provider]) -> str:
    """Return why spotgate never changes a Pod, as a phrase. Return an empty string if it can change the Pod."""
    if pod.spec.nodeName:
        return "it is already bound to a node"
    owner = pod.controller
    if owner is not None and owner.kind == "DaemonSet":
        return "a DaemonSet places it"
    scheduler = pod.spec.schedulerName
    if scheduler and _hands_off(providers)[0].match(scheduler):
        return f"scheduler {scheduler} has its own rules to place and stop it"
    return ""


def _chooses_by(pod: Pod, providers: Mapping[str, Provider]) -> str:
    """Return the provider's hands-off selector that a Pod uses. Return an empty string if it uses none."""
    if not constrained(pod.spec):
        return ""
    keys = (need.key for term in terms_of(pod.spec) for need in term.requirements)
    return next(filter(_hands_off(providers)[1].__contains__, keys), "")


@identity_cache(maxsize=_STATES)
def _hands_off(providers: Mapping[str, Provider]) -> tuple[Globs, frozenset[str]]:
    """Return the schedulers and the node labels whose Pods spotgate doesn't change."""
    schedulers = chain.from_iterable(provider.hands_off_schedulers.patterns for provider in providers.values())
    return Globs(schedulers), frozenset().union(*(provider.hands_off_selectors for provider in providers.values()))


def _chosen(pod: Pod, key: str, view: ClusterView, providers: Mapping[str, Provider]) -> tuple[Pool, ...]:
    """Return the pools with spot nodes that a Pod selects by this label key."""
    terms, absent = terms_of(pod.spec), frozenset((key,))
    pools = (*(view.pools or ()), *chain.from_iterable(provider.built_in_pools for provider in providers.values()))
    chosen = (with_used(pool, (*pools, *view.node_groups)) for pool in pools if pool.chosen_by == key)
    spot = (pool for pool in chosen if pool.capacity in _HAS_SPOT)
    return tuple(pool for pool in spot if any(term.admits(pool.labels, absent) is not Tristate.NO for term in terms))


def own_choice(
    pod: Pod, terms: tuple[Term, ...], supply: Supply, providers: Mapping[str, Provider]
) -> OwnChoice | NotTargeting:
    """Return how a Pod's annotation, or else its nodeSelector or affinity, targets spot, or why it doesn't."""
    named = pod.annotations.get(NODE_POOL_ANNOTATION)
    if named is not None:
        if supply.known and not any(nodes.pool is not None and nodes.pool.is_named(named) for nodes in supply.spot):
            return _NO_SPOT_POOL
        return OwnChoice(f"annotation `{NODE_POOL_ANNOTATION}` names `{named}`", own_field(pod))
    own = _own_selector(terms, supply, providers) if constrained(pod.spec) else _SILENT
    if isinstance(own, str):
        return OwnChoice(own, own_field(pod))
    return _PREFERS if own is _SILENT and _preferred(pod, supply, providers) else own


def own_field(pod: Pod) -> str:
    """Return the field in which the Pod itself selects its nodes."""
    if NODE_POOL_ANNOTATION in pod.annotations:
        return f'metadata.annotations["{NODE_POOL_ANNOTATION}"]'
    if pod.spec.nodeSelector:
        return "spec.nodeSelector"
    return REQUIRED if constrained(pod.spec) else "spec.tolerations"


def _own_selector(terms: tuple[Term, ...], supply: Supply, providers: Mapping[str, Provider]) -> str | NotTargeting:
    if _demanded_providers(terms, providers):
        return "its own nodeSelector or affinity requires a spot label"
    if not supply.known:
        pool_labels = {key for provider in providers.values() for key in provider.pool_labels}
        return _UNKNOWN if terms and all(term.demands(pool_labels) for term in terms) else _SILENT
    if any(nodes.admitted(terms, supply.telling) for nodes in supply.spot) and confined_to(terms, supply.spot, supply):
        return "its own nodeSelector or affinity admits only spot"
    return _SILENT


def _preferred(pod: Pod, supply: Supply, providers: Mapping[str, Provider]) -> tuple[Term, ...]:
    """Return the Pod's first preference for spot nodes. Return an empty tuple unless the Pod tolerates a spot taint."""
    for term in preferences_of(pod.spec):
        if isinstance(_own_selector((term,), supply, providers), str):
            named = (toleration for toleration in pod.spec.tolerations or () if toleration.key)
            taints = (Taint(toleration.key, toleration.value, toleration.effect) for toleration in named)
            return (term,) if _tolerated(pod, supply, ()) or any(map(says_spot, taints)) else ()
    return ()


def _demanded_providers(terms: tuple[Term, ...], providers: Mapping[str, Provider]) -> tuple[Provider, ...]:
    """Return the providers whose spot labels the Pod's terms demand. Return an empty tuple unless each demands one."""
    by_key = _providers_by_label(providers)
    named = ((term, {need.key for need in term.requirements}) for term in terms)
    by_term = [
        [provider for key in keys for provider in by_key.get(key, ()) if demands_spot(term, provider)]
        for term, keys in named
    ]
    return tuple({provider.name: provider for group in by_term for provider in group}.values()) if all(by_term) else ()


def _tolerated(pod: Pod, supply: Supply, candidates: tuple[Provider, ...]) -> OwnChoice | None:
    """Return the choice of a Pod that tolerates a spot taint by key. Return None if it tolerates none."""
    names = {provider.name for provider in candidates}
    named = [toleration for toleration in pod.spec.tolerations or () if toleration.key]
    taints = (taint for taint, provider in supply.taints if not names or provider in names)
    tolerated = (taint for taint in taints if any(tolerates(toleration, taint) for toleration in named))
    choices = (OwnChoice(f"it tolerates the spot taint {taint}", own_field(pod)) for taint in tolerated)
    return next(choices, None)


def kept_fields(pod: Pod) -> frozenset[str]:
    """Return the words in the Pod's `KEEP_ANNOTATION`, including unknown words. Return all for a listener of ARC."""
    if _is_listener(pod):
        return frozenset(KEEP_WORDS)
    return frozenset(word for part in pod.annotations.get(KEEP_ANNOTATION, "").split(",") if (word := part.strip()))

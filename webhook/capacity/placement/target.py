"""Does a Pod target spot, and which pools can it land on? Asked by every rule about spot Pods.

A Pod targets spot by its label or its namespace's, by an annotation that names a spot pool, or by a selector of its own
that names what tells spot from other capacity and admits only spot. Where nothing of that is said, it does not, even if
every pool is spot.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.landing import demands_spot, kept_to, land
from webhook.capacity.placement.supply import in_play, supply_of
from webhook.kube.affinity import constrained, terms_of
from webhook.kube.tolerations import tolerates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.placement.supply import SpotNodes, Supply
    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.cluster.protocol import ClusterView
    from webhook.kube.affinity import Term
    from webhook.kube.pod import Pod

CAPACITY_LABEL: Final = "spotgate.dev/capacity"
SPOT: Final = "spot"
SPOT_PREFERRED: Final = "spot-preferred"
ON_DEMAND: Final = "on-demand"
CAPACITIES: Final = (SPOT, SPOT_PREFERRED, ON_DEMAND)
"""The values of `CAPACITY_LABEL`, on Pods and on namespaces."""

NODE_POOL_ANNOTATION: Final = "spotgate.dev/node-pool"
KEEP_ANNOTATION: Final = "spotgate.dev/keep"
KEEP_WORDS: Final = ("grace-period", "pre-stop", "node-selector", "tolerations")
"""What a Pod can ask to be left as it is, in a comma-separated list."""

_ASKS_FOR_SPOT: Final = frozenset({SPOT, SPOT_PREFERRED})

_STATES: Final = 4
"""States of the node pools for which targets are remembered: as many as `webhook.capacity.placement.supply` keeps."""

_KINDS: Final = 256
"""Kinds of Pods whose target is remembered for each. The Pods of one workload are of one kind."""

_KIND_LENGTH: Final = 4096
"""Bytes of a kind that is remembered. Ordinary ones have some hundred; longer ones must not fill the memory."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod that targets spot.

    Attributes:
        preferred: spot-preferred: spot first, on-demand when there is none.
        because: how it targets spot, as a phrase for people: "label spotgate.dev/capacity: spot".
        providers: those of the pools that it can land on, or that stand in for them; else all that are in play.
        pools: the spot pools it can land on; empty: none of those that are known. None: the pools are not known
            (or the provider's can't be seen in a cluster) and the providers' own labels and taints stand for them.
        nodes: the spot nodes of ``pools``, and of the providers whose pools can't be seen; empty: there are none, or it
            is not known where the Pod can land.
        refused: the other spot pools that were looked at, each with why the Pod can't land there.
        gpu: it requests GPUs; None: a resource claim may be for one.
        pinned: its own nodeSelector or affinity keeps it to these nodes. Unlike the rest, injection changes this.
    """

    preferred: bool
    because: str
    providers: tuple[Provider, ...]
    pools: tuple[Pool, ...] | None
    nodes: tuple[SpotNodes, ...] = ()
    refused: tuple[tuple[Pool, str], ...] = ()
    gpu: bool | None = False
    pinned: bool = False


class NotTargeting(msgspec.Struct, frozen=True):
    """A Pod that does not target spot, or is never touched; and why, as a phrase for people.

    Attributes:
        because: the phrase.
        untouchable: it is none of our business, whatever it says.
        unknown: whether it targets spot can't be told, as the node pools are unknown.
    """

    because: str
    untouchable: bool = False
    unknown: bool = False


_ON_DEMAND: Final = NotTargeting(f"label {CAPACITY_LABEL}: {ON_DEMAND}")
_NO_CAPACITY: Final = NotTargeting(f"label {CAPACITY_LABEL} has a value that means nothing")
_SILENT: Final = NotTargeting("nothing says that it targets spot")
_NO_SPOT_POOL: Final = NotTargeting(f"annotation {NODE_POOL_ANNOTATION} names no spot pool")
_UNKNOWN: Final = NotTargeting("it selects a node pool, and the node pools are unknown", unknown=True)


def target_of(
    pod: Pod,
    namespace_labels: Mapping[str, str],
    view: ClusterView,
    providers: Mapping[str, Provider],
    *,
    provider: str = "",
    tolerating: bool = False,
) -> Target | NotTargeting:
    """How a Pod targets spot.

    Args:
        pod: the Pod, before or after injection: the answer is the same.
        namespace_labels: of its namespace; empty when unknown.
        view: the cluster.
        providers: all providers of the bundle.
        provider: the one that a policy names for clusters that show none; empty: none.
        tolerating: tolerating a provider's spot taint by name is targeting.
    """
    never = untouchable(pod, providers)
    if never:
        return NotTargeting(never, untouchable=True)
    said = pod.labels.get(CAPACITY_LABEL)
    if said is not None and said not in _ASKS_FOR_SPOT:
        return _ON_DEMAND if said == ON_DEMAND else _NO_CAPACITY
    asked = said or namespace_labels.get(CAPACITY_LABEL)
    if asked not in _ASKS_FOR_SPOT:
        asked = None
    named = pod.annotations.get(NODE_POOL_ANNOTATION)
    if asked is None and named is None and not tolerating and not constrained(pod.spec):
        return _SILENT
    supply = supply_of(view, providers)
    shown = (in_play(view, providers), view.spot_providers)
    question = _Question(_kind(pod, named), asked, said is None, named, *shown, provider, tolerating)
    remembered = _remembered(supply)
    target = remembered.get(question)
    if target is None:
        target = _answer(question, pod, supply, providers)
        if len(question.kind) <= _KIND_LENGTH:
            if len(remembered) == _KINDS:
                remembered.clear()
            remembered[question] = target
    return target


class _Question(msgspec.Struct, frozen=True):
    """What an answer depends on beside the supply and its providers.

    Attributes:
        kind: of the Pod.
        asked: spot or spot-preferred; None: neither Pod nor namespace says so.
        inherited: the Pod itself does not say so.
        named: the pool that its annotation names.
        shown: providers that are in play.
        spot_shown: those whose spot Nodes it shows.
        provider: see `target_of`; ``tolerating`` as well.
    """

    kind: bytes
    asked: str | None
    inherited: bool
    named: str | None
    shown: frozenset[str]
    spot_shown: frozenset[str]
    provider: str
    tolerating: bool


def _kind(pod: Pod, named: str | None) -> bytes:
    """All of a Pod that `_answer` reads: Pods of one kind have one answer."""
    spec = pod.spec
    resources = [
        container.resources
        for members in (spec.containers, spec.initContainers, spec.ephemeralContainers)
        for container in members or ()
    ]
    claims = bool(spec.resourceClaims)
    return _encoder.encode((named, resources, claims, spec.nodeSelector, spec.affinity, spec.tolerations))


_encoder: Final = msgspec.json.Encoder()


@lru_cache(maxsize=_STATES)
def _remembered(supply: Supply) -> dict[_Question, Target | NotTargeting]:  # noqa: ARG001 - the key
    """The answers beside this supply, empty at first."""
    return {}


def _answer(question: _Question, pod: Pod, supply: Supply, providers: Mapping[str, Provider]) -> Target | NotTargeting:
    asked, named = question.asked, question.named
    terms = terms_of(pod.spec)
    speaking = _speaking(terms, providers)
    playing = speaking or _shown_or_named(question.shown, providers, question.provider)
    if asked is not None:
        because = f"label {CAPACITY_LABEL}: {asked}" + (" of its namespace" if question.inherited else "")
    else:
        own = own_choice(pod, terms, supply, providers)
        if isinstance(own, NotTargeting) and question.tolerating and named is None:
            own = _tolerated(pod, supply, playing) or own
        if isinstance(own, NotTargeting):
            return own
        because = own

    landing = land(pod, terms, named, supply, playing, question.spot_shown)
    pools = tuple(nodes.pool for nodes in landing.nodes if nodes.pool is not None)
    stand_in = bool(landing.nodes) and not pools
    return Target(
        preferred=asked == SPOT_PREFERRED,
        because=because,
        # Narrowed to where the Pod can land, as an injected selector would narrow them too.
        providers=tuple({nodes.provider.name: nodes.provider for nodes in landing.nodes}.values()) or playing,
        pools=None if stand_in or not supply.known else pools,
        nodes=landing.nodes,
        refused=landing.refused,
        gpu=landing.gpu,
        pinned=bool(speaking) if stand_in else kept_to(terms, landing.nodes, supply),
    )


def untouchable(pod: Pod, providers: Mapping[str, Provider]) -> str:
    """Why a Pod is never touched, as a phrase; empty where it is not so."""
    if pod.spec.nodeName:
        return "it is bound to a node already"
    owner = pod.controller
    if owner is not None and owner.kind == "DaemonSet":
        return "a DaemonSet places it"
    scheduler = pod.spec.schedulerName
    if scheduler and any(each.hands_off_schedulers.match(scheduler) for each in providers.values()):
        return f"scheduler {scheduler} places and stops it by rules of its own"
    for key in _selected_by(pod):
        if any(key in each.hands_off_selectors for each in providers.values()):
            return f"it selects nodes by {key}, which chooses spot or not by rules of its own"
    return ""


def _selected_by(pod: Pod) -> set[str]:
    """Keys of the node labels that its own nodeSelector or required affinity names."""
    if not constrained(pod.spec):
        return set()
    return {each.key for term in terms_of(pod.spec) for each in term.requirements}


def own_choice(
    pod: Pod, terms: tuple[Term, ...], supply: Supply, providers: Mapping[str, Provider]
) -> str | NotTargeting:
    """How a Pod targets spot by its annotation, or else by its own nodeSelector or affinity, as a phrase."""
    named = pod.annotations.get(NODE_POOL_ANNOTATION)
    if named is not None:
        if supply.known and not any(nodes.pool is not None and nodes.pool.is_named(named) for nodes in supply.spot):
            return _NO_SPOT_POOL
        return f"annotation {NODE_POOL_ANNOTATION}: {named}"
    return _own_selector(terms, supply, providers) if constrained(pod.spec) else _SILENT


def _own_selector(terms: tuple[Term, ...], supply: Supply, providers: Mapping[str, Provider]) -> str | NotTargeting:
    if _speaking(terms, providers):
        return "its own nodeSelector or affinity demands a spot label"
    if not supply.known:
        pool_labels = {each.pool_label for each in providers.values()}
        return _UNKNOWN if terms and all(term.demands(pool_labels) for term in terms) else _SILENT
    if any(nodes.admitted(terms, supply.telling) for nodes in supply.spot) and kept_to(terms, supply.spot, supply):
        return "its own nodeSelector or affinity admits only spot"
    return _SILENT


def _speaking(terms: tuple[Term, ...], providers: Mapping[str, Provider]) -> tuple[Provider, ...]:
    """The providers whose spot label the Pod's own constraints demand, whichever of their terms holds."""
    found: dict[str, Provider] = {}
    for term in terms:
        demanded = {name: each for name, each in providers.items() if demands_spot(term, each)}
        if not demanded:
            return ()
        found |= demanded
    return tuple(found.values())


def _shown_or_named(shown: frozenset[str], providers: Mapping[str, Provider], named: str) -> tuple[Provider, ...]:
    """Return the providers that the cluster shows; where it shows none, the one that a policy names."""
    names = shown or {named}
    return tuple(each for name, each in providers.items() if name in names)


def _tolerated(pod: Pod, supply: Supply, playing: tuple[Provider, ...]) -> str:
    """How a Pod targets spot by tolerating a spot taint by name, as a phrase; empty where it does not."""
    names = {provider.name for provider in playing}
    for taint, provider in supply.taints:
        if names and provider not in names:
            continue
        if any(each.key and tolerates(each, taint) for each in pod.spec.tolerations or ()):
            return f"it tolerates the spot taint {taint}"
    return ""


def kept(pod: Pod) -> frozenset[str]:
    """What the Pod asks to be left as it is; also words that are none of `KEEP_WORDS`, as they are written."""
    text = pod.annotations.get(KEEP_ANNOTATION)
    if text is None:
        return frozenset()
    return frozenset(word for part in text.split(",") if (word := part.strip()))

"""Find the spot nodes that can run a Pod, and why the others can't."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.placement.supply import tolerations_for
from webhook.capacity.providers.pool import Gpu
from webhook.kube.affinity import Term
from webhook.kube.containers import ARCH_LABEL, OS_LABEL, WINDOWS
from webhook.kube.tolerations import HARD_EFFECTS, tolerates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from webhook.capacity.placement.supply import SpotNodes, Supply
    from webhook.capacity.providers.pool import Pool, Taint
    from webhook.capacity.providers.provider import Provider
    from webhook.kube.pod import Pod, Toleration

EXCLUDED: Final = "the Pod's own nodeSelector or affinity excludes it"
"""Given as the reason only for pools that would run the Pod otherwise."""
_NO_GPU: Final = "it has no GPUs, and the Pod requests some"
_GPU: Final = "it has GPUs, and the Pod requests none"

_ARM: Final = "arm64"
_SAYING: Final = frozenset({"In", "NotIn"})


class Feasible(msgspec.Struct, frozen=True):
    """Hold the spot nodes that can run a Pod, and the spot pools that can't.

    Attributes:
        nodes: the spot nodes that can run the Pod, of pools and of providers whose pools can't be seen. The latter
            count if no pool fits, or if the cluster shows spot nodes of the provider.
        rejected: the other spot pools, each with why it can't run the Pod.
        gpu: whether the Pod requests GPUs; None if a resource claim may be for one.
        tolerations: the tolerations for the taints of these nodes that the Pod may tolerate.
        opened: spot nodes of another platform than the Pod's, which nothing but these taints keeps it off.
    """

    nodes: tuple[SpotNodes, ...]
    rejected: tuple[tuple[Pool, str], ...]
    gpu: bool | None
    tolerations: tuple[Toleration, ...]
    opened: tuple[SpotNodes, ...]


class _Refusal(msgspec.Struct, frozen=True):
    """Say why spot nodes can't run a Pod.

    Attributes:
        certain: the scheduler keeps the Pod off these nodes, too, whatever is injected.
        foreign: they are of another platform.
    """

    because: str
    certain: bool = False
    foreign: bool = False


def feasible_nodes(
    pod: Pod,
    terms: tuple[Term, ...],
    named: str | None,
    supply: Supply,
    in_play: tuple[Provider, ...],
    spot_shown: frozenset[str],
    requested: frozenset[str],
) -> Feasible:
    """Return the spot nodes that can run a Pod that targets spot.

    ``named`` is the pool that the Pod's annotation names; ``requested`` are the accelerators that it requests.
    """
    gpu = True if requested else None if pod.spec.resourceClaims else False
    names = {provider.name for provider in in_play}
    found: list[SpotNodes] = []
    unsuited: list[SpotNodes] = []
    refused: list[tuple[SpotNodes, _Refusal]] = []
    for nodes in supply.spot:
        pool = nodes.pool
        if pool is None or pool.provider not in names or (named is not None and not pool.is_named(named)):
            continue
        wasted = gpu is False and nodes.gpu is Gpu.YES
        chosen = is_chosen(nodes, terms, named)
        taint = None if chosen else dedicating_taint(pod, nodes)
        if refusal := _refusal(pod, terms, nodes, requested, gpu=gpu, chosen=chosen):
            refused.append((nodes, refusal))
        elif taint is not None and not wasted:
            excluded = not nodes.admitted(terms, nodes.absent)
            refused.append((nodes, _Refusal(dedicated_by(taint), certain=excluded)))
        elif taint is not None or not nodes.admitted(terms, nodes.absent):
            refused.append((nodes, _Refusal(_GPU if wasted else EXCLUDED, certain=True)))
        elif wasted:
            unsuited.append(nodes)
        else:
            found.append(nodes)
    if unsuited:
        selected = _named(terms, named, found, unsuited, supply)
        found = [nodes for nodes in supply.spot if nodes in found or nodes in selected]
        refused += [(nodes, _Refusal(_GPU)) for nodes in unsuited if nodes not in selected]
    if named is None:
        hidden = (
            names & spot_shown - _shown(supply, names) if found else _hidden(terms, names, supply, refused, gpu=gpu)
        )
        found += _unseen(terms, hidden, supply, beside_pools=bool(found))
    tolerations = _tolerations(found, terms, named, requested)
    return Feasible(
        tuple(found),
        tuple((nodes.pool, refusal.because) for nodes, refusal in refused if nodes.pool is not None),
        gpu,
        tolerations,
        tuple(nodes for nodes, refusal in refused if refusal.foreign and _opens(tolerations, pod, nodes)),
    )


def _shown(supply: Supply, names: set[str]) -> set[str]:
    """Return the providers of which the cluster shows spot pools."""
    return names & {nodes.provider.name for nodes in supply.spot}


def _hidden(
    terms: tuple[Term, ...],
    names: set[str],
    supply: Supply,
    refused: list[tuple[SpotNodes, _Refusal]],
    *,
    gpu: bool | None,
) -> set[str]:
    """Return the providers that may have spot nodes for a Pod which fits no spot pool that the cluster shows.

    If it shows none, all may. Else those may of which it shows nothing; and those whose Nodes lack the accelerators or
    the architecture that the Pod demands, or are not of the pool that it names: such pools may be scaled to zero. Their
    selector must not bring the Pod to the Nodes that are shown.
    """
    shown = _shown(supply, names)
    if not shown:
        return names
    open_to_it = {nodes.provider.name for nodes, refusal in refused if not refusal.certain}
    spot = [nodes for nodes in supply.spot if nodes.provider.name in shown - open_to_it]
    keys = {ARCH_LABEL, f"beta.{ARCH_LABEL}"}
    architectures = [Term(tuple(each for each in term.requirements if each.key in keys)) for term in terms]
    suitable = {
        nodes.provider.name
        for nodes in spot
        if nodes.admitted(architectures, nodes.absent) and not (gpu and nodes.gpu is Gpu.NO)
    }
    wanted = {
        nodes.provider.name for nodes in spot if nodes.provider.name not in suitable or is_chosen(nodes, terms, None)
    }
    return names - {pool.provider for pool in supply.pools} | wanted


def _opens(tolerations: tuple[Toleration, ...], pod: Pod, nodes: SpotNodes) -> bool:
    """Return whether these tolerations, and nothing else, let the Pod onto the nodes."""
    taints = [each for each in nodes.tolerations if each.effect in HARD_EFFECTS]
    return bool(taints) and set(taints) <= set(tolerations) and dedicating_taint(pod, nodes) is None


def is_chosen(nodes: SpotNodes, terms: tuple[Term, ...], named: str | None) -> bool:
    """Return whether the Pod names the pool: by its annotation, or in each term by the pool-name label."""
    if nodes.pool is None:
        return False
    if named is not None:
        return nodes.pool.is_named(named)
    return bool(terms) and all(term.demands(nodes.provider.pool_labels) for term in terms)


def _refusal(
    pod: Pod,
    terms: tuple[Term, ...],
    nodes: SpotNodes,
    requested: frozenset[str],
    *,
    gpu: bool | None,
    chosen: bool,
) -> _Refusal | None:
    """Return why the nodes can't run the Pod, whatever they are dedicated to. Return None if they may."""
    if nodes.closed:
        return _Refusal(nodes.closed, certain=True)
    if because := _unable(pod, nodes, requested, gpu=gpu):
        return _Refusal(because, certain=True)
    if because := _wrong_platform(pod, terms, nodes, chosen=chosen):
        return _Refusal(because, foreign=True)
    return None


def dedicated_by(taint: Taint) -> str:
    """Return the reason of a pool that a taint dedicates to other Pods."""
    return f"its taint {taint} dedicates it to Pods that tolerate that"


def dedicating_taint(pod: Pod, nodes: SpotNodes) -> Taint | None:
    """Return the taint, not tolerated by the Pod, that dedicates these nodes to others."""
    return _untolerated(pod, nodes.dedicated)


def _wrong_platform(pod: Pod, terms: tuple[Term, ...], nodes: SpotNodes, *, chosen: bool) -> str:
    """Return why the operating system or architecture keeps the Pod off. Return an empty string if it does not.

    A Pod whose own constraints do not say that it runs on Windows or Arm does not, unless it names the pool.
    """
    if not nodes.admitted(terms, nodes.absent):
        return ""
    system = nodes.only(OS_LABEL)
    if pod.spec.os is not None and system not in {"", pod.spec.os.name}:
        return f"its nodes run {system}, and the Pod says {pod.spec.os.name} in spec.os"
    if chosen:
        return ""
    on_windows = system == WINDOWS and pod.spec.os is None
    for key, foreign in ((OS_LABEL, on_windows), (ARCH_LABEL, nodes.only(ARCH_LABEL) == _ARM)):
        if foreign and not _says(terms, key, nodes):
            return f"its nodes have {key}={nodes.only(key)}, and no nodeSelector or affinity of the Pod says so"
    return ""


def _says(terms: tuple[Term, ...], key: str, nodes: SpotNodes) -> bool:
    """Return whether every term that may admit these nodes says which values of a label the Pod runs on."""
    keys = {key, f"beta.{key}"}
    return all(
        any(each.key in keys and each.operator in _SAYING for each in term.requirements)
        for term in terms
        if nodes.admitted((term,), nodes.absent)
    )


def _tolerations(
    found: list[SpotNodes], terms: tuple[Term, ...], named: str | None, requested: frozenset[str]
) -> tuple[Toleration, ...]:
    """Return the tolerations of all taints on these nodes that the Pod may tolerate."""
    wanted: dict[Toleration, None] = {}
    for nodes in found:
        guards = [taint for taint in nodes.guards if nodes.provider.serves(taint, requested)]
        dedicated = nodes.dedicated if is_chosen(nodes, terms, named) else ()
        wanted |= dict.fromkeys((*nodes.tolerations, *tolerations_for((*dedicated, *guards))))
    return tuple(wanted)


def _unseen(terms: tuple[Term, ...], names: Collection[str], supply: Supply, *, beside_pools: bool) -> list[SpotNodes]:
    """Return the spot nodes of providers whose pools can't be seen, as far as the Pod's constraints admit them.

    If other pools are seen, these nodes are not assumed to have the labels of those pools: a Pod that demands such a
    label means those pools.
    """
    given = supply.given if beside_pools else frozenset()
    return [
        nodes for nodes in supply.unseen if nodes.provider.name in names and nodes.admitted(terms, nodes.absent | given)
    ]


def confined_to(terms: tuple[Term, ...], nodes: tuple[SpotNodes, ...], supply: Supply) -> bool:
    """Return whether the Pod's own constraints demand a label that tells spot apart, and admit only these nodes."""
    return (
        all(term.demands(supply.telling) for term in terms)
        and not any(other.admitted(terms, supply.telling) for other in supply.other)
        and all(each in nodes or not each.admitted(terms, supply.telling) for each in supply.spot)
        and all(_spot_alone(term, each) for each in nodes if each.pool is None for term in terms)
    )


def _spot_alone(term: Term, unseen: SpotNodes) -> bool:
    """Return whether this term admits at most the spot nodes of a provider whose pools can't be seen."""
    return demands_spot(term, unseen.provider) or not unseen.admitted((term,), unseen.absent)


def demands_spot(term: Term, provider: Provider) -> bool:
    """Return whether the term demands a spot label of this provider, which admits only its spot nodes."""
    for label in provider.spot_node_labels:
        for each in term.requirements:
            if each.key != label.key:
                continue
            if each.operator == "Exists" and label.spot_only:
                return True
            values = set(each.values or ())
            if each.operator == "In" and label.value in values and (label.spot_only or len(values) == 1):
                return True
    return False


def guarding_taint(pod: Pod, nodes: SpotNodes, requested: frozenset[str]) -> Taint | None:
    """Return the taint, not tolerated by the Pod, that keeps off Pods which request none of the nodes' accelerators."""
    others = [taint for taint in nodes.guards if not nodes.provider.serves(taint, requested)]
    return _untolerated(pod, others) if others else None


def _untolerated(pod: Pod, taints: Iterable[Taint]) -> Taint | None:
    """Return the first taint that keeps the Pod off."""
    for taint in taints:
        if taint.effect in HARD_EFFECTS and not any(tolerates(each, taint) for each in pod.spec.tolerations or ()):
            return taint
    return None


def _unable(pod: Pod, nodes: SpotNodes, requested: frozenset[str], *, gpu: bool | None) -> str:
    """Return why accelerators, or the lack of them, keep the Pod off. Return an empty string if they do not."""
    if gpu and nodes.gpu is Gpu.NO:
        return _NO_GPU
    if other := next((each for each in sorted(requested) if not nodes.provider.gpu.resources.match(each)), ""):
        return f"{nodes.provider.title} has no {other}"
    guard = guarding_taint(pod, nodes, requested)
    if guard is None:
        return ""
    if gpu:
        return f"its taint {guard} is for Pods that request {guard.key}"
    return f"its taint {guard} keeps off Pods that request no GPUs"


def _named(
    terms: tuple[Term, ...], named: str | None, fit: list[SpotNodes], unsuited: list[SpotNodes], supply: Supply
) -> list[SpotNodes]:
    """Return the nodes with GPUs that a Pod without GPU requests names: by annotation, in its selector, or by a label.

    A label that pools give their nodes names them only if no node that fits has it, as it may be on all spot pools.
    """
    if named is not None:
        return unsuited

    def selects(nodes: SpotNodes, keys: Collection[str]) -> bool:
        return any(term.demands(keys) and nodes.admitted((term,), supply.telling) for term in terms)

    by_name = [nodes for nodes in unsuited if selects(nodes, nodes.provider.pool_labels)]
    if by_name or any(selects(nodes, supply.given) for nodes in fit):
        return by_name
    return [nodes for nodes in unsuited if selects(nodes, supply.given)]

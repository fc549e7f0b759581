"""Find the spot nodes that can run a Pod, and why the others can't."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.providers.pool import Gpu
from webhook.kube.containers import requests_any
from webhook.kube.tolerations import tolerates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from webhook.capacity.placement.supply import SpotNodes, Supply
    from webhook.capacity.providers.pool import Pool, Taint
    from webhook.capacity.providers.provider import Provider
    from webhook.kube.affinity import Term
    from webhook.kube.pod import Pod

EXCLUDED: Final = "the Pod's own nodeSelector or affinity excludes it"
"""Given as the reason only for pools that would run the Pod otherwise."""
_NO_GPU: Final = "it has no GPUs, and the Pod requests some"
_GPU: Final = "it has GPUs, and the Pod requests none"


class Feasible(msgspec.Struct, frozen=True):
    """Hold the spot nodes that can run a Pod, and the spot pools that can't.

    Attributes:
        nodes: the spot nodes that can run the Pod, of pools and of providers whose pools can't be seen. The latter
            count if no pool fits, or if the cluster shows spot nodes of the provider.
        rejected: the other spot pools, each with why it can't run the Pod.
        gpu: whether the Pod requests GPUs; None if a resource claim may be for one.
    """

    nodes: tuple[SpotNodes, ...]
    rejected: tuple[tuple[Pool, str], ...]
    gpu: bool | None


def feasible_nodes(
    pod: Pod,
    terms: tuple[Term, ...],
    named: str | None,
    supply: Supply,
    in_play: tuple[Provider, ...],
    spot_shown: frozenset[str],
) -> Feasible:
    """Return the spot nodes that can run a Pod that targets spot.

    Args:
        pod: the Pod.
        terms: the Pod's own constraints.
        named: the pool that its annotation names, or None.
        supply: the capacity of the cluster.
        in_play: the providers whose nodes count.
        spot_shown: the names of the providers whose spot Nodes the cluster shows.
    """
    gpu = _wants_gpu(pod, in_play)
    names = {provider.name for provider in in_play}
    found: list[SpotNodes] = []
    unsuited: list[SpotNodes] = []
    rejected: list[tuple[Pool, str]] = []
    for nodes in supply.spot:
        pool = nodes.pool
        if pool is None or pool.provider not in names or (named is not None and not pool.is_named(named)):
            continue
        wasted = gpu is False and nodes.gpu is Gpu.YES
        if because := nodes.closed or _unable(pod, nodes, gpu=gpu):
            rejected.append((pool, because))
        elif not nodes.admitted(terms, nodes.absent):
            rejected.append((pool, _GPU if wasted else EXCLUDED))
        elif wasted:
            unsuited.append(nodes)
        else:
            found.append(nodes)
    if unsuited:
        selected = _named(terms, named, found, unsuited, supply)
        found = [nodes for nodes in supply.spot if nodes in found or nodes in selected]
        rejected += [(nodes.pool, _GPU) for nodes in unsuited if nodes.pool and nodes not in selected]
    if named is None:
        found += _unseen(terms, names & spot_shown if found else names, supply, beside_pools=bool(found))
    return Feasible(tuple(found), tuple(rejected), gpu)


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
    for label in provider.spot_labels:
        for each in term.requirements:
            if each.key != label.key:
                continue
            if each.operator == "Exists" and label.spot_only:
                return True
            values = set(each.values or ())
            if each.operator == "In" and label.value in values and (label.spot_only or len(values) == 1):
                return True
    return False


def gpu_only(pod: Pod, nodes: SpotNodes) -> Taint | None:
    """Return the taint, not tolerated by the Pod, that keeps Pods without GPU requests off these nodes."""
    for taint in nodes.gpu_only:
        if not any(tolerates(each, taint) for each in pod.spec.tolerations or ()):
            return taint
    return None


def _wants_gpu(pod: Pod, in_play: Iterable[Provider]) -> bool | None:
    """Return whether the Pod requests GPUs. Return None if only a resource claim may be for one."""
    for provider in in_play:
        if requests_any(pod, provider.gpu_resources):
            return True
    return None if pod.spec.resourceClaims else False


def _unable(pod: Pod, nodes: SpotNodes, *, gpu: bool | None) -> str:
    """Return why GPUs, or the lack of them, keep the Pod off these nodes. Return an empty string if they do not."""
    if gpu:
        return _NO_GPU if nodes.gpu is Gpu.NO else ""
    guard = gpu_only(pod, nodes)
    return f"its taint {guard} keeps off Pods that request no GPUs" if guard is not None else ""


def _named(
    terms: tuple[Term, ...], named: str | None, fit: list[SpotNodes], unsuited: list[SpotNodes], supply: Supply
) -> list[SpotNodes]:
    """Return the nodes with GPUs that a Pod without GPU requests names: by annotation, in its selector, or by a label.

    A label that pools give their nodes names them only if no node that fits has it, as it may be on all spot pools.
    """
    if named is not None:
        return unsuited

    def selects(nodes: SpotNodes, keys: frozenset[str]) -> bool:
        return any(term.demands(keys) and nodes.admitted((term,), supply.telling) for term in terms)

    by_name = [nodes for nodes in unsuited if selects(nodes, frozenset((nodes.provider.pool_label,)))]
    if by_name or any(selects(nodes, supply.given) for nodes in fit):
        return by_name
    return [nodes for nodes in unsuited if selects(nodes, supply.given)]

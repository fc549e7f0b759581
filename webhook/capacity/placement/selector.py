"""Choose the node label requirements that confine a Pod to a set of spot nodes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from webhook.capacity.providers.pool import CapacityType
from webhook.kube.pod import Requirement
from webhook.kube.tolerations import is_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from webhook.capacity.placement.supply import Nodes, SpotNodes, Supply
    from webhook.capacity.providers.schema import LabelSpec

_REMEMBERED: Final = 64
"""Cached results: one for each set of chosen nodes, such as the spot nodes with GPUs."""


@lru_cache(maxsize=_REMEMBERED)
def select(
    chosen: tuple[SpotNodes, ...], supply: Supply, named: tuple[LabelSpec, ...]
) -> tuple[tuple[Requirement, ...], ...]:
    """Return alternative sets of ``In`` requirements that admit the chosen nodes and no other known nodes.

    A node must meet all requirements of one alternative. If the nodes of several providers have no label in common,
    there is one alternative for each provider.

    The first suitable label of this list is used: the provider's spot label, a label from the policy, a label that all
    chosen pools declare and no other pool declares, the pool-name label. A pool of both capacity types also needs the
    spot label, because its on-demand nodes have all its other labels. Return an empty tuple if no label distinguishes
    the chosen nodes.
    """
    # Nodes of unseen pools may be any spot nodes of their provider.
    anywhere = {nodes.provider.name for nodes in chosen if nodes.pool is None}
    rest = (nodes for nodes in supply.spot if nodes not in chosen and nodes.provider.name not in anywhere)
    outside = [*supply.other, *rest]
    if in_common := _select(chosen, outside, supply, named):
        return (in_common,)
    by_provider: dict[str, list[SpotNodes]] = {}
    for nodes in chosen:
        by_provider.setdefault(nodes.provider.name, []).append(nodes)
    if len(by_provider) == 1:
        return ()
    selectors = tuple(_select(tuple(nodes), outside, supply, named) for nodes in by_provider.values())
    return selectors if all(selectors) else ()


def _select(
    chosen: tuple[SpotNodes, ...], outside: list[Nodes], supply: Supply, named: tuple[LabelSpec, ...]
) -> tuple[Requirement, ...]:
    """Return requirements that together admit exactly the chosen nodes. Return an empty tuple if there are none."""
    inside = [nodes.labels for nodes in chosen]
    base: tuple[Requirement, ...] = ()
    both = any(nodes.pool is not None and nodes.pool.capacity is CapacityType.BOTH for nodes in chosen)
    marks = chosen[0].marks
    if marks:
        spot = _equals(*marks[0])
        if _separates(spot, inside, outside):
            return (spot,)
        if both:
            base = (spot,)
            outside = [nodes for nodes in outside if nodes.may_be(spot)]
    elif both:
        return ()
    for requirement in _candidates(chosen, inside, supply, named):
        if _separates(requirement, inside, outside) and all(_has(mark, labels) for mark in base for labels in inside):
            return (*base, requirement)
    return ()


def _candidates(
    chosen: tuple[SpotNodes, ...], inside: Sequence[Mapping[str, str]], supply: Supply, named: tuple[LabelSpec, ...]
) -> Iterator[Requirement]:
    """Yield the candidate requirements, in the order of `select`."""
    for label in named:
        yield _equals(label.key, label.value)
    for key, value in sorted(inside[0].items()):
        if key in supply.given:
            yield _equals(key, value)
    key = chosen[0].provider.pool_name_label
    yield Requirement(key, "In", tuple(sorted({labels.get(key, "") for labels in inside})))


def _equals(key: str, value: str) -> Requirement:
    return Requirement(key, "In", (value,))


def _has(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    return labels.get(requirement.key) in (requirement.values or ())


def _separates(requirement: Requirement, inside: Sequence[Mapping[str, str]], outside: Sequence[Nodes]) -> bool:
    """Return whether a requirement is valid for the API server, admits all nodes inside, and admits no node outside."""
    return (
        all(_has(requirement, labels) for labels in inside)
        and not any(nodes.may_be(requirement) for nodes in outside)
        and all(is_label(requirement.key, value) for value in requirement.values or ())
    )

"""Choose the node label requirements that confine a Pod to a set of spot nodes.

If a label marks the spot nodes of a provider, the label selects them, and further requirements exclude only the nodes
that can't run the Pod. Otherwise the selector lists the pools, which are all objects of the cluster.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from webhook.capacity.providers.pool import CapacityType
from webhook.kube.pod import Requirement
from webhook.kube.tolerations import is_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from webhook.capacity.placement.feasible import Rejected
    from webhook.capacity.placement.supply import Nodes, SpotNodes, Supply
    from webhook.capacity.providers.schema import LabelSpec

_REMEMBERED: Final = 64
"""Cached results: one for each set of chosen nodes, such as the spot nodes with GPUs."""


@lru_cache(maxsize=_REMEMBERED)
def select(
    chosen: tuple[SpotNodes, ...],
    supply: Supply,
    labels: tuple[LabelSpec, ...],
    strays: tuple[Rejected, ...] = (),
    *,
    by_name: bool,
) -> tuple[tuple[Requirement, ...], ...]:
    """Return alternative sets of requirements that admit the chosen nodes, and neither strays nor on-demand nodes.

    A node must meet all requirements of one alternative. There is an alternative for each label that marks spot nodes,
    and one for each provider that has no such label. Return an empty tuple if no label distinguishes the chosen nodes.

    Args:
        labels: the labels from the policy, to use for pools without a label that marks spot nodes.
        by_name: whether the Pod names the chosen nodes' pools, so that the selector admits no other pools.
    """
    groups: dict[tuple[str, Requirement | None], list[SpotNodes]] = {}
    for nodes in chosen:
        mark = None if by_name else _mark(nodes, supply)
        groups.setdefault(("" if mark else nodes.provider.name, mark), []).append(nodes)
    alternatives = [
        (mark,) if mark else _listed(group, chosen, supply, labels, by_name=by_name)
        for (_, mark), group in sorted(groups.items(), key=lambda item: item[1][0].pool is None)
    ]
    whole = [_without(strays, alternative, chosen) for alternative in alternatives]
    return tuple(whole) if all(whole) else ()


def _without(
    strays: Iterable[Rejected], selector: tuple[Requirement, ...], chosen: Iterable[SpotNodes]
) -> tuple[Requirement, ...]:
    """Return a selector with exclusions of the strays that it admits, or an empty tuple if they can't be excluded."""
    admitted = tuple(stray for stray in strays if all(map(stray.nodes.may_be, selector)))
    excluded = excluding(admitted, tuple(nodes for nodes in chosen if all(map(nodes.may_be, selector))))
    return (*selector, *excluded) if selector and excluded is not None else ()


def _mark(nodes: SpotNodes, supply: Supply) -> Requirement | None:
    """Return the requirement that only spot nodes with the same mark meet, or None if they have no mark."""
    marks = (_equals(*mark) for mark in nodes.marks)
    return next((mark for mark in marks if not any(other.may_be(mark) for other in supply.other)), None)


def _listed(
    group: Sequence[SpotNodes],
    chosen: tuple[SpotNodes, ...],
    supply: Supply,
    labels: tuple[LabelSpec, ...],
    *,
    by_name: bool,
) -> tuple[Requirement, ...]:
    """Return requirements that only these pools meet. Return an empty tuple if there are none.

    The first suitable label of this list is used: a label from the policy, a label that all pools of the group declare
    and no other pool declares, the pool-name label. A pool of both capacity types also needs its spot label.
    """
    outside: list[Nodes] = [*supply.other, *(nodes for nodes in supply.spot if nodes not in chosen)]
    base: tuple[Requirement, ...] = ()
    if any(nodes.pool is not None and nodes.pool.capacity is CapacityType.BOTH for nodes in group):
        base = tuple(_equals(*mark) for mark in group[0].marks[:1])
        outside = [nodes for nodes in outside if all(map(nodes.may_be, base))]
    key = group[0].provider.pool_name_label
    names = Requirement(key, "In", tuple(sorted({nodes.labels.get(key, "") for nodes in group})))
    declared = (item for item in sorted(group[0].labels.items()) if item[0] in supply.given)
    marks = (*((label.key, label.value) for label in labels), *declared)
    candidates = (*([names] if by_name else ()), *(_equals(*mark) for mark in marks), names)
    return next(((*base, candidate) for candidate in candidates if _separates(candidate, group, outside)), ())


def _equals(key: str, value: str) -> Requirement:
    return Requirement(key, "In", (value,))


def _separates(requirement: Requirement, inside: Iterable[Nodes], outside: Iterable[Nodes]) -> bool:
    """Return whether a requirement is valid for the API server, admits all nodes inside, and admits no node outside."""
    values = requirement.values or ()
    return (
        all(nodes.labels.get(requirement.key) in values for nodes in inside)
        and not any(nodes.may_be(requirement) for nodes in outside)
        and all(is_label(requirement.key, value) for value in values)
    )


@lru_cache(maxsize=_REMEMBERED)
def excluding(strays: tuple[Rejected, ...], chosen: tuple[SpotNodes, ...]) -> tuple[Requirement, ...] | None:
    """Return requirements that exclude spot nodes that can't run a Pod, and admit the chosen ones.

    The first of these labels that distinguishes a stray is used: its architecture or operating system, an accelerator,
    the name of its pool. Return None if there is no such label for a visible pool.
    """
    values: dict[str, set[str]] = {}
    for stray in strays:
        nodes, name, platform = stray.nodes, stray.nodes.provider.pool_name_label, stray.foreign
        pool = nodes.labels.get(name, "")
        if platform and not any(other.may_be(_equals(platform, nodes.only(platform))) for other in chosen):
            values.setdefault(platform, set()).add(nodes.only(platform))
        elif key := next(
            (key for key in nodes.accelerators if not any(key in other.accelerators for other in chosen)), ""
        ):
            values[key] = set()
        elif pool and not any(other.labels.get(name) == pool for other in chosen):
            values.setdefault(name, set()).add(pool)
        elif nodes.pool is not None:
            return None
    return tuple(
        Requirement(key, "NotIn" if excluded else "DoesNotExist", tuple(sorted(excluded)) or None)
        for key, excluded in sorted(values.items())
    )

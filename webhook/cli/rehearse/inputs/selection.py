"""What is lost: the Nodes that ``--lose`` names, and what their provider does with each of them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from webhook.capacity.placement.budget import GraceBudgets
from webhook.capacity.providers.machines import ZONE_LABEL
from webhook.cli.exits import CannotJudgeError
from webhook.cli.rehearse.inputs.nodes import pool_of_node
from webhook.cli.rehearse.result import ReclaimWindow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider
    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.cli.rehearse.inputs.snapshot import ClusterSnapshot

_SHARE: Final = re.compile(r"(\d{1,3})%of:(?!(?:zone|provider):)(.+)")
_ALL: Final = 100
_NO_PROVIDER: Final = "no known provider"


@dataclass(frozen=True, slots=True)
class Loss:
    """Hold what is lost.

    Attributes:
        named: what was named, each with its kind: ``NodePool/gpu-spot``.
        windows: the lost Nodes, by what their provider does with them.
    """

    named: tuple[str, ...]
    windows: tuple[ReclaimWindow, ...]

    @property
    def nodes(self) -> frozenset[str]:
        """The names of the lost Nodes."""
        return frozenset(node for window in self.windows for node in window.nodes)


def loss_of(wanted: Iterable[str], snapshot: ClusterSnapshot, providers: Mapping[str, Provider]) -> Loss:
    """Return what is lost.

    Args:
        wanted: each a pool's name, ``N%of:`` and one, ``provider:`` or ``zone:`` and a name.
        snapshot: the cluster.
        providers: by name.

    Raises:
        CannotJudgeError: there is no such thing, or it has no Nodes.
    """
    named: dict[str, None] = {}
    nodes: dict[str, JSON] = {}
    for each in wanted:
        shown, found = _find(each, snapshot, providers)
        named[shown] = None
        nodes |= {node["metadata"]["name"]: node for node in found}
    return Loss(tuple(named), tuple(_windows(nodes.values(), snapshot.pools, providers)))


def is_spot(node: JSON, pools: Sequence[Pool], providers: Mapping[str, Provider]) -> bool:
    """Return whether a Node is spot, by its own labels or its pool."""
    labels = node["metadata"]["labels"]
    if any(each.is_spot_node(labels) for each in providers.values()):
        return True
    found = pool_of_node(labels, providers)
    return found is not None and any(pool.spot and pool.is_named(found[0]) for pool in pools)


def _find(wanted: str, snapshot: ClusterSnapshot, providers: Mapping[str, Provider]) -> tuple[str, Sequence[JSON]]:
    sort, _, name = wanted.partition(":")
    if sort == "zone":
        return f"zone/{name}", _in_zone(name, snapshot, providers)
    if sort == "provider":
        return f"provider/{name}", _of_provider(name, snapshot, providers)
    if "%" in wanted:  # no name has one
        share = _SHARE.fullmatch(wanted)
        if share is None or not 0 < (percent := int(share[1])) <= _ALL:
            raise CannotJudgeError(
                f"spotgate rehearse: --lose {wanted}: a share is 1%of:POOL to 100%of:POOL, in whole numbers"
            )
        shown, nodes = _in_pool(share[2], snapshot, providers)
        return f"{percent}% of {shown}", nodes[: math.ceil(len(nodes) * percent / _ALL)]
    return _in_pool(wanted, snapshot, providers)


def _in_pool(name: str, snapshot: ClusterSnapshot, providers: Mapping[str, Provider]) -> tuple[str, Sequence[JSON]]:
    pools = [each for each in snapshot.pools if each.is_named(name)]
    if len(pools) > 1:
        raise CannotJudgeError(
            f"spotgate rehearse: {len(pools)} pools are named {name}: {', '.join(map(str, pools))}; rename one"
        )
    names = {name, *(each.name for each in pools), *(each.pool_name for each in pools)} - {""}
    by_pool: dict[str, list[JSON]] = {}
    for node in snapshot.nodes:
        if (found := pool_of_node(node["metadata"]["labels"], providers)) and found[0]:
            by_pool.setdefault(found[0], []).append(node)
    nodes = sorted(
        (node for pool in names for node in by_pool.get(pool, ())), key=lambda each: str(each["metadata"]["name"])
    )
    if not nodes:
        there = sorted({*by_pool, *(each.name for each in snapshot.pools)})
        problem = "has no nodes to lose" if pools else "is not there"
        hint = f"; pools: {', '.join(there)}" if there else "; no pool is known: Nodes carry no label of a provider"
        raise CannotJudgeError(f"spotgate rehearse: --lose {name}: the pool {problem}{hint}")
    return f"{pools[0].kind if pools else _kind_of_pool(nodes[0], providers)}/{name}", nodes


def _kind_of_pool(node: JSON, providers: Mapping[str, Provider]) -> str:
    """Return the kind of the object that a Node's pool is, where such objects are in its cluster."""
    found = pool_of_node(node["metadata"]["labels"], providers)
    return found[1].readers[0].kind if found is not None and found[1].pools_are_here else "Nodes"


def _in_zone(name: str, snapshot: ClusterSnapshot, providers: Mapping[str, Provider]) -> Sequence[JSON]:
    """Return the spot Nodes of a zone, or all of its Nodes if none is known to be spot."""
    zones: dict[str, list[JSON]] = {}
    for node in snapshot.nodes:
        zones.setdefault(node["metadata"]["labels"].get(ZONE_LABEL, ""), []).append(node)
    zones.pop("", None)
    if name not in zones:
        there = f"zones: {', '.join(sorted(zones))}" if zones else f"no Node has the label {ZONE_LABEL}"
        raise CannotJudgeError(f"spotgate rehearse: --lose zone:{name}: the zone is not there; {there}")
    return [each for each in zones[name] if is_spot(each, snapshot.pools, providers)] or zones[name]


def _of_provider(name: str, snapshot: ClusterSnapshot, providers: Mapping[str, Provider]) -> Sequence[JSON]:
    """Return the spot Nodes of a provider."""
    nodes = [
        node
        for node in snapshot.nodes
        if (found := pool_of_node(node["metadata"]["labels"], providers))
        and found[1].name == name
        and is_spot(node, snapshot.pools, providers)
    ]
    if not nodes:
        found_here = {
            each[1].name for node in snapshot.nodes if (each := pool_of_node(node["metadata"]["labels"], providers))
        }
        hint = f"providers of the Nodes: {', '.join(sorted(found_here)) or 'none that is known'}"
        raise CannotJudgeError(f"spotgate rehearse: --lose provider:{name}: it has no spot nodes here; {hint}")
    return nodes


def _windows(
    nodes: Iterable[JSON], pools: Sequence[Pool], providers: Mapping[str, Provider]
) -> Iterable[ReclaimWindow]:
    budgets = GraceBudgets(providers)
    found: dict[tuple[str, int, int, int, int, bool], list[str]] = {}
    for node in nodes:
        named = pool_of_node(node["metadata"]["labels"], providers)
        if named is None:
            found.setdefault((_NO_PROVIDER, 0, 0, 0, 0, True), []).append(node["metadata"]["name"])
            continue
        provider, timeline = named[1], named[1].interruption
        pool = next((each for each in pools if each.is_named(named[0])), None)
        budget = budgets.of_pools([pool]) if pool is not None else None
        limit = budget.limit if budget is not None else provider.grace_period.budget_seconds
        removal = max(timeline.removal_seconds, timeline.drain_seconds)
        kill = min(timeline.drain_seconds + limit, removal)
        key = (
            provider.title,
            timeline.cordon_seconds,
            timeline.drain_seconds,
            kill,
            removal,
            timeline.drained_by == "eviction",
        )
        found.setdefault(key, []).append(node["metadata"]["name"])
    for (title, cordon, drain, kill, removal, evicts), names in found.items():
        yield ReclaimWindow(title, tuple(names), cordon, drain, kill, removal, evicts)

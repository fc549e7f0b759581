"""Select what is lost: the Nodes that ``--lose`` names, and what their provider does with each of them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import structs

from webhook.capacity.placement.budget import GraceBudgets, unevicted_annotation
from webhook.capacity.providers.machines import ZONE_LABEL
from webhook.cli.exits import CannotJudgeError
from webhook.cli.rehearse.inputs.nodes import pool_names, read_node
from webhook.cli.rehearse.inputs.resources import NODE
from webhook.cli.rehearse.result import ReclaimWindow
from webhook.manifests.state import view_of
from webhook.policy.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from webhook.capacity.providers.provider import Provider
    from webhook.cli.rehearse.inputs.nodes import RehearsedNode
    from webhook.cli.rehearse.inputs.snapshot import ClusterSnapshot
    from webhook.cli.rehearse.inputs.source import ClusterSource
    from webhook.cli.rehearse.result import DrainedBy

_SHARE: Final = re.compile(r"(100|[1-9]\d?)%of:(?!(?:zone|provider):)(.+)")


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
        """Return the names of the lost Nodes."""
        return frozenset(node for window in self.windows for node in window.nodes)


def loss_of(
    wanted: Iterable[str],
    snapshot: ClusterSnapshot,
    providers: Mapping[str, Provider],
    drained_by: DrainedBy | None = None,
) -> Loss:
    """Return what is lost: of each a pool's name, ``N%of:`` and one, ``provider:`` or ``zone:`` and a name.

    ``drained_by`` replaces what the providers' documents say. Raise CannotJudgeError if there is no such thing, or it
    has no Nodes.
    """
    named: dict[str, None] = {}
    nodes: dict[str, RehearsedNode] = {}
    for each in wanted:
        shown, found = _find(each, snapshot)
        named[shown] = None
        nodes |= {node.name: node for node in found}
    budgets = GraceBudgets(providers)
    windows: dict[ReclaimWindow, list[str]] = {}
    for node in nodes.values():
        windows.setdefault(_window(node, budgets, drained_by), []).append(node.name)
    return Loss(tuple(named), tuple(structs.replace(key, nodes=tuple(names)) for key, names in windows.items()))


def expect_pools(named: Iterable[tuple[str, str]], source: ClusterSource, providers: Mapping[str, Provider]) -> None:
    """Raise CannotJudgeError if a pool isn't there; ``named`` has the flags that name pools, each with its value."""
    view = view_of(source.manifests, providers, complete=True, offline=not source.live)
    pools = [pool for pool in view.pools or () if not pool.elsewhere]
    labels = (manifest.labels for manifest in source.manifests if manifest.kind == NODE.kind)
    nodes = [read_node({"metadata": {"labels": own}}, pools, providers) for own in labels]
    there = pool_names(nodes, pools)
    hint = f"; pools: {', '.join(there)}" if there else "; no pool is known: pass node pools, or Nodes with labels"
    for flag, wanted in named:
        name = wanted.rpartition("%of:")[2]
        known = any(pool.is_named(name) for pool in pools) or any(node.is_of(name) for node in nodes)
        if not known and not name.startswith(("zone:", "provider:")):
            raise CannotJudgeError(
                f"spotgate rehearse: {flag} {wanted}: the pool is not there{did_you_mean(name, there)}{hint}"
            )


def _find(wanted: str, snapshot: ClusterSnapshot) -> tuple[str, Sequence[RehearsedNode]]:
    sort, _, name = wanted.partition(":")
    if sort == "zone":
        return f"zone/{name}", _in_zone(name, snapshot.nodes)
    if sort == "provider":
        return f"provider/{name}", _of_provider(name, snapshot.nodes)
    if "%" in wanted:  # no name has one
        share = _SHARE.fullmatch(wanted)
        if share is None:
            raise CannotJudgeError(
                f"spotgate rehearse: --lose {wanted}: a share is 1%of:POOL to 100%of:POOL, in whole numbers"
            )
        shown, nodes = _in_pool(share[2], snapshot)
        return f"{share[1]}% of {shown}", nodes[: math.ceil(len(nodes) * int(share[1]) / 100)]
    return _in_pool(wanted, snapshot)


def _in_pool(name: str, snapshot: ClusterSnapshot) -> tuple[str, Sequence[RehearsedNode]]:
    pools = [each for each in snapshot.pools if each.is_named(name)]
    if len(pools) > 1:
        raise CannotJudgeError(
            f"spotgate rehearse: {len(pools)} pools are named {name}: {', '.join(map(str, pools))}; rename one"
        )
    nodes = sorted((each for each in snapshot.nodes if each.is_of(name)), key=lambda each: each.name)
    if not nodes:
        there = ", ".join(pool_names(snapshot.nodes, snapshot.pools))
        raise CannotJudgeError(f"spotgate rehearse: --lose {name}: the pool has no nodes to lose; pools: {there}")
    provider = nodes[0].provider
    kind = provider.readers[0].kind if provider is not None and provider.pools_are_here else "Nodes"
    return f"{pools[0].kind if pools else kind}/{name}", nodes


def _in_zone(name: str, nodes: Sequence[RehearsedNode]) -> Sequence[RehearsedNode]:
    """Return the spot Nodes of a zone, or all of its Nodes if none is known to be spot."""
    inside = [each for each in nodes if each.labels.get(ZONE_LABEL) == name]
    if not inside:
        zones = sorted({each.labels.get(ZONE_LABEL, "") for each in nodes} - {""})
        there = f"zones: {', '.join(zones)}" if zones else f"no Node has the label {ZONE_LABEL}"
        raise CannotJudgeError(f"spotgate rehearse: --lose zone:{name}: the zone is not there; {there}")
    return [each for each in inside if each.spot] or inside


def _of_provider(name: str, nodes: Sequence[RehearsedNode]) -> Sequence[RehearsedNode]:
    """Return the spot Nodes of a provider."""
    found = [each for each in nodes if each.spot and each.provider is not None and each.provider.name == name]
    if not found:
        there = ", ".join(sorted({each.provider.name for each in nodes if each.provider is not None}))
        hint = f"providers of the Nodes: {there or 'none that is known'}"
        raise CannotJudgeError(f"spotgate rehearse: --lose provider:{name}: it has no spot nodes here; {hint}")
    return found


def _window(node: RehearsedNode, budgets: GraceBudgets, drained_by: DrainedBy | None) -> ReclaimWindow:
    """Return what a node's provider does with it, without the node."""
    chosen = f"--drained-by {drained_by}" if drained_by is not None else ""
    if node.provider is None:
        return ReclaimWindow("no known provider", (), 0, 0, 0, 0, drained_by or "eviction", assumes=chosen)
    timeline = node.provider.interruption
    budget = budgets.of_pools([node.pool]) if node.pool is not None else None
    limit = budget.limit if budget is not None else node.provider.grace_period.budget_seconds
    drain, removal = timeline.drain_seconds, max(timeline.removal_seconds, timeline.drain_seconds)
    by, title = drained_by or timeline.drained_by, node.provider.title
    if by == "nobody":
        return ReclaimWindow(title, (), removal, removal, removal, removal, by, assumes=chosen or timeline.assumes)
    unevicted = unevicted_annotation(node.provider, node.pool)
    return ReclaimWindow(
        provider=title,
        nodes=(),
        cordon=timeline.cordon_seconds,
        drain=drain,
        kill=min(drain + limit, removal),
        removal=removal,
        drained_by=by,
        unevicted=unevicted,
        cordon_taint=timeline.cordon_taint.taint if timeline.cordon_taint is not None else None,
        tiers=timeline.drain_tiers,
        forced=unevicted != timeline.unevicted_annotation,  # Karpenter's needsForceDelete, by the pool's own limit
        assumes=chosen or timeline.assumes,
    )

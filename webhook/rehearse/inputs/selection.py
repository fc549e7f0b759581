"""Select what is lost: the Nodes that ``--lose`` names, and what their provider does with each of them."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import structs

from webhook.base.exits import CannotJudgeError
from webhook.capacity.placement.budget import GraceBudgets, unevicted_annotation
from webhook.capacity.providers.machines import TYPE_LABEL, ZONE_LABEL
from webhook.policy.errors import did_you_mean
from webhook.rehearse.inputs.nodes import pool_names
from webhook.rehearse.result import ReclaimWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from webhook.capacity.providers.provider import Provider
    from webhook.rehearse.inputs.nodes import RehearsedNode
    from webhook.rehearse.inputs.snapshot import ClusterSnapshot
    from webhook.rehearse.result import DrainedBy

_SHARE: Final = re.compile(r"(100|[1-9][0-9]?)%(?:of:(.+))?")
_NAME: Final = re.compile(r"(?:(provider|type|zone|selector(?=:[^=]+=)):)?([^:%]+)")
_LISTED: Final = 20
_NAMINGS: Final[Mapping[str, tuple[str, Callable[[RehearsedNode], Iterable[str]]]]] = {
    "provider": ("provider", lambda node: [node.provider.name] if node.provider is not None else []),
    "selector": ("label", lambda node: [f"{key}={value}" for key, value in node.labels.items()]),
    "type": ("instance type", lambda node: [node.labels.get(TYPE_LABEL, "")]),
    "zone": ("zone", lambda node: [node.labels.get(ZONE_LABEL, "")]),
}
"""What a name is of, and a Node's own, by the word before the colon."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Hold what is lost.

    Attributes:
        named: what was named, each with its kind: ``NodePool/gpu-spot``, ``30% of the spot nodes``.
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
    """Return what is lost; ``wanted`` has the values of ``--lose``.

    ``drained_by`` replaces what the providers' documents say. Raise CannotJudgeError if there is no such thing, or it
    has no Nodes.
    """
    named: dict[str, None] = {}
    nodes: dict[str, RehearsedNode] = {}
    for text in wanted:
        shown, selected = _find(text, snapshot)
        named[shown] = None
        nodes |= {node.name: node for node in selected}
    budgets = GraceBudgets(providers)
    windows: dict[ReclaimWindow, list[str]] = {}
    for node in nodes.values():
        windows.setdefault(_window(node, budgets, drained_by), []).append(node.name)
    return Loss(tuple(named), tuple(structs.replace(key, nodes=tuple(names)) for key, names in windows.items()))


def named_pools(wanted: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each flag that names a pool, with the name. Raise CannotJudgeError if what is lost can't be read."""
    for text in wanted:
        _, prefix, name = _read(text)
        if name and not prefix:
            yield f"--lose {text}", name


def _read(wanted: str) -> tuple[int | None, str, str]:
    """Return the share in percent, if there is one, the word before the colon, and a name; none: of all spot nodes."""
    share = _SHARE.fullmatch(wanted)
    percent, what = (int(share[1]), share[2]) if share is not None else (None, wanted)
    if what is None:
        return percent, "", ""
    named = _NAME.fullmatch(what)
    if named is None:
        raise CannotJudgeError(
            f"spotgate rehearse: --lose {wanted or repr(wanted)}: write POOL, provider:NAME, selector:KEY=VALUE, "
            "type:NAME or zone:NAME, or a share: 1% to 100% of all spot nodes, 1%of:POOL ..., in whole numbers"
        )
    return percent, named[1] or "", named[2]


def _find(wanted: str, snapshot: ClusterSnapshot) -> tuple[str, Sequence[RehearsedNode]]:
    """Return words for what is wanted, and its Nodes. A larger share has all Nodes of a smaller one."""
    percent, prefix, name = _read(wanted)
    try:
        shown, nodes = _in_pool(name, snapshot) if name and not prefix else _named(prefix, name, snapshot.nodes)
    except CannotJudgeError as error:
        raise CannotJudgeError(f"spotgate rehearse: --lose {wanted}: {error}") from None
    if percent is None:
        return shown, nodes
    drawn = sorted(nodes, key=lambda node: hashlib.sha256(node.name.encode()).digest())
    return f"{percent}% of {shown}", drawn[: math.ceil(len(drawn) * percent / 100)]


def _in_pool(name: str, snapshot: ClusterSnapshot) -> tuple[str, Sequence[RehearsedNode]]:
    pools = [each for each in snapshot.pools if each.is_named(name)]
    if len(pools) > 1:
        raise CannotJudgeError(f"{len(pools)} pools are named {name}: {', '.join(map(str, pools))}; rename one")
    nodes = sorted((each for each in snapshot.nodes if each.is_of(name)), key=lambda each: each.name)
    if not nodes:
        there = ", ".join(pool_names(snapshot.nodes, snapshot.pools))
        raise CannotJudgeError(f"the pool has no nodes to lose; pools: {there}")
    provider = nodes[0].provider
    kind = provider.readers[0].kind if provider is not None and provider.pools_are_here else "Nodes"
    return f"{pools[0].kind if pools else kind}/{name}", nodes


def _named(prefix: str, name: str, nodes: Sequence[RehearsedNode]) -> tuple[str, Sequence[RehearsedNode]]:
    """Return words for a name, and its spot Nodes; all of its Nodes if none is spot, or if it is a label."""
    shown = "the spot nodes"
    if prefix:
        what, names_of = _NAMINGS[prefix]
        shown, there = f"{what} {name}", sorted({its for node in nodes for its in names_of(node)} - {""})
        if name not in there:
            raise CannotJudgeError(f"the {what} is not there{did_you_mean(name, there)}; {_listed(what, name, there)}")
        nodes = [node for node in nodes if name in names_of(node)]
    spot = [node for node in nodes if node.spot]
    if not spot and prefix in {"", "provider"}:
        raise CannotJudgeError("no such node is known to be spot by its labels or its pool; name a pool, or a label")
    return shown, nodes if prefix == "selector" else spot or nodes


def _listed(what: str, name: str, there: Sequence[str]) -> str:
    """Return the names that are there; of labels those with the same key, or all keys."""
    if what == "label":
        key = name.partition("=")[0]
        there = [each for each in there if each.startswith(f"{key}=")] or sorted({x.partition("=")[0] for x in there})
    more = f" and {len(there) - _LISTED} more" if len(there) > _LISTED else ""
    return f"{what}s: {', '.join(there[:_LISTED]) or 'no Node has one in its labels'}{more}"


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

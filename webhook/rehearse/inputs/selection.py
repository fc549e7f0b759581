"""Select the Nodes of ``--lose`` with their reclaim windows, and build the Nodes of ``--grow``."""

from __future__ import annotations

import hashlib
import math
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import structs

from webhook.base.exits import CannotJudgeError
from webhook.capacity.placement.budget import GraceBudgets, unevicted_annotation
from webhook.capacity.providers.machines import TYPE_LABEL, ZONE_LABEL
from webhook.capacity.providers.nodes import HOSTNAME_LABEL
from webhook.model.patch import merge_patch
from webhook.rehearse.inputs.nodes import allocatable_by_type, no_such_node, node_numbers, node_of_pool, read_node
from webhook.rehearse.result import DrainedBy, ReclaimWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from webhook.rehearse.inputs.nodes import RehearsedNode
    from webhook.rehearse.inputs.snapshot import ClusterSnapshot

Growth: TypeAlias = tuple[str, int, float]
"""A pool, the number of Nodes to add, and the second after the notice."""

_SHARE: Final = re.compile(r"(100|[1-9][0-9]?)%(?:of:(.+))?")
_NAME: Final = re.compile(r"(?:(provider|type|zone|selector(?=:[^=]+=)):)?([^:%]+)")
_NAMINGS: Final[Mapping[str, tuple[str, Callable[[RehearsedNode], Iterable[str]]]]] = {
    "": ("pool", lambda node: node.pool_names),
    "provider": ("provider", lambda node: [node.provider.name] if node.provider is not None else []),
    "selector": ("label", lambda node: [f"{key}={value}" for key, value in node.labels.items()]),
    "type": ("instance type", lambda node: [node.labels.get(TYPE_LABEL, "")]),
    "zone": ("zone", lambda node: [node.labels.get(ZONE_LABEL, "")]),
}
"""The noun for a name, and a Node's names of this sort, by the prefix before the colon."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The lost Nodes, and the Nodes that are added.

    Attributes:
        named: the selections for display, such as ``NodePool/gpu-spot`` or ``30% of the spot nodes``.
        windows: the reclaim windows with their lost Nodes.
        grown: the added Nodes, each with its second after the notice.
    """

    named: tuple[str, ...]
    windows: tuple[ReclaimWindow, ...]
    grown: Sequence[tuple[float, RehearsedNode]] = ()

    @property
    def nodes(self) -> frozenset[str]:
        """Return the names of the lost Nodes."""
        return frozenset(node for window in self.windows for node in window.nodes)

    def left_of(self, nodes: Iterable[RehearsedNode]) -> list[RehearsedNode]:
        """Return the Nodes that remain at the end, including the added ones."""
        lost = self.nodes
        return [node for node in (*nodes, *(new for _, new in self.grown)) if node.name not in lost]


def loss_of(wanted: Iterable[str], snapshot: ClusterSnapshot, drained_by: DrainedBy | None = None) -> Loss:
    """Return the lost Nodes; ``wanted`` contains the values of ``--lose``.

    ``drained_by`` overrides the provider documents. Raise CannotJudgeError if a value selects no Node.
    """
    named: dict[str, None] = {}
    nodes: dict[str, RehearsedNode] = {}
    for text in wanted:
        shown, selected = _find(text, snapshot)
        named[shown] = None
        nodes |= {node.name: node for node in selected}
    budgets = GraceBudgets(snapshot.bundle.providers)
    windows: dict[ReclaimWindow, list[str]] = {}
    for node in nodes.values():
        windows.setdefault(_window(node, budgets, drained_by), []).append(node.name)
    return Loss(tuple(named), tuple(structs.replace(key, nodes=tuple(names)) for key, names in windows.items()))


def _find(wanted: str, snapshot: ClusterSnapshot) -> tuple[str, Sequence[RehearsedNode]]:
    """Return the display name and the Nodes of a selection. A larger share includes the Nodes of a smaller one."""
    share = _SHARE.fullmatch(wanted)
    shown = "the spot nodes"
    selected: Sequence[RehearsedNode] = [node for node in snapshot.nodes if node.spot]
    if share is None or share[2] is not None:
        named = _NAME.fullmatch(wanted if share is None else share[2])
        if named is None:
            raise CannotJudgeError(
                f"spotgate rehearse: --lose {wanted or repr(wanted)}: write POOL, provider:NAME, selector:KEY=VALUE, "
                "type:NAME or zone:NAME, or a share: 1% to 100% of all spot nodes, 1%of:POOL ..., in whole numbers"
            )
        shown, selected = _named(wanted, named[1] or "", named[2], snapshot)
    if not selected:
        raise CannotJudgeError(
            f"spotgate rehearse: --lose {wanted}: no such node is known to be spot by its labels or its pool; name a "
            "pool, or a label"
        )
    if share is None:
        return shown, selected
    drawn = sorted(selected, key=lambda node: hashlib.sha256(node.name.encode()).digest())
    return f"{share[1]}% of {shown}", drawn[: math.ceil(len(drawn) * int(share[1]) / 100)]


def _named(wanted: str, prefix: str, name: str, snapshot: ClusterSnapshot) -> tuple[str, Sequence[RehearsedNode]]:
    """Return the display name and the Nodes of a name.

    A pool or selector selects all of its Nodes, a provider only spot Nodes, and a type or zone its spot Nodes or, if
    there are none, all.
    """
    what, names_of = _NAMINGS[prefix]
    selected = sorted((node for node in snapshot.nodes if name in names_of(node)), key=lambda node: node.name)
    if not selected:
        names = sorted({own for node in snapshot.nodes for own in names_of(node)} - {""})
        if prefix == "selector":  # too many to list all
            key = name.partition("=")[0]
            names = [label for label in names if label.startswith(f"{key}=")] or names
        raise no_such_node(f"--lose {wanted}", what, name, names)
    spot = [node for node in selected if node.spot]
    if not prefix:
        pools = [str(pool) for pool in snapshot.pools if pool.is_named(name)]
        if len(pools) > 1:
            raise CannotJudgeError(
                f"spotgate rehearse: --lose {wanted}: {len(pools)} pools have this name: {', '.join(pools)}; rename one"
            )
        return f"{_kind_of(selected[0])}/{name}", selected
    return f"{what} {name}", selected if prefix == "selector" else spot if prefix == "provider" else spot or selected


def _kind_of(node: RehearsedNode) -> str:
    """Return the kind of a Node's pool, or ``Nodes`` if the provider has no pool objects."""
    if node.pool is not None:
        return node.pool.kind
    return node.provider.readers[0].kind if node.provider is not None and node.provider.pools_are_here else "Nodes"


def _window(node: RehearsedNode, budgets: GraceBudgets, drained_by: DrainedBy | None) -> ReclaimWindow:
    """Return the reclaim window of a node's provider, with empty `nodes`."""
    chosen = f"--drained-by {drained_by}" if drained_by is not None else ""
    if node.provider is None:
        return ReclaimWindow("no known provider", (), 0, 0, 0, 0, drained_by or "eviction", assumes=chosen)
    timeline = node.provider.interruption
    limit = budgets.of_node(node.provider, node.pool).limit
    by = drained_by or timeline.drained_by
    removal = max(timeline.removal_seconds, timeline.drain_seconds)
    drain = removal if by == "nobody" else timeline.drain_seconds
    unevicted = unevicted_annotation(node.provider, node.pool)
    own = [signal.drain_seconds for signal in node.provider.reclaim_notice]
    ahead = (timeline.drain_seconds if seconds is None else seconds for seconds in own)
    notice = max(drain - max(ahead, default=0), 0)
    # A shutdown by the kubelet and a drain in tiers begin with their signals.
    evicts_before = by == "eviction" and not timeline.drain_tiers and notice < drain
    return ReclaimWindow(
        provider=node.provider.title,
        nodes=(),
        cordon=timeline.cordon_seconds,
        drain=drain,
        kill=min(drain + limit, removal),
        removal=removal,
        drained_by=by,
        notice=notice if evicts_before else None,
        margin=node.provider.grace_period.safety_margin_seconds,
        unevicted=unevicted,
        cordon_taint=timeline.cordon_taint.taint if timeline.cordon_taint is not None else None,
        tiers=timeline.drain_tiers,
        forced=unevicted != timeline.unevicted_annotation,  # Karpenter's needsForceDelete, from the pool's limit
        assumes=chosen or timeline.assumes,
    )


def grown_nodes(growth: Iterable[Growth], snapshot: ClusterSnapshot) -> list[tuple[float, RehearsedNode]]:
    """Return the added Nodes, each with its second. Copy an existing Node of the pool, or else use the pool's spec.

    Raise CannotJudgeError if the pool doesn't exist.
    """
    nodes, pools, providers = snapshot.nodes, snapshot.pools, snapshot.bundle.providers
    grown: list[tuple[float, RehearsedNode]] = []
    for name, number, seconds in growth:
        model = next((node.value for node in nodes if name in node.pool_names), None)
        if model is None:
            pool = next((pool for pool in pools if pool.is_named(name)), None)
            if pool is None:
                names = {pool.name for pool in pools}.union(*(node.pool_names for node in nodes))
                raise no_such_node(f"--grow {name}", "pool", name, sorted(names))
            model = node_of_pool(pool, 0, providers, {**allocatable_by_type(nodes), **snapshot.allocatable})
        for index in node_numbers(number, f"--grow {name}"):
            named = f"{name}-grown-{index}"
            own = {"name": named, "uid": str(uuid.uuid4()), "labels": {HOSTNAME_LABEL: named}}
            new = merge_patch(model, {"metadata": own, "spec": {"unschedulable": None, "providerID": None}})
            grown.append((seconds, read_node(new, pools, providers)))
    return grown

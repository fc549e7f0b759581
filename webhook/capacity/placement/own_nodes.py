"""Complete declared pools with labels and zones of their Nodes, and find the pools of the Nodes that a Pod names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from webhook.capacity.placement.taints import says_spot
from webhook.capacity.providers.machines import ZONE_LABEL
from webhook.capacity.providers.nodes import HOSTNAME_LABEL, NodeKind
from webhook.capacity.providers.requirements import NO_REQUIREMENTS, LabelValues
from webhook.kube.affinity import Term
from webhook.kube.containers import ARCH_LABEL, OS_LABEL
from webhook.kube.pod import Requirement
from webhook.kube.tolerations import HARD_EFFECTS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.provider import Provider

_PLATFORM: Final = frozenset({ARCH_LABEL, OS_LABEL})
_NODE_NAMES: Final = frozenset({HOSTNAME_LABEL, "metadata.name"})
"""The label and the field with which a Pod selects Nodes by name."""


def with_nodes(pool: Pool, groups: Sequence[Pool], provider: Provider, inferred: Collection[str]) -> Pool:
    """Return a declared pool, completed with what its Nodes show. ``groups`` are the groups of its Nodes.

    The provider's document only infers the ``inferred`` labels, so the labels of Nodes override them. If a pool has
    several machine types, its future nodes may differ from its current ones. Forbidden taints of Nodes don't count,
    because new nodes don't have them.
    """
    if not groups:
        return pool
    marks = {*provider.marks, *dict(pool.own_marks)}
    keys = frozenset[str]().union(*(group.label_keys or () for group in groups))
    shared = frozenset.intersection(*(frozenset(group.taints) for group in groups)).difference(pool.taints)
    lasting = (taint for taint in shared if taint.effect in HARD_EFFECTS and not provider.is_forbidden(taint))
    undeclared = tuple(sorted(lasting, key=str))
    # New nodes of a pool that declares all labels have no other taints, except one that marks them as spot.
    if pool.label_domains:
        taints = (*pool.taints, *filter(says_spot, undeclared))
        return replace(pool, label_keys=keys.union(pool.label_keys or ()), taints=taints, shown_taints=undeclared)
    common = set(groups[0].labels.items()).intersection(*(group.labels.items() for group in groups))
    alike = bool(pool.instance_type) and ", " not in pool.instance_type
    sure = common if alike else [item for item in common if item[0] in _PLATFORM or item[0] in pool.labels]
    shown = {key: value for key, value in sorted(sure) if key not in marks}
    won = keys.intersection((*inferred, *_PLATFORM)).difference(marks)
    declared = {key: value for key, value in pool.labels.items() if key not in won}
    requirements, zones = pool.requirements or NO_REQUIREMENTS, pool.zones
    if not zones and (zones := zones.union(*(group.zones for group in groups))):
        requirements = requirements.narrowed({ZONE_LABEL: LabelValues(listed=zones, present=True)})
    return replace(
        pool,
        labels={**shown, **declared},
        label_keys=keys.union(pool.labels, requirements.labels) if alike else None,
        requirements=requirements,
        zones=zones,
        taints=(*pool.taints, *undeclared),
    )


def names_nodes(term: Term) -> bool:
    """Return whether the term selects Nodes by name."""
    return any(map(_names, (*term.requirements, *term.fields)))


def with_pools_of_nodes(
    terms: tuple[Term, ...], nodes: Mapping[str, NodeKind], providers: Mapping[str, Provider]
) -> tuple[Term, ...] | None:
    """Add a requirement for the pool of the Nodes to each term that names Nodes. Drop terms without a known pool.

    Return None if no term names Nodes.
    """
    if not any(map(names_nodes, terms)):
        return None
    resolved = (_with_pools(term, nodes, providers) if names_nodes(term) else term for term in terms)
    return tuple(term for term in resolved if term is not None)


def _names(requirement: Requirement) -> bool:
    return requirement.key in _NODE_NAMES and requirement.operator == "In"


def _with_pools(term: Term, nodes: Mapping[str, NodeKind], providers: Mapping[str, Provider]) -> Term | None:
    names = [set(name.values or ()) for name in filter(_names, (*term.requirements, *term.fields))]
    kinds = {nodes[name] for name in set.intersection(*names) if name in nodes}
    if len({kind.provider for kind in kinds}) != 1 or not all(kind.pool for kind in kinds):
        return None
    provider = providers[next(iter(kinds)).provider]
    own = [Requirement(provider.pool_name_label, "In", tuple(sorted({kind.pool for kind in kinds})))]
    if all(kind.spot is False for kind in kinds):
        own += [Requirement(label.key, "NotIn", (label.value,)) for label in provider.spot_node_labels]
    return Term((*term.requirements, *own), term.fields)

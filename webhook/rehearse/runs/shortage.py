"""Explain which pool lacks which resource for pending Pods. The scheduler reports only numbers of nodes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.providers.pool import Taint
from webhook.kube.affinity import Tristate, admits, terms_of
from webhook.kube.tolerations import HARD_EFFECTS, tolerates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.kube.pod import PodSpec
    from webhook.rehearse.inputs.nodes import RehearsedNode

_UNITS: Final = {"cpu": ("CPU", "CPUs", 1.0), "memory": ("GiB of memory", "GiB of memory", 2.0**30)}
"""The singular, the plural, and the size of the unit of a resource."""
_NAMED_POOLS: Final = 2


def causes_of(sentence: str) -> tuple[str, ...]:
    """Return the causes in the scheduler's message, without numbers of nodes and without cordoned nodes.

    ``0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable. preemption: ...`` has one cause.
    """
    _, _, parts = sentence.partition(" nodes are available: ")
    parts, _, _ = parts.partition(". ")  # the rest is about preemption and claims
    causes = {part.partition(" ")[2].rstrip(".").removeprefix("node(s) ") for part in parts.split(", ") if part}
    return tuple(sorted(causes - {"were unschedulable"}))


def shortage_of(
    spec: PodSpec,
    needed: Mapping[str, float],
    nodes: Iterable[RehearsedNode],
    requested: Mapping[str, Counter[str]],
) -> str:
    """Return the first resource that similar Pods lack on the nodes that admit them, or an empty string.

    Args:
        spec: the spec of one of the Pods.
        needed: the total requests of the Pods.
        nodes: the remaining nodes.
        requested: the requests of the Pods on each node.
    """
    admitting = [node for node in nodes if _admits(node, spec)]
    free: Counter[str] = Counter()
    for node in admitting:
        free.update(Counter(node.allocatable))
        free.subtract(requested.get(node.name, Counter()))
    pools = sorted({node.pool_name or node.name for node in admitting})
    where = " and ".join(pools) if len(pools) <= _NAMED_POOLS else f"{len(pools)} pools"
    for name in sorted(needed) if admitting else ():
        one, several, size = _UNITS.get(name, (name, name, 1.0))
        if (number := (needed[name] - free[name]) / size) > 0:
            has = "has" if len(pools) == 1 else "have"
            return f"{where} {has} {number:.3g} {one if number == 1 else several} too few"
    return ""


def _admits(node: RehearsedNode, spec: PodSpec) -> bool:
    """Return whether the node's labels and taints admit the Pod."""
    taints = msgspec.convert(node.value["spec"].get("taints") or [], list[Taint])
    return admits(terms_of(spec), node.labels) is not Tristate.NO and all(
        taint.effect not in HARD_EFFECTS or any(tolerates(toleration, taint) for toleration in spec.tolerations or ())
        for taint in taints
    )

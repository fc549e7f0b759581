"""Say in a few words why Pods stay pending. The scheduler counts nodes; a reader asks which pool lacks what."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from webhook.capacity.providers.pool import Taint
from webhook.kube.affinity import Tristate, admits, terms_of
from webhook.kube.tolerations import HARD_EFFECTS, tolerates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from webhook.rehearse.inputs.nodes import RehearsedNode
    from webhook.rehearse.inputs.resources import RehearsedPodSpec

_TOO_LITTLE: Final = "Insufficient "
_AFFINITY: Final = "didn't match Pod's node affinity/selector"
_UNITS: Final = {"cpu": ("CPU", "CPUs", 1.0), "memory": ("GiB of memory", "GiB of memory", 2.0**30)}
"""One, several, and how much of the resource that is."""
_NAMED_POOLS: Final = 2


def causes_of(sentence: str) -> tuple[str, ...]:
    """Return the causes in a sentence of the scheduler, without numbers of nodes and without cordoned nodes.

    ``0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable. preemption: ...`` has one.
    """
    _, _, parts = sentence.partition(" nodes are available: ")
    parts, _, _ = parts.partition(". ")  # what follows is about preemption and claims
    causes = {part.partition(" ")[2].rstrip(".").removeprefix("node(s) ") for part in parts.split(", ") if part}
    return tuple(sorted(causes - {"were unschedulable"}))


def shortage_of(
    causes: Iterable[str],
    spec: RehearsedPodSpec,
    needed: Counter[str],
    nodes: Iterable[RehearsedNode],
    requested: Mapping[str, Counter[str]],
) -> str:
    """Return what Pods that are alike lack.

    Args:
        causes: see `causes_of`.
        spec: that of one of the Pods.
        needed: what they request together.
        nodes: those that are left.
        requested: what is requested on each node.
    """
    lacking = [each.removeprefix(_TOO_LITTLE) for each in causes if each.startswith(_TOO_LITTLE)]
    others = [each for each in causes if not each.startswith((_TOO_LITTLE, _AFFINITY, "had untolerated taint"))]
    open_to = [node for node in nodes if _admits(node, spec)]
    if lacking and not others and open_to:
        free: Counter[str] = Counter()
        for node in open_to:
            free.update(Counter(node.allocatable))
            free.subtract(requested.get(node.name, Counter()))
        pools = sorted({node.pool_name or node.name for node in open_to})
        where = " and ".join(pools) if len(pools) <= _NAMED_POOLS else f"{len(pools)} pools"
        has = "has" if len(pools) == 1 else "have"
        for name in lacking:
            one, several, size = _UNITS.get(name, (name, name, 1.0))
            if (number := (needed[name] - free[name]) / size) > 0:
                return f"{where} {has} {number:.3g} {one if number == 1 else several} too few"
        return f"{where} {has} enough {several}, but no node has enough for one more"
    if not causes:
        return "no node is left for them"
    if tuple(causes) == (_AFFINITY,):
        return "no other node matches their node selector or affinity"
    return f"other nodes: {', '.join(causes)}"


def _admits(node: RehearsedNode, spec: RehearsedPodSpec) -> bool:
    """Return whether a node's labels and taints admit a Pod."""
    taints = (
        Taint(each["key"], each.get("value", ""), each["effect"]) for each in node.value["spec"].get("taints") or ()
    )
    return admits(terms_of(spec), node.labels) is not Tristate.NO and all(
        taint.effect not in HARD_EFFECTS or any(tolerates(each, taint) for each in spec.tolerations or ())
        for taint in taints
    )

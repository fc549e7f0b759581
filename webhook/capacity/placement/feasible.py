"""Find the spot nodes that can run a Pod, and the reasons why others can't."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.text import listed
from webhook.capacity.placement.supply import ARM, tolerations_for
from webhook.capacity.providers.pool import Gpu
from webhook.kube.containers import ARCH_LABEL, OS_LABEL, WINDOWS
from webhook.kube.tolerations import HARD_EFFECTS, tolerates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from webhook.capacity.placement.supply import SpotNodes, Supply
    from webhook.capacity.providers.pool import Taint
    from webhook.capacity.providers.provider import Provider
    from webhook.kube.affinity import Term
    from webhook.kube.pod import Pod, Toleration

EXCLUDED: Final = "the Pod's own nodeSelector or affinity excludes it"
"""The reason for pools that would otherwise run the Pod."""
_NO_GPU: Final = "it has no GPUs, and the Pod requests GPUs"
_GPU: Final = "it has GPUs, and the Pod requests none"

_LISTING: Final = frozenset({"In", "NotIn"})


class Rejected(msgspec.Struct, frozen=True):
    """Spot nodes that can't run a Pod, and the reason.

    Attributes:
        certain: the scheduler doesn't place the Pod on these nodes, regardless of injection.
        foreign: the label of the operating system or architecture that differs from the Pod's, or empty.
        dedicated: the taint that dedicates the nodes to other Pods, if this Pod's constraints admit them.
    """

    nodes: SpotNodes
    because: str
    certain: bool = False
    foreign: str = ""
    dedicated: Taint | None = None


class PodDemands(msgspec.Struct, frozen=True, eq=False):
    """The node requirements of a Pod that targets spot.

    Attributes:
        terms: its own nodeSelector and required affinity.
        named: the pool that its annotation names.
        requested: the accelerators that it requests: resources and device classes.
        vague: whether it may request others, because a resource claim is unknown or a quantity is a placeholder.
        volumes: the PersistentVolumes that it mounts, each with its node affinity.
    """

    pod: Pod
    terms: tuple[Term, ...]
    named: str | None
    requested: frozenset[str]
    vague: bool = False
    volumes: tuple[tuple[str, tuple[Term, ...]], ...] = ()

    @property
    def gpu(self) -> bool | None:
        """Return whether the Pod requests GPUs. Return None if that is unknown."""
        return None if self.vague else bool(self.requested)

    def chooses(self, nodes: SpotNodes) -> bool:
        """Return whether the Pod names the pool: in its annotation, or in each term by a pool-name label."""
        if nodes.pool is None:
            return False
        if self.named is not None:
            return nodes.pool.is_named(self.named)
        return bool(self.terms) and all(term.demands(nodes.provider.pool_labels) for term in self.terms)

    def rejects(self, nodes: SpotNodes, supply: Supply) -> Rejected | None:
        """Return why the nodes can't run the Pod, or None if they can."""
        if because := nodes.closed or self._unable(nodes) or self._volume_elsewhere(nodes):
            return Rejected(nodes, because, certain=True)
        admitted, chosen = nodes.admitted(self.terms, nodes.absent), self.chooses(nodes)
        if admitted and (foreign := self._foreign(nodes, supply, chosen=chosen)) is not None:
            return foreign
        wasted = self.gpu is False and nodes.gpu is Gpu.YES
        taint = None if chosen else _untolerated(self.pod, nodes.dedicated)
        if taint is not None and not wasted:
            because = f"its taint {taint} dedicates it to Pods that tolerate the taint"
            return Rejected(nodes, because, certain=not admitted, dedicated=taint if admitted else None)
        if wasted:
            return Rejected(nodes, _GPU, certain=taint is not None or not admitted)
        return None if admitted else Rejected(nodes, EXCLUDED, certain=True)

    def _alone(self, nodes: SpotNodes, supply: Supply) -> bool:
        """Return whether each term demands a label that only the pool of these nodes declares."""
        items = [item for item in nodes.labels.items() if item[0] in supply.given]
        own = [(key, value) for key, value in items if sum(pool.labels.get(key) == value for pool in supply.pools) == 1]
        listing = ([need for need in term.requirements if need.operator == "In"] for term in self.terms)
        return all(any((need.key, *(need.values or ())) in own for need in requirements) for requirements in listing)

    def tolerations(self, fitting: Iterable[SpotNodes]) -> tuple[Toleration, ...]:
        """Return the tolerations for all taints of these nodes that the Pod may tolerate."""
        wanted: dict[Toleration, None] = {}
        for nodes in fitting:
            guards = [
                taint for taint in nodes.guards if self.gpu is None or nodes.provider.serves(taint, self.requested)
            ]
            dedicated = nodes.dedicated if self.chooses(nodes) else ()
            wanted |= dict.fromkeys((*nodes.tolerations, *tolerations_for((*dedicated, *guards))))
        return tuple(wanted)

    def _unable(self, nodes: SpotNodes) -> str:
        """Return why accelerators, or their absence, exclude the nodes. Return an empty string if they don't."""
        if self.gpu and nodes.gpu is Gpu.NO:
            return _NO_GPU
        if other := next((name for name in sorted(self.requested) if not nodes.provider.offers(name)), ""):
            return f"{nodes.provider.title} has no {other}"
        guard = guarding_taint(self.pod, nodes, self.requested) if self.gpu is not None and nodes.pool else None
        if guard is None:
            return ""
        if self.gpu:
            return f"its taint {guard} is for Pods that request {guard.key}"
        return f"its taint {guard} repels Pods that request no GPUs"

    def _volume_elsewhere(self, nodes: SpotNodes) -> str:
        """Return which bound volume the nodes can't attach. Return an empty string if they can attach all of them."""
        volume, terms = next((bound for bound in self.volumes if not nodes.admitted(bound[1], nodes.absent)), ("", ()))
        where = dict.fromkeys(value for term in terms for need in term.requirements for value in need.values or ())
        return f"volume {volume} is in {listed(where)}" if volume else ""

    def _foreign(self, nodes: SpotNodes, supply: Supply, *, chosen: bool) -> Rejected | None:
        """Return why the operating system or architecture excludes the nodes, or None if it doesn't.

        A Pod runs on Windows or Arm only if its own spec says so, if it names the pool, or if it selects a label that
        no other pool declares. On a cluster with only Arm nodes, all Pods run on Arm.
        """
        system, own = nodes.only(OS_LABEL), self.pod.spec.os
        if own is not None and system not in {"", own.name}:
            return Rejected(nodes, f"its nodes run {system}, and the Pod sets spec.os to {own.name}", foreign=OS_LABEL)
        if chosen:
            return None
        on_windows = system == WINDOWS and own is None
        on_arm = nodes.only(ARCH_LABEL) == ARM and not supply.arm
        for key, foreign in ((OS_LABEL, on_windows), (ARCH_LABEL, on_arm)):
            if foreign and not _selects_platform(self.terms, key, nodes) and not self._alone(nodes, supply):
                because = f"its nodes have {key}={nodes.only(key)}, and the Pod doesn't select them"
                return Rejected(nodes, because, foreign=key)
        return None


class Fit(msgspec.Struct, frozen=True):
    """The spot nodes for a Pod that targets spot.

    Attributes:
        nodes: the spot nodes that can run the Pod.
        rejected: the spot pools that can't run it.
        strays: the spot nodes that can't run it, and that neither its constraints nor their taints keep off.
    """

    nodes: tuple[SpotNodes, ...]
    rejected: tuple[Rejected, ...]
    strays: tuple[Rejected, ...]


def feasible_nodes(
    demands: PodDemands, supply: Supply, in_play: tuple[Provider, ...], spot_shown: frozenset[str]
) -> Fit:
    """Return the spot nodes that can run a Pod that targets spot, and those that can't.

    Pools of a provider whose pools aren't objects can be invisible, because they have no Nodes. So their spot nodes
    always count, except in a cluster that has spot pools as objects and shows no spot Node of the provider.
    """
    terms, named = demands.terms, demands.named
    names = {provider.name for provider in in_play}
    fitting: list[SpotNodes] = []
    rejected: list[Rejected] = []
    wasted: list[Rejected] = []
    spot = [
        nodes for nodes in supply.spot if nodes.provider.name in names and (named is None or demands.chooses(nodes))
    ]
    for nodes in spot:
        if (refusal := demands.rejects(nodes, supply)) is None:
            fitting.append(nodes)
        else:
            (wasted if refusal.because == _GPU and not refusal.certain else rejected).append(refusal)
    if wasted:
        selected = _named(terms, named, fitting, [refusal.nodes for refusal in wasted], supply)
        fitting = [nodes for nodes in supply.spot if nodes in fitting or nodes in selected]
        rejected += [refusal for refusal in wasted if refusal.nodes not in selected]
    refused = list(rejected)
    if named is None:
        shown = spot_shown if any(nodes.provider.name in supply.providers for nodes in spot) else names
        # If a declared pool fits, don't assume that unseen nodes have its labels.
        absent = supply.given if fitting else frozenset()
        for nodes in supply.unseen:
            if nodes.provider.name in names & shown and nodes.admitted(terms, nodes.absent | absent):
                if (refusal := demands.rejects(nodes, supply)) is None:
                    fitting.append(nodes)
                else:
                    refused.append(refusal)
    tolerations = (*(demands.pod.spec.tolerations or ()), *demands.tolerations(fitting))
    loose = (refusal for refusal in refused if not refusal.certain)
    strays = tuple(refusal for refusal in loose if not refusal.nodes.repels(tolerations))
    return Fit(tuple(fitting), tuple(rejected), strays)


def _selects_platform(terms: tuple[Term, ...], key: str, nodes: SpotNodes) -> bool:
    """Return whether a term that may admit these nodes lists values of this platform label."""
    keys = {key, f"beta.{key}"}
    admitting = (term.requirements for term in terms if nodes.admitted((term,), nodes.absent))
    return any(need.key in keys and need.operator in _LISTING for needs in admitting for need in needs)


def confined_to(terms: tuple[Term, ...], nodes: tuple[SpotNodes, ...], supply: Supply) -> bool:
    """Return whether the Pod's own constraints demand a label that distinguishes spot, and admit only these nodes."""
    return (
        all(term.demands(supply.telling) for term in terms)
        and not any(other.admitted(terms, supply.telling) for other in supply.other)
        and all(spot in nodes or not spot.admitted(terms, supply.telling) for spot in supply.spot)
        and all(
            demands_spot(term, spot.provider) or not spot.admitted((term,), spot.absent)
            for spot in nodes
            if spot.pool is None
            for term in terms
        )
    )


def demands_spot(term: Term, provider: Provider) -> bool:
    """Return whether the term demands a spot label of this provider, and so admits only spot nodes."""
    for label in provider.spot_node_labels:
        for need in term.requirements:
            if need.key != label.key:
                continue
            if need.operator == "Exists" and label.spot_only:
                return True
            values = set(need.values or ())
            if need.operator == "In" and label.value in values and (label.spot_only or len(values) == 1):
                return True
    return False


def guarding_taint(pod: Pod, nodes: SpotNodes, requested: frozenset[str]) -> Taint | None:
    """Return the first untolerated taint of the nodes that repels Pods without a request for its accelerator."""
    return _untolerated(pod, (taint for taint in nodes.guards if not nodes.provider.serves(taint, requested)))


def _untolerated(pod: Pod, taints: Iterable[Taint]) -> Taint | None:
    """Return the first NoSchedule or NoExecute taint that the Pod doesn't tolerate."""
    tolerations, hard = pod.spec.tolerations or (), (taint for taint in taints if taint.effect in HARD_EFFECTS)
    return next((taint for taint in hard if not any(tolerates(toleration, taint) for toleration in tolerations)), None)


def _named(
    terms: tuple[Term, ...], named: str | None, fit: list[SpotNodes], unsuited: list[SpotNodes], supply: Supply
) -> list[SpotNodes]:
    """Return the GPU nodes that a Pod without GPU requests names: by annotation, pool-name label, or declared label.

    A label that pools declare names the nodes only if no fitting node has it: all spot pools may have the label.
    """
    if named is not None:
        return unsuited

    def selects(nodes: SpotNodes, keys: Collection[str]) -> bool:
        return any(term.demands(keys) and nodes.admitted((term,), supply.telling) for term in terms)

    by_name = [nodes for nodes in unsuited if selects(nodes, nodes.provider.pool_labels)]
    if by_name or any(selects(nodes, supply.given) for nodes in fit):
        return by_name
    return [nodes for nodes in unsuited if selects(nodes, supply.given)]

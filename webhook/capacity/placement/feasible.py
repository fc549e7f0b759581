"""Find the spot nodes that can run a Pod, and the reasons why others can't."""

from __future__ import annotations

from functools import partial
from itertools import filterfalse
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from webhook.base.text import listed
from webhook.capacity.placement.index import ProviderIndex, demands_spot
from webhook.capacity.placement.supply import ARM, SpotNodes, Supply, tolerations_for
from webhook.capacity.providers.pool import Gpu, Taint
from webhook.capacity.providers.taints import platform_of
from webhook.kube.containers import (
    ARCH_LABEL,
    OS_LABEL,
    WINDOWS,
    device_classes_of,
    may_request_devices,
    quantities_of,
    requested_of,
)
from webhook.kube.tolerations import HARD_EFFECTS, covers, tolerates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.capacity.placement.constraints import Meaning, PodConstraints
    from webhook.capacity.providers.provider import Provider
    from webhook.kube.affinity import Term
    from webhook.kube.pod import Pod, Toleration

_LISTING: Final = frozenset({"In", "NotIn"})


class Rejected(msgspec.Struct, frozen=True):
    """Spot nodes that can't run a Pod, and the reason.

    Attributes:
        excluded: whether only the Pod's own constraints exclude the nodes.
        admitted: whether the Pod's constraints and requests admit the nodes, so that only taints can repel it.
        foreign: the label of the operating system or architecture that differs from the Pod's, or empty.
        dedicated: the taint that dedicates the nodes to other Pods.
    """

    nodes: SpotNodes
    because: str
    excluded: bool = False
    admitted: bool = False
    foreign: str = ""
    dedicated: Taint | None = None


class PodDemands(msgspec.Struct, frozen=True, eq=False):
    """The node requirements of a Pod that targets spot.

    Attributes:
        own: its constraints as written.
        terms: its nodeSelector and required affinity, with the pools of the Nodes that it names.
        requested: the accelerators that it requests: resources and device classes.
        vague: whether it may request others, because a resource claim is unknown or a quantity is a placeholder.
        volumes: the PersistentVolumes that it mounts, each with its node affinity.
        labelled: whether it selects only pools of another kind by their labels, so that the kind doesn't matter.
    """

    own: PodConstraints
    terms: tuple[Term, ...]
    requested: frozenset[str]
    vague: bool
    volumes: tuple[tuple[str, tuple[Term, ...]], ...]
    labelled: bool = False

    @classmethod
    def of(cls, own: PodConstraints, meaning: Meaning, index: ProviderIndex) -> PodDemands:
        """Return the demands of a Pod, given the meaning of its names in this cluster."""
        quantities = quantities_of(own.pod.spec)
        classes = device_classes_of(quantities).union(meaning.classes or ())
        requested = meaning.shared.union(
            filter(index.device_classes.match, classes), requested_of(quantities, index.accelerators)
        )
        vague = meaning.classes is None or may_request_devices(quantities)
        return cls(own, own.terms if meaning.terms is None else meaning.terms, requested, vague, meaning.volumes)

    @property
    def gpu(self) -> bool | None:
        """Return whether the Pod requests GPUs. Return None if that is unknown."""
        return None if self.vague else bool(self.requested)

    def chooses(self, nodes: SpotNodes) -> bool:
        """Return whether the Pod names the pool: in its annotation, or in each term by a pool-name label."""
        if self.own.named is not None:
            return nodes.pool is not None and nodes.pool.is_named(self.own.named)
        return bool(self.terms) and all(term.lists(nodes.provider.pool_labels) for term in self.terms)

    def rejects(self, nodes: SpotNodes, supply: Supply) -> Rejected | None:
        """Return why the nodes can't run the Pod, or None if they can."""
        excluded = not nodes.admitted(self.terms, nodes.absent)
        if (because := nodes.closed or self._unable(nodes) or self._volume_elsewhere(nodes)) or excluded:
            own = "the Pod's own nodeSelector or affinity excludes it"
            return Rejected(nodes, because or own, excluded=not because)
        chosen = self.chooses(nodes)
        by_label = self.labelled and nodes.pool is not None
        if (foreign := self._foreign(nodes, supply, chosen=chosen or by_label)) is not None or chosen:
            return foreign
        guards = () if nodes.pool is None else filterfalse(partial(self._opens, nodes), nodes.guards)
        if (guard := _untolerated(self.own.pod, guards)) is not None:
            return Rejected(nodes, f"its taint {guard} is for Pods that request its accelerator")
        if self.gpu is False and nodes.gpu is Gpu.YES and not by_label:
            return Rejected(nodes, "it has GPUs, and the Pod requests none", admitted=True)
        if (taint := _untolerated(self.own.pod, nodes.dedicated)) is not None:
            because = f"its taint {taint} dedicates it to Pods that tolerate the taint"
            return Rejected(nodes, because, admitted=True, dedicated=taint)
        return None

    def tolerations(self, fitting: Iterable[SpotNodes]) -> tuple[Toleration, ...]:
        """Return the tolerations for all taints of these nodes that the Pod may tolerate, none covered by another."""
        wanted: dict[Toleration, None] = {}
        for nodes in fitting:
            guards = filter(partial(self._opens, nodes), nodes.guards)
            marking = filter(partial(self._may_meet, nodes), nodes.marking)
            repelling = (*nodes.taints, *nodes.pool.shown_taints) if nodes.pool and self.chooses(nodes) else ()
            wanted |= dict.fromkeys(tolerations_for((*marking, *nodes.platform, *guards, *repelling)))
        return tuple(one for one in wanted if not any(covers(other, one) for other in wanted if other is not one))

    def _may_meet(self, nodes: SpotNodes, taint: Taint) -> bool:
        """Return whether the nodes may have this spot taint: only nodes with an `instead` label have its taint."""
        special = any(label.instead and label.key == taint.key for label in nodes.provider.spot_node_labels)
        own = taint in nodes.taints or taint.key in dict(nodes.marks)
        return not special or own or any(term.demands({taint.key}) for term in self.terms)

    def _opens(self, nodes: SpotNodes, guard: Taint) -> bool:
        """Return whether the Pod gets a toleration for a taint of an accelerator."""
        return self.labelled or self.gpu is None or nodes.provider.serves(guard, self.requested)

    def _unable(self, nodes: SpotNodes) -> str:
        """Return why accelerators, or their absence, exclude the nodes. Return an empty string if they don't."""
        if self.gpu and nodes.gpu is Gpu.NO:
            return "it has no GPUs, and the Pod requests GPUs"
        if other := next((name for name in sorted(self.requested) if not nodes.provider.offers(name)), ""):
            return f"{nodes.provider.title} has no {other}"
        return ""

    def _volume_elsewhere(self, nodes: SpotNodes) -> str:
        """Return which bound volume the nodes can't attach. Return an empty string if they can attach all of them."""
        volume, terms = next((bound for bound in self.volumes if not nodes.admitted(bound[1], nodes.absent)), ("", ()))
        where = dict.fromkeys(value for term in terms for need in term.requirements for value in need.values or ())
        return f"volume {volume} is in {listed(where)}" if volume else ""

    def _foreign(self, nodes: SpotNodes, supply: Supply, *, chosen: bool) -> Rejected | None:
        """Return why the operating system or architecture excludes the nodes, or None if it doesn't.

        A Pod runs on Windows or Arm only if its own constraints or tolerations say so, or if it names the pool. On a
        cluster with only Arm nodes, all Pods run on Arm.
        """
        system, own = nodes.only(OS_LABEL), self.own.pod.spec.os
        if own is not None and system not in {"", own.name}:
            because = f"its nodes run {system}, and the Pod sets spec.os to {own.name}"
            return Rejected(nodes, because, admitted=True, foreign=OS_LABEL)
        on_windows = system == WINDOWS and own is None
        on_arm = nodes.only(ARCH_LABEL) == ARM and not supply.arm
        for key, foreign in ((OS_LABEL, on_windows), (ARCH_LABEL, on_arm)):
            if foreign and not chosen and not self._accepts(key, nodes):
                because = f"its nodes have {key}={nodes.only(key)}, and the Pod doesn't select them"
                return Rejected(nodes, because, admitted=True, foreign=key)
        return None

    def _accepts(self, key: str, nodes: SpotNodes) -> bool:
        """Return whether the Pod lists values of this platform label in a fitting term, or tolerates its taint."""
        keys, value = {key, f"beta.{key}"}, nodes.only(key)
        admitting = (term.requirements for term in self.terms if nodes.admitted((term,), nodes.absent))
        if any(need.key in keys and need.operator in _LISTING for needs in admitting for need in needs):
            return True
        tolerated = (Taint(own.key or "", own.value or value) for own in self.own.pod.spec.tolerations or ())
        return any(platform_of(taint) == (key, value) for taint in tolerated)


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """The spot nodes for a Pod that targets spot.

    Attributes:
        nodes: the spot nodes that can run the Pod, also those of pools that aren't visible; empty if none are known.
        rejected: the spot pools that can't run it, each with the reason.
        strays: the spot nodes that can't run it, and that neither its constraints nor their taints keep off.
        tolerations: the tolerations for the taints of ``nodes`` that the Pod may tolerate, present or not.
    """

    nodes: tuple[SpotNodes, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    strays: tuple[Rejected, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


def feasible_nodes(
    demands: PodDemands, supply: Supply, in_play: tuple[Provider, ...], spot_shown: frozenset[str]
) -> Fit:
    """Return the spot nodes that can run a Pod that targets spot, and those that can't.

    Pools of a provider whose pools aren't objects can be invisible, because they have no Nodes. So their spot nodes
    always count, except in a cluster that has spot pools as objects and shows no spot Node of the provider.
    """
    terms, named = demands.terms, demands.own.named
    names = {provider.name for provider in in_play}
    spot = [
        nodes for nodes in supply.spot if nodes.provider.name in names and (named is None or demands.chooses(nodes))
    ]
    answers = [(nodes, demands.rejects(nodes, supply)) for nodes in spot]
    rejected = tuple(refusal for _, refusal in answers if refusal is not None)
    keys = supply.given.union(*(provider.pool_labels for provider in in_play))
    selects = bool(terms) and all(term.lists(keys) for term in terms)
    if selects and not (
        demands.labelled or any(not no and nodes.admitted(terms, supply.telling) for nodes, no in answers)
    ):
        return feasible_nodes(replace(demands, labelled=True), supply, in_play, spot_shown)
    if named is None:
        shown = spot_shown if any(nodes.provider.name in supply.providers for nodes in spot) else names
        # If a declared pool fits, don't assume that unseen nodes have its labels.
        absent = supply.given if len(rejected) < len(spot) else frozenset()
        unseen = supply.unseen(names & shown)
        admitted = [nodes for nodes in unseen if nodes.admitted(terms, nodes.absent | absent)]
        answers += [(nodes, demands.rejects(nodes, supply)) for nodes in admitted]
    fitting = tuple(nodes for nodes, refusal in answers if refusal is None)
    tolerations = demands.tolerations(fitting)
    tolerated = (*(demands.own.pod.spec.tolerations or ()), *tolerations)
    loose = (refusal for _, refusal in answers if refusal is not None and refusal.admitted)
    strays = tuple(refusal for refusal in loose if not refusal.nodes.repels(tolerated))
    return Fit(nodes=fitting, rejected=rejected, strays=strays, tolerations=tolerations)


def confined_to(terms: tuple[Term, ...], nodes: tuple[SpotNodes, ...], supply: Supply) -> bool:
    """Return whether the Pod's own constraints demand a label that distinguishes spot, and admit only these nodes."""
    return (
        all(term.lists(supply.telling) or term.demands(supply.telling - supply.names) for term in terms)
        and not any(other.admitted(terms, supply.telling) for other in supply.other)
        and all(spot in nodes or not spot.admitted(terms, supply.telling) for spot in supply.spot)
        and all(
            demands_spot(term, spot.provider) or not spot.admitted((term,), spot.absent)
            for spot in nodes
            if spot.pool is None
            for term in terms
        )
    )


def _untolerated(pod: Pod, taints: Iterable[Taint]) -> Taint | None:
    """Return the first NoSchedule or NoExecute taint that the Pod doesn't tolerate."""
    tolerations, hard = pod.spec.tolerations or (), (taint for taint in taints if taint.effect in HARD_EFFECTS)
    return next((taint for taint in hard if not any(tolerates(toleration, taint) for toleration in tolerations)), None)

"""A capacity provider, compiled from its `CapacityProvider` document: the facts rules ask for, ready to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from webhook.decision import Outcome
from webhook.kube.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from webhook.capacity.providers.pool import Pool, Taint
    from webhook.capacity.providers.reader import PoolReader
    from webhook.capacity.providers.sizes import Sizer
    from webhook.globs import Globs


FallbackKind = Literal["any", "standard", "gpu", "same-type"]
"""What counts: any on-demand pool, one without GPUs, one with GPUs, or one of the same instance type."""


class FallbackNeed(msgspec.Struct, frozen=True):
    """What a GPU spot pool needs beside it.

    Attributes:
        require: what counts.
        outcome: the most that comes of its lack.
        because: what happens without, as a sentence; empty: Pods of a reclaimed node find no other.
    """

    require: FallbackKind
    outcome: Outcome = Outcome.DENY
    because: str = ""


class Label(msgspec.Struct, frozen=True):
    """A node label; ``spot_only``: nodes that are not spot have none of its key, whatever its value."""

    key: str
    value: str
    spot_only: bool = False


class Interruption(msgspec.Struct, frozen=True):
    """What happens to a reclaimed node, in seconds after the notice."""

    cordon: int
    drain: int
    removal: int


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """One provider's facts.

    Attributes:
        name: of its document.
        title: for people, e.g. ``CoreWeave CKS``.
        spot_labels: the labels it gives every spot node, the preferred one first; empty where it has none (CKS).
        spot_taints: the taints it puts on spot nodes of its own accord.
        taints_declared_pools: it puts one of these on the spot nodes of pools that somebody declares, too.
        pool_label: key of the label that names a node's pool.
        forbidden_taints: what must never be tolerated: a taint whose key (and value, effect, where given) matches.
        gpu_taints: taints that keep Pods without GPUs off GPU nodes.
        taints_gpus: it puts one of these on every node with GPUs of its own accord.
        gpu_resources: extended resources that are GPUs.
        hands_off_schedulers: scheduler names whose Pods are never touched (SUNK).
        hands_off_selectors: keys of node labels; Pods that select by them are never touched (GKE's ComputeClasses).
        system_namespaces: namespaces of the provider's own, never touched, by name.
        system_namespace_labels: the same, by label.
        timeline: of a reclaim.
        grace_budget: seconds an ordinary Pod gets to stop at most.
        safety_margin: seconds to keep free of that.
        fallback: what its GPU spot pools need beside them; empty: what the policy says.
        readers: one for each kind of node pool it has.
    """

    name: str
    title: str
    spot_labels: tuple[Label, ...]
    spot_taints: tuple[Taint, ...]
    taints_declared_pools: bool
    pool_label: str
    forbidden_taints: tuple[TaintPattern, ...]
    gpu_taints: tuple[TaintPattern, ...]
    taints_gpus: bool
    gpu_resources: Globs
    hands_off_schedulers: Globs
    hands_off_selectors: frozenset[str]
    system_namespaces: Globs
    system_namespace_labels: tuple[Label, ...]
    timeline: Interruption
    grace_budget: int
    safety_margin: int
    fallback: tuple[FallbackNeed, ...]
    readers: tuple[PoolReader, ...]

    def owns_namespace(self, name: str, labels: Mapping[str, str]) -> bool:
        """Is a namespace of this name, with these labels, the provider's own, in a cluster of the provider's?"""
        labelled = any(labels.get(each.key) == each.value for each in self.system_namespace_labels)
        return labelled or self.system_namespaces.match(name)


class TaintPattern(msgspec.Struct, frozen=True):
    """A pattern for taints: the key, and value and effect where they are given (empty: any)."""

    key: str
    value: str = ""
    effect: str = ""

    def matches(self, taint: Taint) -> bool:
        """True where the taint is of this pattern."""
        return (
            taint.key == self.key
            and (not self.value or taint.value == self.value)
            and (not self.effect or taint.effect == self.effect)
        )


class ResourceReader(msgspec.Struct, frozen=True):
    """All that read one resource; which of them reads an object is said by their conditions.

    Attributes:
        readers: at least one; those with a condition come first.
    """

    readers: tuple[PoolReader, ...]

    @property
    def any(self) -> PoolReader:
        """One of them: group, versions, kind and resource are the same for all."""
        return self.readers[-1]

    def of(self, value: Mapping[str, Any]) -> PoolReader:
        """The one that reads an object: the first whose condition holds, else the last. No pool stays unread."""
        holding = (each for each in self.readers if each.when is None or each.when(value))
        return next(holding, self.any)

    def read(self, value: Mapping[str, Any]) -> Pool:
        """The pool that an object of this resource declares."""
        return self.of(value).read(value)


def readers_by_resource(providers: Iterable[Provider]) -> dict[tuple[str, str], ResourceReader]:
    """All readers by the API group and plural resource name of the node pools they read, in that order."""
    found: dict[tuple[str, str], list[PoolReader]] = {}
    for provider in providers:
        for reader in provider.readers:
            found.setdefault((reader.group, reader.resource), []).append(reader)
    return {
        key: ResourceReader(tuple(sorted(readers, key=lambda reader: reader.when is None)))
        for key, readers in sorted(found.items())
    }


def sizers_by_resource(providers: Iterable[Provider]) -> dict[tuple[str, str], tuple[Sizer, ...]]:
    """What says the size of pools without being one, by API group and plural resource name, in that order."""
    found: dict[tuple[str, str], list[Sizer]] = {}
    for provider in providers:
        for reader in provider.readers:
            if reader.sizer is not None:
                found.setdefault((reader.sizer.group, reader.sizer.resource), []).append(reader.sizer)
    return {key: tuple(sizers) for key, sizers in sorted(found.items())}


def pool_resources(providers: Collection[Provider]) -> list[Resource]:
    """The resources that are node pools, and those that say the size of some."""
    sizers = (each[0] for each in sizers_by_resource(providers).values())
    readers = (each.any for each in readers_by_resource(providers).values())
    return [
        *(Resource(each.group, each.kind, each.resource, namespaced=True) for each in sizers),
        *(Resource(each.group, each.kind, each.resource, each.namespaced) for each in readers),
    ]

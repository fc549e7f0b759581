"""Hold the facts about a capacity provider, compiled from its ``CapacityProvider`` document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from webhook.capacity.providers.taints import is_passing
from webhook.decision import Outcome
from webhook.kube.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from webhook.capacity.providers.joins import Sizer
    from webhook.capacity.providers.machines import Machines
    from webhook.capacity.providers.pool import Pool, Taint
    from webhook.capacity.providers.reader import PoolReader
    from webhook.globs import Globs


FallbackKind = Literal["any", "standard", "gpu", "same-type"]
"""Which pools are a fallback: any on-demand pool, one without GPUs, one with GPUs, or one of the same type."""


class FallbackNeed(msgspec.Struct, frozen=True):
    """Describe the fallback that a GPU spot pool needs.

    Attributes:
        require: which pools are a fallback.
        outcome: the highest outcome if there is none.
        because: what happens without a fallback, as a sentence; empty for the usual consequence, pending Pods.
    """

    require: FallbackKind
    outcome: Outcome = Outcome.DENY
    because: str = ""


class Label(msgspec.Struct, frozen=True):
    """Hold a node label. With ``spot_only``, nodes that are not spot have no label of its key."""

    key: str
    value: str
    spot_only: bool = False


class Interruption(msgspec.Struct, frozen=True):
    """Hold what happens to a reclaimed node, in seconds after the notice.

    Attributes:
        cordon, drain, removal: when it is cordoned, drained and gone.
        evicts: the drain evicts Pods; else the kubelet stops them, whatever their PodDisruptionBudgets say.
    """

    cordon: int
    drain: int
    removal: int
    evicts: bool = True


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """Hold the facts about one provider.

    Attributes:
        title: its name for people, e.g. ``CoreWeave CKS``.
        spot_labels: the labels of every spot node, the preferred one first; empty for CKS.
        spot_taints: the taints that the provider itself puts on spot nodes.
        spot_taint_patterns: the taints that mean spot: those, and the ones that the policies name.
        taints_declared_pools: the provider also puts one of them on the spot nodes of pools that users declare.
        pool_label: the key of the label that names a node's pool.
        other_pool_labels: the keys of others that do; Pods may select by them, and spotgate writes none of them.
        platform_taints: the taints that the provider itself puts on nodes of an architecture or operating system.
        forbidden_taints: the taints that must never be tolerated.
        passing_taints: those of them that are only there while a node begins or ends.
        gpu_taints: taints that keep Pods without GPUs off GPU nodes.
        automatic_gpu_taints: those that the provider itself puts on nodes with GPUs, as far as they are known whole.
        taints_gpus: the provider itself puts one of them on every node with GPUs.
        gpu_resources: extended resources that are GPUs.
        hands_off_schedulers: scheduler names whose Pods are never touched (SUNK).
        hands_off_selectors: keys of node labels; Pods that select by them are never touched (GKE's ComputeClasses).
        system_namespaces: names of the provider's own namespaces, which spotgate never touches.
        system_namespace_labels: labels of such namespaces.
        grace_budget: the most seconds that an ordinary Pod gets to stop.
        node_windows: the times that nodes with a label have instead.
        fallback: the fallbacks that its GPU spot pools need; empty if the policy decides.
        readers: one for each kind of its node pools.
    """

    name: str
    title: str
    spot_labels: tuple[Label, ...]
    spot_taints: tuple[Taint, ...]
    spot_taint_patterns: tuple[TaintPattern, ...]
    taints_declared_pools: bool
    pool_label: str
    other_pool_labels: tuple[str, ...]
    platform_taints: tuple[Taint, ...]
    forbidden_taints: tuple[TaintPattern, ...]
    passing_taints: tuple[TaintPattern, ...]
    gpu_taints: tuple[TaintPattern, ...]
    automatic_gpu_taints: tuple[GpuTaint, ...]
    taints_gpus: bool
    gpu_resources: Globs
    machines: Machines
    hands_off_schedulers: Globs
    hands_off_selectors: frozenset[str]
    system_namespaces: Globs
    system_namespace_labels: tuple[Label, ...]
    timeline: Interruption
    grace_budget: int
    safety_margin: int
    node_windows: tuple[NodeWindow, ...]
    fallback: tuple[FallbackNeed, ...]
    readers: tuple[PoolReader, ...]

    def owns_namespace(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a namespace with this name and these labels belongs to the provider itself."""
        return self.system_namespaces.match(name) or any(
            labels.get(each.key) == each.value for each in self.system_namespace_labels
        )

    def is_passing(self, taint: Taint) -> bool:
        """Return whether a taint is there only while a node begins, ends or is not well."""
        return is_passing(taint) or any(each.matches(taint) for each in self.passing_taints)

    def guards_accelerator(self, taint: Taint) -> bool:
        """Return whether a taint keeps Pods off that request no accelerator."""
        return any(each.matches(taint) for each in self.gpu_taints) or self.gpu_resources.match(taint.key)

    def serves(self, taint: Taint, requested: Collection[str]) -> bool:
        """Return whether a taint that guards an accelerator is for Pods that request these resources.

        A taint named after a resource is for that resource, and for others of its domain: ``nvidia.com/mig-1g.5gb``.
        """
        if not self.gpu_resources.match(taint.key):
            return bool(requested)
        domain = taint.key.partition("/")[0]
        return any(each.partition("/")[0] == domain for each in requested)

    def is_spot_node(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels is spot."""
        return any(labels.get(each.key) == each.value for each in self.spot_labels)

    @property
    def pool_labels(self) -> tuple[str, ...]:
        """The keys of all labels that name a node's pool."""
        return (self.pool_label, *self.other_pool_labels)

    @property
    def pools_are_here(self) -> bool:
        """Return whether the provider's node pools are objects in the cluster whose nodes they describe."""
        return any(
            reader.cluster is None and not reader.chosen_by and not reader.is_template for reader in self.readers
        )


class GpuTaint(msgspec.Struct, frozen=True):
    """Hold a taint that the provider puts on nodes with GPUs of these instance types; without types, on all of them."""

    taint: Taint
    types: Globs


class NodeWindow(msgspec.Struct, frozen=True):
    """Hold the time to stop on nodes with a label, and the safety margin to keep free of it, in seconds."""

    label: Label
    seconds: int
    margin: int


class TaintPattern(msgspec.Struct, frozen=True):
    """Match taints by key, and by value and effect where they are given."""

    key: str
    value: str = ""
    effect: str = ""

    def matches(self, taint: Taint) -> bool:
        """Return whether the taint matches this pattern."""
        return (
            taint.key == self.key
            and (not self.value or taint.value == self.value)
            and (not self.effect or taint.effect == self.effect)
        )


class ResourceReader(msgspec.Struct, frozen=True):
    """Hold all readers of one resource. Their conditions say which of them reads an object.

    Attributes:
        readers: at least one; those with a condition come first.
    """

    readers: tuple[PoolReader, ...]

    @property
    def any(self) -> PoolReader:
        """Return one of the readers: group, versions, kind and resource are the same for all."""
        return self.readers[-1]

    def of(self, value: Mapping[str, Any]) -> PoolReader:
        """Return the reader for an object: the first whose condition holds, else the last."""
        holding = (each for each in self.readers if each.when is None or each.when(value))
        return next(holding, self.any)

    def read(self, value: Mapping[str, Any]) -> Pool:
        """Return the pool that an object of this resource declares."""
        return self.of(value).read(value)


def readers_by_resource(providers: Iterable[Provider]) -> dict[tuple[str, str], ResourceReader]:
    """Return all readers by the API group and plural resource name of their node pools, sorted."""
    found: dict[tuple[str, str], list[PoolReader]] = {}
    for provider in providers:
        for reader in provider.readers:
            found.setdefault((reader.group, reader.resource), []).append(reader)
    return {
        key: ResourceReader(tuple(sorted(readers, key=lambda reader: reader.when is None)))
        for key, readers in sorted(found.items())
    }


def sizers_by_resource(providers: Iterable[Provider]) -> dict[tuple[str, str], tuple[Sizer, ...]]:
    """Return the resources that size pools without being one, by API group and plural resource name, sorted."""
    found: dict[tuple[str, str], list[Sizer]] = {}
    for provider in providers:
        for reader in provider.readers:
            if reader.sizer is not None:
                found.setdefault((reader.sizer.group, reader.sizer.resource), []).append(reader.sizer)
    return {key: tuple(sizers) for key, sizers in sorted(found.items())}


def pool_resources(providers: Collection[Provider]) -> list[Resource]:
    """Return the resources that are node pools, and those that size them."""
    sizers = (each[0] for each in sizers_by_resource(providers).values())
    readers = (each.any for each in readers_by_resource(providers).values())
    return [
        *(Resource(each.group, each.kind, each.resource, namespaced=True) for each in sizers),
        *(Resource(each.group, each.kind, each.resource, each.namespaced) for each in readers),
    ]

"""Derive the facts about a capacity provider from its ``CapacityProvider`` document."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import asdict

from webhook.capacity.providers.machines import Machines
from webhook.capacity.providers.pool import NODE_GROUP, Gpu, Pool, Taint
from webhook.capacity.providers.reader import PoolReader
from webhook.capacity.providers.reader_schema import CapacityReaderSpec, SizeReaderSpec
from webhook.capacity.providers.schema import CapacityProviderSpec, GpuTaintSpec, TaintPatternSpec
from webhook.capacity.providers.taints import is_passing, platform_of
from webhook.kube.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from webhook.capacity.providers.joins import Sizer


_R = TypeVar("_R", "PoolReader", "Sizer")


class Provider(CapacityProviderSpec, dict=True):
    """One provider: its document, and the facts derived from it.

    Attributes:
        taints_of_policies: the taints that policies declare as spot taints.
    """

    name: str
    taints_of_policies: tuple[TaintPatternSpec, ...] = ()

    @classmethod
    def of(
        cls, name: str, spec: CapacityProviderSpec, spot_taints: Sequence[TaintPatternSpec] = (), cluster: str = ""
    ) -> Provider:
        """Create the provider of a document.

        ``spot_taints`` are the spot taints that policies declare. ``cluster`` overrides the document's ``thisCluster``.
        """
        fields = {**asdict(spec), "this_cluster": cluster or spec.this_cluster}
        return cls(name=name, taints_of_policies=tuple(spot_taints), **fields)

    @cached_property
    def readers(self) -> tuple[PoolReader, ...]:
        """Return the readers of its node pools, and of the machine templates of the node pools."""
        readers: list[PoolReader] = []
        own = {"provider": self.name, "facts": self, "machines": self.machines}
        for spec in self.node_pools:
            fields = {**asdict(spec), **own}
            fields["namespaced"] = spec.namespaced or spec.listed_in is not None
            if spec.template is not None:
                fields["capacity"] = CapacityReaderSpec(values={}, default=spec.template.default)
            readers.append(PoolReader(**fields))
            for kind in spec.template.kinds if spec.template is not None else ():
                fields = {**asdict(kind), **own, "namespaced": spec.namespaced, "size": SizeReaderSpec()}
                readers.append(PoolReader(**fields, is_template=True))
        return tuple(readers)

    @cached_property
    def built_in_pools(self) -> tuple[Pool, ...]:
        """Return the pools that exist without an object."""
        objects = ((reader, name, spec) for reader in self.readers for name, spec in reader.built_in.items())
        return tuple(reader.read({"metadata": {"name": name}, "spec": spec}) for reader, name, spec in objects)

    @cached_property
    def machines(self) -> Machines:
        """Return the document's facts about machines."""
        return Machines(self)

    @cached_property
    def spot_taints(self) -> tuple[Taint, ...]:
        """Return the taints that the provider itself adds to spot nodes."""
        return tuple(spec.taint for spec in self.spot_node_taints)

    @cached_property
    def automatic_gpu_taints(self) -> tuple[GpuTaintSpec, ...]:
        """Return the taints that the provider itself adds to nodes with GPUs, if their effect is known."""
        return tuple(pattern for pattern in self.gpu.taints if pattern.automatic and pattern.effect)

    def means_spot(self, taint: Taint) -> bool:
        """Return whether the document (ignoring the effect) or a policy declares a taint as a spot taint."""
        own = any(taint.key == spec.key and spec.value in {"", taint.value} for spec in self.spot_node_taints)
        return own or any(pattern.matches(taint) for pattern in self.taints_of_policies)

    def is_forbidden(self, taint: Taint) -> bool:
        """Return whether Pods must never tolerate a taint."""
        return any(pattern.matches(taint) for pattern in self.never_tolerate if not pattern.passing)

    def owns_namespace(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a namespace with this name and these labels belongs to the provider."""
        own = self.system_namespaces
        return own.names.match(name) or any(labels.get(label.key) == label.value for label in own.labels)

    def is_passing(self, taint: Taint) -> bool:
        """Return whether a taint is temporary: the node is starting, stopping, or unhealthy."""
        return is_passing(taint) or any(pattern.matches(taint) for pattern in self.never_tolerate if pattern.passing)

    def platform_taints_of(self, labels: Mapping[str, str]) -> tuple[Taint, ...]:
        """Return the platform taints that the provider itself adds to nodes with these labels."""
        taints = (spec.taint for spec in self.platform_taints)
        return tuple(taint for taint in taints if (name := platform_of(taint)) and labels.get(name[0]) == name[1])

    def automatic_taints(self, pool: Pool, labels: Mapping[str, str]) -> Iterator[Taint]:
        """Yield the taints that the provider adds to a pool's nodes for their platform or their accelerators.

        Visible Nodes show all their taints. Nodes of an invisible pool, which has no kind, may have accelerators.
        """
        if pool.kind == NODE_GROUP:
            return
        guards = self.automatic_gpu_taints if (pool.gpu is Gpu.YES) is bool(pool.kind) else ()
        machines, keys = pool.instance_type.casefold(), {taint.key for taint in pool.taints}
        for taint in () if pool.bare else self.platform_taints_of(labels):
            if taint.key not in keys:
                yield taint
        for spec in guards:
            fits = not (pool.kind and spec.instance_types) or spec.instance_types.match(machines)
            if fits and spec.key not in keys:
                yield spec.taint

    def marks_of(self, pool: Pool) -> tuple[tuple[str, str], ...]:
        """Return the labels that distinguish spot nodes from other nodes of the same pool."""
        if not pool.marked:
            return pool.own_marks
        labels = [label for label in self.spot_node_labels if label.instead]
        instead = tuple((label.key, label.value) for label in labels if pool.labels.get(label.key) == label.value)
        return instead or tuple((label.key, label.value) for label in self.spot_node_labels if not label.instead)

    def guards_accelerator(self, taint: Taint) -> bool:
        """Return whether a taint repels Pods that request no accelerator."""
        return any(pattern.matches(taint) for pattern in self.gpu.taints) or self.gpu.resources.match(taint.key)

    def serves(self, taint: Taint, requested: Collection[str]) -> bool:
        """Return whether a taint that guards an accelerator is for Pods that request these resources or device classes.

        A taint with the name of a resource is for all resources of the same domain, such as ``nvidia.com/mig-1g.5gb``,
        and for device classes below it, such as ``gpu.nvidia.com``.
        """
        if not self.gpu.resources.match(taint.key):
            return bool(requested)
        domain = taint.key.partition("/")[0]
        domains = (resource.partition("/")[0] for resource in requested)
        return any(domain == other or other.endswith(f".{domain}") for other in domains)

    def offers(self, accelerator: str) -> bool:
        """Return whether nodes of the provider can have this resource, or devices of this class."""
        is_resource = "/" in accelerator  # a device class has a name like a DNS subdomain
        return (self.gpu.resources if is_resource else self.gpu.device_classes).match(accelerator)

    def is_spot_node(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels is spot."""
        return any(labels.get(label.key) == label.value for label in self.spot_node_labels)

    @cached_property
    def spot_values(self) -> dict[str, frozenset[str]]:
        """Return the values that only spot nodes have, by the key of their label."""
        labels = self.spot_node_labels
        return {key: frozenset(label.value for label in labels if label.key == key) for key in {x.key for x in labels}}

    @cached_property
    def pool_labels(self) -> tuple[str, ...]:
        """Return the keys of all labels that name a node's pool."""
        return tuple(filter(None, (self.pool_name_label, *self.other_pool_name_labels)))

    @cached_property
    def marks(self) -> frozenset[str]:
        """Return the keys of all labels that name a node's pool or mark spot nodes."""
        return frozenset((*self.pool_labels, *self.spot_values))

    @cached_property
    def node_keys(self) -> frozenset[str]:
        """Return the keys of the labels that show that a node belongs to the provider, on spot and on-demand nodes."""
        return frozenset((self.pool_name_label, *self.spot_values))

    @cached_property
    def pools_are_here(self) -> bool:
        """Return whether the provider's node pools are objects of the cluster that contains their nodes."""
        return any(not (reader.cluster or reader.chosen_by or reader.is_template) for reader in self.readers)


class ResourceReader(msgspec.Struct, frozen=True):
    """All readers of one resource. Their conditions determine which one reads an object.

    Attributes:
        readers: at least one reader; readers with a condition come first.
    """

    readers: tuple[PoolReader, ...]

    @property
    def any(self) -> PoolReader:
        """Return one of the readers, for the fields that all have in common: group, versions, kind, and resource."""
        return self.readers[-1]

    def of(self, value: Mapping[str, Any]) -> PoolReader:
        """Return the reader for an object: the first reader whose condition holds, or else the last reader."""
        holding = (reader for reader in self.readers if reader.when is None or reader.when(value))
        return next(holding, self.any)

    def read(self, value: Mapping[str, Any]) -> Pool:
        """Return the pool that an object of this resource declares."""
        return self.of(value).read(value)

    def known(self, pools: Iterable[Pool] | None, namespace: str, name: str) -> Pool | None:
        """Return the one of these pools that the object with this name declares."""
        identities = {(reader.provider, reader.kind, namespace, name) for reader in self.readers}
        return next((pool for pool in pools or () if pool.identity in identities), None)


def readers_by_resource(providers: Iterable[Provider]) -> dict[tuple[str, str], ResourceReader]:
    """Return all readers by the API group and plural resource name of their node pools, sorted."""
    by_resource = _by_resource(reader for provider in providers for reader in provider.readers)
    return {
        key: ResourceReader(tuple(sorted(readers, key=lambda reader: reader.when is None)))
        for key, readers in by_resource.items()
    }


def sizers_by_resource(providers: Iterable[Provider]) -> dict[tuple[str, str], tuple[Sizer, ...]]:
    """Return all readers of pool sizes by the API group and plural resource name of the sizing objects, sorted."""
    sizers = (reader.sizer for provider in providers for reader in provider.readers)
    return {key: tuple(group) for key, group in _by_resource(filter(None, sizers)).items()}


def _by_resource(items: Iterable[_R]) -> dict[tuple[str, str], list[_R]]:
    by_resource: dict[tuple[str, str], list[_R]] = {}
    for item in items:
        by_resource.setdefault((item.group, item.resource), []).append(item)
    return dict(sorted(by_resource.items()))


def pool_resources(providers: Collection[Provider]) -> list[Resource]:
    """Return the resources of node pools, and the resources that size node pools."""
    sizers = (group[0] for group in sizers_by_resource(providers).values())
    readers = (group.any for group in readers_by_resource(providers).values())
    return [
        *(Resource(sizer.group, sizer.kind, sizer.resource, namespaced=True) for sizer in sizers),
        *(Resource(reader.group, reader.kind, reader.resource, reader.namespaced) for reader in readers),
    ]

"""What a machine is, by its instance type or by requirements on its labels: has it GPUs, can it be spot?"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.providers.pool import Gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.requirements import LabelValues, Requirements
    from webhook.globs import Globs

TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"

_NO_GPUS: Final = "0"
"""The value of a label that counts GPUs where there are none."""


class GpuLists(msgspec.Struct, frozen=True):
    """Instance types (or machine families, or categories) by what they have; one that is in neither is unknown."""

    gpu: Globs
    cpu: Globs

    def classify(self, name: str) -> Gpu:
        """GPU, no GPU, or unknown; letter case does not matter."""
        name = name.casefold()
        if self.gpu.match(name):
            return Gpu.YES
        return Gpu.NO if self.cpu.match(name) else Gpu.UNKNOWN


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider's document says of its machines.

    Attributes:
        types: instance types.
        never_spot: instance types that can't be spot.
        labels: node labels that name the type, family or category of a machine, and what their values say.
        gpu_labels: keys of labels that only nodes with GPUs have.
        domains: of the labels that describe machines: ``karpenter.k8s.aws``.
        other_labels: labels of these domains that say nothing of GPUs; empty: nobody has listed them.
    """

    types: GpuLists
    never_spot: Globs
    labels: tuple[tuple[str, GpuLists], ...]
    gpu_labels: Globs
    domains: frozenset[str]
    other_labels: frozenset[str]

    def classify(self, instance_types: Iterable[str]) -> Gpu:
        """What machines of these types have: ``any`` where some have GPUs and others none."""
        found = {self.types.classify(each) for each in instance_types}
        if Gpu.UNKNOWN in found or not found:
            return Gpu.UNKNOWN
        return found.pop() if len(found) == 1 else Gpu.ANY

    def unlisted(self, pool: Pool) -> tuple[str, ...]:
        """The instance types that are in no list, where for that nobody knows whether the pool has GPUs."""
        if pool.gpu is not Gpu.UNKNOWN or not pool.instance_type:
            return ()
        return tuple(each for each in pool.instance_type.split(", ") if self.types.classify(each) is Gpu.UNKNOWN)

    def unlisted_labels(self, pool: Pool) -> tuple[tuple[str, str], ...]:
        """The same of families and categories that it requires: key and value."""
        if pool.gpu is not Gpu.UNKNOWN or pool.requirements is None:
            return ()
        return tuple(
            (key, value)
            for key, kinds in self.labels
            for value in sorted(pool.requirements.of(key).values or ())
            if key != TYPE_LABEL and kinds.classify(value) is Gpu.UNKNOWN
        )

    def strange_labels(self, requirements: Requirements) -> tuple[str, ...]:
        """Keys in the domains of labels that describe machines, which are in no list."""
        known = self.known_labels
        return tuple(
            sorted(
                key
                for key in requirements.labels
                if self.other_labels
                and key.partition("/")[0] in self.domains
                and key not in known
                and not self.gpu_labels.match(key)
            )
        )

    @property
    def known_labels(self) -> frozenset[str]:
        """Keys of labels that describe machines, but for those of GPUs."""
        return self.other_labels.union(key for key, _ in self.labels)

    def superchip(self, instance_types: Iterable[str]) -> bool:
        """Is there a type among these, and can none of them be spot?"""
        types = list(instance_types)
        return bool(types) and all(self.never_spot.match(each.casefold()) for each in types)

    def described(self, requirements: Requirements) -> tuple[tuple[str, LabelValues], ...]:
        """What is required of the labels that describe machines, by key: those of the domains of labels known here."""
        described = (
            (key, values)
            for key, values in requirements.labels.items()
            if key == TYPE_LABEL or key.partition("/")[0] in self.domains
        )
        return tuple(sorted(described, key=itemgetter(0)))

    def named_gpus(self, requirements: Requirements) -> tuple[str, ...]:
        """What has GPUs among the types, families and categories that requirements list."""
        listed = ((kinds, value) for key, kinds in self.labels for value in requirements.of(key).values or ())
        return tuple(sorted({value for kinds, value in listed if kinds.classify(value) is Gpu.YES}))

    def required(self, requirements: Requirements) -> Gpu:
        """What machines have that meet requirements; unknown also where none can."""
        gpu = cpu = True
        for may_gpu, may_cpu in self._answers(requirements):
            if may_gpu is None:
                return Gpu.UNKNOWN
            gpu, cpu = gpu and may_gpu, cpu and may_cpu
        if gpu and cpu:
            return Gpu.ANY
        if gpu or cpu:
            return Gpu.YES if gpu else Gpu.NO
        return Gpu.UNKNOWN

    def _answers(self, requirements: Requirements) -> Iterator[tuple[bool | None, bool]]:
        """For each label that says something: may the machines have GPUs, may they have none? None: nobody knows."""
        for key, kinds in self.labels:
            if requirements.is_unreadable(key):
                yield None, False
            elif key in requirements.labels:
                yield _by_kind(requirements.of(key), kinds)
        for key in {*requirements.labels, *filter(None, requirements.unreadable)}:
            if not self.gpu_labels.match(key):
                continue
            if requirements.is_unreadable(key):
                yield None, False
            else:
                values = requirements.of(key)
                yield _has_gpus(values), values.admits_none


def _by_kind(values: LabelValues, kinds: GpuLists) -> tuple[bool | None, bool]:
    listed = values.values
    if listed is None:
        # All kinds of machines that there are, but for those that are excluded.
        excluded = {each.casefold() for each in values.excluded}
        return any(set("*?[") & set(each) or each not in excluded for each in kinds.gpu.patterns), True
    found = {kinds.classify(each) for each in listed}
    if Gpu.UNKNOWN in found:
        return None, False
    return Gpu.YES in found, Gpu.NO in found


def _has_gpus(values: LabelValues) -> bool:
    listed = values.values
    return values.admits_some if listed is None else bool(listed - {_NO_GPUS})

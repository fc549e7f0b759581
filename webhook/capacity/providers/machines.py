"""Tell by instance type, or by requirements on labels, whether a machine has GPUs and can be spot."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.providers.pool import Gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.capacity.providers.pool import Pool
    from webhook.capacity.providers.requirements import LabelValues, Requirements
    from webhook.globs import Globs

TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"

_NO_GPUS: Final = "0"
"""The value of a label that counts GPUs where there are none."""


class GpuLists(msgspec.Struct, frozen=True):
    """List instance types, machine families or categories with GPUs, and those without."""

    gpu: Globs
    cpu: Globs

    def classify(self, name: str) -> Gpu:
        """Return whether a machine of this name has GPUs; unknown if it is in no list. Letter case does not matter."""
        name = name.casefold()
        if self.gpu.match(name):
            return Gpu.YES
        return Gpu.NO if self.cpu.match(name) else Gpu.UNKNOWN


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what a provider's document says about its machines.

    Attributes:
        types: which instance types have GPUs.
        arm: the instance types of architecture arm64; empty if they are not listed.
        arm_labels: the node labels that name a machine's type or family, and the values of architecture arm64.
        never_spot: the instance types that can't be spot.
        labels: the node labels that name the type, family or category of a machine, and which values have GPUs.
        gpu_labels: the keys of labels that only nodes with GPUs have.
        domains: the domains of labels that describe machines: ``karpenter.k8s.aws``.
        other_labels: the labels of these domains that do not tell of GPUs; empty if they are not listed.
        allocatable: what a node of an instance type offers, by resource, as far as it is listed.
    """

    types: GpuLists
    arm: Globs
    arm_labels: tuple[tuple[str, Globs], ...]
    never_spot: Globs
    labels: tuple[tuple[str, GpuLists], ...]
    gpu_labels: Globs
    domains: frozenset[str]
    other_labels: frozenset[str]
    allocatable: Mapping[str, Mapping[str, str]]

    def classify(self, instance_types: Iterable[str]) -> Gpu:
        """Return whether machines of these types have GPUs: ``any`` if some do and others do not."""
        found = {self.types.classify(each) for each in instance_types}
        if Gpu.UNKNOWN in found or not found:
            return Gpu.UNKNOWN
        return found.pop() if len(found) == 1 else Gpu.ANY

    def architecture(self, instance_types: Iterable[str]) -> str:
        """Return the architecture of all of these types. Return an empty string if it is unknown, or not one."""
        types = [each.casefold() for each in instance_types]
        found = {"arm64" if self.arm.match(each) else "amd64" for each in types if self.arm}
        known = all(self.types.classify(each) is not Gpu.UNKNOWN or self.arm.match(each) for each in types)
        return found.pop() if len(found) == 1 and known else ""

    def only_arm(self, requirements: Requirements) -> bool:
        """Return whether a required type or family leaves only machines of architecture arm64."""
        listed = ((arm, requirements.of(key).values) for key, arm in self.arm_labels)
        return any(values and all(arm.match(each.casefold()) for each in values) for arm, values in listed)

    def unlisted(self, pool: Pool) -> tuple[str, ...]:
        """Return the instance types in no list that leave it unknown whether the pool has GPUs."""
        if pool.gpu is not Gpu.UNKNOWN or not pool.instance_type:
            return ()
        return tuple(each for each in pool.instance_type.split(", ") if self.types.classify(each) is Gpu.UNKNOWN)

    def unlisted_labels(self, pool: Pool) -> tuple[tuple[str, str], ...]:
        """Return the key and value of each required family or category in no list that leaves the same unknown."""
        if pool.gpu is not Gpu.UNKNOWN or pool.requirements is None:
            return ()
        return tuple(
            (key, value)
            for key, kinds in self.labels
            for value in sorted(pool.requirements.of(key).values or ())
            if key != TYPE_LABEL and kinds.classify(value) is Gpu.UNKNOWN
        )

    def unknown_labels(self, requirements: Requirements) -> tuple[str, ...]:
        """Return the required keys in the domains of machine labels that are in no list."""
        if not self.other_labels:
            return ()
        known = self.other_labels.union(key for key, _ in self.labels)
        own = (key for key in requirements.labels.keys() - known if key.partition("/")[0] in self.domains)
        return tuple(sorted(key for key in own if not self.gpu_labels.match(key)))

    def superchip(self, instance_types: Iterable[str]) -> bool:
        """Return whether there are types and none of them can be spot."""
        types = list(instance_types)
        return bool(types) and all(self.never_spot.match(each.casefold()) for each in types)

    def described(self, requirements: Requirements) -> tuple[tuple[str, LabelValues], ...]:
        """Return the requirements on labels in the domains that describe machines, sorted by key."""
        described = (
            (key, values)
            for key, values in requirements.labels.items()
            if key == TYPE_LABEL or key.partition("/")[0] in self.domains
        )
        return tuple(sorted(described, key=itemgetter(0)))

    def named_gpus(self, requirements: Requirements) -> tuple[str, ...]:
        """Return the types, families and categories with GPUs that the requirements list."""
        listed = ((kinds, value) for key, kinds in self.labels for value in requirements.of(key).values or ())
        return tuple(sorted({value for kinds, value in listed if kinds.classify(value) is Gpu.YES}))

    def required(self, requirements: Requirements) -> Gpu:
        """Return whether machines that meet the requirements have GPUs; unknown also if no machine can meet them."""
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
        """Yield for each label whether the machines may have GPUs (None if unknown), and whether they may have none."""
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
        # All names except the excluded ones are possible.
        excluded = {each.casefold() for each in values.excluded}
        return any(set("*?[") & set(each) or each not in excluded for each in kinds.gpu.patterns), True
    found = {kinds.classify(each) for each in listed}
    if Gpu.UNKNOWN in found:
        return None, False
    return Gpu.YES in found, Gpu.NO in found


def _has_gpus(values: LabelValues) -> bool:
    listed = values.values
    return values.admits_some if listed is None else bool(listed - {_NO_GPUS})

"""Determine from instance types and label requirements whether machines have GPUs and can be spot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.capacity.providers.pool import Gpu, Pool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.capacity.providers.requirements import LabelValues, Requirements
    from webhook.capacity.providers.schema import CapacityProviderSpec, GpuListsSpec

TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"

_NO_GPUS: Final = "0"
"""The value of a GPU count label on a machine without GPUs."""


def classify(lists: GpuListsSpec, name: str) -> Gpu:
    """Return whether a machine of this name has GPUs. Return unknown if no list contains it. Ignore letter case."""
    name = name.casefold()
    if lists.gpu.match(name):
        return Gpu.YES
    return Gpu.NO if lists.cpu.match(name) else Gpu.UNKNOWN


class Machines:
    """The facts about machines in a provider's document."""

    def __init__(self, facts: CapacityProviderSpec) -> None:
        types = facts.instance_types
        named = {label.key: label if label.gpu or label.cpu else types for label in facts.machine_labels}
        self._types = types
        self._labels: Mapping[str, GpuListsSpec] = {TYPE_LABEL: types, **named}
        self._arm_labels = tuple((label.key, label.arm) for label in facts.machine_labels if label.arm)
        self._gpu_labels = facts.gpu.labels
        self._domains = frozenset(label.key.partition("/")[0] for label in facts.machine_labels)
        self._other_labels = frozenset(facts.other_machine_labels)
        marks = (facts.pool_name_label, *(mark.key for mark in facts.spot_node_labels))
        known = (*self._labels, *self._other_labels, *marks)
        self.label_keys: Final = frozenset(known)
        """The keys of the labels in the document that describe machines, the pool, or spot."""
        self.label_domains: Final = frozenset(key.rpartition("/")[0] for key in known if key != TYPE_LABEL) - {""}
        """The domains of these labels, which may have more labels of this type."""

    def classify(self, instance_types: Iterable[str]) -> Gpu:
        """Return whether machines of these types have GPUs. Return ``any`` if only some of them do."""
        answers = {classify(self._types, name) for name in instance_types}
        if Gpu.UNKNOWN in answers or not answers:
            return Gpu.UNKNOWN
        return answers.pop() if len(answers) == 1 else Gpu.ANY

    def architecture(self, instance_types: Iterable[str], requirements: Requirements) -> str:
        """Return the architecture of all machines of these types that meet the requirements.

        Return an empty string if it is unknown or if machines differ.
        """
        of_labels = ((arm, requirements.of(key).values) for key, arm in self._arm_labels)
        if any(values and all(arm.match(value.casefold()) for value in values) for arm, values in of_labels):
            return "arm64"
        types = [name.casefold() for name in instance_types]
        architectures = {"arm64" if self._types.arm.match(name) else "amd64" for name in types if self._types.arm}
        known = all(classify(self._types, name) is not Gpu.UNKNOWN or self._types.arm.match(name) for name in types)
        return architectures.pop() if len(architectures) == 1 and known else ""

    def unlisted(self, pool: Pool) -> tuple[str, ...]:
        """Return the unlisted instance types, if it is unknown whether the pool has GPUs because of them."""
        if pool.gpu is not Gpu.UNKNOWN or not pool.instance_type:
            return ()
        return tuple(name for name in pool.instance_type.split(", ") if classify(self._types, name) is Gpu.UNKNOWN)

    def unlisted_labels(self, pool: Pool) -> tuple[tuple[str, str], ...]:
        """Return the unlisted labels, as key and value, if it is unknown whether the pool has GPUs because of them."""
        if pool.gpu is not Gpu.UNKNOWN or pool.requirements is None:
            return ()
        return tuple(
            (key, value)
            for key, kinds in self._labels.items()
            for value in sorted(pool.requirements.of(key).values or ())
            if key != TYPE_LABEL and classify(kinds, value) is Gpu.UNKNOWN
        )

    def unknown_labels(self, requirements: Requirements) -> tuple[str, ...]:
        """Return the required keys in machine label domains that the document doesn't list."""
        if not self._other_labels:
            return ()
        known = self._other_labels.union(self._labels)
        own = (key for key in requirements.labels.keys() - known if key.partition("/")[0] in self._domains)
        return tuple(sorted(key for key in own if not self._gpu_labels.match(key)))

    def never_spot(self, instance_types: Iterable[str]) -> bool:
        """Return whether there is at least one type, and no type can be spot."""
        types = list(instance_types)
        return bool(types) and all(self._types.never_spot.match(name.casefold()) for name in types)

    def described(self, requirements: Requirements) -> tuple[tuple[str, LabelValues], ...]:
        """Return the requirements on labels in the domains that describe machines, sorted by key."""
        keys = (key for key in requirements.labels if key == TYPE_LABEL or key.partition("/")[0] in self._domains)
        return tuple((key, requirements.labels[key]) for key in sorted(keys))

    def named_gpus(self, requirements: Requirements) -> tuple[str, ...]:
        """Return the types, families, and categories with GPUs that the requirements list."""
        listed = ((kinds, value) for key, kinds in self._labels.items() for value in requirements.of(key).values or ())
        return tuple(sorted({value for kinds, value in listed if classify(kinds, value) is Gpu.YES}))

    def gpus_of(self, requirements: Requirements) -> Gpu:
        """Return whether machines that meet the requirements have GPUs. Return unknown also if no machine can."""
        gpu = cpu = True
        for may_gpu, may_cpu in self._answers(requirements):
            if may_gpu is None:
                return Gpu.UNKNOWN
            gpu, cpu = gpu and may_gpu, cpu and may_cpu
        return {(True, True): Gpu.ANY, (True, False): Gpu.YES, (False, True): Gpu.NO}.get((gpu, cpu), Gpu.UNKNOWN)

    def _answers(self, requirements: Requirements) -> Iterator[tuple[bool | None, bool]]:
        """Yield for each label whether the machines may have GPUs (None if unknown), and whether they may have none."""
        for key, kinds in self._labels.items():
            if requirements.is_unreadable(key):
                yield None, False
            elif key in requirements.labels:
                yield _by_kind(requirements.of(key), kinds)
        for key in {*requirements.labels, *filter(None, requirements.unreadable)}:
            if not self._gpu_labels.match(key):
                continue
            if requirements.is_unreadable(key):
                yield None, False
            else:
                values = requirements.of(key)
                listed = values.values
                yield values.admits_some if listed is None else bool(listed - {_NO_GPUS}), values.admits_none


def _by_kind(values: LabelValues, kinds: GpuListsSpec) -> tuple[bool | None, bool]:
    listed = values.values
    if listed is None:
        # All names except the excluded ones are possible.
        excluded = {name.casefold() for name in values.excluded}
        return any(set("*?[") & set(pattern) or pattern not in excluded for pattern in kinds.gpu.patterns), True
    answers = {classify(kinds, name) for name in listed}
    if Gpu.UNKNOWN in answers:
        return None, False
    return Gpu.YES in answers, Gpu.NO in answers

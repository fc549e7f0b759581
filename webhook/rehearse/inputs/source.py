"""The objects of a cluster, from files or from the cluster itself, with changes merged into them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from webhook.base.exits import CannotJudgeError
from webhook.model.patch import merge_patch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from webhook.capacity.providers.pool import Pool
    from webhook.inputs.objects import Manifest

WorkloadIdentity = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSource:
    """The objects of a cluster.

    Attributes:
        manifests: the objects.
        live: whether they come from a live cluster. If so, only new pools get Nodes, and no StorageClass is added.
        notes: the resources that couldn't be read, one sentence each.
        version: the version of the API server; None if there is none.
        new: the kind, namespace, and name of objects that changes added.
        rolled_out: the kind, namespace, and name of workloads whose pod template changed.
    """

    manifests: Sequence[Manifest]
    live: bool = False
    notes: Sequence[str] = ()
    version: str | None = None
    new: frozenset[WorkloadIdentity] = frozenset()
    rolled_out: frozenset[WorkloadIdentity] = frozenset()

    def has_added(self, pool: Pool) -> bool:
        """Return whether a change added the pool."""
        return (pool.kind, pool.namespace or "default", pool.name) in self.new

    def with_changes(self, changes: Iterable[Manifest]) -> ClusterSource:
        """Return the cluster after changes. Each change is a merge patch of an existing object, or a new object."""
        manifests = {key_of(manifest): manifest for manifest in self.manifests}
        new, rolled_out = set(self.new), set(self.rolled_out)
        for change in changes:
            key = key_of(change)
            before = manifests.get(key)
            if before is None:
                manifests[key] = change
                new.add(key[1:])
                continue
            after = merge_patch(before.value, change.value)
            if generation := after["metadata"].get("generation"):  # else observedGeneration already covers the change
                after["metadata"] = {**after["metadata"], "generation": generation + 1}
            manifests[key] = structs.replace(before, value=after)
            if (after.get("spec") or {}).get("template") != (before.value.get("spec") or {}).get("template"):
                rolled_out.add(key[1:])
        return replace(self, manifests=[*manifests.values()], new=frozenset(new), rolled_out=frozenset(rolled_out))


def key_of(manifest: Manifest) -> tuple[str, str, str, str]:
    """Return the group, kind, namespace, and name of an object. An object without a name gets a unique key."""
    name = manifest.name or f"#{id(manifest)}"
    return (manifest.group, manifest.kind, manifest.namespace or "default", name)


def without_repeats(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the objects without duplicates. Raise CannotJudgeError if two objects with the same key differ."""
    unique: dict[tuple[str, ...], Manifest] = {}
    for manifest in manifests:
        first = unique.setdefault(key_of(manifest), manifest)
        if first.value != manifest.value:
            raise CannotJudgeError(
                f"{manifest.file}:{manifest.line}: {manifest.kind} {manifest.name} is defined twice, also at "
                f"{first.file}:{first.line}: remove or rename one of them"
            )
    return list(unique.values())

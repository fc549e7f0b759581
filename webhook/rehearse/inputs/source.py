"""The objects that describe a cluster, from files or as read from it, with changes merged into them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from webhook.base.exits import CannotJudgeError
from webhook.documents.model import merge_patch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from webhook.capacity.providers.pool import Pool
    from webhook.offline.manifests.objects import Manifest

WorkloadIdentity = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSource:
    """The objects that describe a cluster.

    Attributes:
        manifests: the objects.
        live: they were read from a cluster: only new pools get Nodes, and no StorageClass is made.
        notes: what could not be read, a sentence each.
        version: of its API server; None if there is none.
        new: the objects that changes have added, by kind, namespace and name.
        rolled_out: the workloads whose pod template was changed, by the same.
    """

    manifests: Sequence[Manifest]
    live: bool = False
    notes: Sequence[str] = ()
    version: str | None = None
    new: frozenset[WorkloadIdentity] = frozenset()
    rolled_out: frozenset[WorkloadIdentity] = frozenset()

    def has_added(self, pool: Pool) -> bool:
        """Return whether a change has added a pool."""
        return (pool.kind, pool.namespace or "default", pool.name) in self.new

    def with_changes(self, changes: Iterable[Manifest]) -> ClusterSource:
        """Return the cluster after changes: each is merged into the object that is there, as a patch, or is new."""
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
            if generation := after["metadata"].get("generation"):  # else its controller seems to have seen the change
                after["metadata"] = {**after["metadata"], "generation": generation + 1}
            manifests[key] = structs.replace(before, value=after)
            if (after.get("spec") or {}).get("template") != (before.value.get("spec") or {}).get("template"):
                rolled_out.add(key[1:])
        return replace(self, manifests=[*manifests.values()], new=frozenset(new), rolled_out=frozenset(rolled_out))


def key_of(manifest: Manifest) -> tuple[str, str, str, str]:
    """Return the group, kind, namespace and name of an object; one without a name is like no other."""
    name = manifest.name or f"#{id(manifest)}"
    return (manifest.group, manifest.kind, manifest.namespace or "default", name)


def without_repeats(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the objects, one of those that are alike. Raise CannotJudgeError if two of the same name differ."""
    kept: dict[tuple[str, ...], Manifest] = {}
    for manifest in manifests:
        there = kept.setdefault(key_of(manifest), manifest)
        if there.value != manifest.value:
            raise CannotJudgeError(
                f"{manifest.file}:{manifest.line}: {manifest.kind} {manifest.name} is there twice, also at "
                f"{there.file}:{there.line}: leave out one of them, or rename it"
            )
    return list(kept.values())

"""The resource of a kind, where there is no API server to ask."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from webhook.capacity.providers.provider import pool_resources
from webhook.kube.resources import CRD_GROUP, CRD_KIND, Resource, resource_of, resource_of_crd

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.bundle import Bundle
    from webhook.manifests.objects import Manifest


_ALIKE: Final = 0.75
"""Likeness from which a group counts as misspelt: ``karpenter.io`` does, another project's group does not."""


class ResourceKinds:
    """Hold the resources of built-in kinds, node pools, workloads, CRDs among the manifests, and given ones."""

    def __init__(self, bundle: Bundle, manifests: Iterable[Manifest], given: Iterable[Resource] = ()) -> None:
        workloads = bundle.index.workloads.values()
        crds = (each.value for each in manifests if (each.group, each.kind) == (CRD_GROUP, CRD_KIND))
        self._known = {
            (each.group, each.kind): each
            for each in (
                *pool_resources(bundle.providers.values()),
                *(Resource(each.group, each.kind, each.resource, namespaced=each.namespaced) for each in workloads),
                *filter(None, map(resource_of_crd, crds)),
                *given,
            )
        }
        self._workloads = {each.kind: f"{each.group}/..." for each in workloads if each.group}
        self._readers = bundle.readers

    def resource(self, manifest: Manifest) -> Resource | None:
        """Return the resource of an object, or None if it is unknown."""
        return resource_of(manifest.group, manifest.kind) or self._known.get((manifest.group, manifest.kind))

    def meant(self, manifest: Manifest) -> list[str]:
        """Return the apiVersions that may be meant in place of an unknown one.

        In the core group: that of a workload, or those of node pools of this kind, if possible with the fields that the
        object has. In another group: that of a node pool of this kind whose group is much like it.
        """
        readers = [each for each in self._readers if each.kind == manifest.kind]
        if manifest.group:
            close = get_close_matches(manifest.group, {each.group for each in readers}, n=1, cutoff=_ALIKE)
            return sorted({f"{each.group}/{each.versions[0]}" for each in readers if each.group in close})
        fitting = [each for each in readers if each.capacity_query(manifest.value)] or readers
        if pools := {f"{each.group}/{each.versions[0]}" for each in fitting}:
            return sorted(pools)
        return [self._workloads[manifest.kind]] if manifest.kind in self._workloads else []

    def as_meant(self, manifest: Manifest) -> Manifest:
        """Return the object; if its kind is unknown and only one apiVersion can be meant, with that one."""
        if self.resource(manifest) is not None or len(meant := self.meant(manifest)) != 1:
            return manifest
        return replace(manifest, api_version=meant[0])

    def pools(self, kind: str) -> list[str]:
        """Return the apiVersions of node pools of this kind."""
        return sorted({f"{each.group}/{each.versions[0]}" for each in self._readers if each.kind == kind})

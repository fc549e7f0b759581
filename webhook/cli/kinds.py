"""Which resource a kind is, where there is no API server to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.kube.resources import CRD_GROUP, CRD_KIND, Resource, resource_of, resource_of_crd

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.bundle import Bundle
    from webhook.cluster.manifests import Manifest


class Kinds:
    """The built-in kinds, those of node-pool readers and pod templates, and those of CRDs among the manifests."""

    def __init__(self, bundle: Bundle, manifests: Iterable[Manifest]) -> None:
        workloads = bundle.index.workloads.values()
        crds = (each.value for each in manifests if (each.group, each.kind) == (CRD_GROUP, CRD_KIND))
        self._known = {
            (each.group, each.kind): each
            for each in (
                *(Resource(each.group, each.kind, each.resource, each.namespaced) for each in bundle.readers),
                *(Resource(each.group, each.kind, each.resource, namespaced=True) for each in workloads),
                *filter(None, map(resource_of_crd, crds)),
            )
        }
        self._api_versions = {each.kind: f"{each.group}/..." for each in workloads if each.group} | {
            each.kind: f"{each.group}/{each.versions[0]}" for each in bundle.readers
        }

    def resource(self, manifest: Manifest) -> Resource | None:
        """The resource of an object; None: nothing says."""
        return resource_of(manifest.group, manifest.kind) or self._known.get((manifest.group, manifest.kind))

    def meant(self, manifest: Manifest) -> str:
        """The apiVersion that was meant instead of the core group's, which holds no kinds but the built-in ones.

        Empty where none is known.
        """
        return "" if manifest.group else self._api_versions.get(manifest.kind, "")

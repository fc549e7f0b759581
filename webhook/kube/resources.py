"""Map kinds to resources. Manifests name kinds, while the API server and policies name resources.

A cluster returns its mapping in discovery. Without a cluster, spotgate maps built-in kinds and the manifests' CRDs.

Source: discovery of Kubernetes 1.37 with every API enabled, and the kinds in k8s.io/api behind a feature gate.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

CRD_GROUP: Final = "apiextensions.k8s.io"
CRD_KIND: Final = "CustomResourceDefinition"
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label that the API server sets on each Namespace. Its value is the name of the Namespace."""


class Resource(msgspec.Struct, frozen=True):
    """A resource that the API server serves.

    Attributes:
        plural: the resource name, such as ``nodepools``.
    """

    group: str
    kind: str
    plural: str
    namespaced: bool


def resource_of(group: str, kind: str) -> Resource | None:
    """Return the built-in resource of a kind, or None for any other kind."""
    return _BUILT_IN.get((group, kind))


def resource_named(group: str, plural: str) -> Resource | None:
    """Return the built-in resource with this name, or None."""
    return _BY_NAME.get((group, plural))


def built_in_resources(group: str) -> list[Resource]:
    """Return the built-in resources of an API group, or of all groups for ``*``."""
    return [resource for resource in _BY_NAME.values() if group in {"*", resource.group}]


def versions_of(group: str, plural: str) -> frozenset[str]:
    """Return the versions in which current Kubernetes releases serve a built-in resource.

    For ``*``, return the versions of all resources in the group. Return an empty set if versions still change.
    """
    if plural != "*":
        resource = _BY_NAME[group, plural]
        settled = _DISCOVERY.versions.get(group, frozenset({"v1"}))
        return frozenset() if resource.kind in _DISCOVERY.unsettled else settled
    versions = [versions_of(group, resource.plural) for resource in built_in_resources(group)]
    return frozenset().union(*versions) if all(versions) else frozenset()


def groups_with(plural: str) -> list[str]:
    """Return the built-in API groups that have a resource with this name."""
    return [group for group, name in _BY_NAME if name == plural]


def resource_of_crd(crd: Mapping[str, Any]) -> Resource | None:
    """Return the resource that a CustomResourceDefinition defines, or None if the document is incomplete."""
    match crd:
        case {
            "spec": {"group": str(group), "scope": str(scope), "names": {"kind": str(kind), "plural": str(plural)}}
        } if group and kind and plural:
            return Resource(group, kind, plural, scope == "Namespaced")
    return None


class _Discovery(msgspec.Struct, frozen=True, rename="camel"):
    """The built-in kinds by API group, from discovery: ``resources.json``.

    Attributes:
        versions: served versions of the groups that don't serve only v1.
        unsettled: kinds that current or recent releases serve in alpha or beta versions.
    """

    namespaced: dict[str, tuple[str, ...]]
    cluster_scoped: dict[str, tuple[str, ...]]
    versions: dict[str, frozenset[str]]
    unsettled: frozenset[str]


_DISCOVERY: Final = msgspec.json.decode(Path(__file__).with_name("resources.json").read_bytes(), type=_Discovery)

BUILT_IN_GROUPS: Final = frozenset(_DISCOVERY.namespaced) | _DISCOVERY.cluster_scoped.keys()
"""The built-in API groups of Kubernetes, all of whose resources are known."""


def plural_of(kind: str) -> str:
    """Return the resource name of a kind by the rules of English. Of the built-in kinds, only Endpoints differs."""
    name = kind.lower()
    if name == "endpoints":
        return name
    if name.endswith(("s", "x", "ch", "sh")):
        return f"{name}es"
    return f"{name[:-1]}ies" if name.endswith("y") and name[-2:-1] not in "aeiou" else f"{name}s"


REMOVED_GROUPS: Final = frozenset({"auditregistration.k8s.io", "extensions", "settings.k8s.io"})
"""Former API groups of Kubernetes that no current version serves."""

_BUILT_IN: Final = {
    (group, kind): Resource(group, kind, plural_of(kind), namespaced)
    for table, namespaced in ((_DISCOVERY.namespaced, True), (_DISCOVERY.cluster_scoped, False))
    for group, kinds in table.items()
    for kind in kinds
}

_BY_NAME: Final = {(resource.group, resource.plural): resource for resource in _BUILT_IN.values()}

"""Custom resources whose objects own Pods, such as CloneSets: of each as much as its scale subresource shows.

The disruption controller asks it how many Pods an owner wants: without, a budget in percent allows no eviction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cli.rehearse.inputs.resources import (
    BY_NAME,
    CUSTOM_RESOURCE_DEFINITION,
    POD,
    RehearsedKind,
    controller_of,
    group_kind_of,
)
from webhook.kube.disruption import KIND as BUDGET
from webhook.kube.disruption import budget_from

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from webhook.cli.rehearse.inputs.resources import JSON, GroupKind

_KEPT: Final = ("name", "namespace", "uid", "creationTimestamp")
_ANYTHING: Final = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
_STATUS: Final = [{"type": each, "status": "True"} for each in ("NamesAccepted", "Established")]


class _Subresources(msgspec.Struct):
    scale: dict[str, str] | None = None


class _Version(msgspec.Struct):
    name: str
    served: bool
    storage: bool
    subresources: _Subresources | None = None

    @property
    def scale(self) -> dict[str, str]:
        """Return the paths of the fields that the scale subresource shows, by what they are."""
        return (self.subresources.scale if self.subresources is not None else None) or {}


class _Names(msgspec.Struct):
    kind: str
    plural: str
    singular: str = ""
    listKind: str = ""


class _Spec(msgspec.Struct):
    group: str
    names: _Names
    scope: str
    versions: list[_Version]


class CustomDefinition(msgspec.Struct):
    """Hold what is needed of a CustomResourceDefinition."""

    metadata: dict[str, Any]
    spec: _Spec

    @property
    def kind(self) -> RehearsedKind:
        """Return the kind that it defines."""
        spec, names = self.spec, self.spec.names
        namespaced = spec.scope == "Namespaced"
        return RehearsedKind(
            spec.group, names.kind, names.plural, namespaced=namespaced, stored_as=f"{spec.group}/{names.plural}"
        )

    @property
    def served_version(self) -> str:
        """Return the version in which the objects are stored, or another if that is not served."""
        return min(self.spec.versions, key=lambda each: (not each.served, not each.storage)).name

    def established(self) -> JSON:
        """Return a definition that is in force at once, and takes every object as it is."""
        spec, kind = self.spec, self.spec.names.kind
        names = {
            "kind": kind,
            "plural": spec.names.plural,
            "singular": spec.names.singular or kind.lower(),
            "listKind": spec.names.listKind or f"{kind}List",
        }
        versions = [
            {
                "name": each.name,
                "served": each.served,
                "storage": each.storage,
                "schema": _ANYTHING,
                "subresources": {"scale": each.scale} if each.scale else {},
            }
            for each in spec.versions
        ]
        stored = [each.name for each in spec.versions if each.storage]
        return {
            "apiVersion": f"{CUSTOM_RESOURCE_DEFINITION.group}/v1",
            "kind": CUSTOM_RESOURCE_DEFINITION.kind,
            "metadata": self.metadata,
            "spec": {"group": spec.group, "scope": spec.scope, "names": names, "versions": versions},
            "status": {"acceptedNames": names, "storedVersions": stored, "conditions": _STATUS},
        }

    def scaled_part(self, value: JSON) -> JSON:
        """Return what the scale subresource shows of an object: the rest may be secret, and nobody reads it here."""
        part: JSON = {key: value[key] for key in ("apiVersion", "kind")}
        part["metadata"] = {key: each for key, each in value["metadata"].items() if key in _KEPT}
        for version in self.spec.versions:
            for path in version.scale.values():
                _copy(value, part, path.removeprefix(".").split("."))
        return part


def custom_owner_of(value: JSON) -> JSON | None:
    """Return the reference of a Pod to the custom resource that controls it, or None."""
    owner = controller_of(value) if value["kind"] == POD.kind else None
    return owner if owner is not None and group_kind_of(owner) not in BY_NAME else None


def definitions_of(objects: Iterable[JSON], wanted: Collection[GroupKind]) -> dict[GroupKind, CustomDefinition]:
    """Return the CustomResourceDefinitions among the objects that define a wanted kind, by group and kind."""
    found = {}
    for each in objects:
        if each["kind"] == CUSTOM_RESOURCE_DEFINITION.kind:
            try:
                definition = msgspec.convert(each, CustomDefinition)
            except msgspec.ValidationError:
                continue  # it is none that works
            key = definition.spec.group, definition.spec.names.kind
            if key in wanted and definition.spec.versions:
                found[key] = definition
    return found


def uncounted_budgets(objects: Iterable[JSON], kinds: Collection[GroupKind]) -> Iterator[str]:
    """Yield a sentence for each budget that needs the scale of an owner which no definition is here for."""
    owned = [(each["metadata"], owner) for each in objects if (owner := custom_owner_of(each)) is not None]
    pods = [(pod, owner["kind"]) for pod, owner in owned if group_kind_of(owner) not in kinds]
    for value in objects if pods else ():
        if value["kind"] == BUDGET:
            budget = budget_from(value)
            owners = {
                kind
                for pod, kind in pods
                if pod["namespace"] == value["metadata"]["namespace"] and budget.covers(pod.get("labels") or {})
            }
            if owners and not isinstance(budget.min_available, int):
                yield (
                    f"PodDisruptionBudget {budget.name}: it needs the scale of each {', '.join(sorted(owners))} that "
                    "it covers, whose CustomResourceDefinition is not here: it allows no eviction"
                )


def _copy(value: Any, part: JSON, path: list[str]) -> None:  # noqa: ANN401 - JSON
    """Copy the field at a path, if it is there."""
    for key in path[:-1]:
        value = value.get(key) if isinstance(value, dict) else None
        part = part.setdefault(key, {})
    if isinstance(value, dict) and path[-1] in value:
        part[path[-1]] = value[path[-1]]

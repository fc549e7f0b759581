"""Custom resources whose objects own Pods, such as CloneSets: of each as much as its scale subresource shows.

The disruption controller asks it how many Pods an owner wants: without, a budget in percent allows no eviction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cli.rehearse.inputs.resources import BY_NAME, CUSTOM_RESOURCE_DEFINITION, POD, RehearsedKind
from webhook.kube.disruption import KIND as BUDGET
from webhook.kube.disruption import budget_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from webhook.cli.rehearse.inputs.resources import JSON

GroupKind = tuple[str, str]


class _Version(msgspec.Struct):
    name: str
    served: bool
    storage: bool


class _Names(msgspec.Struct):
    kind: str
    plural: str


class _Definition(msgspec.Struct):
    """The fields of a CustomResourceDefinition that are needed."""

    group: str
    names: _Names
    scope: str
    versions: list[_Version]


_KEPT: Final = ("name", "namespace", "uid", "creationTimestamp")
_ANYTHING: Final = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
_STATUS: Final = [{"type": each, "status": "True"} for each in ("NamesAccepted", "Established")]


def controllers_of_pods(objects: Iterable[JSON]) -> set[GroupKind]:
    """Return group and kind of the custom resources that control Pods."""
    return {
        owner
        for each in objects
        if each["kind"] == POD.kind and (owner := _controller(each)) is not None and owner not in BY_NAME
    }


def custom_kinds(objects: Iterable[JSON], wanted: set[GroupKind]) -> dict[GroupKind, RehearsedKind]:
    """Return the wanted kinds that CustomResourceDefinitions among the objects define."""
    found = {}
    for each in objects:
        if (defined := defined_by(each)) is not None and defined in wanted:
            plural = each["spec"]["names"]["plural"]
            namespaced = each["spec"].get("scope") == "Namespaced"
            stored_as = f"{defined[0]}/{plural}"
            found[defined] = RehearsedKind(*defined, plural, namespaced=namespaced, stored_as=stored_as)
    return found


def defined_by(value: JSON) -> GroupKind | None:
    """Return the group and kind that a definition defines. Return None for others, and if it is none that works."""
    if value["kind"] != CUSTOM_RESOURCE_DEFINITION.kind:
        return None
    try:
        definition = msgspec.convert(value["spec"], _Definition)
    except (KeyError, msgspec.ValidationError):
        return None
    return (definition.group, definition.names.kind) if definition.versions else None


def served_version(definition: JSON) -> str:
    """Return the version in which the definition's objects are stored, or another if that is not served."""
    versions = sorted(definition["spec"]["versions"], key=lambda each: (not each["served"], not each["storage"]))
    return str(versions[0]["name"])


def established(definition: JSON) -> JSON:
    """Return a definition that is in force at once, and takes every object as it is."""
    spec = definition["spec"]
    versions = [
        {
            **{key: each[key] for key in ("name", "served", "storage")},
            "schema": _ANYTHING,
            "subresources": {"scale": scale} if (scale := _scale(each)) else {},
        }
        for each in spec["versions"]
    ]
    names = {"singular": spec["names"]["kind"].lower(), "listKind": f"{spec['names']['kind']}List", **spec["names"]}
    return {
        **definition,
        "spec": {"group": spec["group"], "scope": spec["scope"], "names": names, "versions": versions},
        "status": {
            "acceptedNames": names,
            "storedVersions": [each["name"] for each in versions if each["storage"]],
            "conditions": _STATUS,
        },
    }


def scaled_part(value: JSON, definition: JSON) -> JSON:
    """Return what the scale subresource shows of an object: the rest may be secret, and nobody reads it here."""
    part: JSON = {key: value[key] for key in ("apiVersion", "kind")}
    part["metadata"] = {key: each for key, each in value["metadata"].items() if key in _KEPT}
    for version in definition["spec"]["versions"]:
        for path in _scale(version).values():
            _copy(value, part, path.removeprefix(".").split("."))
    return part


def uncounted_budgets(objects: Iterable[JSON], kinds: Mapping[GroupKind, RehearsedKind]) -> Iterator[str]:
    """Yield a sentence for each budget that needs the scale of an owner which no definition is here for."""
    pods = [
        (each, owner)
        for each in objects
        if each["kind"] == POD.kind and (owner := _controller(each)) is not None and owner not in {*BY_NAME, *kinds}
    ]
    for value in objects if pods else ():
        if value["kind"] == BUDGET:
            budget = budget_from(value)
            owners = {
                owner[1]
                for pod, owner in pods
                if pod["metadata"]["namespace"] == value["metadata"]["namespace"]
                and budget.covers(pod["metadata"].get("labels") or {})
            }
            if owners and not isinstance(budget.min_available, int):
                yield (
                    f"PodDisruptionBudget {budget.name}: it needs the scale of each {', '.join(sorted(owners))} that "
                    "it covers, whose CustomResourceDefinition is not here: it allows no eviction"
                )


def _controller(pod: JSON) -> GroupKind | None:
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner.get("apiVersion", "").rpartition("/")[0], owner.get("kind", "")
    return None


def _scale(version: JSON) -> dict[str, str]:
    scale: dict[str, str] = (version.get("subresources") or {}).get("scale") or {}
    return scale


def _copy(value: Any, part: JSON, path: list[str]) -> None:  # noqa: ANN401 - JSON
    """Copy the field at a path, if it is there."""
    for key in path[:-1]:
        value = value.get(key) if isinstance(value, dict) else None
        part = part.setdefault(key, {})
    if isinstance(value, dict) and path[-1] in value:
        part[path[-1]] = value[path[-1]]

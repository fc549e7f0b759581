"""Take a snapshot of a live cluster: only lists, and no Secrets, ConfigMaps or values of environment variables."""

from __future__ import annotations

import dataclasses
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.provider import readers_by_resource
from webhook.cli.connection import connected
from webhook.cli.rehearse.inputs.changes import with_changes
from webhook.cli.rehearse.inputs.custom_resources import (
    controllers_of_pods,
    custom_kinds,
    scaled_part,
    served_version,
)
from webhook.cli.rehearse.inputs.nodes import size_of
from webhook.cli.rehearse.inputs.resources import (
    CUSTOM_RESOURCE_DEFINITION,
    KINDS,
    NAMESPACE,
    NODE,
    POD,
    manifest_of,
)
from webhook.cli.rehearse.inputs.snapshot import complete, sort_objects
from webhook.cluster.api import ApiError
from webhook.cluster.pages import pages
from webhook.cluster.resources import api_server_release
from webhook.manifests.state import view_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncIterator, Sequence

    from webhook.bundle import Bundle
    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.cli.rehearse.inputs.snapshot import ClusterSnapshot
    from webhook.cluster.api import Api
    from webhook.manifests.objects import Manifest

_ANSWER: Final = 30.0
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_ALIVE: Final = frozenset({"Pending", "Running"})
_NONE: Final = {"pods": "0"}
"""What a Node offers that has not yet said it."""

_ENVIRONMENT: Final = ("env", "envFrom", "command", "args")
"""Where containers have what may be secret, and nothing here runs."""


def live_snapshot(options: Namespace, changes: Sequence[Manifest], bundle: Bundle) -> ClusterSnapshot:
    """Return the cluster that the options name, with these changes. Raises CannotJudgeError."""
    version, objects, custom, pools, notes = connected("rehearse", options, lambda api: _read(api, bundle))
    for node in (each for each in objects if each["kind"] == NODE.kind):
        node["status"] = {**node.get("status", {}), "allocatable": node.get("status", {}).get("allocatable") or _NONE}
    running = [each for each in objects if each["kind"] != POD.kind or each["status"].get("phase") in _ALIVE]
    manifests = [manifest_of("the cluster", each) for each in [*pools, *running]]
    view = view_of(manifests, bundle.providers, complete=True, offline=False)
    told = [*pools, *(each for each in objects if each["kind"] == NAMESPACE.kind)]
    sorted_objects = sort_objects(manifests[len(pools) :], bundle)
    sorted_objects.custom.extend(custom)
    sorted_objects.notes.extend(notes)
    snapshot = dataclasses.replace(complete(sorted_objects, view.pools or (), told), version=version)
    stripped = [replace(each, value=without_environment(each.value)) for each in changes]
    return with_changes(snapshot, stripped, bundle, dict(options.allocatable), size=size_of)


def live_version(options: Namespace) -> str:
    """Return the version of the cluster that the options name, such as v1.31.4-gke.100. Raises CannotJudgeError."""
    return connected("rehearse", options, lambda api: api_server_release(api, _ANSWER))


async def _read(api: Api, bundle: Bundle) -> tuple[str, list[JSON], list[JSON], list[JSON], list[str]]:
    """Return version, objects, custom resources that control Pods, node pools, and what could not be read."""
    objects: list[JSON] = []
    notes: list[str] = []
    release = await api_server_release(api, _ANSWER)
    for kind in (each for each in KINDS if each is not CUSTOM_RESOURCE_DEFINITION):
        version = f"{kind.group}/v1" if kind.group else "v1"
        prefix = f"/apis/{version}" if kind.group else "/api/v1"
        try:
            objects += [
                {"apiVersion": version, "kind": kind.kind, **without_environment(each)}
                async for each in _list(api, f"{prefix}/{kind.plural}")
            ]
        except ApiError as error:
            if not (kind.optional and error.status == HTTPStatus.NOT_FOUND):
                if kind in {NODE, POD}:
                    raise
                notes.append(f"{kind.plural} can't be read, and are taken for none: {error}")
    controllers = controllers_of_pods(objects)
    definitions, custom = await _read_custom(api, controllers, notes) if controllers else ([], [])
    return release, [*objects, *definitions], custom, await _read_pools(api, bundle), notes


async def _read_custom(api: Api, controllers: set[tuple[str, str]], notes: list[str]) -> tuple[list[JSON], list[JSON]]:
    """Return the definitions of custom resources that control Pods, and these. Note what can't be read."""
    definitions: list[JSON] = []
    custom: list[JSON] = []
    version = f"{CUSTOM_RESOURCE_DEFINITION.group}/v1"
    try:
        async for each in _list(api, f"/apis/{version}/{CUSTOM_RESOURCE_DEFINITION.plural}"):
            definition = {"apiVersion": version, "kind": CUSTOM_RESOURCE_DEFINITION.kind, **each}
            if custom_kinds([definition], controllers):
                definitions.append(definition)
        for kind, definition in zip(custom_kinds(definitions, controllers).values(), definitions, strict=True):
            served = f"{kind.group}/{served_version(definition)}"
            custom += [
                scaled_part({"apiVersion": served, "kind": kind.kind, **each}, definition)
                async for each in _list(api, f"/apis/{served}/{kind.plural}")
            ]
    except ApiError as error:
        notes.append(f"custom resources that control Pods can't all be read: {error}")
    return definitions, custom


async def _read_pools(api: Api, bundle: Bundle) -> list[JSON]:
    pools: list[JSON] = []
    for (group, resource), readers in readers_by_resource(bundle.providers.values()).items():
        for version in readers.any.versions:
            try:
                pools += [
                    {"apiVersion": f"{group}/{version}", "kind": readers.any.kind, **each}
                    async for each in _list(api, f"/apis/{group}/{version}/{resource}")
                ]
                break
            except ApiError:
                continue  # most clusters have one kind of node pools
    return pools


async def _list(api: Api, path: str) -> AsyncIterator[JSON]:
    async for page in pages(lambda each: api.read(each, _ANSWER), path):
        for item in page.items:
            yield msgspec.json.decode(item)


def without_environment(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the object without what its containers are told, which may be secret; Pods and templates alike."""
    if isinstance(value, dict):
        return {
            key: [_without(each) for each in item]
            if key in {"containers", "initContainers", "ephemeralContainers"} and isinstance(item, list)
            else without_environment(item)
            for key, item in value.items()
            if key not in {"managedFields", _LAST_APPLIED}
        }
    return [without_environment(each) for each in value] if isinstance(value, list) else value


def _without(container: JSON) -> JSON:
    return {key: each for key, each in container.items() if key not in _ENVIRONMENT}

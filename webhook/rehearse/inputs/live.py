"""Read a live cluster: no Secrets, ConfigMaps or values of environment variables."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.provider import readers_by_resource
from webhook.cluster.api import ApiError
from webhook.cluster.connection import run_on_cluster
from webhook.cluster.resources import api_server_release
from webhook.cluster.source import pages
from webhook.rehearse.inputs.resources import KINDS, NODE, POD, RehearsedKind, manifest_of
from webhook.rehearse.inputs.source import ClusterSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from webhook.cluster.api import Api
    from webhook.cluster.connection import Connection
    from webhook.engine.bundle import Bundle
    from webhook.offline.manifests.objects import Manifest
    from webhook.rehearse.inputs.resources import JSON

_ANSWER: Final = 30.0
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_ALIVE: Final = frozenset({"Pending", "Running"})
_NONE: Final = {"pods": "0"}
"""What a Node offers that has not yet said it."""

_ENVIRONMENT: Final = ("env", "envFrom", "command", "args")
"""Where containers have what may be secret, and nothing here runs."""


def live_source(connection: Connection, changes: Iterable[Manifest], bundle: Bundle) -> ClusterSource:
    """Return the cluster of the connection, with these changes. Raise CannotJudgeError."""
    source = run_on_cluster("rehearse", connection, lambda api: _read(api, bundle))
    return source.with_changes(replace(each, value=without_environment(each.value)) for each in changes)


def live_version(connection: Connection) -> str:
    """Return the version of the cluster of the connection, such as v1.31.4-gke.100. Raise CannotJudgeError."""
    return run_on_cluster("rehearse", connection, lambda api: api_server_release(api, _ANSWER))


async def _read(api: Api, bundle: Bundle) -> ClusterSource:
    release = await api_server_release(api, _ANSWER)
    objects: list[JSON] = []
    notes: list[str] = []
    for kind in KINDS:
        try:
            values = [without_environment(value) async for value in _list(api, kind)]
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:  # older clusters have no devices
                if kind in {NODE, POD}:
                    raise
                notes.append(f"{kind.plural} can't be read, and are taken for none: {error}")
            continue
        objects += [value for value in values if kind is not POD or value["status"].get("phase") in _ALIVE]
    for node in (each for each in objects if each["kind"] == NODE.kind):
        node["status"] = {**node.get("status", {}), "allocatable": node.get("status", {}).get("allocatable") or _NONE}
    objects += [each async for each in _pools(api, bundle)]
    manifests = [manifest_of("the cluster", each) for each in objects]
    return ClusterSource(manifests=manifests, live=True, notes=notes, version=release)


async def _pools(api: Api, bundle: Bundle) -> AsyncIterator[JSON]:
    for (group, resource), readers in readers_by_resource(bundle.providers.values()).items():
        for version in readers.any.versions:
            try:
                for each in [
                    each async for each in _list(api, RehearsedKind(group, readers.any.kind, resource), version)
                ]:
                    yield each
                break
            except ApiError:
                continue  # most clusters have one kind of node pools


async def _list(api: Api, kind: RehearsedKind, version: str = "v1") -> AsyncIterator[JSON]:
    """Yield the objects of a kind. Raise ApiError."""
    api_version = f"{kind.group}/{version}" if kind.group else version
    path = f"/apis/{api_version}/{kind.plural}" if kind.group else f"/api/{api_version}/{kind.plural}"
    async for page in pages(lambda each: api.read(each, _ANSWER), path):
        for item in page.items:
            yield {"apiVersion": api_version, "kind": kind.kind, **msgspec.json.decode(item)}


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

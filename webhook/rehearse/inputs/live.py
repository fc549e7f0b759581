"""Read a live cluster, without Secrets, ConfigMaps, or values of environment variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.provider import readers_by_resource
from webhook.cluster.api import Api, ApiError
from webhook.cluster.connection import Connection, run_on_cluster
from webhook.cluster.resources import api_server_release
from webhook.cluster.source import ListedMetadata, WatchedResource
from webhook.rehearse.inputs.resources import JSON, KINDS, NODE, POD, manifest_of
from webhook.rehearse.inputs.source import ClusterSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.engine.bundle import Bundle
    from webhook.inputs.objects import Manifest

_TIMEOUT: Final = 30.0
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_ALIVE: Final = frozenset({"Pending", "Running"})
_NONE: Final = {"pods": "0"}
"""The allocatable resources of a Node that hasn't reported any yet."""

_ENVIRONMENT: Final = ("env", "envFrom", "command", "args")
"""The container fields that may contain secrets; a rehearsal runs no containers."""


def live_source(connection: Connection, changes: Iterable[Manifest], bundle: Bundle) -> ClusterSource:
    """Return the live cluster with these changes. Raise CannotJudgeError."""
    source = run_on_cluster("rehearse", connection, lambda api: _read(api, bundle))
    return source.with_changes(replace(change, value=without_environment(change.value)) for change in changes)


def live_version(connection: Connection) -> str:
    """Return the version of the live cluster, such as v1.31.4-gke.100. Raise CannotJudgeError."""
    return run_on_cluster("rehearse", connection, lambda api: api_server_release(api, _TIMEOUT))


async def _read(api: Api, bundle: Bundle) -> ClusterSource:
    readers = readers_by_resource(bundle.providers.values())
    sources: list[tuple[str, str, str, tuple[str, ...]]] = [
        *((kind.group, kind.kind, kind.plural, ("v1",)) for kind in KINDS),
        *((group, reader.any.kind, plural, reader.any.versions) for (group, plural), reader in readers.items()),
    ]
    manifests: list[Manifest] = []
    notes: list[str] = []
    for group, kind, plural, versions in sources:
        source = WatchedResource(group=group, versions=versions, resource=plural, read=_decoded, optional=True)
        try:
            listing = await source.list(api, _TIMEOUT)
        except ApiError as error:
            if kind in {NODE.kind, POD.kind}:
                raise
            notes.append(f"{plural} can't be read, so the rehearsal runs without them: {error}")
            continue
        if listing is not None:  # older clusters lack resource.k8s.io, and most have one kind of node pool
            api_version = f"{group}/{listing.version}" if group else listing.version
            for value in listing.items.values():
                if kind == NODE.kind:
                    value["status"].setdefault("allocatable", _NONE)
                if kind != POD.kind or value["status"].get("phase") in _ALIVE:
                    manifests.append(manifest_of("the cluster", {"apiVersion": api_version, "kind": kind, **value}))
    return ClusterSource(manifests=manifests, live=True, notes=notes, version=await api_server_release(api, _TIMEOUT))


def _decoded(_: ListedMetadata, raw: msgspec.Raw) -> JSON:
    value: JSON = without_environment(msgspec.json.decode(raw))
    return value


def without_environment(value: Any) -> Any:
    """Return the Pod or workload without the environment, command, and arguments of its containers."""
    if isinstance(value, dict):
        return {
            key: [{name: part for name, part in container.items() if name not in _ENVIRONMENT} for container in item]
            if key in {"containers", "initContainers", "ephemeralContainers"} and isinstance(item, list)
            else without_environment(item)
            for key, item in value.items()
            if key not in {"managedFields", _LAST_APPLIED}
        }
    return [without_environment(item) for item in value] if isinstance(value, list) else value

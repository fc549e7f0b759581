"""Take a snapshot of a live cluster: only lists, and no Secrets, ConfigMaps or values of environment variables."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.capacity.providers.provider import readers_by_resource
from webhook.cli.connection import connected
from webhook.cli.rehearse.inputs.nodes import running_node
from webhook.cli.rehearse.inputs.resources import KINDS, NAMESPACE, NODE, POD
from webhook.cli.rehearse.inputs.snapshot import as_stored, complete
from webhook.cluster.api import ApiError
from webhook.cluster.pages import pages
from webhook.cluster.resources import api_server_version
from webhook.cluster.view import version_of
from webhook.controlplane.binaries import KUBERNETES
from webhook.documents import Document
from webhook.manifests.objects import Manifest
from webhook.manifests.state import view_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncIterator, Sequence

    from webhook.bundle import Bundle
    from webhook.cli.rehearse.inputs.resources import JSON, RehearsedKind
    from webhook.cli.rehearse.inputs.snapshot import ClusterSnapshot
    from webhook.cluster.api import Api

_ANSWER: Final = 30.0
_BUILT_IN_CLASSES: Final = frozenset({"system-cluster-critical", "system-node-critical"})
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_ENVIRONMENT: Final = ("env", "envFrom", "command", "args")
"""Where containers have what may be secret, and nothing here runs."""


def live_snapshot(options: Namespace, changes: Sequence[Manifest], bundle: Bundle) -> ClusterSnapshot:
    """Return the cluster that the options name, with these changes. Raises CannotJudgeError."""
    objects, pools, notes = connected("rehearse", options, lambda api: _read(api, bundle))
    stored: list[JSON] = []
    for value in objects:
        if value["kind"] == NODE.kind:
            stored.append(running_node(value, value["status"].get("allocatable", {})))
        elif value["kind"] != POD.kind or value["status"].get("phase") in {"Pending", "Running"}:
            stored.append(as_stored(value))
    view = view_of(map(_manifest, [*pools, *objects]), bundle.providers, complete=True, offline=False)
    snapshot = complete(stored, [], [], view.pools or (), [*pools, *_namespaces(objects)], notes)
    return snapshot.with_changes(each.value for each in changes) if changes else snapshot


async def _read(api: Api, bundle: Bundle) -> tuple[list[JSON], list[JSON], list[str]]:
    """Return the objects, the node pools, and what could not be read."""
    objects: list[JSON] = []
    notes: list[str] = []
    there = await api_server_version(api, _ANSWER)
    if there is not None and there != version_of(KUBERNETES.version):
        notes.append(f"Kubernetes {there[0]}.{there[1]}, which the cluster has: this is {KUBERNETES.version}")
    for kind in KINDS:
        version = f"{kind.group}/v1" if kind.group else "v1"
        prefix = f"/apis/{version}" if kind.group else "/api/v1"
        try:
            objects += [
                {"apiVersion": version, "kind": kind.kind, **without_environment(each)}
                async for each in _list(api, f"{prefix}/{kind.plural}")
                if not _is_the_api_servers(kind, each)
            ]
        except ApiError as error:
            if not (kind.optional and error.status == HTTPStatus.NOT_FOUND):
                if kind in {NODE, POD}:
                    raise
                notes.append(f"{kind.plural} can't be read, and are taken for none: {error}")
    return objects, await _read_pools(api, bundle), notes


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


def _is_the_api_servers(kind: RehearsedKind, value: JSON) -> bool:
    """Return whether an API server makes the object itself."""
    return kind.kind == "PriorityClass" and value["metadata"]["name"] in _BUILT_IN_CLASSES


def _namespaces(objects: Sequence[JSON]) -> list[JSON]:
    return [each for each in objects if each["kind"] == NAMESPACE.kind]


def _manifest(value: JSON) -> Manifest:
    return Manifest(
        Document(file="the cluster", line=0, value=None, source=""), (), value["apiVersion"], value["kind"], value
    )

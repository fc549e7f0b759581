"""Read a live cluster: only lists, and no Secrets, ConfigMaps or values of environment variables."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from webhook.capacity.providers.provider import readers_by_resource
from webhook.cli.connection import connected
from webhook.cli.rehearse.inputs.custom_resources import custom_owner_of, definitions_of
from webhook.cli.rehearse.inputs.nodes import size_of
from webhook.cli.rehearse.inputs.resources import (
    CUSTOM_RESOURCE_DEFINITION,
    KINDS,
    NODE,
    POD,
    RehearsedKind,
    group_kind_of,
    manifest_of,
)
from webhook.cli.rehearse.inputs.source import ClusterSource
from webhook.cluster.api import ApiError
from webhook.cluster.resources import api_server_release
from webhook.cluster.source import pages

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import AsyncIterator, Iterable, Sequence

    from webhook.bundle import Bundle
    from webhook.cli.rehearse.inputs.resources import JSON
    from webhook.cluster.api import Api
    from webhook.manifests.objects import Manifest

_ANSWER: Final = 30.0
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_ALIVE: Final = frozenset({"Pending", "Running"})
_NONE: Final = {"pods": "0"}
"""What a Node offers that has not yet said it."""

_ENVIRONMENT: Final = ("env", "envFrom", "command", "args")
"""Where containers have what may be secret, and nothing here runs."""


def live_source(options: Namespace, changes: Iterable[Manifest], bundle: Bundle) -> ClusterSource:
    """Return the cluster that the options name, with these changes. Raise CannotJudgeError."""
    source = connected("rehearse", options, lambda api: _read(api, bundle))
    return source.with_changes((replace(each, value=without_environment(each.value)) for each in changes), size_of)


def live_version(options: Namespace) -> str:
    """Return the version of the cluster that the options name, such as v1.31.4-gke.100. Raise CannotJudgeError."""
    return connected("rehearse", options, lambda api: api_server_release(api, _ANSWER))


async def _read(api: Api, bundle: Bundle) -> ClusterSource:
    release = await api_server_release(api, _ANSWER)
    objects: list[JSON] = []
    notes: list[str] = []
    for kind in (each for each in KINDS if each is not CUSTOM_RESOURCE_DEFINITION):
        try:
            objects += [without_environment(each) async for each in _list(api, kind) if _is_rehearsed(each)]
        except ApiError as error:
            if not (kind.optional and error.status == HTTPStatus.NOT_FOUND):
                if kind in {NODE, POD}:
                    raise
                notes.append(f"{kind.plural} can't be read, and are taken for none: {error}")
    for node in (each for each in objects if each["kind"] == NODE.kind):
        node["status"] = {**node.get("status", {}), "allocatable": node.get("status", {}).get("allocatable") or _NONE}
    if owners := [owner for each in objects if (owner := custom_owner_of(each)) is not None]:
        try:
            objects += [each async for each in _custom(api, owners)]
        except ApiError as error:
            notes.append(f"custom resources that control Pods can't all be read: {error}")
    objects += [each async for each in _pools(api, bundle)]
    manifests = [manifest_of("the cluster", each) for each in objects]
    return ClusterSource(manifests=manifests, live=True, notes=notes, version=release)


def _is_rehearsed(value: JSON) -> bool:
    return value["kind"] != POD.kind or value["status"].get("phase") in _ALIVE


async def _custom(api: Api, owners: Sequence[JSON]) -> AsyncIterator[JSON]:
    """Yield the custom resources that own Pods, behind their definitions. Raise ApiError."""
    wanted, uids = {group_kind_of(each) for each in owners}, {each["uid"] for each in owners}
    definitions = definitions_of([each async for each in _list(api, CUSTOM_RESOURCE_DEFINITION)], wanted)
    for each in definitions.values():
        yield each.established()
        async for value in _list(api, each.kind, each.served_version):
            if value["metadata"]["uid"] in uids:
                yield each.scaled_part(value)


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

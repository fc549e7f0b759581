"""Read and write the objects of an installation: webhook configurations, and the Secret with the certificates."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.cluster.api import Api

CONFIGURATION: Final = "spotgate"
"""The name of both webhook configurations, as `spotgate webhook-config` renders them."""

CONFIGURATIONS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")

SERVING: Final = "serving."
"""The prefix of the Secret's keys for replicas. Each value identifies the CA of the replica's certificate."""

_FIELD_MANAGER: Final = "spotgate-certificates"
"""The field manager that owns only the caBundles, so that `kubectl apply` keeps them."""

_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"

_API_VERSION: Final = "admissionregistration.k8s.io/v1"


class CaBundles(msgspec.Struct, frozen=True):
    """The caBundles of one configuration.

    Attributes:
        kind: the kind of the configuration.
        resource_version: the version that was read. A write fails if the configuration has changed since.
        by_webhook: the PEM of each webhook, by name; empty if a webhook has no caBundle.
        hosts: the host names that the API server calls, such as `spotgate.spotgate-system.svc`.
    """

    kind: str
    resource_version: str
    by_webhook: Mapping[str, bytes]
    hosts: frozenset[str] = frozenset()


class Secret(msgspec.Struct, frozen=True):
    """The data and the resource version of a Secret. Both are empty if the Secret doesn't exist."""

    resource_version: str
    data: Mapping[str, bytes]


def _path(kind: str) -> str:
    return f"/apis/{_API_VERSION}/{kind.lower()}s/{CONFIGURATION}"


async def read_ca_bundles(api: Api, seconds: float, *, newest: bool = True) -> list[CaBundles]:
    """Return the caBundles of spotgate's existing configurations. Raise `ApiError` if they can't be read.

    With ``newest``, read from etcd; otherwise, from the API server's watch cache.
    """
    configurations: list[CaBundles] = []
    for kind in CONFIGURATIONS:
        read = await api.find(_path(kind) + ("" if newest else "?resourceVersion=0"), dict, seconds)
        if read is None:
            continue
        clients = {webhook["name"]: webhook["clientConfig"] for webhook in read.get("webhooks", ())}
        by_webhook = {name: b64decode(client.get("caBundle", "")) for name, client in clients.items()}
        services = [client["service"] for client in clients.values() if "service" in client]
        hosts = frozenset(f"{service['name']}.{service['namespace']}.svc" for service in services)
        configurations.append(CaBundles(kind, read["metadata"].get("resourceVersion", ""), by_webhook, hosts))
    return configurations


async def read_webhooks(api: Api, seconds: float) -> dict[str, list[dict[str, Any]]]:
    """Return the webhooks of spotgate's existing configurations, by kind. Raise `ApiError` on failure."""
    stored = {kind: await api.find(f"{_path(kind)}?resourceVersion=0", dict, seconds) for kind in CONFIGURATIONS}
    return {kind: configuration.get("webhooks", []) for kind, configuration in stored.items() if configuration}


async def ca_bundles(api: Api, seconds: float) -> dict[str, bytes]:
    """Return the caBundle of each active webhook that has one. Raise `ApiError` on failure."""
    return {
        name: bundle
        for configuration in await read_ca_bundles(api, seconds, newest=False)
        for name, bundle in configuration.by_webhook.items()
        if bundle
    }


async def write_ca_bundles(api: Api, bundles: CaBundles, seconds: float) -> None:
    """Write these caBundles into their configuration, unless the configuration has changed since the read.

    Raise ApiError if it has changed (status 409) or the write fails.
    """
    body = {
        "apiVersion": _API_VERSION,
        "kind": bundles.kind,
        "metadata": {"name": CONFIGURATION, "resourceVersion": bundles.resource_version},
        "webhooks": [
            {"name": name, "clientConfig": {"caBundle": _base64(bundle)}} for name, bundle in bundles.by_webhook.items()
        ],
    }
    await api.write("PATCH", f"{_path(bundles.kind)}?fieldManager={_FIELD_MANAGER}&force=true", body, seconds, _APPLY)


async def read_secret(api: Api, namespace: str, name: str, seconds: float) -> Secret:
    """Return a Secret, which is empty if it doesn't exist. Raise `ApiError` if it can't be read."""
    read = await api.find(f"/api/v1/namespaces/{namespace}/secrets/{name}", dict, seconds)
    if read is None:
        return Secret("", {})
    data = {key: b64decode(value) for key, value in (read.get("data") or {}).items()}
    return Secret(read["metadata"]["resourceVersion"], data)


async def write_secret(
    api: Api,
    namespace: str,
    name: str,
    data: Mapping[str, bytes | None],
    seconds: float,
    resource_version: str | None = None,
) -> None:
    """Merge entries into a Secret. An entry of None is removed.

    With a ``resource_version``, write only if the Secret still has this version. If it is empty, create the Secret; if
    it is None, write unconditionally. Raise ApiError if the Secret has changed (status 409) or the write fails.
    """
    path = f"/api/v1/namespaces/{namespace}/secrets"
    entries = {key: None if value is None else _base64(value) for key, value in data.items()}
    body: dict[str, Any] = {"data": entries}
    if resource_version == "":
        body |= {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
        await api.write("POST", path, body, seconds)
        return
    if resource_version is not None:
        body["metadata"] = {"resourceVersion": resource_version}
    await api.write("PATCH", f"{path}/{name}", body, seconds, _MERGE)


def _base64(content: bytes) -> str:
    return b64encode(content).decode()
